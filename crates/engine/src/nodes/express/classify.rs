//! The first pass: the plain packets of a burst, and their keys.

use sluice_table::simd::bytes::positions_of;
use sluice_wire::ipv4::protocol::{TCP, UDP};
use sluice_wire::{Checksums, Class, Fragment, Packet, layers};

use crate::packet::io::BURST_SIZE;
use crate::session::family::Family;

use super::head::{HEAD, Heads, LaneFamily};
use super::{Ingress, LaneArrays, Slots, each};

/// The plain packets of a burst.
pub(super) struct Plain {
    /// Plain TCP packets.
    pub(super) tcp: Slots,
    /// Plain UDP packets.
    pub(super) udp: Slots,
    /// Packets of this address family that are not plain. Packets of the other address family are not included.
    pub(super) unusual: Slots,
    /// Packets with checksums that the device has not verified.
    pub(super) unverified: Slots,
}

/// Finds the plain packets, and stores their keys and lengths.
#[inline(always)]
pub(super) fn classify<'h, F: LaneFamily>(
    work: &mut LaneArrays<F>,
    packets: &'h mut [Packet<'_>],
    ingress: &Ingress,
) -> (Heads<'h>, Plain) {
    let all = Slots::MAX >> (BURST_SIZE - packets.len().clamp(1, BURST_SIZE));
    let context = F::context(ingress.context);
    work.high = (ingress.context >> 24) as u8;
    let (mut others, mut unverified) = (0, 0);
    let mut heads: Heads<'h> = [const { None }; BURST_SIZE];
    let lengths = work.frames.iter_mut().zip(&mut work.lengths);
    let arrays = heads.iter_mut().zip(&mut work.protocols).zip(&mut work.keys).zip(lengths);
    for (i, (packet, (((place, protocol), key), (frame, length)))) in packets.iter_mut().zip(arrays).enumerate() {
        let (is_verified, bytes) = (packet.checksums() == Checksums::Vouched, packet.len());
        *protocol = 0;
        let Some(head) = packet.head_mut::<HEAD>() else {
            continue;
        };
        if F::is_plain(head, bytes, &ingress.mac) {
            *protocol = F::protocol_of(head);
            (*frame, *length) = (bytes as u16, F::length_of(head));
            *key = F::words_of(head, context);
            unverified |= Slots::from(!is_verified) << i;
        } else {
            others |= Slots::from(F::is_of_other_family(head)) << i;
        }
        *place = Some(head);
    }
    let [tcp, udp] = [TCP, UDP].map(|protocol| positions_of(&work.protocols, protocol) & all);
    let plain = Plain {
        tcp,
        udp,
        unusual: all & !(tcp | udp | others),
        unverified: unverified & (tcp | udp),
    };
    (heads, plain)
}

impl Plain {
    /// Verifies checksums that the device has not verified, and leaves packets to the graph that must not overtake an unusual
    /// packet.
    #[cold]
    #[inline(never)]
    pub(super) fn examine<F: LaneFamily>(&mut self, packets: &[Packet<'_>], ingress: &Ingress) {
        each(self.unverified, |i| {
            let is_verified = packets.get(i).is_some_and(|packet| F::is_verified(packet, &ingress.mac));
            self.unusual |= Slots::from(!is_verified) << i;
        });
        self.leave(self.unusual);
        if self.unusual != 0 {
            self.leave(followers::<F>(self.unusual, self.tcp | self.udp, packets));
        }
    }

    fn leave(&mut self, slots: Slots) {
        (self.tcp, self.udp) = (self.tcp & !slots, self.udp & !slots);
    }
}

/// The slots of those packets that follow an unusual packet of their flow, or a fragment between their hosts. The graph
/// processes them, too, so that it tracks the packets of a flow in the order in which they arrived.
fn followers<F: Family>(unusual: Slots, plain: Slots, packets: &[Packet<'_>]) -> Slots {
    let parse = |i: usize| {
        let frame = packets.get(i)?.bytes();
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
