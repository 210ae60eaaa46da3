//! Cores of the workers.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Number of workers, or the cores to which they are pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workers {
    /// Number of workers. The cores of the workers are chosen automatically.
    Count(u16),
    /// One worker per listed core.
    Cores(Vec<u16>),
}

impl Serialize for Workers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => count.serialize(serializer),
            Self::Cores(cores) => cores.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;

        impl<'de> Visitor<'de> for Read {
            type Value = Workers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of workers or a list of cores such as [2, 3]")
            }

            fn visit_i64<E: serde::de::Error>(self, count: i64) -> Result<Workers, E> {
                u16::try_from(count).map(Workers::Count).map_err(|_| {
                    E::invalid_value(
                        serde::de::Unexpected::Signed(count),
                        &"a number of workers from 1 to 65535",
                    )
                })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Workers, A::Error> {
                let mut cores = Vec::new();
                while let Some(core) = list.next_element()? {
                    cores.push(core);
                }
                Ok(Workers::Cores(cores))
            }
        }

        deserializer.deserialize_any(Read)
    }
}
