//! Hop sets: sets of next hops for multipath routes (ECMP), and selection of a member for each flow.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use crate::NextHop;

/// Maximum number of members in a set.
pub const MAX_MEMBERS: usize = 64;

/// Maximum number of sets in the process.
pub const MAX_SETS: usize = 4096;

/// Number of hash buckets in a set. Flows are hashed to buckets. The number of buckets of a member is proportional to
/// its weight.
pub const BUCKETS: usize = 1024;

/// Balancing granularity: packets of one flow, or of one source host, use one member of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Balance {
    /// All packets of a flow use one member.
    #[default]
    Flow,
    /// All flows of a source address use one member.
    Host,
}

/// A set of next hops with weights.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HopSet {
    members: Vec<(NextHop, u8)>,
    balance: Balance,
}

/// Why a set of next hops is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HopSetError {
    /// The set has no members or too many members.
    #[error("the route has {0} next hops, but 1 to {MAX_MEMBERS} next hops are possible")]
    Count(usize),
    /// A member has weight 0 and would never be used.
    #[error("a next hop has the weight 0: weights are 1 to 255")]
    Weight,
}

impl HopSet {
    /// Creates a set from next hops in any order. The weights of equal next hops are added, up to 255.
    pub fn new(members: &[(NextHop, u8)]) -> Result<Self, HopSetError> {
        let mut set: Vec<(NextHop, u8)> = Vec::with_capacity(members.len());
        for &(next_hop, weight) in members {
            if weight == 0 {
                return Err(HopSetError::Weight);
            }
            match set.iter_mut().find(|(known, _)| *known == next_hop) {
                Some((_, known)) => *known = known.saturating_add(weight),
                None => set.push((next_hop, weight)),
            }
        }
        if set.is_empty() || set.len() > MAX_MEMBERS {
            return Err(HopSetError::Count(set.len()));
        }
        set.sort_unstable();
        Ok(Self {
            members: set,
            balance: Balance::default(),
        })
    }

    /// Returns this set with a different balancing granularity.
    pub fn with_balance(self, balance: Balance) -> Self {
        Self { balance, ..self }
    }

    /// Balancing granularity of the set.
    pub fn balance(&self) -> Balance {
        self.balance
    }

    /// Members with their weights. Each next hop occurs once.
    pub fn members(&self) -> &[(NextHop, u8)] {
        &self.members
    }
}

impl From<NextHop> for HopSet {
    fn from(next_hop: NextHop) -> Self {
        Self {
            members: vec![(next_hop, 1)],
            balance: Balance::default(),
        }
    }
}

/// Next-hop index for each bucket. The writer fills the buckets before a route refers to them, and does not reuse them
/// until no reader can hold them.
#[derive(Debug)]
struct Buckets {
    members: Box<[AtomicU16]>,
    by_host: AtomicBool,
}

/// All hop sets, for workers. Memory is allocated at the first use of a set.
#[derive(Debug)]
pub(crate) struct HopSets(Box<[OnceLock<Buckets>]>);

impl HopSets {
    pub fn new() -> Self {
        Self((0..MAX_SETS).map(|_| OnceLock::new()).collect())
    }

    /// Next hop of a packet. `hash` returns the hash of the packet's flow or source host.
    #[inline]
    pub fn choose(&self, set: usize, hash: impl FnOnce(Balance) -> u64) -> Option<u32> {
        let buckets = self.0.get(set)?.get()?;
        let balance = match buckets.by_host.load(Ordering::Relaxed) {
            true => Balance::Host,
            false => Balance::Flow,
        };
        let bucket = buckets.members.get((hash(balance) >> 32) as usize % BUCKETS)?;
        Some(bucket.load(Ordering::Relaxed).into())
    }

    /// Next-hop indexes of all buckets; empty if the set does not exist.
    pub fn buckets(&self, set: usize) -> impl Iterator<Item = u32> + '_ {
        let buckets = self.0.get(set).and_then(OnceLock::get);
        let members = buckets.map(|buckets| buckets.members.iter());
        members
            .into_iter()
            .flatten()
            .map(|bucket| bucket.load(Ordering::Relaxed).into())
    }

    /// Assigns the buckets of a set to its members (next-hop index and weight). If possible, each bucket keeps its
    /// member from the set `like`. Thus the removal of a member does not move flows of other members.
    pub fn assign(&self, set: usize, (members, balance): (&[(u32, u8)], Balance), like: Option<usize>) {
        let Some(slot) = self.0.get(set) else { return };
        let buckets = slot.get_or_init(|| Buckets {
            members: (0..BUCKETS).map(|_| AtomicU16::new(0)).collect(),
            by_host: AtomicBool::new(false),
        });
        buckets.by_host.store(balance == Balance::Host, Ordering::Relaxed);
        let mut remaining = shares(members);
        let mut assignment = [None; BUCKETS];
        for (bucket, index) in assignment
            .iter_mut()
            .zip(like.into_iter().flat_map(|like| self.buckets(like)))
        {
            let member = members.iter().position(|&(member, _)| member == index);
            if let Some(member) = member.filter(|&member| remaining[member] > 0) {
                remaining[member] -= 1;
                *bucket = Some(member);
            }
        }
        let mut next = 0;
        for (bucket, assignment) in buckets.members.iter().zip(assignment) {
            let member = assignment.unwrap_or_else(|| {
                // Assign the remaining buckets round-robin. A later loss of buckets is then spread over the buckets of
                // all other members.
                while remaining[next % members.len()] == 0 {
                    next += 1;
                }
                remaining[next % members.len()] -= 1;
                next += 1;
                (next - 1) % members.len()
            });
            bucket.store(members[member].0 as u16, Ordering::Relaxed);
        }
    }
}

/// Number of buckets for each member: proportional to the weight, and at least one. Numbers are rounded down. The
/// remaining buckets are assigned to the members with the largest remainders.
fn shares(members: &[(u32, u8)]) -> Vec<usize> {
    let all: usize = members.iter().map(|(_, weight)| *weight as usize).sum();
    let exact = |place: usize| members[place].1 as usize * BUCKETS;
    let mut shares: Vec<_> = (0..members.len()).map(|place| (exact(place) / all).max(1)).collect();
    let mut order: Vec<_> = (0..members.len()).collect();
    order.sort_by_key(|&place| std::cmp::Reverse(exact(place) % all));
    let mut cycle = order.iter().cycle();
    while shares.iter().sum::<usize>() < BUCKETS
        && let Some(&place) = cycle.next()
    {
        shares[place] += 1;
    }
    while shares.iter().sum::<usize>() > BUCKETS
        && let Some(max) = shares.iter_mut().max()
    {
        *max -= 1;
    }
    shares
}
