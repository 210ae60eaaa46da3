//! Messages of inspection rules by rule number. Messages are kept for the running generation, and for some earlier
//! generations to which queued alerts may still refer.

use std::collections::VecDeque;

use sluice_inspect::Ruleset;
use sluice_inspect::inspector::RuleNumber;
use sluice_inspect::signature::{Id, Signature};

/// Number of generations kept. If a rule of an earlier generation has blocked a flow, alerts of the flow still refer to
/// that rule.
const CAPACITY: usize = 4;

/// Description of a rule. The rule's conditions, which take most of the memory of a rule, are omitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownRule {
    /// Signature ID.
    pub id: Id,
    /// Message.
    pub message: Box<str>,
    /// Class type.
    pub class: Box<str>,
    /// Priority; 1 is the most urgent.
    pub priority: u8,
}

impl From<&Signature> for KnownRule {
    fn from(signature: &Signature) -> Self {
        Self {
            id: signature.id,
            message: signature.message.clone(),
            class: signature.class.clone().unwrap_or_default(),
            priority: signature.priority,
        }
    }
}

/// Rules of the most recent generations.
#[derive(Debug, Default)]
pub struct KnownRules(VecDeque<(u32, Box<[KnownRule]>)>);

impl KnownRules {
    /// Register the rules of a generation.
    pub fn learn(&mut self, generation: u32, rules: &Ruleset) {
        if self.0.back().is_some_and(|(known, _)| *known == generation) {
            return;
        }
        if self.0.len() == CAPACITY {
            self.0.pop_front();
        }
        let known = rules.rules().iter().map(|rule| KnownRule::from(&*rule.signature));
        self.0.push_back((generation, known.collect()));
    }

    /// Return a rule by number. `None` if the generation of the rule is no longer kept.
    pub fn get(&self, rule: RuleNumber) -> Option<&KnownRule> {
        let (_, rules) = self
            .0
            .iter()
            .rev()
            .find(|(generation, _)| *generation == rule.generation)?;
        rules.get(rule.number as usize)
    }
}

#[cfg(test)]
mod tests {
    use sluice_inspect::ruleset::OrderedRules;
    use sluice_inspect::signatures::{Classes, Dialect, Variables, read};

    use super::*;

    fn rules(signature: u32) -> Ruleset {
        let text = format!("alert udp any any -> any any (msg:\"rule {signature}\"; content:\"x\"; sid:{signature};)");
        let (variables, classes) = (Variables::default(), Classes::default());
        let ordered = OrderedRules::new(read(text.as_bytes(), Dialect::Suricata, &variables, &classes).signatures);
        let prefilter = ordered.pattern_set().compile(&mut |_, _| {}).unwrap();
        ordered.with_prefilter(prefilter)
    }

    #[test]
    fn rules_of_the_last_generations_are_known_by_their_numbers() {
        let mut known = KnownRules::default();
        for generation in 1..=5 {
            known.learn(generation, &rules(generation * 10));
            // A generation that is registered twice is stored only once.
            known.learn(generation, &rules(generation * 10));
        }
        let record = |generation, number| {
            let rule = known.get(RuleNumber { generation, number });
            rule.map(|rule| rule.id.signature)
        };
        assert_eq!(
            [None, Some(20), Some(50), None],
            [record(1, 0), record(2, 0), record(5, 0), record(6, 0)]
        );
        assert_eq!(None, record(5, 1));
    }
}
