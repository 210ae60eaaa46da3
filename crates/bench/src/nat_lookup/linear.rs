//! The baseline: linear search of a list that starts with the most specific rule.

use core::cmp::Reverse;

use sluice_table::prefix::Address;
use sluice_table::qns::{Key, Query};

/// Rules with their numbers.
pub struct Linear(Vec<(Key<u32>, u64)>);

impl Linear {
    pub fn new(keys: &[Key<u32>]) -> Self {
        let mut rules: Vec<_> = keys.iter().copied().zip(0..).collect();
        rules.sort_by_key(|(key, _)| {
            (
                Reverse(key.length),
                key.port.is_none(),
                key.protocol.is_none(),
                key.interface.is_none(),
            )
        });
        Self(rules)
    }

    /// Number of the first matching rule.
    pub fn lookup(&self, query: &Query<u32>) -> Option<u64> {
        let matches = |key: &Key<u32>| {
            query.address.masked(key.length) == key.prefix
                && key.context == query.context
                && key.port.is_none_or(|port| Some(port) == query.port)
                && key.protocol.is_none_or(|protocol| protocol == query.protocol)
                && key.interface.is_none_or(|interface| interface == query.interface)
        };
        self.0.iter().find(|(key, _)| matches(key)).map(|(_, number)| *number)
    }
}
