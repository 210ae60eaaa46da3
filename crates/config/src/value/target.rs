//! Targets of destination rules.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ValueError;

/// Target of a destination rule, written as an address, as `"gateway"`, or as a list of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One host.
    Host(Ipv4Addr),
    /// The gateway's own address on the input interface.
    Gateway,
    /// One of several hosts.
    Hosts(Vec<TargetHost>),
}

/// One of several hosts, written as an address or as `{ host = …, weight = … }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetHost {
    /// Address of the host.
    pub host: Ipv4Addr,
    /// Weight relative to the other hosts. Default: 1.
    pub weight: u16,
}

/// The notation of a host as a table.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    host: Ipv4Addr,
    #[serde(default = "one")]
    weight: u16,
}

fn one() -> u16 {
    1
}

/// Name of the gateway itself in lists of hosts and interfaces.
pub const GATEWAY: &str = "gateway";
const EXPECTED: &str = "an address, \"gateway\", or a list of hosts";

fn address(text: &str) -> Result<Ipv4Addr, ValueError> {
    text.parse().map_err(|_| ValueError::Address(text.to_owned()))
}

impl FromStr for Target {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            GATEWAY => Ok(Self::Gateway),
            text => address(text)
                .map(Self::Host)
                .map_err(|_| ValueError::Target(text.to_owned())),
        }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Host(host) => host.serialize(serializer),
            Self::Gateway => serializer.serialize_str(GATEWAY),
            Self::Hosts(hosts) => {
                let mut list = serializer.serialize_seq(Some(hosts.len()))?;
                hosts.iter().try_for_each(|host| list.serialize_element(host))?;
                list.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;

        impl<'de> Visitor<'de> for Read {
            type Value = Target;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Target, E> {
                text.parse()
                    .map_err(|wrong: ValueError| E::custom(format!("{wrong}\n{}", wrong.hint())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Target, A::Error> {
                let mut hosts = Vec::new();
                while let Some(host) = list.next_element()? {
                    hosts.push(host);
                }
                Ok(Target::Hosts(hosts))
            }
        }
        deserializer.deserialize_any(Read)
    }
}

impl Serialize for TargetHost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { host, weight } = *self;
        match weight {
            1 => host.serialize(serializer),
            _ => Table { host, weight }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for TargetHost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;

        impl<'de> Visitor<'de> for Read {
            type Value = TargetHost;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address, or a table with `host` and `weight`")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<TargetHost, E> {
                let host = address(text).map_err(|wrong| E::custom(format!("{wrong}\n{}", wrong.hint())))?;
                Ok(TargetHost { host, weight: 1 })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TargetHost, A::Error> {
                let Table { host, weight } = Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(TargetHost { host, weight })
            }
        }
        deserializer.deserialize_any(Read)
    }
}
