//! Invariants under random events in random order.

use dhcproto::v4::DhcpOption;
use proptest::prelude::*;

use super::*;

const SITES: u32 = 12;
const RATE: u32 = 20;

#[derive(Clone, Debug)]
enum Step {
    Want(u32, u32),
    Release(u32),
    Forget(u32),
    Conflict(u32),
    Run(u64),
    Mood(u8),
    Bytes(Vec<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    let site = 0..SITES;
    prop_oneof![
        4 => (site.clone(), 0..4_u32).prop_map(|(site, other)| Step::Want(site, if other == 0 { SITES - site } else { site })),
        1 => site.clone().prop_map(Step::Release),
        1 => site.clone().prop_map(Step::Forget),
        1 => site.prop_map(Step::Conflict),
        3 => (0..40_u64).prop_map(Step::Run),
        2 => (40..8_000_u64).prop_map(Step::Run),
        2 => (0..9_u8).prop_map(Step::Mood),
        1 => proptest::collection::vec(any::<u8>(), 0..300).prop_map(Step::Bytes),
    ]
}

/// Changes how the server behaves from now on.
fn mood(number: u8) -> Twist {
    let mut turn = 0_u32;
    Box::new(move |_, mut answer| {
        turn += 1;
        let options = answer.opts_mut();
        match number {
            1 => return vec![],
            2 => drop(options.insert(DhcpOption::MessageType(MessageType::Nak))),
            4 if turn.is_multiple_of(2) => return vec![],
            5 => return vec![answer.clone(), answer.clone(), answer],
            6 => drop(options.insert(DhcpOption::AddressLeaseTime(turn % 100))),
            7 => drop(options.insert(DhcpOption::AddressLeaseTime(u32::MAX))),
            8 => drop(answer.set_yiaddr(Ipv4Addr::from_bits(turn.wrapping_mul(0x9e37_79b9)))),
            _ => {}
        }
        vec![answer]
    })
}

#[test]
fn corpus_is_answered_without_panic() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/agent");
    let files = std::fs::read_dir(folder).expect("the corpus is in the tree");
    let replay = |file: std::io::Result<std::fs::DirEntry>| {
        hostile(&std::fs::read(file.expect("a file").path()).expect("it can be read"));
    };
    assert!(files.map(replay).count() > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn invariants_hold_whatever_happens(steps in proptest::collection::vec(step(), 1..60)) {
        let mut world = World::new(AgentSettings { rate: RATE, hold: Duration::from_secs(30), ..settings() });
        for step in steps {
            match step {
                Step::Want(site, other) => drop(world.agent.want(Site(site), mac(other), world.now)),
                Step::Release(site) => world.agent.release(Site(site), world.now),
                Step::Forget(site) => world.agent.forget(Site(site), world.now),
                Step::Conflict(site) => world.agent.conflict(Site(site), world.now),
                Step::Run(time) => world.run(time * SECOND / 4),
                Step::Mood(number) => {
                    world.twist = mood(number);
                    // The server gives the same address to all clients.
                    world.server.stuck = (number == 3).then_some(Ipv4Addr::new(203, 0, 0, 77));
                }
                Step::Bytes(bytes) => world.agent.receive(&bytes, mac(0), world.now),
            }
            world.agent.check();
        }
        world.run(0);
        for pair in world.sent.windows(RATE as usize + 1) {
            prop_assert!(pair[RATE as usize].at - pair[0].at >= SECOND, "more than {RATE} within a second");
        }
        // The leases reconstructed from the events equal the current leases.
        let mut leases = BTreeMap::new();
        for event in &world.events {
            match event.lease_change() {
                Some((site, LeaseChange::Gained(lease))) => prop_assert_eq!(None, leases.insert(site, lease)),
                Some((site, LeaseChange::Extended(lease))) => prop_assert!(leases.insert(site, lease).is_some()),
                Some((site, LeaseChange::Ended(address))) => {
                    prop_assert_eq!(Some(address), leases.remove(&site).map(|lease| lease.address));
                }
                None => {}
            }
        }
        let now: BTreeMap<_, _> = world.agent.leases().map(|(site, _, lease)| (site, lease)).collect();
        prop_assert_eq!(now, leases);
    }

    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        hostile(&bytes);
    }

    #[test]
    fn changed_answers_are_read_or_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        length in any::<prop::sample::Index>(),
    ) {
        let mut world = World::new(settings());
        world.want(0);
        world.step();
        let (mut payload, _) = world.underway.pop_first().expect("an offer").1;
        for (place, byte) in changes {
            let place = place.index(payload.len());
            payload[place] = byte;
        }
        world.agent.receive(&payload[..length.index(payload.len() + 1)], mac(0), world.now);
        world.agent.receive(&payload, mac(0), world.now);
        world.agent.check();
    }
}
