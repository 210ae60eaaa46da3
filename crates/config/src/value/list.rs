//! A value or a list of values, and negated values.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ValueError;

/// One value, or a list of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneOrMore<T>(pub Vec<T>);

impl<T> Default for OneOrMore<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> OneOrMore<T> {
    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Serialize> Serialize for OneOrMore<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => one.serialize(serializer),
            more => more.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de> + FromStr<Err = ValueError>> Deserialize<'de> for OneOrMore<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read<T>(core::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de> + FromStr<Err = ValueError>> Visitor<'de> for Read<T> {
            type Value = OneOrMore<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or a list of values")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<OneOrMore<T>, E> {
                let one: Result<T, _> = text.parse();
                one.map(|one| OneOrMore(vec![one]))
                    .map_err(|e| E::custom(format!("{e}\n{}", e.hint())))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<OneOrMore<T>, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OneOrMore<T>, A::Error> {
                let mut more = Vec::new();
                while let Some(one) = list.next_element()? {
                    more.push(one);
                }
                Ok(OneOrMore(more))
            }
        }

        deserializer.deserialize_any(Read(core::marker::PhantomData))
    }
}

/// A value. With a leading `!`, the value is negated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrNot<T> {
    /// Whether the value is negated.
    pub not: bool,
    /// The value.
    pub value: T,
}

impl<T> From<T> for OrNot<T> {
    fn from(value: T) -> Self {
        Self { not: false, value }
    }
}

impl<T: FromStr> FromStr for OrNot<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        let (not, value) = match text.strip_prefix('!') {
            Some(value) => (true, value.trim_start()),
            None => (false, text),
        };
        Ok(Self {
            not,
            value: value.parse()?,
        })
    }
}

impl<T: fmt::Display> fmt::Display for OrNot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.not {
            true => write!(f, "!{}", self.value),
            false => self.value.fmt(f),
        }
    }
}

impl<T: fmt::Display> Serialize for OrNot<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, T: FromStr<Err = ValueError>> Deserialize<'de> for OrNot<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read<T>(core::marker::PhantomData<T>);

        impl<T: FromStr<Err = ValueError>> Visitor<'_> for Read<T> {
            type Value = OrNot<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value, or a value after \"!\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<OrNot<T>, E> {
                text.parse()
                    .map_err(|e: ValueError| E::custom(format!("{e}\n{}", e.hint())))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<OrNot<T>, E> {
                self.visit_str(&number.to_string())
            }
        }

        deserializer.deserialize_any(Read(core::marker::PhantomData))
    }
}
