//! Explanation of the chosen placement.

use sluice_engine::placement::{Load, Part, Planned, SIBLINGS, list};

use super::Facts;

/// Reasons for the placement: the rate, the bottleneck, and a comparison with alternative placements.
pub fn reasons(facts: &Facts, ranked: &[Planned], chosen: &Planned) -> Vec<String> {
    let mut reasons = vec![carries(facts, chosen), limit(chosen)];
    reasons.extend(alternative(ranked, chosen));
    reasons.extend(queues(facts, chosen));
    reasons.extend(elephant(facts));
    reasons.extend(uneven(&facts.load, chosen));
    reasons.extend(hyperthreads(facts, chosen));
    reasons.extend(idle(facts, chosen));
    reasons.extend(dropped(facts));
    reasons
}

fn carries(facts: &Facts, chosen: &Planned) -> String {
    let bits = chosen.rate() * facts.measured.bytes * 8.0 / 1e9;
    format!(
        "{} carries {:.2} million packets a second, {bits:.1} Gb/s of this traffic",
        chosen.placement,
        chosen.rate() / 1e6,
    )
}

fn limit(chosen: &Planned) -> String {
    let Some(worker) = chosen.prediction.bottleneck() else {
        return String::new();
    };
    let own: Vec<_> = worker.parts.iter().filter(|cycles| **cycles > 0.0).collect();
    let handed = match (worker.given + worker.taken + worker.returned) * worker.slowdown {
        cycles if cycles < 0.5 => String::new(),
        cycles => format!(", {cycles:.0} of them for hand-overs"),
    };
    let most = match own.len() {
        1 => "all its work is",
        _ => "most of its work is",
    };
    format!(
        "core {} is the limit: {:.0} cycles for each packet that comes{handed}; {most} {}",
        worker.core,
        worker.cycles(),
        worker.most().name(),
    )
}

/// The best placement of the model that was not chosen: pipeline or run-to-completion.
fn alternative(ranked: &[Planned], chosen: &Planned) -> Option<String> {
    let is_pipeline = chosen.placement.is_pipeline();
    let other = ranked
        .iter()
        .find(|planned| planned.placement.is_pipeline() != is_pipeline)?;
    let kind = if is_pipeline {
        "without stages"
    } else {
        "the best pipeline"
    };
    let worker = other.prediction.bottleneck()?;
    let difference = 100.0 * (other.rate() / chosen.rate() - 1.0);
    let compared = match difference {
        d if d <= -1.0 => format!("{:.0} % less", -d),
        d if d < 1.0 => "as much, and is less simple".into(),
        d => format!("{d:.0} % more, too little to be less simple for"),
    };
    Some(format!(
        "{kind}, {}, would carry {:.2} million, {compared}: core {} has {:.0} cycles a packet, most for {}",
        other.placement,
        other.rate() / 1e6,
        worker.core,
        worker.cycles(),
        worker.most().name(),
    ))
}

fn queues(facts: &Facts, chosen: &Planned) -> Option<String> {
    let (queues, workers) = (usize::from(facts.load.queues), facts.cores.len());
    let few = match queues {
        1 => "one queue".to_owned(),
        _ => format!("{queues} queues"),
    };
    let moved = match chosen.placement.is_pipeline() {
        true => "stages hand packets on instead",
        false => "the workers without one are given their packets by the others",
    };
    (queues < workers && chosen.placement.workers().len() > 1)
        .then(|| format!("a device has {few} for {workers} cores: {moved}"))
}

fn elephant(facts: &Facts) -> Option<String> {
    let (busiest, even) = (facts.load.busiest, 1.0 / f64::from(facts.load.shards));
    (busiest > 2.0 * even && facts.cores.len() > 1).then(|| {
        format!(
            "one shard of {} has {:.0} % of the packets: more workers for sessions help no further than its own",
            facts.load.shards,
            100.0 * busiest
        )
    })
}

/// States that shards can't be distributed evenly to the session workers. `None` if an even distribution is possible.
pub fn uneven(load: &Load, chosen: &Planned) -> Option<String> {
    let workers = chosen.placement.of(Part::Session).len();
    let even = Load { busiest: 0.0, ..*load };
    let most = even.shares(workers).into_iter().fold(0.0, f64::max) * workers as f64;
    (most > 1.1).then(|| {
        format!(
            "{} shards are not shared out evenly among {workers} workers, the fullest has {:.0} % more than its part: more \
             `shards`, where the pools allow them, help",
            load.shards,
            100.0 * (most - 1.0)
        )
    })
}

fn hyperthreads(facts: &Facts, chosen: &Planned) -> Option<String> {
    let slowed = chosen.prediction.workers.iter().filter(|worker| worker.slowdown > 1.0);
    let cores: Vec<_> = slowed.map(|worker| worker.core).collect();
    if !cores.is_empty() {
        let cores = list(&cores);
        return Some(format!(
            "cores {cores} are hyperthreads in use with their siblings: what they do takes {SIBLINGS} times as long"
        ));
    }
    let used = chosen.placement.workers();
    let left =
        facts.cores.iter().copied().filter(|&core| {
            !used.contains(&core) && used.iter().any(|&other| facts.topology.are_siblings(core, other))
        });
    let left: Vec<_> = left.collect();
    (!left.is_empty()).then(|| {
        format!(
            "cores {} are left free: they are hyperthreads of cores in use",
            list(&left)
        )
    })
}

fn idle(facts: &Facts, chosen: &Planned) -> Option<String> {
    let used = chosen.placement.workers();
    let left: Vec<_> = facts
        .cores
        .iter()
        .copied()
        .filter(|core| !used.contains(core))
        .collect();
    let siblings = |core| used.iter().any(|&other| facts.topology.are_siblings(core, other));
    (!left.is_empty() && !left.iter().any(|&core| siblings(core)))
        .then(|| format!("more than these cores would carry no more: {} left free", list(&left)))
}

fn dropped(facts: &Facts) -> Option<String> {
    let measured = &facts.measured;
    (measured.forwarded < 0.9).then(|| {
        let why = measured
            .dropped_for
            .map_or(String::new(), |reason| format!(", most of the others for {reason}"));
        format!(
            "only {:.0} % of the packets measured leave again{why}: what is predicted is for such traffic",
            100.0 * measured.forwarded
        )
    })
}
