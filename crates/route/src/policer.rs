//! Rate limits of packets to and from the gateway itself, with token buckets in integer arithmetic.

use sluice_table::token_bucket::TokenBucket;

use crate::{Address, InterfaceIndex, RouterIndex, Time};

/// Classes of packets to or from the gateway itself. Each class has a separate limit, so that one class can't exhaust
/// the capacity of another class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ControlClass {
    /// ARP and neighbour discovery.
    Neighbour,
    /// Echo requests and other ICMP messages to the gateway.
    Icmp,
    /// ICMP errors that the gateway sends (RFC 1812, section 4.3.2.8; RFC 4443, section 2.4 f).
    IcmpError,
    /// Routing protocols.
    Routing,
    /// Management access of the operator, and services of the gateway.
    Management,
    /// All other packets.
    Other,
}

impl ControlClass {
    /// All classes in the order of their numbers.
    pub const ALL: [ControlClass; 6] = [
        ControlClass::Neighbour,
        ControlClass::Icmp,
        ControlClass::IcmpError,
        ControlClass::Routing,
        ControlClass::Management,
        ControlClass::Other,
    ];

    /// Name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            ControlClass::Neighbour => "neighbour",
            ControlClass::Icmp => "icmp",
            ControlClass::IcmpError => "icmp-error",
            ControlClass::Routing => "routing",
            ControlClass::Management => "management",
            ControlClass::Other => "other",
        }
    }
}

/// One token bucket for each class.
#[derive(Clone, Copy, Debug)]
struct Buckets([TokenBucket; ControlClass::ALL.len()]);

impl Buckets {
    fn new(limits: &Limits, share: u64, now: Time) -> Self {
        Self(limits.map(|(rate, burst)| TokenBucket::new(rate.saturating_mul(share), burst.saturating_mul(share), now)))
    }
}

/// Packets per second and burst for each class, in the order of [`ControlClass::ALL`].
pub type Limits = [(u64, u64); ControlClass::ALL.len()];

/// The limit of a router is this multiple of the limit of an interface.
pub const ROUTER_SHARE: u64 = 8;

/// Number of buckets over which the destinations of ICMP errors are hashed.
const DESTINATIONS: usize = 1024;

/// The ICMP error limit of an interface, divided by these numbers, is the limit for a destination: a tenth of the rate,
/// and half of the burst.
const DESTINATION_PARTS: (u64, u64) = (10, 2);

/// Rate limits of packets to and from the gateway itself, for each class, interface and router. A flood through one
/// interface does not affect other interfaces, and the total of a router is limited.
#[derive(Clone, Debug)]
pub struct ControlPolicer {
    limits: Limits,
    interfaces: Box<[Buckets]>,
    router_of: Box<[RouterIndex]>,
    routers: Box<[Buckets]>,
    destinations: Box<[TokenBucket]>,
    secret: u64,
}

impl ControlPolicer {
    /// Creates full token buckets for the interfaces of these routers. `secret` prevents attackers from predicting
    /// which destinations share a bucket.
    pub fn new(limits: Limits, router_of: impl Iterator<Item = RouterIndex>, secret: u64, now: Time) -> Self {
        let router_of: Box<[_]> = router_of.collect();
        let routers = router_of.iter().max().map_or(0, |&last| usize::from(last) + 1);
        let (rate, burst) = limits[ControlClass::IcmpError as usize];
        let (rate, burst) = (rate.div_ceil(DESTINATION_PARTS.0), burst.div_ceil(DESTINATION_PARTS.1));
        Self {
            interfaces: vec![Buckets::new(&limits, 1, now); router_of.len()].into(),
            routers: vec![Buckets::new(&limits, ROUTER_SHARE, now); routers].into(),
            destinations: vec![TokenBucket::new(rate, burst, now); DESTINATIONS].into(),
            limits,
            router_of,
            secret: secret | 1,
        }
    }

    /// Whether this policer has these limits and interfaces.
    pub fn is_of(&self, limits: &Limits, router_of: impl Iterator<Item = RouterIndex>) -> bool {
        self.limits == *limits && self.router_of.iter().copied().eq(router_of)
    }

    /// Whether a packet of `class` that arrived through an interface is within the limits.
    #[inline]
    pub fn admits(&mut self, class: ControlClass, interface: InterfaceIndex, now: Time) -> bool {
        let Some(own) = self.interfaces.get_mut(usize::from(interface)) else {
            return false;
        };
        let router = self.router_of.get(usize::from(interface)).copied().unwrap_or(0);
        let router = self.routers.get_mut(usize::from(router));
        own.0[class as usize].take(now) && router.is_some_and(|router| router.0[class as usize].take(now))
    }

    /// Whether another ICMP error may be sent to a destination (RFC 1812, section 4.3.2.8). The limit protects the
    /// victim of a spoofed source address, and leaves capacity for ICMP errors to other destinations.
    #[inline]
    pub fn admits_error_to(&mut self, destination: Address, now: Time) -> bool {
        let number = destination.number();
        let mixed = ((number >> 64) as u64 ^ number as u64)
            .wrapping_add(self.secret)
            .wrapping_mul(self.secret ^ 0x9e37_79b9_7f4a_7c15);
        let place = (mixed ^ mixed >> 32) as usize % DESTINATIONS;
        self.destinations[place].take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SECOND;

    fn admitted(policer: &mut ControlPolicer, class: ControlClass, interface: InterfaceIndex) -> usize {
        (0..1000).filter(|_| policer.admits(class, interface, 0)).count()
    }

    #[test]
    fn policer_flooded_class_leaves_the_others_alone() {
        let mut policer = ControlPolicer::new([(10, 5); 6], [0].into_iter(), 7, 0);
        assert_eq!(5, admitted(&mut policer, ControlClass::Icmp, 0));
        assert!(policer.admits(ControlClass::Management, 0, 0));
        assert!(policer.admits(ControlClass::Icmp, 0, SECOND / 10));
    }

    #[test]
    fn policer_flooded_interface_leaves_those_of_its_router_and_of_others_alone() {
        let mut policer = ControlPolicer::new([(10, 5); 6], [0, 0, 1].into_iter(), 7, 0);
        for interface in [0, 1, 2] {
            assert_eq!(5, admitted(&mut policer, ControlClass::Neighbour, interface));
        }
        // All interfaces of a router together get eight times the limit of one interface.
        let mut policer = ControlPolicer::new([(10, 5); 6], [0; 20].into_iter().chain([1]), 7, 0);
        let all: usize = (0..20)
            .map(|interface| admitted(&mut policer, ControlClass::Other, interface))
            .sum();
        assert_eq!(5 * ROUTER_SHARE as usize, all);
        assert_eq!(5, admitted(&mut policer, ControlClass::Other, 20));
    }

    #[test]
    fn policer_one_destination_takes_a_part_of_the_errors() {
        let mut policer = ControlPolicer::new([(1000, 100); 6], [0].into_iter(), 7, 0);
        let mut to = |last| {
            (0..1000)
                .filter(|_| policer.admits_error_to(Address::V4(last), 0))
                .count()
        };
        assert_eq!(50, to(1));
        assert!((2..100).map(&mut to).filter(|&count| count == 50).count() > 80);
    }
}
