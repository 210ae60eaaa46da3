//! A value for all protocols, or one value for each protocol.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value per protocol. The value is written as one value for TCP, UDP and ICMP queries, or as a table: `{ tcp = …,
/// udp = …, icmp = … }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByProtocol<T> {
    /// Value for TCP.
    pub tcp: Option<T>,
    /// Value for UDP.
    pub udp: Option<T>,
    /// Value for ICMP queries.
    pub icmp: Option<T>,
}

impl<T> Default for ByProtocol<T> {
    /// No values.
    fn default() -> Self {
        Self {
            tcp: None,
            udp: None,
            icmp: None,
        }
    }
}

impl<T: Copy + PartialEq> ByProtocol<T> {
    /// Keys of the table.
    pub const NAMES: [&'static str; 3] = ["tcp", "udp", "icmp"];

    /// The same value for all protocols.
    pub fn all(value: T) -> Self {
        Self::from([Some(value); 3])
    }

    /// Values for TCP, UDP and ICMP queries.
    pub fn each(&self) -> [Option<T>; 3] {
        [self.tcp, self.udp, self.icmp]
    }

    /// Whether all protocols have the same value.
    pub fn is_one(&self) -> bool {
        self.tcp.is_some() && self.tcp == self.udp && self.tcp == self.icmp
    }

    /// Whether no protocol has a value.
    pub fn is_empty(&self) -> bool {
        self.each().iter().all(Option::is_none)
    }
}

impl<T> From<[Option<T>; 3]> for ByProtocol<T> {
    fn from([tcp, udp, icmp]: [Option<T>; 3]) -> Self {
        Self { tcp, udp, icmp }
    }
}

/// The notation as a table.
#[derive(Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    default,
    bound(deserialize = "T: Deserialize<'de>")
)]
struct Table<T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    udp: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp: Option<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            tcp: None,
            udp: None,
            icmp: None,
        }
    }
}

impl<T: Serialize + Copy + PartialEq> Serialize for ByProtocol<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let &Self { tcp, udp, icmp } = self;
        match tcp {
            Some(value) if self.is_one() => value.serialize(serializer),
            _ => Table { tcp, udp, icmp }.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de> + Copy + PartialEq> Deserialize<'de> for ByProtocol<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de> + Copy + PartialEq> Visitor<'de> for Read<T> {
            type Value = ByProtocol<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one value for all protocols, or a table such as { tcp = …, udp = …, icmp = … }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                T::deserialize(text.into_deserializer()).map(ByProtocol::all)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                T::deserialize(number.into_deserializer()).map(ByProtocol::all)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let Table { tcp, udp, icmp } = Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ByProtocol { tcp, udp, icmp })
            }
        }

        deserializer.deserialize_any(Read(PhantomData))
    }
}
