//! The rules that are in force together: asked in the order of their actions, found by one search.

use std::sync::Arc;

use crate::evaluate::Facts;
use crate::prefilter::{self, Class, Prefilter};
use crate::rule::{Names, Rule, Unfit};
use crate::scope::{Ends, Outline};
use crate::signature::{Action, Id, Protocol, Signature};

/// Rules, compiled.
#[derive(Debug)]
pub struct Ruleset {
    /// In the order in which they are asked: rules that pass first, then those that drop, reject, and report.
    rules: Box<[Rule]>,
    /// What most rules are ruled out by, side by side.
    outlines: Box<[Outline]>,
    prefilter: Prefilter,
    /// Rules that are asked without anything found, those of one kind side by side.
    by_protocol: Vec<(Protocol, Listed)>,
    by_port: Vec<(Class, Listed)>,
    /// Those that nothing is searched for, and that look in buffers of a protocol.
    by_message: Box<[u32]>,
    notes: usize,
}

/// Rules that are asked one after the other, what most are ruled out by beside each.
pub type Listed = Box<[(Outline, u32)]>;

/// A rule that is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Line of its file.
    pub line: u32,
    /// Its number.
    pub id: Id,
    /// Why.
    pub why: Box<str>,
}

/// Signatures in the order in which they are asked, each fit to be asked.
#[derive(Debug, Default)]
pub struct Ordered {
    rules: Vec<Rule>,
    /// Signatures that PCRE2 does not take.
    pub refused: Vec<Refused>,
    notes: usize,
}

impl Ordered {
    /// Order signatures, and compile their expressions.
    pub fn new(mut signatures: Vec<Signature>) -> Self {
        signatures.sort_by_key(|signature| signature.action);
        let (mut ordered, mut names) = (Self::default(), Names::default());
        for signature in signatures {
            let (line, id) = (signature.line, signature.id);
            match Rule::new(Arc::new(signature), &mut names) {
                Ok(rule) => ordered.rules.push(rule),
                Err(why) => ordered.refuse(line, id, &why),
            }
        }
        ordered.notes = names.len();
        ordered
    }

    fn refuse(&mut self, line: u32, id: Id, why: &Unfit) {
        let why = why.to_string().into();
        self.refused.push(Refused { line, id, why });
    }

    /// What is to be searched for.
    pub fn plan(&self) -> prefilter::Plan {
        prefilter::Plan::of(self.rules.iter().map(|rule| &*rule.signature))
    }

    /// The rules, with what finds them.
    pub fn with(self, prefilter: Prefilter) -> Ruleset {
        let mut by_message: Vec<u32> = prefilter
            .all_unconditional()
            .filter(|&rule| self.rules.get(rule as usize).is_some_and(Rule::is_by_message))
            .collect();
        by_message.sort_unstable();
        let outlines: Box<[Outline]> = self.rules.iter().map(|rule| Outline::of(&rule.signature)).collect();
        let listed = |rules: &[u32]| -> Listed {
            let outline = |&rule: &u32| outlines.get(rule as usize).map(|outline| (*outline, rule));
            rules.iter().filter_map(outline).collect()
        };
        let by_protocol = |&protocol: &_| (protocol, listed(prefilter.unconditional(protocol)));
        let by_port = |class| (class, listed(prefilter.by_port(class)));
        Ruleset {
            by_protocol: prefilter.unconditional_protocols().map(by_protocol).collect(),
            by_port: Class::WHOLE.map(by_port).into(),
            outlines,
            by_message: by_message.into(),
            rules: self.rules.into(),
            prefilter,
            notes: self.notes,
        }
    }
}

impl Ruleset {
    /// All of them, in the order in which they are asked: a rule's number is its place.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// A rule by its number.
    #[inline(always)]
    pub fn rule(&self, number: u32) -> Option<&Rule> {
        self.rules.get(number as usize)
    }

    /// Whether a rule may be about these; a quick look, without a false no.
    #[inline(always)]
    pub fn may_be_about(&self, number: u32, ends: &Ends, facts: &Facts) -> bool {
        self.outlines
            .get(number as usize)
            .is_some_and(|outline| outline.may_hold(ends, facts))
    }

    /// Rules, of this protocol in their header, that are asked without anything found.
    #[inline(always)]
    pub fn by_protocol(&self, protocol: Protocol) -> &[(Outline, u32)] {
        let of_protocol = self.by_protocol.iter().find(|(of, _)| *of == protocol);
        of_protocol.map_or(&[], |(_, rules)| rules)
    }

    /// Rules that are asked about all data of a class that their ports have; none of a buffer.
    #[inline(always)]
    pub fn by_port(&self, class: Class) -> &[(Outline, u32)] {
        let of_class = self.by_port.iter().find(|(of, _)| *of == class);
        of_class.map_or(&[], |(_, rules)| rules)
    }

    /// Whether any of [`Ruleset::by_port`] is about packets from the first of these ports to the second.
    pub fn is_of_ports(&self, class: Class, ports: [u16; 2]) -> bool {
        let is_of = |&(_, rule): &(Outline, u32)| {
            self.rule(rule)
                .is_some_and(|rule| rule.signature.header.is_of_ports(ports))
        };
        self.by_port(class).iter().any(is_of)
    }

    /// What finds candidates.
    pub fn prefilter(&self) -> &Prefilter {
        &self.prefilter
    }

    /// Rules that are asked of each message that ends, for nothing that could be searched for finds them; sorted.
    pub fn by_message(&self) -> &[u32] {
        &self.by_message
    }

    /// Words of notes that each flow takes.
    pub fn note_words(&self) -> usize {
        self.notes.div_ceil(64)
    }

    /// Whether any rule stops what it matches.
    pub fn stops(&self) -> bool {
        self.rules
            .iter()
            .any(|rule| matches!(rule.signature.action, Action::Drop | Action::Reject))
    }
}
