//! The first pass: the plain packets of a burst, and their keys.

use sluice_table::simd::bytes::positions_of;
use sluice_wire::ipv4::protocol::{TCP, UDP};
use sluice_wire::{Checksums, Class, Context, Fragment, Packet, layers};

use crate::packet::io::{BURST_SIZE, BufferIndex, Head, Heads};
use crate::session::family::Family;
use crate::snapshot::sites;

use super::groups::{Ingress, Side};
use super::head::{LaneFamily, behind};
use super::{LaneArrays, Slots, each};

/// The plain packets of a burst.
pub(super) struct Plain {
    /// Plain TCP packets.
    pub(super) tcp: Slots,
    /// Plain UDP packets.
    pub(super) udp: Slots,
    /// Packets of this address family that are not plain. Packets of the other address family, and those whose context has other
    /// high bits, are not included.
    pub(super) unusual: Slots,
    /// Whether there are packets with checksums that the device has not verified.
    pub(super) has_unverified: bool,
}

/// Finds the plain packets among the first `count` packets, and stores their keys and lengths.
#[inline(never)]
#[expect(
    clippy::needless_range_loop,
    reason = "an index below the number of elements needs no checks in any of the arrays"
)]
pub(super) fn classify<F: LaneFamily, const TAGS: usize, const SITES: bool>(
    work: &mut LaneArrays<F>,
    heads: &Heads<'_>,
    count: usize,
    ingress: &Ingress<'_>,
) -> Plain {
    let mac = Some(&ingress.mac).filter(|_| !SITES || !matches!(ingress.side, Side::Public));
    let (pattern, mut context) = (F::pattern(mac, TAGS), ingress.context);
    let (mut others, mut checksums) = (0, 0);
    // The high bits of the contexts are equal for all packets that are taken.
    let mut high = Some(context >> 24).filter(|_| !SITES);
    for i in 0..count.min(BURST_SIZE) {
        let Some(head) = &heads[i] else {
            work.protocols[i] = 0;
            continue;
        };
        let (head, window): (&Head, _) = (head, work.windows[i]);
        checksums |= window.checksums as u8 ^ Checksums::Vouched as u8;
        let mut matches = head.first_chunk().is_some_and(|bytes| pattern.matches(bytes));
        if SITES && matches {
            matches = false;
            if let Some(of_packet) = context_of::<F, TAGS>(head, ingress) {
                matches = of_packet >> 24 == *high.get_or_insert(of_packet >> 24);
                // The packet's session is none of those of the taken packets.
                others |= Slots::from(!matches) << i;
                context = of_packet;
            }
        }
        let head = behind::<TAGS>(head);
        match F::length_of(head, window.length.saturating_sub(4 * TAGS as u16)) {
            Some(length) if matches => {
                work.protocols[i] = F::protocol_of(head);
                work.lengths[i] = length;
                work.keys[i] = F::words_of(head, F::context(context));
            }
            _ => {
                work.protocols[i] = 0;
                others |= Slots::from(F::is_of_other_family(head)) << i;
            }
        }
    }
    work.high = high.unwrap_or_default() as u8;
    let all = Slots::MAX >> (BURST_SIZE - count.clamp(1, BURST_SIZE));
    let tcp = positions_of(&work.protocols, TCP) & all;
    let udp = positions_of(&work.protocols, UDP) & all;
    Plain {
        tcp,
        udp,
        unusual: all & !(tcp | udp | others),
        has_unverified: ingress.has_unverified(checksums),
    }
}

/// The context of a plain packet if sites exist; `None` if no site sent it, if it may be a DHCP message, or if its destination MAC is
/// that of another host.
#[inline(always)]
fn context_of<F: LaneFamily, const TAGS: usize>(head: &Head, ingress: &Ingress<'_>) -> Option<Context> {
    let inner = behind::<TAGS>(head);
    let is_dhcp = F::protocol_of(inner) == UDP && matches!(F::destination_port(inner), sites::SERVER | sites::CLIENT);
    if is_dhcp {
        return None;
    }
    match ingress.side {
        Side::Access(access) => access.context_of(TAGS as u8, head, || F::source_of_v4(inner)),
        Side::Public => {
            let mac = head.first_chunk()?;
            (*mac == ingress.mac || sites::is_local(mac)).then_some(ingress.context)
        }
        Side::NoSites | Side::Other => Some(ingress.context),
    }
}

impl Plain {
    /// Verifies checksums that the device has not verified, and leaves those packets to the graph that must not overtake an
    /// unusual packet.
    #[cold]
    #[inline(never)]
    pub(super) fn examine<F: LaneFamily>(
        &mut self,
        slots: &[BufferIndex],
        packets: &[Packet<'_>],
        (ingress, tags): (&Ingress<'_>, usize),
    ) {
        let packet = |i: usize| packets.get(usize::from(*slots.get(i)?));
        each(self.tcp | self.udp, |i| {
            let is_verified = packet(i).is_some_and(|packet| {
                let own = packet.bytes().first_chunk().unwrap_or(&ingress.mac);
                ingress.is_verified(packet.checksums()) || F::is_verified(packet, tags, own)
            });
            self.unusual |= Slots::from(!is_verified) << i;
        });
        self.leave(self.unusual);
        if self.unusual != 0 {
            self.leave(followers::<F>(self.unusual, self.tcp | self.udp, packet));
        }
    }

    fn leave(&mut self, slots: Slots) {
        (self.tcp, self.udp) = (self.tcp & !slots, self.udp & !slots);
    }
}

/// The slots of those packets that follow an unusual packet of their flow, or a fragment between their hosts. The graph
/// processes them, too, so that it tracks the packets of a flow in the order in which they arrived.
fn followers<'p, F: Family>(unusual: Slots, plain: Slots, packet: impl Fn(usize) -> Option<&'p Packet<'p>>) -> Slots {
    let parse = |i: usize| {
        let frame = packet(i)?.bytes();
        let layers = layers::parse(frame).ok()?;
        let is_of_family = layers.class == if F::IS_V6 { Class::Ipv6 } else { Class::Ipv4 };
        is_of_family.then_some((frame, layers))
    };
    let mut all = 0;
    each(unusual, |i| {
        let later = plain & (Slots::MAX << i) & !all;
        let Some((frame, layers)) = parse(i).filter(|_| later != 0) else {
            return;
        };
        each(later, |j| {
            let is_follower = parse(j).is_some_and(|(other, of_other)| match layers.fragment {
                Fragment::Whole => F::key(&layers, frame, 0) == F::key(&of_other, other, 0),
                _ => F::addresses(&layers, frame) == F::addresses(&of_other, other),
            });
            all |= Slots::from(is_follower) << j;
        });
    });
    all
}
