//! The list of one router's routes, which only the writer uses.

use std::collections::HashMap;

use super::Address;
use super::reader::LongestMatch;

const VALUE_BITS: u32 = 23;

/// Routes in groups. The prefixes of a group end in one byte position and have equal preceding bytes. One search of a
/// group finds a route, its covering routes and its adjacent routes.
///
/// A route in a group is stored as one word. The word contains the value of the route, and the number of the route's
/// prefix among the 510 prefixes of 1 to 8 bits. The words of a group are sorted.
#[derive(Debug)]
pub struct Routes<A> {
    groups: HashMap<(A, u8), Vec<u32>>,
    /// Number of groups, by number of preceding bytes.
    depths: [u32; 16],
    default: Option<u32>,
    count: usize,
}

/// Group of a route, and number of the route's prefix in the group.
#[inline]
fn place<A: Address>(prefix: A, length: u8) -> ((A, u8), u32) {
    let depth = (length - 1) / 8;
    (
        (prefix.masked(8 * depth), depth),
        number(prefix, depth, length - 8 * depth),
    )
}

/// Number of a prefix in its group. The prefix consists of the first `bits` bits of the byte at `depth` in the address.
#[inline]
fn number<A: Address>(address: A, depth: u8, bits: u8) -> u32 {
    1 << bits | (address.byte(depth.into()) >> (8 - bits)) as u32
}

/// Position of a prefix in its group, or its insertion position.
fn search(group: &[u32], number: u32) -> Result<usize, usize> {
    group.binary_search_by_key(&number, |word| word >> VALUE_BITS)
}

fn value(word: u32) -> u32 {
    word & ((1 << VALUE_BITS) - 1)
}

impl<A: Address> Routes<A> {
    /// Creates a list without routes.
    pub fn new() -> Self {
        Self {
            groups: HashMap::new(),
            depths: [0; 16],
            default: None,
            count: 0,
        }
    }

    /// Number of routes.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Value of the route with exactly this prefix and length.
    pub fn get(&self, prefix: A, length: u8) -> Option<u32> {
        if length == 0 {
            return self.default;
        }
        let (key, number) = place(prefix, length);
        let group = self.groups.get(&key)?;
        search(group, number).ok().map(|at| value(group[at]))
    }

    /// Adds a route or changes its value. Returns the previous value.
    pub fn insert(&mut self, prefix: A, length: u8, new: u32) -> Option<u32> {
        if length == 0 {
            self.count += usize::from(self.default.is_none());
            return self.default.replace(new);
        }
        let (key, number) = place(prefix, length);
        let group = self.groups.entry(key).or_default();
        if group.is_empty() {
            self.depths[key.1 as usize] += 1;
        }
        let word = number << VALUE_BITS | new;
        match search(group, number) {
            Ok(at) => Some(value(std::mem::replace(&mut group[at], word))),
            Err(at) => {
                // Allocate no spare capacity for a group with one route, because most groups stay small.
                if group.len() == group.capacity() {
                    group.reserve_exact((group.len() / 2).max(1));
                }
                group.insert(at, word);
                self.count += 1;
                None
            }
        }
    }

    /// Removes a route. Returns its value.
    pub fn remove(&mut self, prefix: A, length: u8) -> Option<u32> {
        if length == 0 {
            self.count -= usize::from(self.default.is_some());
            return self.default.take();
        }
        let (key, number) = place(prefix, length);
        let group = self.groups.get_mut(&key)?;
        let at = search(group, number).ok()?;
        let old = value(group.remove(at));
        if group.is_empty() {
            self.groups.remove(&key);
            self.depths[key.1 as usize] -= 1;
        }
        self.count -= 1;
        Some(old)
    }

    /// The most specific route, other than the default route, that covers `prefix` and whose prefix is shorter than
    /// `length`.
    pub fn covering(&self, prefix: A, length: u8) -> Option<LongestMatch> {
        let mut below = length;
        while below > 1 {
            let depth = (below - 2) / 8;
            if self.depths[depth as usize] > 0
                && let Some(group) = self.groups.get(&(prefix.masked(8 * depth), depth))
            {
                for bits in (1..below - 8 * depth).rev() {
                    if let Ok(at) = search(group, number(prefix, depth, bits)) {
                        return Some(LongestMatch {
                            value: value(group[at]),
                            length: 8 * depth + bits,
                        });
                    }
                }
            }
            below = 8 * depth + 1;
        }
        None
    }

    /// Values of all routes.
    pub fn values(&self) -> impl Iterator<Item = u32> + '_ {
        let words = self.groups.values().flatten();
        self.default.into_iter().chain(words.map(|word| value(*word)))
    }

    /// All routes as (prefix, length, value), sorted by prefix. For equal prefixes, shorter lengths come first.
    pub fn sorted(&self) -> Vec<(A, u8, u32)> {
        let mut all = Vec::with_capacity(self.count);
        all.extend(self.default.map(|value| (A::from_high(0), 0, value)));
        for ((high, depth), group) in &self.groups {
            all.extend(group.iter().map(|word| {
                let number = word >> VALUE_BITS;
                let bits = number.ilog2() as u8;
                let byte = ((number ^ 1 << bits) << (8 - bits)) as u8;
                (high.with_byte((*depth).into(), byte), 8 * depth + bits, value(*word))
            }));
        }
        all.sort_unstable();
        all
    }

    /// Number of allocated bytes, estimated from the capacity of the map and of the groups.
    pub fn bytes(&self) -> usize {
        let slots = self.groups.capacity() * 8 / 7 * (size_of::<((A, u8), Vec<u32>)>() + 1);
        // The allocator adds at most sixteen bytes to a small block, by rounding and metadata.
        let groups = self
            .groups
            .values()
            .map(|group| group.capacity() * size_of::<u32>() + 16);
        size_of::<Self>() + slots + groups.sum::<usize>()
    }
}
