//! Converts forward and input chains to `[filter]`.

use std::collections::HashSet;

use indexmap::IndexMap;

use super::chains::{Flat, refusals};
use super::interfaces::{NOT_FORWARDED, widen, without_loopback};
use super::listing::{Action, Chain, Decision, Hook, LineIndex, Listing, Table};
use super::packets::{Field, Packets};
use super::ranges::Ranges;
use super::sets::SetForm;
use super::{ConversionReport, input, rules, sessions, untracked};
use crate::schema::{Filter, FilterRule, NamedSet, Verdict};
use crate::value::{Addresses, Ports};

/// The filter. `None` if all packets pass and no packets are counted.
pub fn filter(listing: &Listing, report: &mut ConversionReport) -> Option<Filter> {
    let forwarded = reached(listing, Hook::Forward, report);
    let (stateful, decisions, policies) = match forwarded {
        Some(chains) => forwarded_alone(chains, listing, report),
        None => (false, Vec::new(), [Verdict::Accept; 2]),
    };
    let (input, input_policies) = match reached(listing, Hook::Input, report) {
        Some(chains) => input::decisions(chains, listing, report),
        None => (Vec::new(), [Verdict::Accept; 2]),
    };
    let decisions: Vec<_> = decisions.into_iter().map(as_received).collect();
    let mut rules = rules::rules(listing, [&decisions, &input], report);
    if policies[0] != policies[1] {
        rules.push(rules::everything(true, end(policies, true)));
    }
    rules.extend(input::ends(input_policies));
    let nothing = rules.is_empty() && policies == [Verdict::Accept; 2];
    let sets = named_sets(&rules, listing);
    (!nothing).then(|| Filter {
        default: policies[0],
        sessions: stateful,
        rules,
        sets,
        ..Filter::default()
    })
}

/// Converts the TTLs of a decision. Linux decrements the TTL of a forwarded packet before it evaluates the chains.
/// Sluice decrements the TTL after its rules.
fn as_received(decision: Decision) -> Decision {
    let Some(seen) = decision.packets.get(Field::Ttl) else {
        return decision;
    };
    // A received packet with TTL 0 or 1 is not forwarded, so both values correspond to 0 after decrementing.
    let received = |&(first, last): &(u128, u128)| (if first == 0 { 0 } else { first + 1 }, last + 1);
    let received = Ranges::union(seen.list().iter().map(received));
    Decision {
        packets: decision.packets.with(Field::Ttl, &received),
        ..decision
    }
}

/// Decisions of the chains of a hook, and the policies of these chains, for each address family.
pub struct HookDecisions {
    pub decisions: Vec<Decision>,
    pub policies: [Verdict; 2],
    /// Lines of the policies. `None` for a family without listed chains.
    pub ends: [Option<LineIndex>; 2],
}

/// Action on packets that reach the end of the chains, according to the policies.
pub fn end(policies: [Verdict; 2], v6: bool) -> Action {
    match policies[usize::from(v6)] {
        Verdict::Accept => Action::Accept,
        Verdict::Drop | Verdict::Reject => Action::Drop,
    }
}

/// Decisions of a hook's chains. `None` if the hook has no chains.
fn reached(listing: &Listing, hook: Hook, report: &mut ConversionReport) -> Option<HookDecisions> {
    let mut bases: Vec<(&Table, &Chain)> = listing
        .tables
        .iter()
        .flat_map(|table| table.chains.values().map(move |chain| (table, chain)))
        .filter(|(_, chain)| chain.hook == Some(hook))
        .collect();
    bases.sort_by_key(|(_, chain)| chain.priority);
    let found: Vec<_> = bases.iter().map(|(table, chain)| base(table, chain, report)).collect();
    let shared = |table: &Table| {
        let mut families = table.families.iter();
        families.any(|v6| bases.iter().filter(|(other, _)| other.families.contains(v6)).count() > 1)
    };
    let shared: Vec<_> = bases.iter().map(|(table, _)| shared(table)).collect();
    let (pure, others): (Vec<_>, Vec<_>) = bases
        .into_iter()
        .zip(found)
        .zip(shared)
        .partition(|(base, shared)| *shared && only_refuses(base));
    let (pure, others) = [pure, others]
        .map(|part| part.into_iter().map(|(base, _)| base).collect::<Vec<_>>())
        .into();
    let (mut policies, mut ends) = ([None, None], [None, None]);
    for ((table, chain), _) in pure.iter().chain(&others) {
        for v6 in table.families.iter().map(|&v6| usize::from(v6)) {
            (policies[v6], ends[v6]) = (Some(chain.policy), Some(chain.line));
        }
    }
    // If one chain rejects a packet, no other chain can accept it. Chains that only reject can therefore be evaluated first.
    let mut decisions: Vec<_> = pure.into_iter().flat_map(|(_, found)| found).collect();
    let bases: Vec<_> = others.iter().map(|(base, _)| *base).collect();
    for (at, (base, found)) in others.into_iter().enumerate() {
        decisions.extend(ordered(found, base, &bases[at + 1..], report));
    }
    let one = policies[0].or(policies[1])?;
    let policies =
        [0, 1].map(|v6: usize| policies[v6].unwrap_or(if listing.complete[v6] { Verdict::Accept } else { one }));
    Some(HookDecisions {
        decisions,
        policies,
        ends,
    })
}

/// Returns whether only the first packet of a forwarded flow is filtered, the decisions on forwarded packets, and the
/// policies.
fn forwarded_alone(
    chains: HookDecisions,
    listing: &Listing,
    report: &mut ConversionReport,
) -> (bool, Vec<Decision>, [Verdict; 2]) {
    let HookDecisions {
        decisions,
        policies,
        ends,
    } = chains;
    for (v6, family) in [(false, "IPv4"), (true, "IPv6")] {
        if !listing.complete[usize::from(v6)] && ends[usize::from(v6)].is_none() {
            report.remarks.push(format!(
                "No listing of {family} was given: the default of the other family applies to both."
            ));
        }
    }
    let end = |v6| end(policies, v6);
    let decisions = without_loopback(decisions, listing, report, NOT_FORWARDED);
    let untracked = untracked::untracked(listing, &decisions, &end, report);
    let drops_invalid = sessions::drops_invalid(&decisions, &end);
    let (stateful, decisions) = sessions::sessions(decisions, &end, listing, report);
    if stateful && !drops_invalid {
        report.remarks.push(
            "Sluice drops a TCP packet that neither belongs to a session nor begins a connection; in Linux, lines \
             that match no state accept such a packet."
                .into(),
        );
    }
    let decisions = untracked.before(decisions, stateful, report);
    if !stateful {
        report.refusing = decisions
            .iter()
            .filter(|decision| decision.refuses())
            .map(|decision| decision.line)
            .collect();
    }
    let decisions = widen(decisions, &end, listing.interfaces.len());
    (stateful, decisions, policies)
}

/// Sets to which rules refer.
fn named_sets(rules: &[FilterRule], listing: &Listing) -> IndexMap<String, NamedSet> {
    let named = |rule: &FilterRule| {
        let ends = [&rule.from, &rule.to].map(|list| list.0.first().map(|one| one.value.clone()));
        let ports = [&rule.from_port, &rule.to_port].map(|list| list.0.first().map(|one| one.value.clone()));
        let ends = ends.into_iter().flatten().filter_map(|value| match value {
            Addresses::Group(name) => Some(name),
            Addresses::Range(..) => None,
        });
        let ports = ports.into_iter().flatten().filter_map(|value| match value {
            Ports::Group(name) => Some(name),
            Ports::Range(..) => None,
        });
        ends.chain(ports).chain(rule.set.clone()).collect::<Vec<_>>()
    };
    let names: HashSet<String> = rules.iter().flat_map(named).collect();
    let sets = listing.sets.iter().filter(|(name, _)| names.contains(*name));
    sets.filter_map(|(name, known)| match &known.form {
        Ok(SetForm::Named(set)) => Some((name.clone(), set.clone())),
        _ => None,
    })
    .collect()
}

/// Whether a base chain only rejects packets and has no other effect.
fn only_refuses(((_, chain), found): &((&Table, &Chain), Vec<Decision>)) -> bool {
    chain.policy == Verdict::Accept && found.iter().all(Decision::refuses)
}

/// Decisions of one base chain.
fn base(table: &Table, chain: &Chain, report: &mut ConversionReport) -> Vec<Decision> {
    let mut flat = Flat::default();
    let end = match chain.policy {
        Verdict::Accept => Action::Accept,
        Verdict::Drop | Verdict::Reject => Action::Drop,
    };
    flat.base(table, chain, &end);
    let decided: std::collections::HashSet<_> = flat.decisions.iter().map(|decision| decision.line).collect();
    for (line, why) in flat.leftovers {
        report.leave(line, why);
    }
    for rule in table.chains.values().flat_map(|chain| &chain.rules) {
        let jumps = rule.meaning.as_ref().is_ok_and(|meaning| {
            let mut steps = meaning.then.iter();
            steps.all(|step| !matches!(step, super::listing::Step::Do(_)))
        });
        if flat.reached.contains(&rule.line) && !jumps && !decided.contains(&rule.line) {
            report.note(rule.line, "no packet reaches this line");
        }
    }
    report.reached.extend(flat.reached);
    let (late, decisions): (Vec<_>, Vec<_>) = flat
        .decisions
        .into_iter()
        .partition(|decision| decision.action == Action::Notrack);
    for decision in late {
        report.leave(
            decision.line,
            "forwarded packets are already tracked before they reach this chain",
        );
    }
    decisions
}

/// Decisions of a chain that other chains follow. The other chains evaluate the packets that this chain accepts.
fn ordered(
    found: Vec<Decision>,
    (table, chain): (&Table, &Chain),
    later: &[(&Table, &Chain)],
    report: &mut ConversionReport,
) -> Vec<Decision> {
    let goes_on = |v6: bool| later.iter().any(|(later, _)| later.families.contains(&v6));
    if !table.families.iter().any(|&v6| goes_on(v6)) {
        return found;
    }
    let mut all = Vec::new();
    for &v6 in &table.families {
        let of: Vec<_> = found
            .iter()
            .filter(|decision| decision.packets.v6 == v6)
            .cloned()
            .collect();
        if !goes_on(v6) {
            all.extend(of);
            continue;
        }
        let policy = (chain.policy != Verdict::Accept).then(|| Decision {
            line: chain.line,
            step: 0,
            packets: Packets::all(v6),
            action: Action::Drop,
            name: None,
        });
        match refusals(&of, policy) {
            Some(refused) => all.extend(refused),
            None => {
                for decision in of {
                    report.leave(
                        decision.line,
                        "other chains also filter the packets that this line accepts, which needs too many rules",
                    );
                }
            }
        }
    }
    all
}
