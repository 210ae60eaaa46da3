//! Sessions opened as their peers would, and outputs held against an independent library.

use sluice_wire::Checksums;
use sluice_wire::tcp::flag;

use super::flows::{self, Hosts, Written, data, ends};
use super::rig::{Gateway, Source};
use super::six;
use super::wire::{Sample, Wire, mark};
use super::{Failure, Publics};
use crate::homes::Homes;

/// The first packets of all flows; where they are translated to. A flow that was refused is nowhere.
pub fn open<W: Wire + From<Written>>(
    source: &mut Source,
    gateway: &mut Gateway<'_>,
    hosts: Hosts,
    sessions: u32,
) -> Publics {
    open_as(source, gateway, hosts, sessions, |written, _| W::from(written))
}

/// The same of frames that are made of what is to be written, and whether it comes from inside.
pub fn open_as<W: Wire>(
    source: &mut Source,
    gateway: &mut Gateway<'_>,
    hosts: Hosts,
    sessions: u32,
    frame: impl Fn(Written, bool) -> W,
) -> Publics {
    let mut publics = vec![(0, 0); sessions as usize];
    let address = |frame: &[u8]| {
        let word = |at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
        let port = [frame[W::SOURCE_PORT], frame[W::SOURCE_PORT + 1]];
        (word(W::SOURCE), u16::from_be_bytes(port))
    };
    // SYN or datagram out, SYN and ACK or datagram back, ACK or datagram out.
    for step in 0..3u16 {
        let mut number = 0;
        while number < sessions {
            let port = step & 1;
            source.feed(&[(port, 64)], Checksums::Vouched, |_| {
                let refused = |number: u32| step > 0 && publics[number as usize].1 == 0;
                let written = (number < sessions && !refused(number)).then(|| {
                    let public = (step == 1).then(|| publics[number as usize]);
                    let (flags, numbers) = match step {
                        0 => (flag::SYN, (1, 0)),
                        1 => (flag::SYN | flag::ACK, (1, 2)),
                        _ => (flag::ACK, (2, 2)),
                    };
                    let written = Written {
                        flags,
                        numbers,
                        ..data(hosts, number, public)
                    };
                    frame(written, port == 0)
                });
                number += 1;
                written
            });
            let now = gateway.now();
            gateway.worker.round(now);
            source.drain(1 - port, |frame| {
                if let Some(public) = publics.get_mut(mark(frame) as usize).filter(|_| step == 0) {
                    *public = address(frame);
                }
            });
        }
    }
    publics
}

/// How many flows were refused.
pub fn refused(publics: &Publics) -> usize {
    publics.iter().filter(|public| public.1 == 0).count()
}

/// All flows were translated.
pub fn complete(publics: Publics) -> Result<Publics, Failure> {
    match refused(&publics) {
        0 => Ok(publics),
        missing => Err(format!("{missing} of {} flows were not translated", publics.len()).into()),
    }
}

/// Hold sampled outputs against frames built by an independent library.
pub fn verify<W: Wire>(hosts: Hosts, samples: &[Sample], publics: &Publics) -> Result<(), Failure> {
    // What is left of the frame for the payload, which the mark ends.
    let headers = if W::FAMILY == 4 { 34 } else { 54 };
    verify_filled::<W>(hosts, None, samples, publics, |number, transport| {
        let mut payload = vec![0; W::LENGTH - headers - transport];
        let at = payload.len() - 4;
        payload[at..].copy_from_slice(&number.to_be_bytes());
        payload
    })
}

/// The same for frames of any payload, of sites where there are some: `filled` gives that of a flow's number behind a
/// transport header of so many bytes.
pub fn verify_filled<W: Wire>(
    hosts: Hosts,
    homes: Option<Homes>,
    samples: &[Sample],
    publics: &Publics,
    filled: impl Fn(u32, usize) -> Vec<u8>,
) -> Result<(), Failure> {
    for frame in samples.iter().map(Sample::frame) {
        let number = mark(frame);
        let e = ends(hosts, number);
        let public = *publics.get(number as usize).ok_or("a frame of no flow came out")?;
        let up = frame[..6] == flows::ROUTER_MAC;
        let (source, destination, macs) = if up {
            (public, e.remote, (flows::OUTSIDE_MAC, flows::ROUTER_MAC))
        } else {
            (e.remote, e.inside, (flows::INSIDE_MAC, flows::HOST_MAC))
        };
        let macs = match homes.map(|homes| homes.macs(number)) {
            None => macs,
            Some([_, of_site]) if up => (of_site, macs.1),
            Some([terminal, _]) => (macs.0, terminal),
        };
        if let Some(homes) = homes.filter(|homes| homes.public(number) != public.0) {
            let (is, wanted) = (public.0, homes.public(number));
            return Err(format!("flow {number} has the address {is:08x}, its site {wanted:08x}").into());
        }
        let builder = etherparse::PacketBuilder::ethernet2(macs.0, macs.1);
        let protocol = etherparse::IpNumber(if e.tcp { 6 } else { 17 });
        let payload = filled(number, if e.tcp { 20 } else { 8 });
        let builder = if W::FAMILY == 4 {
            let (source, destination) = (source.0.to_be_bytes(), destination.0.to_be_bytes());
            // The library fills the length in.
            let mut ip = etherparse::Ipv4Header::new(0, 63, protocol, source, destination)?;
            ip.dont_fragment = true;
            builder.ip(etherparse::IpHeaders::Ipv4(ip, Default::default()))
        } else {
            let halves = if up {
                (six::PUBLIC, six::REMOTE)
            } else {
                (six::REMOTE, six::INSIDE)
            };
            let (source, destination) = (six::address(halves.0, source.0), six::address(halves.1, destination.0));
            builder.ipv6(source, destination, 63)
        };
        let mut expected = Vec::new();
        if e.tcp {
            builder
                .tcp(source.1, destination.1, 2, 0x2000)
                .ack(2)
                .write(&mut expected, &payload)?;
        } else {
            builder.udp(source.1, destination.1).write(&mut expected, &payload)?;
        }
        if let Some(homes) = homes.filter(|_| !up) {
            expected.splice(12..12, homes.tags(number));
        }
        if expected != frame {
            return Err(format!("flow {number} came out as {frame:02x?}, expected {expected:02x?}").into());
        }
    }
    Ok(())
}
