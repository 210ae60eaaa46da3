//! FPM messages as FRR 8.4 encodes them, one Netlink message per FPM frame.

use sluice_route::feed::netlink::{INET, kind};
use sluice_route::feed::writer::{DELETE, SET, Writer, frame};
use sluice_route::{Address, Prefix};

/// Number of next hop objects, numbered from 1; each has a different gateway.
pub const NEXT_HOPS: u32 = 100;
/// Number of groups of two next hops; their object numbers follow those of the next hops.
const GROUPS: u32 = 10;
/// Gateway of the first next hop.
pub const GATEWAY: u32 = 0xc000_0202;
/// Index of the outside interface on the daemon's host.
pub const LINK: u32 = 4;
/// Route protocol (RTPROT) of FRR's BGP.
const BGP: u8 = 186;
/// One in this number of routes refers to a group.
const GROUPED: usize = 10;

fn route(number: usize, prefix: Prefix) -> Vec<u8> {
    let id = match number.is_multiple_of(GROUPED) {
        true => 1 + NEXT_HOPS + (number / GROUPED) as u32 % GROUPS,
        false => 1 + number as u32 % NEXT_HOPS,
    };
    let writer = Writer::route((kind::NEW_ROUTE, SET), prefix, BGP, 1).number(6, 20);
    frame(&[writer.number(30, id).finish()])
}

/// Message that adds a route with the first next hop.
pub fn add(prefix: Prefix) -> Vec<u8> {
    route(GROUPED * NEXT_HOPS as usize + 1, prefix)
}

/// Message that deletes a route.
pub fn remove(prefix: Prefix) -> Vec<u8> {
    let writer = Writer::route((kind::DELETE_ROUTE, DELETE), prefix, BGP, 0);
    frame(&[writer.number(6, 20).finish()])
}

/// Messages of a full table: next hops, groups, and the routes that refer to them.
pub fn table(prefixes: &[Prefix]) -> Vec<u8> {
    let next_hop = |id| {
        let writer = Writer::next_hop((kind::NEW_NEXT_HOP, SET), INET, id);
        let writer = writer.address(6, Address::V4(GATEWAY + id - 1));
        frame(&[writer.number(5, LINK).finish()])
    };
    let group = |number: u32| {
        let writer = Writer::next_hop((kind::NEW_NEXT_HOP, SET), 0, 1 + NEXT_HOPS + number);
        let members = [2 * number + 1, 2 * number + 2].map(|id| (id, 1));
        frame(&[writer.group(&members).finish()])
    };
    let next_hops = (1..=NEXT_HOPS).flat_map(next_hop);
    let groups = (0..GROUPS).flat_map(group);
    let routes = prefixes
        .iter()
        .enumerate()
        .flat_map(|(number, &prefix)| route(number, prefix));
    next_hops.chain(groups).chain(routes).collect()
}

#[cfg(test)]
mod tests {
    use sluice_route::feed::fpm::FrameBuffer;
    use sluice_route::feed::{Feed, Links, MAIN_TABLE, Refused, RoutePeer};
    use sluice_route::rib::{Origin, Rib, Settings};

    use super::*;
    use crate::rig::frames::Random;
    use crate::router::internet::routes;

    #[test]
    fn table_is_understood_whole_and_taken_back() {
        let prefixes = routes(false, 1_000, &mut Random(7));
        let mut rib = Rib::new(Settings::default(), [1, 2]);
        let mut feed = Feed::new(RoutePeer {
            origin: Origin::Fpm,
            table: MAIN_TABLE,
            links: Links::Numbered([(LINK, 1)].into()),
        });
        let removals = prefixes.iter().flat_map(|&prefix| remove(prefix));
        let mut frames = FrameBuffer::default();
        frames.push(&table(&prefixes));
        frames.push(&removals.collect::<Vec<_>>());
        while let Some(frame) = frames.take().expect("frames") {
            feed.follow(&mut rib, frame, 0);
        }
        assert!(!frames.is_cut());
        let counts = feed.counts();
        assert_eq!(
            (1_000, 1_000, 110),
            (counts.offered, counts.withdrawn, counts.next_hops)
        );
        assert!(Refused::ALL.iter().all(|&reason| counts.refused(reason) == 0));
    }
}
