//! Establishment of flows as their endpoints would do it, and comparison of output frames with frames that an
//! independent library builds.

use sluice_wire::tcp::flag;

use super::frames::{self, Frame, Hosts, Written, address6, data, ends, mark};
use super::gateway::Gateway;
use super::measure::Direction;
use super::sites::Homes;
use super::{BURST, Sample};
use crate::rows::Failure;

/// Public address and port of each flow; port 0 marks a flow that the gateway refused.
pub type Publics = Vec<(u32, u16)>;

/// Opens flows step by step: SYN or datagram from inside, SYN-ACK or datagram from outside, ACK or datagram from
/// inside. `deal` returns the lane at which a flow's packets from a side arrive; `exchange` sends packets to a lane
/// from a side and returns all output frames. Both are called with `gateway`.
pub fn open_by<G>(
    hosts: Hosts,
    flows: u32,
    lanes: usize,
    source_at: (usize, usize),
    gateway: &mut G,
    deal: impl Fn(&G, u32, bool, &Publics) -> usize,
    mut exchange: impl FnMut(&mut G, usize, bool, &[Written], &mut dyn FnMut(&[u8])) -> Result<(), Failure>,
) -> Result<Publics, Failure> {
    let mut publics: Publics = vec![(0, 0); flows as usize];
    for (step, flags, numbers) in [
        (0, flag::SYN, (1, 0)),
        (1, flag::SYN | flag::ACK, (1, 2)),
        (2, flag::ACK, (2, 2)),
    ] {
        let outside = step == 1;
        let mut waiting = vec![Vec::with_capacity(BURST); lanes];
        for number in 0..flows {
            let public = publics[number as usize];
            let lane = deal(gateway, number, outside, &publics);
            if step == 0 || public.1 != 0 {
                waiting[lane].push(data(hosts, number, outside.then_some(public)).with(flags, numbers));
            }
            let last = number + 1 == flows;
            for (lane, packets) in waiting.iter_mut().enumerate() {
                if packets.len() < BURST && !last || packets.is_empty() {
                    continue;
                }
                exchange(gateway, lane, outside, packets, &mut |frame| {
                    if let Some(public) = publics.get_mut(mark(frame) as usize).filter(|_| step == 0) {
                        let (at, port) = source_at;
                        let word = u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
                        *public = (word, u16::from_be_bytes([frame[port], frame[port + 1]]));
                    }
                })?;
                packets.clear();
            }
        }
    }
    Ok(publics)
}

/// Opens flows at a gateway with one worker; `frame` creates a frame from a packet and its direction. Returns the
/// public address and port of each flow.
pub fn open<F: Frame>(
    gateway: &mut Gateway<'_>,
    hosts: Hosts,
    flows: u32,
    frame: impl Fn(Written, bool) -> F,
) -> Result<Publics, Failure> {
    open_by(
        hosts,
        flows,
        1,
        F::SOURCE,
        gateway,
        |_, _, _, _| 0,
        |gateway, _, outside, packets, look| {
            let (mut rest, port) = (packets.iter(), u16::from(outside));
            let frames = |_| rest.next().map(|packet| frame(*packet, !outside));
            gateway
                .source
                .feed(&[(port, packets.len())], sluice_wire::Checksums::Vouched, frames);
            gateway.round();
            gateway.source.drain(1 - port, look);
            Ok(())
        },
    )
}

pub fn refused(publics: &Publics) -> usize {
    publics.iter().filter(|public| public.1 == 0).count()
}

/// Check that all flows were translated.
pub fn complete(publics: Publics) -> Result<Publics, Failure> {
    match refused(&publics) {
        0 => Ok(publics),
        missing => Err(format!("{missing} of {} flows were not translated", publics.len()).into()),
    }
}

/// Open flows, and the properties that are required to verify their packets.
#[derive(Clone, Copy)]
pub struct Flows<'p> {
    pub hosts: Hosts,
    pub publics: &'p Publics,
    /// Subscriber sites to which the flows belong.
    pub homes: Option<Homes>,
}

impl<'p> Flows<'p> {
    pub fn of(hosts: Hosts, publics: &'p Publics) -> Self {
        let homes = None;
        Self { hosts, publics, homes }
    }

    /// Compares sampled output frames with frames of the same family built by an independent library; `payload` returns
    /// a flow's data after a transport header of the given length.
    pub fn verify(
        &self,
        family: u32,
        samples: &[Sample],
        payload: impl Fn(u32, usize) -> Vec<u8>,
    ) -> Result<(), Failure> {
        samples
            .iter()
            .try_for_each(|sample| self.verify_one(family, sample, &payload))
    }

    /// Like [`Flows::verify`], for the shortest frames, whose data is zeros with the flow number at the end.
    pub fn verify_short<F: Frame + From<Written>>(&self, samples: &[Sample]) -> Result<(), Failure> {
        let length = F::from(data(self.hosts, 0, None)).length();
        let headers = if F::FAMILY == 4 { 34 } else { 54 };
        self.verify(F::FAMILY, samples, |number, transport| {
            let zeros = vec![0; length - headers - transport - 4];
            [&zeros[..], &number.to_be_bytes()].concat()
        })
    }

    fn verify_one(&self, family: u32, frame: &[u8], payload: &impl Fn(u32, usize) -> Vec<u8>) -> Result<(), Failure> {
        let number = mark(frame);
        let e = ends(self.hosts, number);
        let public = *self.publics.get(number as usize).ok_or("a frame of no flow came out")?;
        let up = frame[..6] == frames::ROUTER_MAC;
        let (source, destination, macs) = match up {
            true => (public, e.remote, (frames::OUTSIDE_MAC, frames::ROUTER_MAC)),
            false => (e.remote, e.inside, (frames::INSIDE_MAC, frames::HOST_MAC)),
        };
        let macs = match self.homes.map(|homes| homes.macs(number)) {
            None => macs,
            Some([_, of_site]) if up => (of_site, macs.1),
            Some([terminal, _]) => (macs.0, terminal),
        };
        if let Some(wanted) = self
            .homes
            .map(|homes| homes.public(number))
            .filter(|&wanted| wanted != public.0)
        {
            return Err(format!("flow {number} has the address {:08x}, its site {wanted:08x}", public.0).into());
        }
        let builder = etherparse::PacketBuilder::ethernet2(macs.0, macs.1);
        let protocol = etherparse::IpNumber(if e.tcp { 6 } else { 17 });
        let payload = payload(number, if e.tcp { 20 } else { 8 });
        let builder = if family == 4 {
            let (source, destination) = (source.0.to_be_bytes(), destination.0.to_be_bytes());
            // The library overwrites the payload length 0.
            let mut ip = etherparse::Ipv4Header::new(0, 63, protocol, source, destination)?;
            ip.dont_fragment = true;
            builder.ip(etherparse::IpHeaders::Ipv4(ip, Default::default()))
        } else {
            let halves = match up {
                true => (frames::PUBLIC6, frames::REMOTE6),
                false => (frames::REMOTE6, frames::INSIDE6),
            };
            builder.ipv6(address6(halves.0, source.0), address6(halves.1, destination.0), 63)
        };
        let mut expected = Vec::new();
        if e.tcp {
            let segment = builder.tcp(source.1, destination.1, 2, 0x2000).ack(2);
            segment.write(&mut expected, &payload)?;
        } else {
            builder.udp(source.1, destination.1).write(&mut expected, &payload)?;
        }
        if let Some(homes) = self.homes.filter(|_| !up) {
            expected.splice(12..12, homes.tags(number));
        }
        match expected == frame {
            true => Ok(()),
            false => Err(format!("flow {number} came out as {frame:02x?}, expected {expected:02x?}").into()),
        }
    }

    /// A packet of a flow that arrives at a port: from inside at even ports, from outside at odd ports.
    #[inline(always)]
    pub fn packet(&self, number: u32, port: u16) -> Written {
        data(
            self.hosts,
            number,
            (port & 1 == 1).then(|| self.publics[number as usize]),
        )
    }
}

/// Ports of the source for a direction, each with its number of frames per iteration.
pub fn ports(direction: Direction) -> &'static [(u16, usize)] {
    match direction {
        Direction::Up => &[(0, BURST)],
        Direction::Down => &[(1, BURST)],
        Direction::Both => &[(0, BURST), (1, BURST)],
    }
}
