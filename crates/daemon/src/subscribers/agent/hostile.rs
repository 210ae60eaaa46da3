//! Feeds arbitrary bytes to the agent as server replies, for tests and the fuzzer.

use std::collections::HashSet;

use super::{Agent, AgentOutput, AgentSettings, Destination, Event, LeaseChange, SECOND};
use crate::subscribers::Site;
use crate::subscribers::message::Reply;
use sluice_nat::Secret;

const SITES: u32 = 4;
/// Number of bytes used per reply.
const PIECE: usize = 64;

/// Feed arbitrary bytes to four sites: as whole replies, and as options of otherwise valid replies.
#[doc(hidden)]
pub fn hostile(bytes: &[u8]) {
    let mut agent = Agent::new(AgentSettings::new(Secret([1, 2])), 0);
    let mac = |site: u32| [2, 0, 0, 0, 0, site as u8];
    let mut now = 0;
    let mut held = HashSet::new();
    for site in 0..SITES {
        assert_eq!(Ok(()), agent.want(Site(site), mac(site), now));
    }
    agent.receive(bytes, mac(0), now);
    for (number, piece) in (0..).zip(bytes.chunks(PIECE).take(64)) {
        let mut output = AgentOutput::default();
        agent.poll(now, &mut output);
        let mut follow = |events: Vec<Event>| {
            for event in events {
                match event.lease_change() {
                    Some((_, LeaseChange::Gained(lease))) => assert!(held.insert(lease.address)),
                    Some((_, LeaseChange::Ended(address))) => assert!(held.remove(&address)),
                    Some((_, LeaseChange::Extended(_))) | None => {}
                }
            }
        };
        follow(output.events);
        for transmit in output.transmits {
            assert!(
                Reply::read(&transmit.payload).is_err(),
                "a client's message is no server's"
            );
            let uses = matches!(transmit.destination, Destination::Unicast { .. });
            assert!(!uses || !transmit.source.is_unspecified());
            // The transaction ID and the hardware address are correct. The assigned address is either the requested
            // address or a different address.
            let mut answer = transmit.payload;
            answer.truncate(240);
            answer[0] = 2;
            let address = piece.first().copied().unwrap_or_default() % 8;
            answer[16..20].copy_from_slice(&[203, 0, 113, address]);
            answer.extend_from_slice(piece.get(1..).unwrap_or_default());
            agent.receive(&answer, transmit.source_mac, now);
        }
        match piece.last() {
            Some(last @ 0..8) => agent.conflict(Site(u32::from(*last) % SITES), now),
            Some(last @ 8..16) => agent.forget(Site(u32::from(*last) % SITES), now),
            Some(last @ 16..24) => {
                let site = u32::from(*last) % SITES;
                assert_eq!(Ok(()), agent.want(Site(site), mac(site), now));
            }
            Some(last) => now += u64::from(*last) * SECOND * (number % 7 + 1),
            None => {}
        }
    }
}
