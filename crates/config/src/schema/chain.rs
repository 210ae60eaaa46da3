//! `[routers.NAME.chains]`: processing of a router's packets before sessions and routes.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::rule::Class;
use crate::value::BitRate;

/// A step of a chain: a final action, or a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ChainStep {
    /// Final action of the chain.
    Word(ChainWord),
    /// An action that may be followed by further steps.
    Table(Box<ChainTable>),
}

/// Final action of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChainWord {
    /// Look up sessions if the router uses them, then route.
    Sessions,
    /// Route without sessions.
    Forward,
    /// Drop.
    Drop,
}

/// Action of a step. Exactly one of `count`, `classify`, `police`, `mirror` and `to` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ChainTable {
    /// Count packets under this name, which several steps of the router may share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<String>,
    /// Matching packets continue at the chain `to`. Omitted conditions match everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classify: Option<Class>,
    /// Packets above this rate, or above that of `[policers.NAME]`, are dropped or continue at the chain `exceed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub police: Option<PoliceBy>,
    /// Send an unmodified copy of each packet by this interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
    /// Chain at which packets continue: those that `classify` matches, or all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// With `police`: chain for packets above the rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exceed: Option<String>,
}

/// Rate of a policing step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum PoliceBy {
    /// A rate of this step only.
    Rate(Police),
    /// A policer in `[policers]`, which all steps with the same name share.
    Name(String),
}

/// `[policers.NAME]`, or `police = { … }` of a step: a rate in packets or bits, shared by all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Police {
    /// Packets per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u32>,
    /// Bits per second, of frames without check sequence: `"100M"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits: Option<BitRate>,
    /// Burst in packets or bytes; one second's amount if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

impl<'de> Deserialize<'de> for PoliceBy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;

        impl<'de> Visitor<'de> for Read {
            type Value = PoliceBy;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a policer, or a rate such as { packets = 10000 }")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<PoliceBy, E> {
                Ok(PoliceBy::Name(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PoliceBy, A::Error> {
                Police::deserialize(MapAccessDeserializer::new(map)).map(PoliceBy::Rate)
            }
        }

        deserializer.deserialize_any(Read)
    }
}

impl<'de> Deserialize<'de> for ChainStep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;

        impl<'de> Visitor<'de> for Read {
            type Value = ChainStep;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a step such as \"forward\" or { count = \"all\" }")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<ChainStep, E> {
                let word = match word {
                    "sessions" => ChainWord::Sessions,
                    "forward" => ChainWord::Forward,
                    "drop" => ChainWord::Drop,
                    other => {
                        let hint = "write \"sessions\", \"forward\", \"drop\", or a table such as { to = \"CHAIN\" }";
                        return Err(E::custom(format!("`{other}` is not a step\n{hint}")));
                    }
                };
                Ok(ChainStep::Word(word))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ChainStep, A::Error> {
                ChainTable::deserialize(MapAccessDeserializer::new(map)).map(|table| ChainStep::Table(Box::new(table)))
            }
        }

        deserializer.deserialize_any(Read)
    }
}
