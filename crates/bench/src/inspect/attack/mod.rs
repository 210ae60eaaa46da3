//! `inspect --attack`: searches for the packet with the highest inspection cost. For each family of attacks, the search
//! starts with a handmade conversation and changes it at random, repeatedly; a change that increases the cost is kept.
//! The cost of a conversation is that of its most expensive packet. The cost of a packet is the minimum of several
//! runs, so that other processes on the machine hardly affect it.

mod families;
mod victim;

use std::sync::Arc;

use clap::ValueEnum;
use sluice_dpdk::tsc;
use sluice_inspect::ruleset::Ruleset;
use sluice_inspect::signature::Condition;

use super::{Failure, InspectArguments, plane};
use crate::rig::frames::Random;
use crate::rows::{Named, Row, Run};
use families::Family;
use victim::Victim;

/// Maximum payload of a packet in bytes.
const MOST: usize = 1460;
/// Server ports that occur most often in rules.
const PORTS: [u16; 10] = [80, 25, 21, 53, 443, 110, 143, 445, 1521, 8080];

/// Data sent by one side.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    forward: bool,
    /// Position of the data in the byte stream of its side.
    place: u32,
    bytes: Vec<u8>,
}

/// A TCP conversation, or the datagrams of a UDP flow.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Conversation {
    datagrams: bool,
    port: u16,
    pieces: Vec<Piece>,
}

impl Conversation {
    /// Creates a TCP conversation from `(from_client, data)` items in this order; splits the data into packets of
    /// maximum size.
    fn over_tcp(port: u16, said: &[(bool, &[u8])]) -> Self {
        let mut places = [0; 2];
        let mut pieces = Vec::new();
        for &(forward, bytes) in said {
            for bytes in bytes.chunks(MOST) {
                let place = &mut places[usize::from(forward)];
                pieces.push(Piece {
                    forward,
                    place: *place,
                    bytes: bytes.to_vec(),
                });
                *place += bytes.len() as u32;
            }
        }
        Self {
            datagrams: false,
            port,
            pieces,
        }
    }

    /// Creates datagrams that a client sends to a port, one datagram per item.
    fn of_datagrams(port: u16, said: &[&[u8]]) -> Self {
        let piece = |bytes: &&[u8]| Piece {
            forward: true,
            place: 0,
            bytes: bytes[..bytes.len().min(MOST)].to_vec(),
        };
        Self {
            datagrams: true,
            port,
            pieces: said.iter().map(piece).collect(),
        }
    }
}

fn one_of<'t, T>(some: &'t [T], random: &mut Random) -> Option<&'t T> {
    some.get(below(some.len(), random))
}

fn below(count: usize, random: &mut Random) -> usize {
    random.below(count as u64) as usize
}

/// Patterns of the rules, which an attacker is assumed to know.
fn words(rules: &Ruleset) -> Vec<Vec<u8>> {
    let conditions = rules.rules().iter().flat_map(|rule| &rule.signature.conditions);
    let words = conditions.filter_map(|condition| match condition {
        Condition::Content(content) => Some(content.bytes.to_vec()),
        Condition::Expression(expression) => Some(expression.pattern.as_bytes().to_vec()),
        _ => None,
    });
    words.filter(|word| !word.is_empty() && word.len() <= MOST).collect()
}

/// Makes one random change to a conversation. No packet exceeds the maximum size.
fn change(conversation: &mut Conversation, words: &[Vec<u8>], random: &mut Random) {
    let count = conversation.pieces.len();
    let kind = below(6, random);
    if kind == 0 {
        conversation.port = one_of(&PORTS, random).copied().unwrap_or(conversation.port);
        return;
    }
    let Some(piece) = conversation.pieces.get_mut(below(count, random)) else {
        return;
    };
    let bytes = &mut piece.bytes;
    let length = bytes.len();
    if length == 0 {
        return;
    }
    let at = below(length, random);
    match kind {
        1 => bytes[at] = below(256, random) as u8,
        // Insert a word.
        2 => {
            let word = one_of(words, random).map_or(&[][..], Vec::as_slice);
            let end = length.min(at + word.len());
            bytes[at..end].copy_from_slice(&word[..end - at]);
        }
        // Repeat a word from a random position to the end.
        3 => {
            let word = one_of(words, random).map_or(&b"a"[..], Vec::as_slice);
            let again = word.iter().cycle();
            bytes[at..].iter_mut().zip(again).for_each(|(to, from)| *to = *from);
        }
        // Repeat some bytes.
        4 => {
            let part = bytes[at..length.min(at + 1 + below(64, random))].to_vec();
            let again = part.iter().cycle();
            bytes[at..].iter_mut().zip(again).for_each(|(to, from)| *to = *from);
        }
        // Move some bytes.
        _ => {
            let part = bytes[at..length.min(at + 1 + below(256, random))].to_vec();
            let to = below(length, random);
            let end = length.min(to + part.len());
            bytes[to..end].copy_from_slice(&part[..end - to]);
        }
    }
}

/// Returns the most expensive of `changes` conversations that are derived from a seed, and its cost.
fn search(
    seed: Conversation,
    changes: usize,
    words: &[Vec<u8>],
    random: &mut Random,
    cost: &mut impl FnMut(&Conversation) -> u64,
) -> (Conversation, u64) {
    let mut dearest = cost(&seed);
    let mut best = seed;
    for _ in 0..changes {
        let mut next = best.clone();
        for _ in 0..=below(4, random) {
            change(&mut next, words, random);
        }
        let costs = cost(&next);
        if costs > dearest {
            (best, dearest) = (next, costs);
        }
    }
    (best, dearest)
}

/// Cycles and index of the most expensive packet of a conversation.
fn dearest(victim: &mut Victim, conversation: &Conversation, times: usize) -> (u64, usize) {
    let mut least = vec![u64::MAX; conversation.pieces.len()];
    for _ in 0..times {
        let cycles = victim.hear(conversation);
        least
            .iter_mut()
            .zip(cycles)
            .for_each(|(least, cycles)| *least = (*least).min(cycles));
    }
    let numbered = least.into_iter().zip(0..);
    numbered.max().unwrap_or_default()
}

pub fn run(run: &mut Run<'_>, arguments: &InspectArguments) -> Result<(), Failure> {
    let rules: Arc<Ruleset> = plane::rules(&arguments.signatures, arguments.dialect.dialect())?;
    let words = words(&rules);
    let mut victim = Victim::new(rules)?;
    let micros = |cycles: u64| cycles as f64 * 1e6 / tsc::frequency() as f64;
    for (number, family) in (1..).zip(Family::value_variants()) {
        let mut random = Random(number * 0x9e37_79b9_7f4a);
        let seed = family.seed(&words, &mut random);
        // Make fewer changes to long conversations, because each run of them takes milliseconds.
        let changes = match (run.quick, seed.pieces.len() > 100) {
            (true, true) => 5,
            (true, false) => 100,
            (false, true) => 100,
            (false, false) => 2_000,
        };
        let (first, _) = dearest(&mut victim, &seed, 5);
        let mut cost = |conversation: &Conversation| dearest(&mut victim, conversation, 3).0;
        let (worst, _) = search(seed, changes, &words, &mut random, &mut cost);
        let (_, packet) = dearest(&mut victim, &worst, 15);
        let mut runs = Vec::new();
        for _ in 0..15 {
            runs.extend(victim.hear(&worst).get(packet).map(|&cycles| micros(cycles)));
        }
        let units = victim.units.get(packet).copied().unwrap_or_default();
        let row = Row::new(family.name())
            .key("packet", packet + 1)
            .key("packets", worst.pieces.len())
            .key("changes", changes)
            .key("port", worst.port)
            .key("units", units)
            .figure("seed_us", &[micros(first)])
            .figure("worst_us", &runs);
        (run.row)(row);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_finds_what_costs_more_and_the_same_each_time() {
        let words = [b"xxxx".to_vec(), b"y".to_vec()];
        let mut cost = |conversation: &Conversation| {
            let bytes = conversation.pieces.iter().flat_map(|piece| &piece.bytes);
            bytes.filter(|&&byte| byte == b'x').count() as u64
        };
        let seed = Conversation::over_tcp(80, &[(true, &[b'.'; 2000]), (false, b"...")]);
        let mut found = || search(seed.clone(), 300, &words, &mut Random(7), &mut cost);
        let (best, costs) = found();
        assert!(costs > 1_000, "{costs}");
        assert_eq!((best.clone(), costs), found());
        let lengths = |conversation: &Conversation| -> Vec<usize> {
            conversation.pieces.iter().map(|piece| piece.bytes.len()).collect()
        };
        assert_eq!(vec![1460, 540, 3], lengths(&best));
    }

    #[test]
    fn every_family_is_heard_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("some.rules");
        let rules = r#"alert tcp any any -> any any (msg:"a"; content:"evil"; pcre:"/e[v]il.*x/"; sid:1;)"#;
        std::fs::write(&file, rules).unwrap();
        let rules = plane::rules(&file, sluice_inspect::signatures::Dialect::Suricata).unwrap();
        let words = words(&rules);
        let mut victim = Victim::new(rules).unwrap();
        for family in Family::value_variants() {
            let seed = family.seed(&words, &mut Random(1));
            assert!(
                seed.pieces.iter().all(|piece| piece.bytes.len() <= MOST),
                "{}",
                family.name()
            );
            // Use a new flow for each run.
            for _ in 0..3 {
                assert_eq!(seed.pieces.len(), victim.hear(&seed).len(), "{}", family.name());
            }
        }
    }
}
