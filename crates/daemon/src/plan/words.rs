//! Explanation of the chosen placement.

use sluice_engine::placement::{Load, Part, RatedPlacement, SIBLINGS, list};

use super::Facts;

/// Reasons for the placement: the rate, the bottleneck, and a comparison with alternative placements.
pub fn reasons(facts: &Facts, ranked: &[RatedPlacement], chosen: &RatedPlacement) -> Vec<String> {
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

fn carries(facts: &Facts, chosen: &RatedPlacement) -> String {
    let bits = chosen.rate() * facts.measured.bytes * 8.0 / 1e9;
    format!(
        "{} processes {:.2} million packets per second, which is {bits:.1} Gb/s of this traffic",
        chosen.placement,
        chosen.rate() / 1e6,
    )
}

fn limit(chosen: &RatedPlacement) -> String {
    let Some(worker) = chosen.prediction.bottleneck() else {
        return String::new();
    };
    let own: Vec<_> = worker.parts.iter().filter(|cycles| **cycles > 0.0).collect();
    let handed = match (worker.given + worker.taken + worker.returned) * worker.slowdown {
        cycles if cycles < 0.5 => String::new(),
        cycles => format!(", of which {cycles:.0} cycles are hand-overs"),
    };
    let most = match own.len() {
        1 => "all its cycles are spent on",
        _ => "most of its cycles are spent on",
    };
    format!(
        "core {} is the bottleneck, with {:.0} cycles per received packet{handed}; {most} {}",
        worker.core,
        worker.cycles(),
        worker.most().name(),
    )
}

/// The best placement of the model that was not chosen: pipeline or run-to-completion.
fn alternative(ranked: &[RatedPlacement], chosen: &RatedPlacement) -> Option<String> {
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
        d if d < 1.0 => "about the same, with a more complex placement".into(),
        d => format!("{d:.0} % more, too little to justify a more complex placement"),
    };
    Some(format!(
        "{kind}, {}, would process {:.2} million packets per second, {compared}: its bottleneck, core {}, needs {:.0} \
         cycles per packet, most of them for {}",
        other.placement,
        other.rate() / 1e6,
        worker.core,
        worker.cycles(),
        worker.most().name(),
    ))
}

fn queues(facts: &Facts, chosen: &RatedPlacement) -> Option<String> {
    let (queues, workers) = (usize::from(facts.load.queues), facts.cores.len());
    let few = match queues {
        1 => "one queue".to_owned(),
        _ => format!("{queues} queues"),
    };
    let moved = match chosen.placement.is_pipeline() {
        true => "therefore stages hand packets to the other cores",
        false => "workers with a queue hand packets to the workers without a queue",
    };
    (queues < workers && chosen.placement.workers().len() > 1)
        .then(|| format!("a device has {few} for {workers} cores: {moved}"))
}

fn elephant(facts: &Facts) -> Option<String> {
    let (busiest, even) = (facts.load.busiest, 1.0 / f64::from(facts.load.shards));
    (busiest > 2.0 * even && facts.cores.len() > 1).then(|| {
        format!(
            "one of {} shards has {:.0} % of the packets, and one worker processes them: further workers for sessions \
             do not speed up this shard",
            facts.load.shards,
            100.0 * busiest
        )
    })
}

/// A sentence which states that shards can't be distributed evenly among the session workers. `None` if an even
/// distribution is possible.
pub fn uneven(load: &Load, chosen: &RatedPlacement) -> Option<String> {
    let workers = chosen.placement.of(Part::Session).len();
    let even = Load { busiest: 0.0, ..*load };
    let most = even.shares(workers).into_iter().fold(0.0, f64::max) * workers as f64;
    (most > 1.1).then(|| {
        format!(
            "{} shards can't be distributed evenly to {workers} workers: the busiest worker has {:.0} % more than an \
             even share; raise `shards` if the pools allow more shards",
            load.shards,
            100.0 * (most - 1.0)
        )
    })
}

fn hyperthreads(facts: &Facts, chosen: &RatedPlacement) -> Option<String> {
    let slowed = chosen.prediction.workers.iter().filter(|worker| worker.slowdown > 1.0);
    let cores: Vec<_> = slowed.map(|worker| worker.core).collect();
    if !cores.is_empty() {
        let cores = list(&cores);
        return Some(format!(
            "cores {cores} are hyperthreads of the same physical cores, so their work takes {SIBLINGS} times as long"
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
            "cores {} stay unused, because they are hyperthreads of cores in use",
            list(&left)
        )
    })
}

fn idle(facts: &Facts, chosen: &RatedPlacement) -> Option<String> {
    let used = chosen.placement.workers();
    let left: Vec<_> = facts
        .cores
        .iter()
        .copied()
        .filter(|core| !used.contains(core))
        .collect();
    let siblings = |core| used.iter().any(|&other| facts.topology.are_siblings(core, other));
    (!left.is_empty() && !left.iter().any(|&core| siblings(core))).then(|| {
        format!(
            "further cores would not increase the throughput: {} stay unused",
            list(&left)
        )
    })
}

fn dropped(facts: &Facts) -> Option<String> {
    let measured = &facts.measured;
    (measured.forwarded < 0.9).then(|| {
        let why = measured.dropped_for.map_or(String::new(), |reason| {
            format!(", and most of the other packets are dropped for {reason}")
        });
        format!(
            "only {:.0} % of the measured packets are forwarded{why}: the prediction applies to such traffic",
            100.0 * measured.forwarded
        )
    })
}
