//! Sessions opened as their peers would, and outputs held against an independent library.

use sluice_wire::Checksums;
use sluice_wire::tcp::flag;

use super::flows::{self, FRAME, Written, data, ends};
use super::rig::{Gateway, Source, mark};
use super::{Failure, Publics};

/// The first packets of all flows; where they are translated to.
pub fn open(source: &mut Source, gateway: &mut Gateway<'_>, sessions: u32) -> Result<Publics, Failure> {
    let mut publics = vec![(0, 0); sessions as usize];
    let address = |frame: &[u8]| {
        let word = |at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
        (word(26), u16::from_be_bytes([frame[34], frame[35]]))
    };
    // SYN or datagram out, SYN and ACK or datagram back, ACK or datagram out.
    for step in 0..3u16 {
        let mut number = 0;
        while number < sessions {
            let port = step & 1;
            source.feed(&[(port, 64)], Checksums::Vouched, |_| {
                let written = (number < sessions).then(|| {
                    let public = (step == 1).then(|| publics[number as usize]);
                    let (flags, numbers) = match step {
                        0 => (flag::SYN, (1, 0)),
                        1 => (flag::SYN | flag::ACK, (1, 2)),
                        _ => (flag::ACK, (2, 2)),
                    };
                    Written {
                        flags,
                        numbers,
                        ..data(number, public)
                    }
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
    let missing = publics.iter().filter(|public| public.1 == 0).count();
    if missing > 0 {
        return Err(format!("{missing} of {sessions} flows were not translated").into());
    }
    Ok(publics)
}

/// Hold sampled outputs against frames built by an independent library.
pub fn verify(samples: &[[u8; FRAME]], publics: &Publics) -> Result<(), Failure> {
    for frame in samples {
        let number = mark(frame);
        let e = ends(number);
        let public = *publics.get(number as usize).ok_or("a frame of no flow came out")?;
        let up = frame[..6] == flows::ROUTER_MAC;
        let (source, destination, macs) = if up {
            (public, e.remote, (flows::OUTSIDE_MAC, flows::ROUTER_MAC))
        } else {
            (e.remote, e.inside, (flows::INSIDE_MAC, flows::HOST_MAC))
        };
        let builder = etherparse::PacketBuilder::ethernet2(macs.0, macs.1);
        let mut ip = etherparse::Ipv4Header::new(
            26,
            63,
            etherparse::IpNumber(if e.tcp { 6 } else { 17 }),
            source.0.to_be_bytes(),
            destination.0.to_be_bytes(),
        )?;
        ip.dont_fragment = true;
        let builder = builder.ip(etherparse::IpHeaders::Ipv4(ip, Default::default()));
        let mut expected = Vec::new();
        if e.tcp {
            let mut payload = [0; 6];
            payload[2..].copy_from_slice(&number.to_be_bytes());
            builder
                .tcp(source.1, destination.1, 2, 0x2000)
                .ack(2)
                .write(&mut expected, &payload)?;
        } else {
            let mut payload = [0; 18];
            payload[14..].copy_from_slice(&number.to_be_bytes());
            builder.udp(source.1, destination.1).write(&mut expected, &payload)?;
        }
        if expected != frame {
            return Err(format!("flow {number} came out as {frame:02x?}, expected {expected:02x?}").into());
        }
    }
    Ok(())
}
