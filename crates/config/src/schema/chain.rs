//! `[routers.NAME.chains]`: what a router's packets do before sessions and routes.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::rule::Class;
use crate::value::BitRate;

/// A step of a chain: a word at its end, or a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ChainStep {
    /// Where packets go on.
    Word(ChainWord),
    /// What is done with them.
    Table(Box<ChainTable>),
}

/// Where packets go on that have come to the end of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChainWord {
    /// To their sessions, where the router has them; `forward` follows.
    Sessions,
    /// To be routed.
    Forward,
    /// Nowhere.
    Drop,
}

/// What is done with packets. Each has one of `count`, `classify`, `police`, `mirror` and `to` alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ChainTable {
    /// Count them under this name, which several steps of the router may share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<String>,
    /// Those that match go on at the chain `to`. What is not named may be anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classify: Option<Class>,
    /// What is above this rate, or that of `[policers.NAME]`, is dropped, or goes on at the chain `exceed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub police: Option<PoliceBy>,
    /// A copy of each leaves by this interface, as it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
    /// The chain to go on at: of those that `classify` matches, or of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// With `police`: the chain for what is above the rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exceed: Option<String>,
}

/// What a step keeps to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum PoliceBy {
    /// A rate of its own.
    Rate(Police),
    /// One of `[policers]`, with all steps that name it.
    Name(String),
}

/// `[policers.NAME]`, or `police = { … }` of a step: a rate that all workers keep to together, of packets or of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Police {
    /// Packets a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u32>,
    /// Bits a second, frames without their check sequence: `"100M"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits: Option<BitRate>,
    /// Packets, or bytes, at once; as many as a second's where not given.
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
