//! Flattens chains to a list of decisions. The first decision that matches a packet applies.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

use super::listing::{Action, Chain, Decision, LineIndex, Meaning, Step, Table};
use super::packets::{Packets, remains};

/// Maximum depth of jumps.
const MAX_DEPTH: usize = 64;
/// Maximum number of decisions for a table.
const MAX_DECISIONS: usize = 1 << 17;
/// Maximum number of rule evaluations, summed over all paths through the chains.
const MAX_EVALUATIONS: usize = 1 << 20;
/// Maximum number of hyperrectangles for a condition.
const MAX_HYPERRECTANGLES: usize = 128;

/// Decisions of a table collected so far.
#[derive(Debug, Default)]
pub struct Flat {
    /// Decisions in the order of evaluation.
    pub decisions: Vec<Decision>,
    /// Lines that are not converted, with the reason.
    pub leftovers: IndexMap<LineIndex, String>,
    /// Rules that packets can reach.
    pub reached: HashSet<LineIndex>,
    visits: usize,
}

/// A chain that jumps to itself, directly or indirectly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JumpLoop(pub LineIndex);

/// Check that chains contain no loop.
///
/// # Errors
/// Returns the line of the jump that closes a loop.
pub fn check_loops(table: &Table) -> Result<(), JumpLoop> {
    let jumps: HashMap<&str, Vec<(&str, LineIndex)>> = table
        .chains
        .iter()
        .map(|(name, chain)| (name.as_str(), jumps(chain).collect()))
        .collect();
    let mut done: HashSet<&str> = HashSet::new();
    for start in table.chains.keys() {
        // An explicit stack is used, since the chains of a listing may be nested more deeply than the call stack
        // permits.
        let mut path: Vec<(&str, usize)> = vec![(start, 0)];
        let mut open: HashSet<&str> = HashSet::from([start.as_str()]);
        while let Some((name, next)) = path.last_mut() {
            let name = *name;
            let jump = jumps.get(name).and_then(|all| all.get(*next));
            *next += 1;
            match jump {
                Some(&(to, line)) if open.contains(to) => return Err(JumpLoop(line)),
                Some(&(to, _)) if !done.contains(to) => {
                    open.insert(to);
                    path.push((to, 0));
                }
                Some(_) => {}
                None => {
                    done.insert(name);
                    open.remove(name);
                    path.pop();
                }
            }
        }
    }
    Ok(())
}

fn jumps(chain: &Chain) -> impl Iterator<Item = (&str, LineIndex)> {
    let meanings = chain
        .rules
        .iter()
        .filter_map(|rule| Some((rule.meaning.as_ref().ok()?, rule.line)));
    meanings.flat_map(|(meaning, line)| {
        let to = meaning.then.iter().filter_map(Step::target);
        to.map(move |to| (to, line))
    })
}

impl Flat {
    /// Add the decisions of a base chain. `end` is the policy of the chain, which applies to packets that return from
    /// the chain.
    pub fn base(&mut self, table: &Table, chain: &Chain, end: &Action) {
        let all = table.families.iter().map(|&v6| Packets::all(v6)).collect();
        self.walk(table, chain, all, Some(end), 0);
    }

    fn leave(&mut self, line: LineIndex, why: &str) {
        self.leftovers.entry(line).or_insert_with(|| why.into());
    }

    /// Add a chain's decisions on the packets `within`. `end` is the policy, if this is a base chain.
    fn walk(&mut self, table: &Table, chain: &Chain, within: Vec<Packets>, end: Option<&Action>, depth: usize) {
        let mut within = within;
        for rule in &chain.rules {
            self.visits += 1;
            self.reached.insert(rule.line);
            let meaning = match &rule.meaning {
                Ok(meaning) => meaning,
                Err(why) => {
                    self.leave(rule.line, why);
                    continue;
                }
            };
            let matching = both(&within, &meaning.when);
            if self.visits > MAX_EVALUATIONS || self.decisions.len() + matching.len() > MAX_DECISIONS {
                self.leave(rule.line, "too many jumps lead to the chain of this line");
                continue;
            }
            for (at, step) in meaning.then.iter().enumerate() {
                if let Err(why) = self.step(table, (rule.line, at), (meaning, step), &matching, end, depth) {
                    self.leave(rule.line, why);
                    break;
                }
                // In a base chain, the policy applies after `return` and `goto`.
                if end.is_none() && matches!(step, Step::Return | Step::Goto(_)) {
                    match remains(within.clone(), &matching, MAX_HYPERRECTANGLES) {
                        Some(left) => within = left,
                        None => self.leave(
                            rule.line,
                            "the packets that continue in the chain after this line need too many rules",
                        ),
                    }
                }
            }
        }
    }

    fn step(
        &mut self,
        table: &Table,
        (line, step): (LineIndex, usize),
        (meaning, matched): (&Meaning, &Step),
        matching: &[Packets],
        end: Option<&Action>,
        depth: usize,
    ) -> Result<(), &'static str> {
        let decide = |action: &Action, decisions: &mut Vec<Decision>| {
            decisions.extend(matching.iter().map(|packets| Decision {
                line,
                step,
                packets: packets.clone(),
                action: action.clone(),
                name: meaning.name.clone(),
            }));
        };
        match matched {
            Step::Do(action) => decide(action, &mut self.decisions),
            Step::Return => {
                if let Some(end) = end {
                    decide(end, &mut self.decisions);
                }
            }
            Step::Jump(to) | Step::Goto(to) => {
                let chain = table.chains.get(to).ok_or("the target chain does not exist")?;
                if depth == MAX_DEPTH {
                    return Err("the jumps between chains are nested too deeply");
                }
                self.walk(table, chain, matching.to_vec(), None, depth + 1);
                if let (Step::Goto(_), Some(end)) = (matched, end) {
                    decide(end, &mut self.decisions);
                }
            }
        }
        Ok(())
    }
}

fn both(left: &[Packets], right: &[Packets]) -> Vec<Packets> {
    left.iter()
        .flat_map(|one| right.iter().filter_map(|two| one.and(two)))
        .collect()
}

/// Convert the decisions to rejections only, so that other chains evaluate accepted packets. Returns `None` if the
/// conversion needs too many hyperrectangles.
pub fn refusals(decisions: &[Decision], policy: Option<Decision>) -> Option<Vec<Decision>> {
    let mut accepted: Vec<Packets> = Vec::new();
    let mut found = Vec::new();
    for decision in decisions.iter().cloned().chain(policy) {
        if decision.action == Action::Accept {
            accepted.push(decision.packets);
            continue;
        }
        let left = remains(vec![decision.packets.clone()], &accepted, MAX_HYPERRECTANGLES)?;
        found.extend(left.into_iter().map(|packets| Decision {
            packets,
            ..decision.clone()
        }));
    }
    Some(found)
}
