//! Punting: selects the packets that a router's host receives, and implements the frame queues between the workers and
//! the hosts' thread.
//!
//! A router may have a host: a network namespace in which its daemons run. The host receives packets that are addressed to the
//! router and that Sluice doesn't answer itself. Packets that the host sends leave unchanged. Each class of punted packets has a
//! policer, so that a flood of one class does not affect other classes.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_table::token_bucket::{SharedTokenBucket, TokenRate};
use sluice_wire::ipv4::protocol;
use sluice_wire::layers::{Fragment, Layers};

use sluice_route::policer::ROUTER_SHARE;

use crate::packet::counters::WorkerCounters;
use crate::packet::reason::EngineReason;

/// Classes of punted packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PuntClass {
    /// Routing protocols: BGP, OSPF, RIP, RIPng, PIM, VRRP, EIGRP, LDP.
    Routing,
    /// Bidirectional forwarding detection (RFC 5880): small, frequent and time-critical packets.
    Bfd,
    /// DHCPv4 and DHCPv6.
    Dhcp,
    /// ARP. Sluice answers ARP itself, so this class is only counted.
    Arp,
    /// All other packets: management access of the operator, services, ICMP errors.
    Other,
}

/// IP protocol numbers of routing protocols: EIGRP, OSPF, PIM, VRRP.
const ROUTING: [u8; 4] = [88, 89, 103, 112];
/// TCP and UDP ports of routing protocols: BGP, RIP, RIPng, LDP.
const ROUTING_PORTS: [u16; 4] = [179, 520, 521, 646];
/// UDP ports of BFD: single hop, echo, multihop (RFC 5881, 5883).
const BFD_PORTS: [u16; 3] = [3784, 3785, 4784];
/// UDP ports of DHCPv4 and DHCPv6.
const DHCP_PORTS: [u16; 4] = [67, 68, 546, 547];

impl PuntClass {
    /// All classes in the order of their numbers.
    pub const ALL: [PuntClass; 5] = [
        PuntClass::Routing,
        PuntClass::Bfd,
        PuntClass::Dhcp,
        PuntClass::Arp,
        PuntClass::Other,
    ];

    /// Name of the class.
    pub fn name(self) -> &'static str {
        match self {
            PuntClass::Routing => "routing",
            PuntClass::Bfd => "bfd",
            PuntClass::Dhcp => "dhcp",
            PuntClass::Arp => "arp",
            PuntClass::Other => "other",
        }
    }

    /// The class of an IP packet. A later fragment has no ports and is classified only by its protocol.
    pub fn of(layers: &Layers) -> Self {
        if ROUTING.contains(&layers.protocol) {
            return Self::Routing;
        }
        let ports = [layers.source_port, layers.destination_port];
        let either = |known: &[u16]| ports.iter().any(|port| known.contains(port));
        match layers.protocol {
            _ if layers.fragment == Fragment::Later => Self::Other,
            protocol::TCP if either(&ROUTING_PORTS) => Self::Routing,
            protocol::UDP if either(&ROUTING_PORTS) => Self::Routing,
            protocol::UDP if BFD_PORTS.contains(&layers.destination_port) => Self::Bfd,
            protocol::UDP if either(&DHCP_PORTS) => Self::Dhcp,
            _ => Self::Other,
        }
    }

    /// The drop reason of a packet that exceeds the rate limit of the class.
    pub fn policed(self) -> EngineReason {
        match self {
            PuntClass::Routing => EngineReason::PuntPolicedRouting,
            PuntClass::Bfd => EngineReason::PuntPolicedBfd,
            PuntClass::Dhcp => EngineReason::PuntPolicedDhcp,
            PuntClass::Arp | PuntClass::Other => EngineReason::PuntPolicedOther,
        }
    }
}

/// Multicast groups that a host receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Multicast {
    /// Link-local groups: 224.0.0.0/24, ff02::/16 except neighbour discovery, and broadcast DHCP.
    #[default]
    LinkLocal,
    /// All groups, for services that receive multicast from other links.
    All,
    /// No groups.
    None,
}

/// Packets per second and burst size for one interface, by [`PuntClass`]. All interfaces of a router together have
/// [`ROUTER_SHARE`] times these limits.
pub type PuntLimits = [(u64, u64); PuntClass::ALL.len()];

/// Default limits, in the order of [`PuntClass::ALL`].
pub const LIMITS: PuntLimits = [(20_000, 4_000), (10_000, 1_000), (1_000, 200), (0, 0), (5_000, 1_000)];

/// Creates a full bucket that all workers share. With rate 0, no packet passes.
fn full_bucket((rate, burst): (u64, u64)) -> SharedTokenBucket {
    SharedTokenBucket::new(TokenRate::new(rate, burst))
}

/// A router's host, as workers use it. A commit always keeps the counters of the host. It keeps the other state only if
/// the settings of the host don't change.
#[derive(Debug)]
pub struct Host {
    limits: PuntLimits,
    multicast: Multicast,
    /// Token buckets of each interface, so that a flood on one interface does not affect other interfaces.
    interfaces: Box<[[SharedTokenBucket; PuntClass::ALL.len()]]>,
    /// Token buckets of all interfaces together.
    all: [SharedTokenBucket; PuntClass::ALL.len()],
    passed: Arc<[AtomicU64; PuntClass::ALL.len()]>,
}

impl Default for Host {
    fn default() -> Self {
        Self::new(LIMITS, Multicast::default(), 0)
    }
}

impl Host {
    /// Creates a host with these limits for this number of interfaces. The token buckets of the host are full.
    pub fn new(limits: PuntLimits, multicast: Multicast, interfaces: usize) -> Self {
        let shared =
            limits.map(|(rate, burst)| (rate.saturating_mul(ROUTER_SHARE), burst.saturating_mul(ROUTER_SHARE)));
        Self {
            limits,
            multicast,
            interfaces: (0..interfaces).map(|_| limits.map(full_bucket)).collect(),
            all: shared.map(full_bucket),
            passed: Arc::default(),
        }
    }

    /// Whether the settings of another host are equal.
    pub fn is_like(&self, other: &Self) -> bool {
        let settings = |host: &Self| (host.limits, host.multicast, host.interfaces.len());
        settings(self) == settings(other)
    }

    /// Returns a host with the settings of `self` and the counters of `before`.
    pub fn changed_from(&self, before: &Self) -> Self {
        Self {
            passed: before.passed.clone(),
            ..Self::new(self.limits, self.multicast, self.interfaces.len())
        }
    }

    /// The multicast groups that the host receives.
    pub fn multicast(&self) -> Multicast {
        self.multicast
    }

    /// Whether the limits permit a packet of a class that arrived on an interface.
    pub fn admits(&self, interface: u16, class: PuntClass, now: u64) -> bool {
        let own = self.interfaces.get(usize::from(interface));
        own.is_none_or(|own| own[class as usize].take(now)) && self.all[class as usize].take(now)
    }

    /// Counts a packet of a class that was passed to the host, or that Sluice answered.
    pub fn count(&self, class: PuntClass) {
        self.passed[class as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Number of counted packets of a class.
    pub fn passed(&self, class: PuntClass) -> u64 {
        self.passed[class as usize].load(Ordering::Relaxed)
    }
}

/// Number of bytes in each queue. The queue can store the routing packets that arrive between two polls of the thread
/// that serves the hosts.
pub const QUEUE_BYTES: usize = 1 << 20;

/// Flag in the interface number of a frame that the subscriber service sends. The frame contains an IPv4 packet of the gateway,
/// with an arbitrary link header and without tags, and the interface's virtual router routes the packet. Without the flag, the
/// frame is sent unchanged.
pub const ROUTED: u16 = 1 << 15;

/// Number of bytes before each frame: its interface and its length.
const HEAD: usize = 4;

/// Creates a queue of frames with this capacity in bytes.
pub fn queue(capacity: usize) -> (PuntSender, PuntReceiver) {
    let (sender, receiver) = rtrb::RingBuffer::new(capacity);
    (PuntSender(sender), PuntReceiver(receiver))
}

/// Producer of a queue.
#[derive(Debug)]
pub struct PuntSender(rtrb::Producer<u8>);

impl PuntSender {
    /// Appends a frame that is given in two parts. If the queue has too little space for the frame, returns `false`
    /// without an effect.
    pub fn push(&mut self, interface: u16, parts: [&[u8]; 2]) -> bool {
        let Ok(length) = u16::try_from(parts[0].len() + parts[1].len()) else {
            return false;
        };
        if self.0.slots() < HEAD + usize::from(length) {
            return false;
        }
        let [[a, b], [c, d]] = [interface.to_ne_bytes(), length.to_ne_bytes()];
        [&[a, b, c, d], parts[0], parts[1]]
            .iter()
            .all(|part| self.0.push_entire_slice(part).is_ok())
    }
}

/// Consumer of a queue.
#[derive(Debug)]
pub struct PuntReceiver(rtrb::Consumer<u8>);

impl PuntReceiver {
    /// Whether a frame is in the queue.
    #[inline(always)]
    pub fn has_frame(&self) -> bool {
        !self.0.is_empty()
    }

    /// Interface and length of the next frame; `None` if there is no complete frame.
    pub fn head(&mut self) -> Option<(u16, usize)> {
        let chunk = self.0.read_chunk(HEAD).ok()?;
        let (first, second) = chunk.as_slices();
        let mut head = [0; HEAD];
        let (one, two) = head.split_at_mut(first.len());
        one.copy_from_slice(first);
        two.copy_from_slice(second);
        let [a, b, c, d] = head;
        let length = usize::from(u16::from_ne_bytes([c, d]));
        (self.0.slots() >= HEAD + length).then_some((u16::from_ne_bytes([a, b]), length))
    }

    /// Removes the next frame, and copies as much of it as fits to `into`. Before each call, [`PuntReceiver::head`]
    /// must have returned a frame.
    pub fn pop(&mut self, into: &mut [u8]) {
        let Some((_, length)) = self.head() else { return };
        let kept = length.min(into.len());
        self.skip(HEAD);
        if self.0.pop_entire_slice(&mut into[..kept]).is_ok() {
            self.skip(length - kept);
        }
    }

    fn skip(&mut self, bytes: usize) {
        if let Ok(chunk) = self.0.read_chunk(bytes) {
            chunk.commit_all();
        }
    }
}

/// The worker's producer of its queue to the hosts.
#[derive(Debug)]
pub struct PuntQueue(RefCell<PuntSender>);

impl PuntQueue {
    /// Creates a queue, and its consumer.
    pub fn new() -> (Self, PuntReceiver) {
        let (sender, receiver) = queue(QUEUE_BYTES);
        (Self(RefCell::new(sender)), receiver)
    }

    /// Appends a frame for a host. The frame is given in two parts. Returns `false` if the queue is full.
    pub fn push(&self, interface: u16, parts: [&[u8]; 2], counters: &WorkerCounters) -> bool {
        let given = self.0.borrow_mut().push(interface, parts);
        counters.punted.add(u64::from(given));
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    proptest! {
        #[test]
        fn queue_any_frames_come_out_as_they_went_in(frames in proptest::collection::vec((0u16.., 0usize..90), 1..60)) {
            let (mut sender, mut receiver) = queue(256);
            let mut expected = std::collections::VecDeque::new();
            for (number, (interface, length)) in frames.into_iter().enumerate() {
                let frame = vec![number as u8; length];
                let parts = frame.split_at(length / 3);
                if sender.push(interface, [parts.0, parts.1]) {
                    expected.push_back((interface, frame));
                } else {
                    let (interface, frame) = expected.pop_front().expect("a full queue has frames");
                    prop_assert_eq!(Some((interface, frame.len())), receiver.head());
                    let mut out = vec![0; frame.len()];
                    receiver.pop(&mut out);
                    prop_assert_eq!(frame, out);
                }
            }
        }

        #[test]
        fn bucket_any_arrivals_keep_to_rate_and_burst(
            rate in 1u64..5000, burst in 1u64..100, gaps in proptest::collection::vec(0u64..20_000_000, 1..300)
        ) {
            let bucket = full_bucket((rate, burst));
            let (mut now, mut taken) = (1, 0);
            for gap in gaps {
                now += gap;
                taken += u64::from(bucket.take(now));
                prop_assert!(taken * (SECOND / rate) <= now + burst * (SECOND / rate));
            }
        }
    }

    #[test]
    fn frame_longer_than_its_room_is_cut_and_the_next_one_whole() {
        let (mut sender, mut receiver) = queue(64);
        assert!(sender.push(1, [b"abc", b"defg"]) && sender.push(2, [b"xy", b""]));
        let mut out = [0; 4];
        receiver.pop(&mut out);
        assert_eq!((b"abcd", Some((2, 2))), (&out, receiver.head()));
    }

    #[test]
    fn bucket_gives_its_burst_at_once_and_then_its_rate() {
        let bucket = full_bucket((10, 5));
        let now = 7 * SECOND;
        assert_eq!(5, (0..100).filter(|_| bucket.take(now)).count());
        assert_eq!(
            [false, true, false],
            [SECOND / 10 - 1, SECOND / 10, SECOND / 10].map(|later| bucket.take(now + later))
        );
        assert!(!full_bucket((0, 100)).take(now));
    }
}
