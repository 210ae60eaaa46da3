//! Resolution of next-hop sets: resolves recursive gateways, and omits unreachable members.

use std::collections::BTreeMap;

use super::offer::{MAX_HOPS, OfferedNextHop, Origin, ResolvedSet, WeightedNextHop};
use super::table::{Family, RouteRecord, Table};
use super::{Common, Settings};
use crate::{Address, Balance, DropKind, InterfaceIndex, NextHop};

/// Maximum depth of recursion: number of recursive gateways between a route and a link.
pub const DEPTH: usize = 8;

/// Maximum number of gateways examined for the resolution of one gateway. The maximum limits the work that a daemon can
/// cause in the control thread.
const STEPS: u32 = 512;

/// Next hops with their relative weights.
type Shares = BTreeMap<NextHop, u64>;

/// The tables for the resolution of gateways.
#[derive(Clone, Copy)]
pub(super) struct View<'r> {
    pub v4: &'r Table<u32>,
    pub v6: &'r Table<u128>,
    pub common: &'r Common,
    pub settings: &'r Settings,
}

/// A gateway on the recursion path from a route to a link.
#[derive(Default)]
struct Path {
    gateways: Vec<Address>,
    steps: u32,
    loops: u64,
}

/// Result of the resolution of a gateway.
pub(super) struct Found {
    pub shares: Shares,
    pub loops: u64,
}

/// Relation of a gateway's address to the attached networks.
enum Link {
    Own,
    On(InterfaceIndex),
    Off,
}

impl View<'_> {
    fn is_up(&self, interface: InterfaceIndex) -> bool {
        !self.common.down.contains(&interface)
    }

    /// Resolves a gateway.
    pub fn find(&self, gateway: Address) -> Found {
        let mut path = Path::default();
        let shares = self.via(gateway, &mut path);
        let loops = if shares.is_empty() { path.loops } else { 0 };
        Found { shares, loops }
    }

    fn via(&self, gateway: Address, path: &mut Path) -> Shares {
        match gateway {
            Address::V4(bits) => self.via_routes(self.v4, bits, path),
            Address::V6(bits) => self.via_routes(self.v6, bits, path),
        }
    }

    fn via_routes<A: Family>(&self, table: &Table<A>, bits: A, path: &mut Path) -> Shares {
        let gateway = bits.wrap();
        let is_loop = path.gateways.contains(&gateway);
        if is_loop || path.gateways.len() >= DEPTH || path.steps >= STEPS {
            path.loops += 1;
            return Shares::new();
        }
        path.steps += 1;
        match self.link(table, bits) {
            Link::Own => return Shares::new(),
            Link::On(interface) => {
                let address = gateway;
                return self.direct(OfferedNextHop::Gateway { interface, address });
            }
            Link::Off => {}
        }
        path.gateways.push(gateway);
        let allowed = |place: &u32| table.entries[*place].length > 0 || self.settings.by_default_route;
        let mut covering = table.covering(bits).filter(allowed);
        // If the longest matching prefix is unreachable, use a shorter matching prefix.
        let found = covering.find_map(|place| self.via_entry(table, place, gateway, path));
        path.gateways.pop();
        found.unwrap_or_default()
    }

    /// Next hops towards a gateway, according to the best reachable offer for a prefix.
    fn via_entry<A: Family>(&self, table: &Table<A>, place: u32, gateway: Address, path: &mut Path) -> Option<Shares> {
        let mut offers: Vec<RouteRecord> = table.offers(place).collect();
        offers.sort_by_key(RouteRecord::rank);
        offers.iter().find_map(|fact| {
            let hops = &self.common.sets.get(fact.set)?.hops;
            let shares = combine(hops, |next_hop| match next_hop {
                OfferedNextHop::Via(next) => self.via(next, path),
                OfferedNextHop::Attached(interface) => self.direct(OfferedNextHop::Gateway {
                    interface,
                    address: gateway,
                }),
                OfferedNextHop::Drop(DropKind::Blackhole | DropKind::Unreachable | DropKind::Prohibit)
                | OfferedNextHop::Gateway { .. } => self.direct(next_hop),
                OfferedNextHop::Local(_) | OfferedNextHop::Drop(_) => Shares::new(),
            });
            (!shares.is_empty()).then_some(shares)
        })
    }

    /// Relation of an address to the most specific attached network that contains it.
    fn link<A: Family>(&self, table: &Table<A>, bits: A) -> Link {
        for place in table.covering(bits) {
            let connected = table.offers(place).find(|fact| fact.origin() == Origin::Connected);
            let set = connected.and_then(|fact| self.common.sets.get(fact.set));
            let next_hop = set.and_then(|set| set.hops.first()).map(|hop| hop.next_hop);
            match next_hop {
                Some(OfferedNextHop::Attached(interface)) if self.is_up(interface) => return Link::On(interface),
                Some(OfferedNextHop::Local(_)) => return Link::Own,
                // The address is the network or broadcast address of an attached network.
                Some(OfferedNextHop::Drop(_)) if table.entries[place].length == A::BITS => return Link::Own,
                _ => {}
            }
        }
        Link::Off
    }

    /// Resolves a next hop that needs no route.
    fn direct(&self, next_hop: OfferedNextHop) -> Shares {
        let hop = match next_hop {
            OfferedNextHop::Drop(refusal) => Some(NextHop::Drop(refusal)),
            OfferedNextHop::Local(interface) => Some(NextHop::Local(interface)),
            OfferedNextHop::Attached(interface) => self.is_up(interface).then_some(NextHop::Attached(interface)),
            OfferedNextHop::Gateway { interface, address } => {
                let hop = NextHop::Gateway { interface, address };
                (self.is_up(interface) && !self.common.lost.contains(&(interface, address))).then_some(hop)
            }
            OfferedNextHop::Via(_) => None,
        };
        hop.into_iter().map(|hop| (hop, 1)).collect()
    }

    /// Resolves a set. The gateways of the set must be resolved before this call.
    pub fn resolve(&self, hops: &[WeightedNextHop]) -> Option<ResolvedSet> {
        if let [hop] = hops
            && !matches!(hop.next_hop, OfferedNextHop::Via(_))
        {
            let (hop, _) = self.direct(hop.next_hop).pop_first()?;
            return Some(ResolvedSet([(hop, 1)].into(), Balance::Flow));
        }
        let shares = combine(hops, |next_hop| {
            match next_hop {
                OfferedNextHop::Via(gateway) => self.common.floating.get(&gateway).map(|found| found.shares.clone()),
                _ => Some(self.direct(next_hop)),
            }
            .unwrap_or_default()
        });
        let by_host = hops.iter().any(|hop| hop.balance == Balance::Host);
        finish(shares, if by_host { Balance::Host } else { Balance::Flow })
    }
}

/// Combines the weights of next hops. If a next hop resolves to several next hops, its weight is divided among them.
fn combine(hops: &[WeightedNextHop], mut lead: impl FnMut(OfferedNextHop) -> Shares) -> Shares {
    let found: Vec<(u64, Shares)> = hops
        .iter()
        .map(|hop| (u64::from(hop.weight.max(1)), lead(hop.next_hop)))
        .filter(|(_, shares)| !shares.is_empty())
        .collect();
    let sum = |shares: &Shares| shares.values().sum::<u64>();
    // Scale the weights to integers: exactly if the common multiple of all sums is small, otherwise approximately.
    let whole = found.iter().try_fold(1_u64, |multiple, (_, shares)| {
        let sum = sum(shares);
        let next = multiple / common_divisor(multiple, sum) * sum;
        (next <= 1 << 32).then_some(next)
    });
    let scale = whole.unwrap_or(1 << 32);
    let mut all = Shares::new();
    for (weight, shares) in found {
        let each = scale / sum(&shares);
        for (hop, share) in shares {
            *all.entry(hop).or_default() += weight * share * each;
        }
    }
    reduce(&mut all);
    all
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Scales the weights to the range 1 to 255.
fn reduce(shares: &mut Shares) {
    let divisor = shares
        .values()
        .fold(0, |divisor, &share| common_divisor(divisor, share))
        .max(1);
    shares.values_mut().for_each(|share| *share /= divisor);
    let largest = shares.values().copied().max().unwrap_or(0);
    if largest > 255 {
        let scaled = |share: u64| (u128::from(share) * 255 / u128::from(largest)).max(1) as u64;
        shares.values_mut().for_each(|share| *share = scaled(*share));
    }
}

/// The resolved set. If the set has forwarding next hops, the result contains only these, and of them only the
/// [`MAX_HOPS`] with the largest weights.
fn finish(mut shares: Shares, balance: Balance) -> Option<ResolvedSet> {
    let drops = |hop: &NextHop| matches!(hop, NextHop::Drop(_));
    if shares.keys().any(|hop| !drops(hop)) {
        shares.retain(|hop, _| !drops(hop));
    } else {
        shares = shares.pop_first().into_iter().collect();
    }
    let mut members: Vec<(NextHop, u64)> = shares.into_iter().collect();
    if members.len() > MAX_HOPS {
        members.sort_by_key(|(hop, share)| (u64::MAX - share, *hop));
        members.truncate(MAX_HOPS);
    }
    let mut kept: Shares = members.into_iter().collect();
    reduce(&mut kept);
    let members: Box<[_]> = kept.into_iter().map(|(hop, share)| (hop, share as u8)).collect();
    (!members.is_empty()).then_some(ResolvedSet(members, balance))
}
