//! Remote endpoints of the flows to which a server sends packets.

use std::collections::BTreeMap;

use super::frame::{End, Template, arrived};
use super::generator::Own;
use super::topology::OUTSIDE_MAC;

/// Remote endpoints of flows that the generator has learned from received packets.
#[derive(Debug, Default)]
pub struct Peers {
    /// Learned flows with their source endpoints.
    learned: BTreeMap<u32, End>,
    /// The flows as a list, from which flows are drawn at random; empty while learning.
    known: Vec<(u32, End)>,
}

/// Number of flows to which the server sends packets if it has not learned any flow.
const UNASKED: u32 = 4_096;

impl Peers {
    /// Learns the source endpoint of a flow from a received frame.
    pub fn learn(&mut self, frame: &[u8]) {
        self.learned.extend(arrived(frame));
    }

    pub fn known(&self) -> usize {
        self.learned.len()
    }

    /// Stop learning.
    pub fn stop_learning(&mut self) {
        let nobody = |flow: u32| End {
            address: 0xcb00_7100 | flow & 0xff,
            port: 1024 + flow as u16,
            mac: OUTSIDE_MAC,
        };
        self.known = match self.learned.is_empty() {
            true => (0..UNASKED).map(|flow| (flow, nobody(flow))).collect(),
            false => self.learned.iter().map(|(&flow, &end)| (flow, end)).collect(),
        };
    }

    /// Draws a random flow of a generator; returns the flow and its remote endpoint.
    pub fn draw(&self, own: Own, random: u32, template: &Template) -> (u32, End) {
        match self.known.len() {
            0 => {
                let flow = own.draw(random);
                (flow, template.source(flow))
            }
            known => self.known[random as usize % known],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::kernel::frame::Ends;
    use crate::kernel::traffic::Direction;

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
        let mut peers = Peers::default();
        peers.learn(&frame);
        peers.learn(&frame);
        peers.learn(&[0; 60]);
        assert_eq!(1, peers.known());
        peers.stop_learning();
        let all = Own::of(8_000, 0, 1);
        assert_eq!((7, public), peers.draw(all, 123, &template));
        let mut nobody = Peers::default();
        assert_eq!((123, template.source(123)), nobody.draw(all, 123, &template));
        nobody.stop_learning();
        assert_eq!(UNASKED as usize, nobody.known.len());
    }
}
