//! Outside ports of one inside address.

use super::{Algorithm, Plan, permutation};
use crate::Address;

/// Outside ports of one inside address. One set applies to TCP, UDP and ICMP queries.
#[derive(Clone, Copy, Debug)]
pub struct PortSet<'a, A> {
    plan: &'a Plan<A>,
    /// Index of the inside address in the plan.
    subscriber: u32,
}

impl<'a, A: Address> PortSet<'a, A> {
    #[inline(always)]
    pub(super) fn new(plan: &'a Plan<A>, subscriber: u32) -> Self {
        Self { plan, subscriber }
    }

    /// Inside address to which these ports are assigned.
    pub fn inside(&self) -> A {
        A::from_number(self.plan.first.number() + u128::from(self.subscriber))
    }

    /// Number of ports.
    #[inline(always)]
    pub fn count(&self) -> u32 {
        self.plan.share
    }

    /// The outside address of all ports; `None` if the ports are on several addresses.
    #[inline]
    pub fn address(&self) -> Option<A> {
        let plan = self.plan;
        let one = plan.algorithm.is_paired() || plan.addresses.count() == 1;
        one.then(|| self.at(0).0)
    }

    /// Address and number of the `k`-th port, or of the last port if `k` is too large.
    #[inline]
    pub fn at(&self, k: u32) -> (A, u16) {
        let plan = self.plan;
        let k = k.min(plan.share - 1);
        let (compression, addresses) = (plan.compression, plan.addresses.count());
        let (address, slot) = (self.subscriber / compression, self.subscriber % compression);
        let (address, index) = match plan.algorithm {
            Algorithm::Sequential => (address, slot * plan.share + k),
            Algorithm::Staggered => (address, k * compression + slot),
            Algorithm::RoundRobin => {
                let position = u64::from(self.subscriber) * u64::from(plan.share) + u64::from(k);
                let addresses = u64::from(addresses);
                ((position % addresses) as u32, (position / addresses) as u32)
            }
            Algorithm::Interlaced => {
                let turn = u64::from(self.subscriber % addresses) + u64::from(k);
                let slot = self.subscriber / addresses;
                ((turn % u64::from(addresses)) as u32, k * compression + slot)
            }
            Algorithm::Random(key) => {
                let place = slot * plan.share + k;
                (
                    address,
                    permutation::image_of(key, address, compression * plan.share, place),
                )
            }
        };
        (plan.addresses.at(address), plan.ports.at(index) as u16)
    }

    /// Index of a port in this set; `None` if the set does not contain the port.
    #[inline]
    pub fn index_of(&self, address: A, port: u16) -> Option<u32> {
        let (subscriber, k) = self.plan.owner(address, port)?;
        (subscriber == u64::from(self.subscriber)).then_some(k)
    }

    /// Address, first port and last port, if the set is one contiguous range on one address.
    pub fn range(&self) -> Option<(A, u16, u16)> {
        let ((address, first), (other, last)) = (self.at(0), self.at(self.count() - 1));
        let whole = address == other && u32::from(last) + 1 == u32::from(first) + self.count();
        (whole && self.plan.algorithm == Algorithm::Sequential).then_some((address, first, last))
    }

    /// All ports with their addresses, in the order of their indexes.
    pub fn iter(&self) -> impl Iterator<Item = (A, u16)> + use<'a, A> {
        let share = *self;
        (0..share.count()).map(move |k| share.at(k))
    }
}
