//! What one host can have where several workers share the table: half of it, and no less because of the others.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::rig::{HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, flow, plain};
use sluice_engine::request::Filter;
use sluice_nat::Behaviour;
use sluice_testkit::packet;

const SESSIONS: u32 = 4_096;

/// A host by number; consecutive ones are in different shards.
fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 1, 10 + number)
}

fn rig(workers: usize, shards: u32, behaviour: Behaviour) -> Rig {
    let mut rig = Rig::new(Plan {
        workers,
        shards,
        sessions: SESSIONS,
        shares: true,
        behaviour,
        ..Plan::default()
    });
    for number in 0..16 {
        rig.know(INSIDE, plain(&host(number).to_string()), HOST_MAC);
    }
    rig
}

/// Open sessions from ports of a host, one after the other, until one is refused; the outside ends of those that were not.
fn fill(rig: &mut Rig, number: u8) -> Vec<SocketAddrV4> {
    let mut publics = Vec::new();
    for port in 1024..u16::MAX {
        let frame = packet::udp4(SocketAddrV4::new(host(number), port), "198.51.100.7:53");
        let sent = rig.send(INSIDE, &frame.macs(HOST_MAC, INSIDE_MAC).build());
        match sent.iter().find(|sent| sent.port == OUTSIDE) {
            Some(sent) => publics.push(flow(&sent.frame).0),
            None => break,
        }
    }
    publics
}

/// Whether an answer reaches the port of a host that it is for.
fn answers(rig: &mut Rig, number: u8, public: SocketAddrV4, port: u16) -> bool {
    let frame = packet::udp4("198.51.100.7:53", public).macs(ROUTER_MAC, OUTSIDE_MAC);
    let sent = rig.send(OUTSIDE, &frame.build());
    matches!(&sent[..], [one] if one.port == INSIDE && flow(&one.frame).1 == SocketAddrV4::new(host(number), port))
}

#[test]
fn one_host_has_half_of_the_table_and_every_answer_finds_it() {
    let of_sessions = Behaviour::ADDRESS_AND_PORT_DEPENDENT;
    for (workers, shards, behaviour) in [
        (1, 1, Behaviour::default()),
        (2, 2, Behaviour::default()),
        (2, 4, of_sessions),
        (2, 16, Behaviour::default()),
        (3, 16, of_sessions),
    ] {
        let mut rig = rig(workers, shards, behaviour);
        let publics = fill(&mut rig, 0);
        let least = if shards == 1 { SESSIONS } else { SESSIONS / 2 };
        assert!(publics.len() >= least as usize, "{} of {shards} shards", publics.len());
        assert_eq!(1, rig.drops("sessions-full"), "{:?}", rig.all_drops());
        assert_eq!(publics.len() as u64, rig.live());
        for (&public, port) in publics.iter().zip(1024..).step_by(7) {
            assert!(answers(&mut rig, 0, public, port), "{port} of {shards} shards");
        }
        assert_eq!(publics.len(), rig.sessions(Filter::default()).len());
    }
}

#[test]
fn others_keep_their_own_share_while_one_has_all_that_is_shared() {
    let mut rig = rig(2, 16, Behaviour::default());
    fill(&mut rig, 0);
    let steering = &rig.plane.setup().steering;
    let shard = |number: u8| steering.key(false).hash(&host(number).octets()) & 15;
    let others: Vec<_> = (1..16).filter(|&number| shard(number) != shard(0)).collect();
    assert!(others.len() > 8);
    for number in others {
        assert_eq!(SESSIONS as usize / 16, fill(&mut rig, number).len(), "host {number}");
    }
}

#[test]
fn what_is_shared_comes_back_when_sessions_end() {
    let mut rig = rig(2, 16, Behaviour::default());
    for number in [0, 1, 2] {
        let publics = fill(&mut rig, number);
        assert!(
            publics.len() >= SESSIONS as usize / 2,
            "{} of host {number}",
            publics.len()
        );
        rig.seconds(400);
        assert_eq!(0, rig.live());
        assert!(!answers(&mut rig, number, publics[1], 1025));
    }
}
