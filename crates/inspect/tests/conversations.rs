//! Two hosts communicate through a gateway. The links on both sides of the gateway lose, reorder and duplicate
//! segments, and a sender may send different bytes for equal sequence numbers. No application may receive data that a
//! rule drops. If no rule matches, the application must receive all data.
//!
//! The hosts run a minimal TCP that is independent of the inspection code. This TCP has retransmission timeouts,
//! retransmissions with different segment boundaries, SACK, TCP fast open, keep-alives, closed and scaled windows,
//! window probes, and urgent pointers. Each receiver assembles its stream four times, each time with a different
//! preference among the copies of a byte.
//!
//! `SLUICE_CONVERSATIONS` sets the number of conversations; `SLUICE_CONVERSATION` selects a single conversation.

mod conversation {
    pub mod host;
    pub mod random;
    pub mod world;
}
mod lab;

use conversation::random::Random;
use conversation::world::{Manner, Outcome, World};
use lab::{Lab, rules};
use sluice_inspect::signatures::Dialect;
use sluice_inspect::stream::{self, Exception};

const RULE: &str = r#"drop tcp any any -> any any (msg:"m"; content:"MATCHME!"; sid:1;)"#;

/// Default number of conversations.
const ORDINARY: u64 = 10_000;

/// A lab with ample memory for streams, and a lab in which every limit is reached.
fn labs() -> [Lab; 2] {
    let rules = rules(Dialect::Suricata, RULE);
    let small = stream::StreamCapacity {
        window: 64,
        reassembly: 6 * 2048,
        share: 4 * 2048,
        ..stream::StreamCapacity::of(2)
    };
    [Lab::of(rules.clone()), Lab::with(rules, small)]
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs a conversation, and prints its number if it fails.
fn hold(lab: &mut Lab, seed: u64, change: impl Fn(&mut Manner)) -> Outcome {
    struct Told(u64);
    impl Drop for Told {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("SLUICE_CONVERSATION={}", self.0);
            }
        }
    }
    let _told = Told(seed);
    let mut random = Random(seed);
    let mut manner = Manner::random(&mut random);
    change(&mut manner);
    World::new(lab, random.draw(), manner).run()
}

#[test]
fn conversation_of_any_kind_hands_over_everything_but_what_a_rule_drops() {
    let mut labs = labs();
    let alone = number("SLUICE_CONVERSATION");
    let count = number("SLUICE_CONVERSATIONS").unwrap_or(ORDINARY);
    let all = 0..count;
    let (mut matched, mut hostile) = (0, 0);
    for seed in alone.map_or(all, |alone| alone..alone + 1) {
        let lab = &mut labs[(seed % 2) as usize];
        let outcome = hold(lab, seed, |_| {});
        matched += usize::from(outcome.matched);
        hostile += outcome.hostile;
    }
    if alone.is_none() && count >= ORDINARY {
        let counters = labs.each_mut().map(|lab| *lab.inspector.streams().counters());
        let sum = |of: fn(&stream::StreamCounters) -> u64| counters.iter().map(of).sum::<u64>();
        assert!(matched > 1000 && hostile > 10_000, "{matched} {hostile}");
        assert!(
            sum(|all| all.ahead) > 10_000 && sum(|all| all.kept) > 100_000,
            "{counters:?}"
        );
        assert!(sum(|all| all.rewritten) > 1000, "{counters:?}");
        // The pool of the second gateway is so small that it is exhausted.
        let met = [Exception::GapFull, Exception::NoMemory].map(|exception| counters[1].count_of(exception));
        assert!(met[0] > 1000 && met[1] > 0, "{counters:?}");
    }
}

/// Runs several conversations with these properties.
#[track_caller]
fn kind(change: impl Fn(&mut Manner)) -> [stream::StreamCounters; 2] {
    let mut labs = labs();
    for seed in 0..400 {
        hold(&mut labs[(seed % 2) as usize], seed, &change);
    }
    labs.each_mut().map(|lab| *lab.inspector.streams().counters())
}

#[test]
fn conversation_in_which_much_is_lost_goes_on_by_timeouts() {
    let counters = kind(|manner| {
        (manner.lost, manner.hostile) = ([45, 45], 0);
        manner.hosts.iter_mut().for_each(|host| host.longest = 536);
    });
    assert!(counters[0].ahead > 100 && counters[0].repeats > 1000, "{counters:?}");
}

#[test]
fn conversation_in_any_order_with_and_without_sack_goes_on() {
    for sacks in [false, true] {
        kind(|manner| {
            manner.reordered = [100, 100];
            manner.hosts.iter_mut().for_each(|host| host.sacks = sacks);
        });
    }
}

#[test]
fn conversation_by_fast_open_is_inspected_from_the_first_byte() {
    // The server accepts data with the SYN, or ignores it.
    for takes in [false, true] {
        kind(|manner| {
            manner.planted = Some((0, 0));
            manner.blocks[0] = manner.blocks[0].max(10);
            manner.hosts[0].fast_open = true;
            manner.hosts[1].fast_open = takes;
        });
    }
}

#[test]
fn conversation_through_windows_that_close_and_are_probed_goes_on() {
    for scale in [None, Some(0), Some(3)] {
        kind(|manner| {
            for host in &mut manner.hosts {
                (host.buffer, host.reads, host.scale) = (30, false, scale);
            }
            manner.blocks = manner.blocks.map(|bytes| bytes % 90);
            manner.planted = None;
        });
    }
}

#[test]
fn conversation_of_hostile_hosts_hands_over_no_match_whichever_copy_counts() {
    let counters = kind(|manner| {
        manner.hostile = 200;
        manner.blocks[0] = manner.blocks[0].clamp(20, 200);
        manner.planted = Some((0, manner.blocks[0] / 3));
        manner.hosts[0].longest = 8;
    });
    assert!(counters.iter().all(|all| all.rewritten > 1000), "{counters:?}");
}
