//! `[routers.NAME.chains]`: processing of a router's packets before session lookup and routing.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::rule::Class;
use crate::value::BitRate;

/// A step of a chain: a word for a final action, or a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ChainStep {
    /// Final action of the chain.
    Word(ChainWord),
    /// An action after which further steps may follow.
    Table(Box<ChainTable>),
}

/// Final action of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChainWord {
    /// Look up the session, if the router uses sessions, then route.
    Sessions,
    /// Route without a session lookup.
    Forward,
    /// Drop the packet.
    Drop,
}

/// Action of a step. Exactly one of `count`, `classify`, `police`, `mirror` and `to` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ChainTable {
    /// Count packets under this name. Several steps of the router may share the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<String>,
    /// Packets that match continue at the chain `to`. Omitted conditions match everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classify: Option<Class>,
    /// Packets above this rate, or above the rate of `[policers.NAME]`, are dropped, or continue at the chain `exceed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub police: Option<PoliceBy>,
    /// Send an unmodified copy of each packet on this interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
    /// Chain at which packets continue. With `classify`, only packets that match continue there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Only with `police`: chain for packets above the rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exceed: Option<String>,
}

/// Rate of a policing step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum PoliceBy {
    /// A rate that applies only to this step.
    Rate(Police),
    /// A policer in `[policers]`. All steps that name the policer share its rate.
    Name(String),
}

/// `[policers.NAME]`, or `police = { … }` of a step: a rate in packets or bits, which all workers share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Police {
    /// Packets per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u32>,
    /// Bits per second, of frames without check sequence: `"100M"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits: Option<BitRate>,
    /// Burst in packets or bytes. If omitted, the burst is the number of packets or bytes of one second.
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
