//! A ruleset contains all active rules, which are evaluated in the order of their actions, and their prefilter.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arrayvec::ArrayVec;
use sluice_wire::ipv4::protocol::{ICMP, ICMPV6, TCP, UDP};

use crate::datasets::Dataset;
use crate::evaluate::PacketFields;
use crate::prefilter::{self, PatternClass, Prefilter};
use crate::protocols::{Anomaly, FileHashes};
use crate::rule::{CompileError, FlowVarNames, Rule};
use crate::scope::{Endpoints, HeaderPrecheck};
use crate::signature::{Action, Condition, DatasetTest, Event, Id, Signature, Toward};
use crate::stream::StreamEvent;

/// Represents all protocols other than TCP, UDP and ICMP. No packet carries this number.
const OTHER: u8 = 255;

/// Compiled rules.
#[derive(Debug)]
pub struct Ruleset {
    /// Rules in evaluation order by action: pass, drop, reject, alert.
    rules: Box<[Rule]>,
    /// Header prechecks of all rules in one array. The prechecks exclude most rules.
    prechecks: Box<[HeaderPrecheck]>,
    prefilter: Prefilter,
    /// Rules evaluated for stream data on their ports. The first list is for data to the server, and the second list
    /// for data to the client.
    streams: [PrecheckedRules; 2],
    /// Rules evaluated for single packets. The list has one entry each for TCP, UDP, ICMP and all other protocols.
    packets: [PacketRules; 4],
    /// Rules without a searchable pattern that inspect protocol buffers.
    by_message: Box<[u32]>,
    /// Rules evaluated when an anomaly occurs, indexed by the number of the anomaly.
    by_anomaly: Box<[AnomalyRules]>,
    /// Rules evaluated when a stream event occurs, indexed by the number of the event.
    by_stream_event: Box<[Box<[u32]>]>,
    file_hashes: FileHashes,
    flow_var_words: usize,
}

/// Rules for an anomaly, each with the direction of the messages to which the rule applies.
type AnomalyRules = Box<[(u32, Option<Toward>)]>;

/// Rules that are evaluated in sequence without a pattern match, each with its header precheck.
pub type PrecheckedRules = Box<[(HeaderPrecheck, u32)]>;

/// Subset of a rule list that the ports of a flow select. The subset is usually small if the application of the flow is
/// identified.
#[derive(Clone, Debug, Default)]
pub enum PortSelection {
    /// All rules may apply.
    #[default]
    All,
    /// Only the rules at these indices may apply.
    Some(ArrayVec<u16, 4>),
}

/// Rules that are evaluated for single packets without a pattern match.
#[derive(Debug)]
pub struct PacketRules {
    /// Rules evaluated for every packet.
    pub always: PrecheckedRules,
    /// Rules evaluated for packets on their ports.
    pub by_port: PrecheckedRules,
}

/// A rule that could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRule {
    /// Line in the rule file.
    pub line: u32,
    /// Identifier of the rule.
    pub id: Id,
    /// Reason.
    pub why: Box<str>,
}

/// Compiled signatures in evaluation order.
#[derive(Debug, Default)]
pub struct OrderedRules {
    rules: Vec<Rule>,
    /// Signatures that could not be compiled.
    pub refused: Vec<RefusedRule>,
    notes: usize,
}

impl OrderedRules {
    /// Sorts signatures and compiles their expressions.
    pub fn new(mut signatures: Vec<Signature>) -> Self {
        signatures.sort_by_key(|signature| (signature.action, signature.flow_var_rank()));
        let (mut ordered, mut names) = (Self::default(), FlowVarNames::default());
        for signature in signatures {
            let (line, id) = (signature.line, signature.id);
            match Rule::new(Arc::new(signature), &mut names) {
                Ok(rule) => ordered.rules.push(rule),
                Err(why) => ordered.refuse(line, id, &why),
            }
        }
        ordered.notes = names.words();
        ordered
    }

    fn refuse(&mut self, line: u32, id: Id, why: &CompileError) {
        let why = why.to_string().into();
        self.refused.push(RefusedRule { line, id, why });
    }

    /// Rules that test events, with each event.
    fn events(&self) -> impl Iterator<Item = (u32, &Event)> {
        let numbered = (0..).zip(&self.rules);
        numbered.flat_map(|(number, rule)| {
            let conditions = rule.signature.conditions.iter();
            let events = conditions.filter_map(|condition| match condition {
                Condition::Event(events) => Some(events),
                _ => None,
            });
            events.flatten().map(move |event| (number, event))
        })
    }

    fn of_anomaly(&self, wanted: Anomaly) -> AnomalyRules {
        let of = self.events().filter_map(|(number, event)| match event {
            Event::Anomaly(anomaly, toward) if *anomaly == wanted => Some((number, *toward)),
            _ => None,
        });
        of.collect()
    }

    fn of_stream_event(&self, wanted: StreamEvent) -> Box<[u32]> {
        let of = self.events().filter(|(_, event)| **event == Event::Stream(wanted));
        of.map(|(number, _)| number).collect()
    }

    /// Whether a ruleset has the same rules in the same order.
    pub fn has_same_rules(&self, ruleset: &Ruleset) -> bool {
        let signatures = |rules: &[Rule]| rules.iter().map(|rule| rule.signature.clone()).collect::<Vec<_>>();
        signatures(&self.rules) == signatures(ruleset.rules())
    }

    /// Patterns for which the prefilter searches.
    pub fn pattern_set(&self) -> prefilter::PatternSet {
        prefilter::PatternSet::of(self.rules.iter().map(|rule| &*rule.signature))
    }

    /// Combines the rules with their prefilter.
    pub fn with_prefilter(self, prefilter: Prefilter) -> Ruleset {
        let mut by_message: Vec<u32> = prefilter
            .all_unconditional()
            .filter(|&rule| self.rules.get(rule as usize).is_some_and(Rule::is_message_rule))
            .collect();
        by_message.sort_unstable();
        let outlines: Box<[HeaderPrecheck]> = self
            .rules
            .iter()
            .map(|rule| HeaderPrecheck::of(&rule.signature))
            .collect();
        let listed = |rules: &[u32]| -> PrecheckedRules {
            let outline = |&rule: &u32| outlines.get(rule as usize).map(|outline| (*outline, rule));
            rules.iter().filter_map(outline).collect()
        };
        let packets = [TCP, UDP, ICMP, OTHER].map(|number| {
            let class = if number == TCP {
                PatternClass::Packet
            } else {
                PatternClass::Datagram
            };
            // A rule that inspects a protocol buffer can't match a single packet.
            let is_of = |rule: &u32| {
                let rule = self.rules.get(*rule as usize);
                rule.is_some_and(|rule| rule.matches_protocol(number) && !rule.is_message_rule())
            };
            let has_ports = |rule: &u32| {
                let rule = self.rules.get(*rule as usize);
                rule.is_some_and(|rule| rule.signature.header.has_ports())
            };
            let (narrow, wide): (Vec<u32>, _) = prefilter.all_unconditional().filter(is_of).partition(has_ports);
            let by_port = prefilter.without_pattern(class).iter().copied().filter(is_of);
            let sorted = |mut rules: Vec<u32>| {
                rules.sort_unstable();
                listed(&rules)
            };
            PacketRules {
                always: sorted(wide),
                by_port: sorted(narrow.into_iter().chain(by_port).collect()),
            }
        });
        let mut file_hashes = FileHashes::NONE;
        let required = self.rules.iter().flat_map(|rule| rule.signature.file_hashes());
        required.for_each(|buffer| file_hashes.insert(buffer));
        Ruleset {
            file_hashes,
            streams: [Toward::Server, Toward::Client]
                .map(|toward| listed(prefilter.without_pattern(PatternClass::Stream(toward)))),
            packets,
            prechecks: outlines,
            by_message: by_message.into(),
            by_anomaly: Anomaly::ALL.iter().map(|&anomaly| self.of_anomaly(anomaly)).collect(),
            by_stream_event: StreamEvent::ALL
                .iter()
                .map(|&event| self.of_stream_event(event))
                .collect(),
            rules: self.rules.into(),
            prefilter,
            flow_var_words: self.notes,
        }
    }
}

impl Ruleset {
    /// All rules in evaluation order. The number of a rule is its index in the list.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rule with this number.
    #[inline(always)]
    pub fn rule(&self, number: u32) -> Option<&Rule> {
        self.rules.get(number as usize)
    }

    /// Whether a rule may match this packet: a fast precheck without false negatives.
    #[inline(always)]
    pub fn may_match(&self, number: u32, ends: &Endpoints, facts: &PacketFields) -> bool {
        self.prechecks
            .get(number as usize)
            .is_some_and(|outline| outline.may_match(ends, facts))
    }

    /// Rules evaluated for the stream data of one direction on their ports.
    #[inline(always)]
    pub fn stream_rules(&self, toward: Toward) -> &[(HeaderPrecheck, u32)] {
        &self.streams[toward as usize]
    }

    /// Rules evaluated for single packets of an IP protocol.
    #[inline(always)]
    pub fn packet_rules(&self, protocol: u8) -> &PacketRules {
        let place = match protocol {
            TCP => 0,
            UDP => 1,
            ICMP | ICMPV6 => 2,
            _ => 3,
        };
        &self.packets[place]
    }

    /// Selects the rules of a list that match this source and destination port in their header.
    pub fn select_by_ports(&self, rules: &[(HeaderPrecheck, u32)], ports: [u16; 2]) -> PortSelection {
        let is_of = |&(_, (_, rule)): &(u16, &(HeaderPrecheck, u32))| {
            self.rule(*rule)
                .is_some_and(|rule| rule.signature.header.matches_ports(ports))
        };
        let mut places = ArrayVec::new();
        for (place, _) in (0..=u16::MAX).zip(rules).filter(is_of) {
            if places.try_push(place).is_err() {
                return PortSelection::All;
            }
        }
        match rules.len() {
            0..=0xffff => PortSelection::Some(places),
            _ => PortSelection::All,
        }
    }

    /// The prefilter of the rules.
    pub fn prefilter(&self) -> &Prefilter {
        &self.prefilter
    }

    /// Sorted indices of the rules that are evaluated at the end of each message, because they have no searchable
    /// pattern.
    pub fn message_rules(&self) -> &[u32] {
        &self.by_message
    }

    /// Rules evaluated when an anomaly occurs, each with the direction of the messages to which the rule applies.
    pub fn of_anomaly(&self, anomaly: Anomaly) -> &[(u32, Option<Toward>)] {
        self.by_anomaly.get(anomaly as usize).map_or(&[], |rules| rules)
    }

    /// Rules evaluated when an event occurs in a TCP connection.
    pub fn of_stream_event(&self, event: StreamEvent) -> &[u32] {
        self.by_stream_event.get(event as usize).map_or(&[], |rules| rules)
    }

    /// File hashes that the rules test.
    #[inline(always)]
    pub fn file_hashes(&self) -> FileHashes {
        self.file_hashes
    }

    /// Number of 64-bit words that a flow needs for its flow variables.
    pub fn flow_var_words(&self) -> usize {
        self.flow_var_words
    }

    /// Number of values that rules could not add to lists because no slot was free.
    pub fn values_lost(&self) -> u64 {
        let mut sets: Vec<&Arc<Dataset>> = Vec::new();
        let conditions = self.rules.iter().flat_map(|rule| &rule.signature.conditions);
        for condition in conditions {
            if let Condition::Dataset(DatasetTest { set, .. }) = condition
                && !sets.iter().any(|known| Arc::ptr_eq(known, set))
            {
                sets.push(set);
            }
        }
        sets.iter().map(|set| set.full.load(Relaxed)).sum()
    }

    /// Whether any rule drops or rejects.
    pub fn has_drop_rules(&self) -> bool {
        self.rules
            .iter()
            .any(|rule| matches!(rule.signature.action, Action::Drop | Action::Reject))
    }
}
