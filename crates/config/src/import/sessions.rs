//! Converts conditions on connection tracking states to `sessions = true`.

use super::ConversionReport;
use super::listing::{Action, Decision, LineIndex, Listing};
use super::packets::{Field, Packets, remains, state};
use super::ranges::Ranges;
use super::rules::TCP;

/// Maximum number of hyperrectangles that may remain in a comparison.
const MAX_HYPERRECTANGLES: usize = 256;
/// Maximum number of comparisons.
const MAX_COMPARISONS: usize = 4_000_000;

/// The line that rejects packets of accepted flows, and the line that accepts these flows.
struct Refused {
    accepted: Option<LineIndex>,
    by: Option<LineIndex>,
}

/// Returns two values: whether any rule has a condition on states, and the decisions on packets that open flows.
pub fn sessions(
    decisions: Vec<Decision>,
    end: &dyn Fn(bool) -> Action,
    listing: &Listing,
    report: &mut ConversionReport,
) -> (bool, Vec<Decision>) {
    if decisions
        .iter()
        .all(|decision| decision.packets.get(Field::State).is_none())
    {
        return (false, decisions);
    }
    for v6 in [false, true] {
        let of: Vec<_> = decisions.iter().filter(|decision| decision.packets.v6 == v6).collect();
        for about in [state::ESTABLISHED, state::RELATED] {
            if let Err(refused) = pass(&of, v6, &end(v6), about) {
                report_differences(&of, about, &refused, listing, report);
            }
        }
    }
    for decision in &decisions {
        without_new(decision, report);
    }
    let opens = |decision: Decision| {
        let opens = decision.packets.values(Field::State).holds(state::NEW);
        let packets = decision.packets.with_any(Field::State);
        opens.then_some(Decision { packets, ..decision })
    };
    (true, decisions.into_iter().filter_map(opens).collect())
}

/// Whether all TCP packets in state `INVALID` are rejected. With `sessions = true`, these packets are always
/// rejected.
pub fn drops_invalid(decisions: &[Decision], end: &dyn Fn(bool) -> Action) -> bool {
    [false, true].into_iter().all(|v6| {
        let invalid = Packets::all(v6)
            .with(Field::State, &Ranges::of(state::INVALID, state::INVALID))
            .with(Field::Protocol, &Ranges::of(TCP, TCP));
        let mut left = vec![invalid];
        for decision in decisions.iter().filter(|decision| decision.decides()) {
            let is_met = left.iter().any(|packets| packets.and(&decision.packets).is_some());
            if is_met && !decision.refuses() {
                return false;
            }
            left = remains(
                left.clone(),
                std::slice::from_ref(&decision.packets),
                MAX_HYPERRECTANGLES,
            )
            .unwrap_or(left);
        }
        left.is_empty() || end(v6) != Action::Accept
    })
}

/// Note for lines that reject packets of flows to the gateway itself.
const OF_FLOWS: &str = "replies to flows of the gateway's host, and later packets of accepted flows, pass nevertheless";

/// Decisions of input chains on packets that open flows. Later packets of an open flow pass without a rule. `ends`
/// contains the lines of the policies, for each family.
pub fn of_input(
    decisions: Vec<Decision>,
    end: &dyn Fn(bool) -> Action,
    ends: [Option<LineIndex>; 2],
    report: &mut ConversionReport,
) -> Vec<Decision> {
    for v6 in [false, true] {
        for about in [state::ESTABLISHED, state::RELATED] {
            let refusing = refusing(&decisions, v6, about);
            let at_the_end = (end(v6) != Action::Accept).then_some(ends[usize::from(v6)]).flatten();
            let lines = refusing.lines.into_iter();
            for line in lines.chain(at_the_end.filter(|_| refusing.reaches_the_end)) {
                report.note(line, OF_FLOWS);
            }
        }
    }
    for decision in &decisions {
        let (states, line) = (decision.packets.values(Field::State), decision.line);
        if states.holds(state::NEW) {
            continue;
        }
        let of_flows = states.holds(state::ESTABLISHED) || states.holds(state::RELATED);
        match &decision.action {
            Action::Accept if of_flows => {
                report.note(
                    line,
                    "not needed: later packets of a flow to the gateway, and ICMP errors about the flow, pass without \
                     a rule",
                );
            }
            Action::Accept => report.leave(
                line,
                "packets without a flow are evaluated like the first packets of flows",
            ),
            Action::Drop | Action::Reject(_) if of_flows => {}
            Action::Drop | Action::Reject(_) => report.note(
                line,
                "not needed: a packet to the gateway either belongs to a flow or is evaluated like the first packet \
                 of a flow",
            ),
            _ => report.leave(line, "rules evaluate only the first packet of a flow to the gateway"),
        }
    }
    let opens = |decision: Decision| {
        let opens = decision.packets.values(Field::State).holds(state::NEW);
        let packets = decision.packets.with_any(Field::State);
        opens.then_some(Decision { packets, ..decision })
    };
    decisions.into_iter().filter_map(opens).collect()
}

/// Lines that reject packets in a certain state.
struct Refusing {
    lines: Vec<LineIndex>,
    reaches_the_end: bool,
}

fn refusing(decisions: &[Decision], v6: bool, about: u128) -> Refusing {
    let mut packets = Packets::all(v6).with(Field::State, &Ranges::of(about, about));
    if about == state::RELATED {
        let icmp = if v6 { 58 } else { 1 };
        packets = packets.with(Field::Protocol, &Ranges::of(icmp, icmp));
    }
    let (mut left, mut lines) = (vec![packets], Vec::new());
    for decision in decisions.iter().filter(|decision| decision.decides()) {
        if decision.refuses() && left.iter().any(|packets| packets.and(&decision.packets).is_some()) {
            lines.push(decision.line);
        }
        // If the remainder would consist of too many hyperrectangles, the remainder is left unchanged.
        left = remains(
            left.clone(),
            std::slice::from_ref(&decision.packets),
            MAX_HYPERRECTANGLES,
        )
        .unwrap_or(left);
    }
    Refusing {
        lines,
        reaches_the_end: !left.is_empty(),
    }
}

/// Add a note or a leftover for a decision that does not apply to packets that open flows.
fn without_new(decision: &Decision, report: &mut ConversionReport) {
    let states = decision.packets.values(Field::State);
    if states.holds(state::NEW) {
        return;
    }
    let of_flows = states.holds(state::ESTABLISHED) || states.holds(state::RELATED);
    let line = decision.line;
    match &decision.action {
        Action::Accept if of_flows => report.note(
            line,
            "converted to `sessions = true`: later packets of a flow, and ICMP errors about the flow, pass without a \
             rule",
        ),
        Action::Accept => report.leave(
            line,
            "packets without a flow are evaluated like the first packets of flows",
        ),
        Action::Drop | Action::Reject(_) if of_flows => report.leave(
            line,
            "with `sessions = true`, all later packets of an accepted flow pass",
        ),
        Action::Drop | Action::Reject(_) => {
            report.note(
                line,
                "not needed: with `sessions = true`, a packet either belongs to a flow or is evaluated like the first \
                 packet of a flow",
            );
        }
        _ => report.leave(
            line,
            "with `sessions = true`, rules evaluate only the first packet of a flow",
        ),
    }
}

/// Check that the packets of accepted flows, or related packets, are accepted.
fn pass(of: &[&Decision], v6: bool, end: &Action, about: u128) -> Result<(), Refused> {
    let mut by = None;
    for decision in of
        .iter()
        .filter(|decision| decision.packets.values(Field::State).holds(about))
    {
        if decision.refuses() {
            by = Some(decision.line);
            break;
        }
        if decision.action == Action::Accept && decision.packets.with_any(Field::State).is_all() {
            return Ok(());
        }
    }
    if by.is_none() && *end == Action::Accept {
        return Ok(());
    }
    let opening = Ranges::of(state::NEW, state::NEW);
    let opens = |packets: &Packets| packets.values(Field::State).holds(state::NEW);
    let accepts = of
        .iter()
        .filter(|decision| decision.action == Action::Accept && opens(&decision.packets));
    let mut accepted: Vec<(Option<LineIndex>, Packets)> = accepts
        .map(|decision| (Some(decision.line), decision.packets.clone()))
        .collect();
    if *end == Action::Accept {
        let decided: Vec<_> = of
            .iter()
            .filter(|decision| decision.decides())
            .map(|decision| decision.packets.clone())
            .collect();
        let all = Packets::all(v6).only(Field::State, &opening, false);
        let rest = remains(vec![all], &decided, MAX_HYPERRECTANGLES).ok_or(Refused { accepted: None, by })?;
        accepted.extend(rest.into_iter().map(|packets| (None, packets)));
    }
    if accepted.len().saturating_mul(of.len()) > MAX_COMPARISONS {
        return Err(Refused { accepted: None, by });
    }
    for (line, packets) in accepted {
        for flow in belonging(&packets, about) {
            refused(of, flow, end).map_err(|by| Refused { accepted: line, by })?;
        }
    }
    Ok(())
}

/// Packets of an open flow in both directions, or packets related to the flow.
fn belonging(packets: &Packets, about: u128) -> Vec<Packets> {
    let states = Ranges::of(about, about);
    let directions = [packets.of_flow(), packets.answers()];
    let both = directions.map(|direction| {
        let direction = match about {
            state::ESTABLISHED => direction,
            // ICMP errors may have any source address.
            _ => {
                let icmp = if direction.v6 { 58 } else { 1 };
                let ports = [Field::Source, Field::SourcePort, Field::DestinationPort, Field::Message];
                let direction = ports
                    .into_iter()
                    .fold(direction, |direction, field| direction.with_any(field));
                direction.with(Field::Protocol, &Ranges::of(icmp, icmp))
            }
        };
        direction.with(Field::State, &states)
    });
    both.to_vec()
}

/// Check that no decision rejects any of the packets. The error is the line that rejects packets, or `None` for the
/// policy.
fn refused(of: &[&Decision], packets: Packets, end: &Action) -> Result<(), Option<LineIndex>> {
    let mut left = vec![packets];
    for decision in of.iter().filter(|decision| decision.decides()) {
        if decision.refuses() {
            if left.iter().any(|packets| packets.and(&decision.packets).is_some()) {
                return Err(Some(decision.line));
            }
            continue;
        }
        left = remains(left, std::slice::from_ref(&decision.packets), MAX_HYPERRECTANGLES).ok_or(None)?;
    }
    match left.is_empty() || *end == Action::Accept {
        true => Ok(()),
        false => Err(None),
    }
}

/// Report the lines that accept packets of flows, or the lines that accept flows whose replies are rejected.
fn report_differences(
    of: &[&Decision],
    about: u128,
    refused: &Refused,
    listing: &Listing,
    report: &mut ConversionReport,
) {
    let place = |line: LineIndex| {
        let line = &listing.lines[line];
        line.place
            .clone()
            .unwrap_or_else(|| format!("line {}", line.line.unwrap_or(0)))
    };
    let description = match about {
        state::ESTABLISHED => "all later packets of a flow",
        _ => "all ICMP errors about a flow",
    };
    let why = |line: LineIndex| {
        let unlike = match refused.by {
            Some(by) if by == line => "this line refuses some".into(),
            Some(by) => format!("{} refuses some", place(by)),
            None => "the listing refuses some".into(),
        };
        format!("with `sessions = true`, {description} pass; {unlike}")
    };
    let mut lines: Vec<LineIndex> = of
        .iter()
        .filter(|decision| {
            let states = decision.packets.values(Field::State);
            decision.action == Action::Accept && states.holds(about) && !states.holds(state::NEW)
        })
        .map(|decision| decision.line)
        .collect();
    if lines.is_empty() {
        lines = refused
            .accepted
            .or(refused.by)
            .or(of.first().map(|first| first.line))
            .into_iter()
            .collect();
    }
    for line in lines {
        report.leave(line, why(line));
    }
}
