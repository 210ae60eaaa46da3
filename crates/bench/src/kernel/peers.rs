//! Remote endpoints of a generator's packets.

use std::collections::BTreeMap;

use super::frame::{End, Template, arrived};
use super::generator::Own;
use super::topology::OUTSIDE_MAC;
use super::traffic::Direction;

/// Remote endpoints of flows, unless the generator computes them.
#[derive(Debug)]
pub enum Peers {
    /// Flows from inside: the generator computes the endpoints.
    Own,
    /// Learned flows with their source endpoints, while learning.
    Learned(BTreeMap<u32, End>),
    /// Learned flows as a list, from which flows are drawn at random.
    Known(Vec<(u32, End)>),
}

/// Number of flows to which the server sends packets if it has not learned any flow.
const UNASKED: u32 = 4_096;

impl Peers {
    /// Creates the endpoints for a generator that sends in the given direction.
    pub fn of(direction: Direction) -> Self {
        match direction {
            Direction::Up => Self::Own,
            Direction::Down => Self::Learned(BTreeMap::new()),
        }
    }

    /// Learns the source endpoint of a flow from a received frame.
    pub fn learn(&mut self, frame: &[u8]) {
        if let (Self::Learned(flows), Some((flow, source))) = (self, arrived(frame)) {
            flows.insert(flow, source);
        }
    }

    pub fn known(&self) -> usize {
        match self {
            Self::Own => 0,
            Self::Learned(flows) => flows.len(),
            Self::Known(flows) => flows.len(),
        }
    }

    /// Forgets all learned flows, and starts to learn anew.
    pub fn begin(&mut self) {
        if !matches!(self, Self::Own) {
            *self = Self::Learned(BTreeMap::new());
        }
    }

    /// Stop learning.
    pub fn stop_learning(&mut self) {
        if let Self::Learned(flows) = self {
            let mut known: Vec<_> = std::mem::take(flows).into_iter().collect();
            if known.is_empty() {
                let nobody = |flow: u32| End {
                    address: 0xcb00_7100 | flow & 0xff,
                    port: 1024 + flow as u16,
                    mac: OUTSIDE_MAC,
                };
                known = (0..UNASKED).map(|flow| (flow, nobody(flow))).collect();
            }
            *self = Self::Known(known);
        }
    }

    /// Draws a random flow of a generator; returns the flow and its remote endpoint.
    pub fn draw(&self, own: Own, random: u32, template: &Template) -> (u32, End) {
        match self {
            Self::Known(flows) => flows[random as usize % flows.len()],
            _ => {
                let flow = own.draw(random);
                (flow, template.source(flow))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::kernel::frame::Ends;

    #[test]
    fn answers_go_to_flows_that_were_learned_and_to_nobody_without_any() {
        let ends = Ends {
            source_mac: [2; 6],
            destination_mac: [4; 6],
            inside: Ipv4Addr::new(10, 0, 0, 0),
            networks: 1,
            server: Ipv4Addr::new(198, 18, 0, 1),
            terminals: 0,
        };
        let template = Template::new(&ends, 64, Direction::Up);
        let mut frame = [0; 60];
        let public = End {
            address: 0xcb00_7105,
            port: 4_711,
            mac: [2, 7, 7, 7, 7, 7],
        };
        template.write(7, public, &mut frame);
        let mut peers = Peers::of(Direction::Down);
        peers.learn(&frame);
        peers.learn(&frame);
        peers.learn(&[0; 60]);
        assert_eq!(1, peers.known());
        peers.stop_learning();
        let all = Own::of(8_000, 0, 1);
        assert_eq!((7, public), peers.draw(all, 123, &template));
        peers.begin();
        assert_eq!(0, peers.known(), "it forgets before it learns again");
        let mut nobody = Peers::of(Direction::Down);
        nobody.stop_learning();
        assert_eq!(UNASKED as usize, nobody.known());
        let own = Peers::of(Direction::Up);
        assert_eq!((123, template.source(123)), own.draw(all, 123, &template));
    }
}
