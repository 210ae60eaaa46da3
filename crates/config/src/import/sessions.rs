//! Converts conditions on connection tracking states to `sessions = true`.

use super::Said;
use super::listing::{Action, Decision, LineIndex, Listing};
use super::packets::{Field, Packets, remains, state};
use super::ranges::Ranges;
use super::rules::TCP;

/// Maximum number of hyperrectangles that may remain in a comparison.
const MOST_BOXES: usize = 256;
/// Maximum number of comparisons.
const MOST_COMPARED: usize = 4_000_000;

/// The line that rejects packets of accepted flows, and the line that accepts these flows.
struct Refused {
    accepted: Option<LineIndex>,
    by: Option<LineIndex>,
}

/// Whether any rule has a condition on states, and the decisions on packets that open flows.
pub fn sessions(
    decisions: Vec<Decision>,
    end: &dyn Fn(bool) -> Action,
    listing: &Listing,
    said: &mut Said,
) -> (bool, Vec<Decision>) {
    if decisions
        .iter()
        .all(|decision| decision.packets.get(Field::State).is_none())
    {
        return (false, decisions);
    }
    for six in [false, true] {
        let of: Vec<_> = decisions
            .iter()
            .filter(|decision| decision.packets.six == six)
            .collect();
        for about in [state::ESTABLISHED, state::RELATED] {
            if let Err(refused) = pass(&of, six, &end(six), about) {
                tell(&of, about, &refused, listing, said);
            }
        }
    }
    for decision in &decisions {
        without_new(decision, said);
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
    [false, true].into_iter().all(|six| {
        let invalid = Packets::all(six)
            .with(Field::State, &Ranges::of(state::INVALID, state::INVALID))
            .with(Field::Protocol, &Ranges::of(TCP, TCP));
        let mut left = vec![invalid];
        for decision in decisions.iter().filter(|decision| decision.decides()) {
            let is_met = left.iter().any(|packets| packets.and(&decision.packets).is_some());
            if is_met && !decision.refuses() {
                return false;
            }
            left = remains(left.clone(), std::slice::from_ref(&decision.packets), MOST_BOXES).unwrap_or(left);
        }
        left.is_empty() || end(six) != Action::Accept
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
    said: &mut Said,
) -> Vec<Decision> {
    for six in [false, true] {
        for about in [state::ESTABLISHED, state::RELATED] {
            let refusing = refusing(&decisions, six, about);
            let at_the_end = (end(six) != Action::Accept).then_some(ends[usize::from(six)]).flatten();
            let lines = refusing.lines.into_iter();
            for line in lines.chain(at_the_end.filter(|_| refusing.reaches_the_end)) {
                said.note(line, OF_FLOWS);
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
                said.note(
                    line,
                    "not needed: later packets of a flow to the gateway, and ICMP errors about the flow, pass without \
                     a rule",
                );
            }
            Action::Accept => said.leave(
                line,
                "packets without a flow are evaluated like the first packets of flows",
            ),
            Action::Drop | Action::Reject(_) if of_flows => {}
            Action::Drop | Action::Reject(_) => said.note(
                line,
                "not needed: a packet to the gateway either belongs to a flow or is evaluated like the first packet \
                 of a flow",
            ),
            _ => said.leave(line, "rules evaluate only the first packet of a flow to the gateway"),
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

fn refusing(decisions: &[Decision], six: bool, about: u128) -> Refusing {
    let mut packets = Packets::all(six).with(Field::State, &Ranges::of(about, about));
    if about == state::RELATED {
        let icmp = if six { 58 } else { 1 };
        packets = packets.with(Field::Protocol, &Ranges::of(icmp, icmp));
    }
    let (mut left, mut lines) = (vec![packets], Vec::new());
    for decision in decisions.iter().filter(|decision| decision.decides()) {
        if decision.refuses() && left.iter().any(|packets| packets.and(&decision.packets).is_some()) {
            lines.push(decision.line);
        }
        // If the remainder would consist of too many hyperrectangles, the remainder is left unchanged.
        left = remains(left.clone(), std::slice::from_ref(&decision.packets), MOST_BOXES).unwrap_or(left);
    }
    Refusing {
        lines,
        reaches_the_end: !left.is_empty(),
    }
}

/// Add a note or a leftover for a decision that does not apply to packets that open flows.
fn without_new(decision: &Decision, said: &mut Said) {
    let states = decision.packets.values(Field::State);
    if states.holds(state::NEW) {
        return;
    }
    let of_flows = states.holds(state::ESTABLISHED) || states.holds(state::RELATED);
    let line = decision.line;
    match &decision.action {
        Action::Accept if of_flows => said.note(
            line,
            "converted to `sessions = true`: later packets of a flow, and ICMP errors about the flow, pass without a \
             rule",
        ),
        Action::Accept => said.leave(
            line,
            "packets without a flow are evaluated like the first packets of flows",
        ),
        Action::Drop | Action::Reject(_) if of_flows => said.leave(
            line,
            "with `sessions = true`, all later packets of an accepted flow pass",
        ),
        Action::Drop | Action::Reject(_) => {
            said.note(
                line,
                "not needed: with `sessions = true`, a packet either belongs to a flow or is evaluated like the first \
                 packet of a flow",
            );
        }
        _ => said.leave(
            line,
            "with `sessions = true`, rules evaluate only the first packet of a flow",
        ),
    }
}

/// Check that the packets of accepted flows, or related packets, are accepted.
fn pass(of: &[&Decision], six: bool, end: &Action, about: u128) -> Result<(), Refused> {
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
        let all = Packets::all(six).only(Field::State, &opening, false);
        let rest = remains(vec![all], &decided, MOST_BOXES).ok_or(Refused { accepted: None, by })?;
        accepted.extend(rest.into_iter().map(|packets| (None, packets)));
    }
    if accepted.len().saturating_mul(of.len()) > MOST_COMPARED {
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
    let ways = [packets.of_flow(), packets.answers()];
    let both = ways.map(|way| {
        let way = match about {
            state::ESTABLISHED => way,
            // ICMP errors may have any source address.
            _ => {
                let icmp = if way.six { 58 } else { 1 };
                let ports = [Field::Source, Field::SourcePort, Field::DestinationPort, Field::Message];
                let way = ports.into_iter().fold(way, |way, field| way.with_any(field));
                way.with(Field::Protocol, &Ranges::of(icmp, icmp))
            }
        };
        way.with(Field::State, &states)
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
        left = remains(left, std::slice::from_ref(&decision.packets), MOST_BOXES).ok_or(None)?;
    }
    match left.is_empty() || *end == Action::Accept {
        true => Ok(()),
        false => Err(None),
    }
}

/// Report the lines that accept packets of flows, or the lines that accept flows with rejected replies.
fn tell(of: &[&Decision], about: u128, refused: &Refused, listing: &Listing, said: &mut Said) {
    let place = |line: LineIndex| {
        let line = &listing.lines[line];
        line.place
            .clone()
            .unwrap_or_else(|| format!("line {}", line.line.unwrap_or(0)))
    };
    let what = match about {
        state::ESTABLISHED => "all later packets of a flow",
        _ => "all ICMP errors about a flow",
    };
    let why = |line: LineIndex| {
        let unlike = match refused.by {
            Some(by) if by == line => "this line refuses some".into(),
            Some(by) => format!("{} refuses some", place(by)),
            None => "the listing refuses some".into(),
        };
        format!("with `sessions = true`, {what} pass; {unlike}")
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
        said.leave(line, why(line));
    }
}
