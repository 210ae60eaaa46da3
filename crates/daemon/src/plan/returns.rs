//! Captured replies to sessions that another gateway translated. This engine would drop the replies, because it
//! translates the sessions to other addresses and ports. Each captured reply is therefore readdressed to a session of
//! this engine with the same remote endpoint. If several sessions have this endpoint, any session can be used, since
//! the cost is the same.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use sluice_engine::packet::io::PortIndex;
use sluice_wire::Checksums;
use sluice_wire::checksum::Delta;
use sluice_wire::layers::{Class, Flags, Fragment, Layers, parse};

use super::frames::End;
use crate::replay::ReplayError;
use crate::replay::captures::Captured;
use crate::replay::world::World;

/// Protocol and remote endpoint. For an ICMP query, the port is 0, because the ICMP identifier is translated.
type Remote = (u8, End);

/// Endpoints of a complete IPv4 packet that can be translated.
struct Ends {
    layers: Layers,
    source: End,
    destination: End,
}

impl Ends {
    fn of(frame: &[u8]) -> Option<Self> {
        let layers = parse(frame).ok()?;
        let has_ports = matches!(layers.protocol, 6 | 17) || layers.flags.has(Flags::ICMP_QUERY);
        if layers.class != Class::Ipv4 || layers.fragment != Fragment::Whole || !has_ports {
            return None;
        }
        let tuple = layers.key4(frame, Default::default()).tuple();
        Some(Self {
            layers,
            source: (tuple.source.into(), tuple.source_port),
            destination: (tuple.destination.into(), tuple.destination_port),
        })
    }

    /// Use an endpoint as key of a remote host.
    fn remote(&self, (address, port): End) -> Remote {
        let port = if self.is_query() { 0 } else { port };
        (self.layers.protocol, (address, port))
    }

    fn is_query(&self) -> bool {
        self.layers.flags.has(Flags::ICMP_QUERY)
    }
}

/// Sessions to which replies can be assigned.
#[derive(Default)]
pub struct Returns {
    /// Outside endpoints of the sessions in this engine.
    known: HashSet<(Remote, End)>,
    /// Outside endpoints to which no replies are assigned yet.
    free: HashMap<Remote, VecDeque<End>>,
    /// Maps each outside endpoint in the captured replies to an outside endpoint of this engine.
    assigned: HashMap<(Remote, End), End>,
}

impl Returns {
    /// Send a frame. A reply is readdressed to an existing session. Returns whether the frame was forwarded.
    ///
    /// # Errors
    /// Returns the errors of [`World`].
    pub fn send(&mut self, world: &mut World<'_>, port: PortIndex, frame: &mut Vec<u8>) -> Result<bool, ReplayError> {
        let Some(ends) = Ends::of(frame) else {
            return self.pass(world, port, frame);
        };
        let (remote, public) = (ends.remote(ends.source), ends.destination);
        if let Some(&endpoint) = self.assigned.get(&(remote, public)) {
            readdress(frame, &ends, endpoint);
            return self.pass(world, port, frame);
        }
        if self.pass(world, port, frame)? {
            self.take(remote, public);
            return Ok(true);
        }
        let Some(endpoint) = self.free.get(&remote).and_then(|free| free.front().copied()) else {
            return Ok(false);
        };
        let mut changed = frame.clone();
        readdress(&mut changed, &ends, endpoint);
        let leaves = self.pass(world, port, &changed)?;
        if leaves {
            self.take(remote, endpoint);
            self.assigned.insert((remote, public), endpoint);
            *frame = changed;
        }
        Ok(leaves)
    }

    /// Whether a dropped frame may be a reply to a session that was created after the drop.
    pub fn answers(&self, frame: &[u8]) -> bool {
        Ends::of(frame).is_some_and(|ends| {
            let remote = ends.remote(ends.source);
            self.assigned.contains_key(&(remote, ends.destination))
                || self.free.get(&remote).is_some_and(|free| !free.is_empty())
        })
    }

    /// Mark that replies are assigned to an outside endpoint.
    fn take(&mut self, remote: Remote, public: End) {
        if let Some(free) = self.free.get_mut(&remote) {
            free.retain(|end| *end != public);
        }
    }

    fn pass(&mut self, world: &mut World<'_>, port: PortIndex, frame: &[u8]) -> Result<bool, ReplayError> {
        let before = Ends::of(frame);
        let captured = Captured {
            at: Duration::ZERO,
            bytes: frame.to_vec(),
            length: frame.len() as u32,
        };
        let mut leaves = false;
        world.receive(port, &captured, Checksums::Unverified, &mut |out, _, sent| {
            leaves |= out != port || Ends::of(sent).is_some();
            if let (Some(before), Some(after)) = (&before, Ends::of(sent))
                && before.layers.protocol == after.layers.protocol
                && before.destination.0 == after.destination.0
                && before.source != after.source
            {
                let remote = after.remote(after.destination);
                if self.known.insert((remote, after.source)) {
                    self.free.entry(remote).or_default().push_back(after.source);
                }
            }
            Ok(())
        })?;
        Ok(leaves)
    }
}

/// Change the destination and update the checksums.
fn readdress(frame: &mut [u8], ends: &Ends, (address, port): End) {
    let (old, new) = (u32::from(ends.destination.0), u32::from(address));
    let address = Delta::default().double(old, new);
    let ports = Delta::default().word(ends.destination.1, port);
    let (l3, l4) = (usize::from(ends.layers.l3), usize::from(ends.layers.l4));
    put(frame, l3 + 16, (new >> 16) as u16);
    put(frame, l3 + 18, new as u16);
    amend(frame, l3 + 10, address);
    match ends.layers.protocol {
        6 => {
            put(frame, l4 + 2, port);
            amend(frame, l4 + 16, address.and(ports));
        }
        // A UDP checksum of zero means that the packet has no checksum.
        17 => {
            put(frame, l4 + 2, port);
            if word(frame, l4 + 6) != Some(0) {
                amend(frame, l4 + 6, address.and(ports));
            }
        }
        _ => {
            put(frame, l4 + 4, port);
            amend(frame, l4 + 2, ports);
        }
    }
}

fn word(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

fn put(frame: &mut [u8], at: usize, value: u16) {
    if let Some(field) = frame.get_mut(at..).and_then(|tail| tail.first_chunk_mut()) {
        *field = value.to_be_bytes();
    }
}

fn amend(frame: &mut [u8], at: usize, by: Delta) {
    if let Some(old) = word(frame, at) {
        put(frame, at, by.apply(old));
    }
}

#[cfg(test)]
mod tests {
    use sluice_testkit::packet;

    use super::*;

    #[test]
    fn answer_readdressed_is_as_one_made_for_its_new_destination() {
        let endpoint = ("198.51.100.10".parse().unwrap(), 4711);
        let udp = |to: &str| packet::udp4("192.0.2.1:443", to).payload(&[7; 33]).build();
        let tcp = |to: &str| packet::tcp4("192.0.2.1:443", to).payload(&[7; 33]).build();
        for made in [&udp as &dyn Fn(&str) -> Vec<u8>, &tcp] {
            let mut frame = made("203.0.113.16:5000");
            let ends = Ends::of(&frame).unwrap();
            readdress(&mut frame, &ends, endpoint);
            assert_eq!(made("198.51.100.10:4711"), frame);
        }
    }
}
