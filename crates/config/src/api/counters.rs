//! Counters in answers. The daemon declares each counter once; the answers contain whatever is declared.

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::InspectionReason;

/// A counter of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct WorkerCounter {
    /// Name of the counter.
    pub name: String,
    /// Value of the counter.
    pub count: u64,
    /// Unit of the value: `packets`, `bytes`, `sessions` and others.
    #[serde(default)]
    pub unit: String,
    /// `total` if the value is a count since the start, `gauge` if it is the current value.
    #[serde(default)]
    pub kind: String,
}

impl WorkerCounter {
    /// Whether the value is the current one, not a count since the start.
    pub fn is_gauge(&self) -> bool {
        self.kind == "gauge"
    }
}

/// Counters as members of an answer: a number, or a list with a number for each value of a label. They have the order of
/// their declaration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterValues(pub Vec<(String, CounterValue)>);

/// Value of a counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CounterValue {
    /// The value of a counter without a label.
    Single(u64),
    /// The values of a counter with a label. Values of zero are omitted.
    ByLabel(Vec<InspectionReason>),
}

impl CounterValue {
    /// The value, or the sum of the values.
    pub fn total(&self) -> u64 {
        match self {
            Self::Single(count) => *count,
            Self::ByLabel(values) => values.iter().map(|value| value.packets).sum(),
        }
    }
}

impl CounterValues {
    /// The value of a counter, or the sum of its values. 0 if the answer does not contain it.
    pub fn total(&self, name: &str) -> u64 {
        let counted = self.0.iter().find(|(known, _)| known == name);
        counted.map_or(0, |(_, count)| count.total())
    }
}

impl Serialize for CounterValues {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, count)| (name, count)))
    }
}

impl<'de> Deserialize<'de> for CounterValues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// A member of the answer. Members of other types are not counters.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Member {
            CounterValue(CounterValue),
            Other(IgnoredAny),
        }

        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = CounterValues;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("counters by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CounterValues, A::Error> {
                let mut counts = Vec::new();
                while let Some((name, member)) = map.next_entry()? {
                    match member {
                        Member::CounterValue(count) => counts.push((name, count)),
                        Member::Other(IgnoredAny) => {}
                    }
                }
                Ok(CounterValues(counts))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Answer {
        name: String,
        #[serde(flatten)]
        counts: CounterValues,
    }

    #[test]
    fn counts_are_members_of_the_answer_in_their_order() {
        let reason = InspectionReason {
            reason: "overload".into(),
            help: "The worker is overloaded.".into(),
            packets: 3,
        };
        let answer = Answer {
            name: "gateway".into(),
            counts: CounterValues(vec![
                ("waiting".into(), CounterValue::Single(7)),
                ("bypassed-by-reason".into(), CounterValue::ByLabel(vec![reason])),
                ("alerts".into(), CounterValue::Single(0)),
            ]),
        };
        let text = serde_json::to_string(&answer).expect("JSON");
        let expected = concat!(
            r#"{"name":"gateway","waiting":7,"bypassed-by-reason":[{"reason":"overload","#,
            r#""help":"The worker is overloaded.","packets":3}],"alerts":0}"#
        );
        assert_eq!(expected, text);
        assert_eq!(answer, serde_json::from_str(&text).expect("an answer"));
        assert_eq!((7, 3, 0), {
            let total = |name| answer.counts.total(name);
            (total("waiting"), total("bypassed-by-reason"), total("absent"))
        });
    }

    #[test]
    fn members_that_are_no_counters_are_not_counts() {
        let answer: Answer =
            serde_json::from_str(r#"{"name":"gateway","search":{"loaded":true},"alerts":2}"#).expect("an answer");
        assert_eq!(
            CounterValues(vec![("alerts".into(), CounterValue::Single(2))]),
            answer.counts
        );
    }
}
