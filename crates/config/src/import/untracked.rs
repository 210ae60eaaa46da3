//! Converts exclusions from connection tracking to rules that create no sessions.

use super::Said;
use super::chains::Flat;
use super::interfaces::{NOT_FORWARDED, without_loopback};
use super::listing::{Action, Decision, Hook, LineIndex, Listing};
use super::packets::{Field, Packets, remains, state};

/// Maximum number of hyperrectangles that may remain in a comparison.
const MOST_BOXES: usize = 64;
/// Maximum number of decisions on untracked packets.
const MOST: usize = 1 << 12;

/// Decisions on untracked packets, and the lines that exclude these packets from tracking.
#[derive(Default)]
pub struct Untracked {
    decisions: Vec<Decision>,
    lines: Vec<LineIndex>,
}

/// Decisions of forward chains on packets that previous chains exclude from tracking.
pub fn untracked(
    listing: &Listing,
    decisions: &[Decision],
    end: &dyn Fn(bool) -> Action,
    said: &mut Said,
) -> Untracked {
    let without = without_loopback(left_out(listing, said), listing, said, NOT_FORWARDED);
    let lines: Vec<LineIndex> = without.iter().map(|decision| decision.line).collect();
    let mut found = Vec::new();
    for decision in decisions {
        if !decision.packets.values(Field::State).holds(state::UNTRACKED) {
            continue;
        }
        let packets = decision.packets.with_any(Field::State);
        found.extend(without.iter().filter_map(|untracked| {
            Some(Decision {
                packets: packets.and(&untracked.packets)?,
                action: of_untracked(&decision.action),
                ..decision.clone()
            })
        }));
        if found.len() > MOST {
            for line in lines {
                said.leave(line, "the packets that this line leaves untracked need too many rules");
            }
            return Untracked::default();
        }
    }
    // The remaining rules apply only to tracked packets.
    found.extend(without.into_iter().map(|untracked| Decision {
        action: of_untracked(&end(untracked.packets.six)),
        ..untracked
    }));
    Untracked {
        decisions: found,
        lines,
    }
}

impl Untracked {
    /// Puts these decisions before the decisions on tracked packets, if any rule depends on tracking.
    pub fn before(self, decisions: Vec<Decision>, stateful: bool, said: &mut Said) -> Vec<Decision> {
        let Self {
            decisions: mut all,
            lines,
        } = self;
        for line in lines {
            said.note(
                line,
                match stateful {
                    true => {
                        "converted to rules with `track = false`; flows that [nat] translates are tracked \
                         nevertheless"
                    }
                    false => "not needed: with `sessions = false`, only translated flows are tracked",
                },
            );
        }
        if !stateful {
            return decisions;
        }
        all.extend(decisions);
        all
    }
}

fn of_untracked(action: &Action) -> Action {
    match action {
        Action::Accept => Action::AcceptUntracked,
        other => other.clone(),
    }
}

/// Packets that are excluded from tracking, as hyperrectangles that don't overlap.
fn left_out(listing: &Listing, said: &mut Said) -> Vec<Decision> {
    let chains = listing
        .tables
        .iter()
        .flat_map(|table| table.chains.iter().map(move |(name, chain)| (table, name, chain)));
    let mut found: Vec<Decision> = Vec::new();
    for (table, name, chain) in chains.filter(|(.., chain)| chain.hook == Some(Hook::Raw)) {
        let mut flat = Flat::default();
        flat.base(table, chain, &Action::Accept);
        said.asked.extend(&flat.asked);
        for (line, why) in flat.leftovers {
            said.leave(line, why);
        }
        let none = format!(
            "except for `notrack`, chain `{name}` of table {} has no counterpart",
            table.name
        );
        if chain.policy != crate::schema::Verdict::Accept {
            said.leave(chain.line, none.as_str());
        }
        let mut decided: Vec<Packets> = found.iter().map(|decision| decision.packets.clone()).collect();
        for decision in flat.decisions {
            match decision.action {
                Action::Notrack => match remains(vec![decision.packets.clone()], &decided, MOST_BOXES) {
                    Some(left) => {
                        decided.extend(left.iter().cloned());
                        found.extend(left.into_iter().map(|packets| Decision {
                            packets,
                            ..decision.clone()
                        }));
                    }
                    None => said.leave(
                        decision.line,
                        "the packets that this line leaves untracked need too many \
                         rules",
                    ),
                },
                Action::Accept => decided.push(decision.packets),
                _ => said.leave(decision.line, none.as_str()),
            }
        }
    }
    found
}
