//! Converts input chains to rules with `out = "gateway"`.

use super::filter::{HookDecisions, end};
use super::interfaces::{is_open, widen, without_loopback};
use super::listing::{Action, Decision, Listing};
use super::packets::Field;
use super::{ConversionReport, rules, sessions};
use crate::schema::{FilterRule, Verdict};
use crate::value::GATEWAY;

const BY_LOOPBACK: &str = "packets that the host sends to itself through the loopback interface do not reach Sluice";
const LEAVES: &str = "packets to the gateway have no output interface";
const PASSES: &str = "not needed: packets to the gateway pass, because the chain refuses no packets";
const CALLED: &str = "an interface is named `gateway`, but in rules of Sluice `gateway` means the gateway itself";

/// Decisions on packets that open flows to the gateway, and the policies for all other packets, for each address
/// family.
pub fn decisions(
    chains: HookDecisions,
    listing: &Listing,
    report: &mut ConversionReport,
) -> (Vec<Decision>, [Verdict; 2]) {
    let HookDecisions {
        decisions,
        policies,
        ends,
    } = chains;
    let end = |v6| end(policies, v6);
    if listing.interfaces.contains(GATEWAY) {
        let lines = decisions.iter().map(|decision| decision.line);
        lines
            .chain(ends.into_iter().flatten())
            .for_each(|line| report.leave(line, CALLED));
        return (Vec::new(), [Verdict::Accept; 2]);
    }
    let decisions = without_loopback(decisions, listing, report, BY_LOOPBACK);
    let decisions = without_way_out(decisions, listing, report);
    let refuses = policies != [Verdict::Accept; 2] || decisions.iter().any(Decision::refuses);
    if !refuses && decisions.iter().all(Decision::decides) {
        decisions.iter().for_each(|decision| report.note(decision.line, PASSES));
        return (Vec::new(), policies);
    }
    let decisions = sessions::of_input(decisions, &end, ends, report);
    for decision in decisions
        .iter()
        .filter(|decision| decision.packets.get(Field::Length).is_some())
    {
        report.note(
            decision.line,
            "if a datagram is fragmented, only its first fragment has a length",
        );
    }
    if refuses {
        remarks(&decisions, report);
    }
    (widen(decisions, &end, listing.interfaces.len()), policies)
}

fn remarks(decisions: &[Decision], report: &mut ConversionReport) {
    report
        .remarks
        .push("ARP, neighbour discovery, packets of tunnels and relayed DHCP reach the gateway without a rule.".into());
    let is_service = |decision: &Decision| {
        let protocols = decision.packets.get(Field::Protocol);
        decision.action == Action::Accept
            && protocols.is_some_and(|protocols| protocols.holds(rules::TCP) || protocols.holds(rules::UDP))
    };
    if decisions.iter().any(is_service) {
        report.remarks.push(
            "TCP and UDP packets that rules accept to the gateway reach a daemon only if [routers.default] has \
             `daemon = true`."
                .into(),
        );
    }
}

/// Removes the output interface from decisions. In nft, a decision with an output interface never matches packets to
/// the gateway. In iptables, a decision with an output interface matches packets to the gateway only if the interface
/// is excluded.
fn without_way_out(decisions: Vec<Decision>, listing: &Listing, report: &mut ConversionReport) -> Vec<Decision> {
    let known = listing.interfaces.len();
    let matches = |mut decision: Decision| {
        if decision.packets.get(Field::Out).is_some() {
            let is_nft = listing
                .lines
                .get(decision.line)
                .is_some_and(|line| line.place.is_some());
            if is_nft || !is_open(&decision.packets, Field::Out, known) {
                report.note(decision.line, LEAVES);
                return None;
            }
            decision.packets = decision.packets.with_any(Field::Out);
        }
        Some(decision)
    };
    decisions.into_iter().filter_map(matches).collect()
}

/// Rules that implement the policies.
pub fn ends(policies: [Verdict; 2]) -> Vec<FilterRule> {
    let drops = policies.map(|policy| policy != Verdict::Accept);
    let rule = |v6| rules::of_gateway(rules::everything(v6, Action::Drop));
    match drops {
        [true, true] => vec![rules::of_gateway(rules::bare(&Action::Drop))],
        [v4, v6] => [(v4, false), (v6, true)]
            .into_iter()
            .filter(|(drops, _)| *drops)
            .map(|(_, v6)| rule(v6))
            .collect(),
    }
}
