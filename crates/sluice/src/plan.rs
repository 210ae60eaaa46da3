//! `sluice plan`: measures the costs of a configuration on this machine, and finds the best assignment to cores.

use std::io::Write;
use std::path::Path;

use sluice_daemon::plan::{
    self as planner, Candidate, CoreRequirement, Plan, PlanRequest, Seen, SeenInterface, TrafficOrigin,
};
use sluice_daemon::{DaemonError, load_for_replay};

use crate::arguments;
use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;
use crate::live;

use Align::{Left, Right};

/// Measure the costs. Print the costs with the candidates, the choice and its reasons.
///
/// # Errors
/// The configuration is invalid, a capture can't be read, no live traffic arrives, or the measurement fails.
pub fn plan(socket: &Path, arguments: &arguments::Plan, output: &mut dyn Write) -> Result<(), CommandError> {
    let loaded = load_for_replay(&arguments.config)?;
    let config = &loaded.checked.config;
    let failed = |error| DaemonError::Plan(Box::new(error));
    let live = match arguments.live {
        None => None,
        Some(time) => {
            if let Some(demand) = &arguments.demand {
                planner::one_traffic("--live", demand).map_err(failed)?;
            }
            Some(live::live(socket, config, time)?)
        }
    };
    let files = arguments.inputs.iter();
    let request = PlanRequest {
        inputs: files.map(|file| (file.interface.clone(), file.path.clone())).collect(),
        live,
        cores: arguments.cores.as_ref().map(|cores| cores.0.clone()),
        demand: arguments.demand.clone(),
    };
    let plan = planner::plan(config, &request).map_err(failed)?;
    if arguments.json {
        serde_json::to_writer_pretty(&mut *output, &plan).map_err(std::io::Error::from)?;
        writeln!(output)?;
        return Ok(());
    }
    costs(&plan, output)?;
    candidates(&plan, usize::from(arguments.candidates), output)?;
    writeln!(output, "\nChoice: {}", plan.choice.placement)?;
    for reason in &plan.reasons {
        writeln!(output, "  {reason}.")?;
    }
    match &plan.answer {
        Some(found) => answer(found, &plan, output),
        None => Ok(()),
    }
}

fn costs(plan: &Plan, output: &mut dyn Write) -> Result<(), CommandError> {
    let traffic = &plan.traffic;
    writeln!(
        output,
        "Traffic: {}, {:.0} bytes per frame, {} sessions",
        traffic.name,
        traffic.bytes,
        grouped(traffic.sessions)
    )?;
    if let TrafficOrigin::Daemon(seen) | TrafficOrigin::Kernel(seen) = &traffic.source {
        received(seen, plan, output)?;
    }
    if let Some(packets) = traffic.packets_per_session {
        writeln!(
            output,
            "  {packets:.1} packets per session; the creation of a session takes {:.0} cycles",
            traffic.opening
        )?;
    }
    writeln!(
        output,
        "Machine: cores {}, {:.2} GHz; {} queue{} per device, {} shards\n",
        planner::list(&plan.cores),
        plan.frequency as f64 / 1e9,
        plan.queues,
        if plan.queues == 1 { "" } else { "s" },
        plan.shards
    )?;
    let mut table = Columns::new(&[
        ("CYCLES A PACKET", Left),
        ("DIVIDED", Right),
        ("UNDIVIDED", Right),
        ("ASSUMED", Right),
    ]);
    for part in &plan.parts {
        let [divided, undivided, assumed] = [part.cycles, part.undivided, part.assumed].map(cycles);
        table.row([part.part.into(), divided, undivided, assumed]);
    }
    let sum = |value: fn(&planner::PartCost) -> f64| cycles(plan.parts.iter().map(value).sum());
    table.row([
        "a worker alone".into(),
        sum(|part| part.cycles),
        sum(|part| part.undivided),
        sum(|part| part.assumed),
    ]);
    table.flush(output)?;
    if plan.hand_overs.is_empty() {
        return Ok(());
    }
    writeln!(output)?;
    let mut table = Columns::new(&[("HAND-OVER", Left), ("OUT", Right), ("IN", Right), ("MEASURED", Left)]);
    for cost in &plan.hand_overs {
        let between = cost
            .measured
            .map_or("assumed".into(), |[from, to]| format!("{from} to {to}"));
        table.row([cost.distance.into(), cycles(cost.out), cycles(cost.take), between]);
    }
    Ok(table.flush(output)?)
}

/// Print the rate and the frame size of the live traffic that interfaces received.
fn received(seen: &Seen, plan: &Plan, output: &mut dyn Write) -> Result<(), CommandError> {
    let share = 100.0 * seen.packets_per_second / plan.choice.packets_per_second;
    writeln!(
        output,
        "  {} packets in {:.1} s: {} per second, {:.2} Mb/s, {:.0} bytes per frame, {share:.2} % of the capacity of \
         the recommended placement",
        grouped(seen.packets),
        seen.seconds,
        grouped(seen.packets_per_second.round() as u64),
        seen.bits_per_second / 1e6,
        seen.bytes
    )?;
    for interface in seen.interfaces.iter().filter(|interface| interface.packets > 0) {
        let SeenInterface {
            name,
            packets,
            bytes,
            kept,
            ..
        } = interface;
        let (packets, mean) = (grouped(*packets), *bytes as f64 / *packets as f64);
        let kept = grouped(*kept);
        writeln!(
            output,
            "  {name}: {packets} packets with {mean:.0} bytes on average, of which {kept} are used for \
             the measurement"
        )?;
    }
    if seen.joined > 0 {
        let joined = grouped(seen.joined);
        writeln!(
            output,
            "  {joined} frames that the kernel had merged are cut to the MTU of the links"
        )?;
    }
    if seen.too_long > 0 {
        let omitted = grouped(seen.too_long);
        writeln!(
            output,
            "  {omitted} frames are skipped, because they exceed the MTU of the links"
        )?;
    }
    Ok(())
}

fn candidates(plan: &Plan, most: usize, output: &mut dyn Write) -> Result<(), CommandError> {
    writeln!(output)?;
    let mut table = Columns::new(&[
        ("PLACEMENT", Left),
        ("MPPS", Right),
        ("GB/S", Right),
        ("LIMIT", Left),
        ("CYCLES", Right),
        ("MOST FOR", Left),
    ]);
    for candidate in plan.candidates.iter().take(most) {
        table.row([
            candidate.placement.clone(),
            millions(candidate.packets_per_second),
            format!("{:.1}", candidate.bits_per_second / 1e9),
            format!("core {}", candidate.bottleneck),
            cycles(candidate.cycles),
            candidate.most.into(),
        ]);
    }
    table.flush(output)?;
    let more = plan.candidates.len().saturating_sub(most);
    if more > 0 {
        writeln!(
            output,
            "and {} slower placements: see --candidates",
            grouped(more as u64)
        )?;
    }
    Ok(())
}

fn answer(answer: &CoreRequirement, plan: &Plan, output: &mut dyn Write) -> Result<(), CommandError> {
    let sessions = answer.sessions_per_second.map_or(String::new(), |sessions| {
        format!(", {} new sessions per second", grouped(sessions as u64))
    });
    write!(
        output,
        "\n{} corresponds to {} million packets per second{sessions}: ",
        answer.load,
        millions(answer.packets_per_second)
    )?;
    let (Some(cores), Some(placement)) = (answer.cores, &answer.placement) else {
        writeln!(
            output,
            "no number of such cores can process this load with {} queue(s) per device, {} shards and {:.0} % of the \
             packets in a single shard.",
            plan.queues,
            plan.shards,
            100.0 * plan.traffic.busiest_shard
        )?;
        return Ok(());
    };
    writeln!(output, "{cores} core{}.", if cores == 1 { "" } else { "s" })?;
    let Candidate {
        placement,
        bottleneck,
        busy,
        ..
    } = placement;
    let busy = 100.0 * busy.unwrap_or(1.0);
    writeln!(
        output,
        "  {placement}; core {bottleneck} is busy for {busy:.0} % of the time."
    )?;
    if let Some(hint) = &answer.hint {
        writeln!(output, "  {hint}.")?;
    }
    if answer.beyond {
        writeln!(
            output,
            "  This is more than the cores {}: further cores are assumed to be of the same kind.",
            planner::list(&plan.cores)
        )?;
    }
    Ok(())
}

fn cycles(cycles: f64) -> String {
    grouped(cycles.round() as u64)
}

fn millions(rate: f64) -> String {
    format!("{:.2}", rate / 1e6)
}
