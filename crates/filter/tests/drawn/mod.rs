//! Random rules and headers.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::io::Read;
use std::path::PathBuf;

use proptest::prelude::*;
use sluice_filter::{Field, FlagsMask, Header, NONE, Range, Rule, parse_classbench};

/// All ClassBench sets in the shared data folder, if it is present.
pub fn sets() -> Vec<(String, Vec<Rule<u32>>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/rules");
    let Ok(sets) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: there is no {}", folder.display());
        return Vec::new();
    };
    let read = |path: PathBuf| {
        let mut text = String::new();
        let file = std::fs::File::open(&path).unwrap();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        (path.display().to_string(), parse_classbench(&text).unwrap())
    };
    sets.map(|set| read(set.unwrap().path())).collect()
}

/// The first and last value of a range, and the values next to them.
pub fn edges(Range { first, last }: Range<u32>) -> [u32; 4] {
    [first, last, first.saturating_sub(1), last.saturating_add(1)]
}

/// Reproducible pseudo-random numbers.
pub struct Drawn(pub u64);

impl Drawn {
    pub fn below(&mut self, count: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * count as u128) >> 64) as usize
    }
}

pub fn any_range(last: u32) -> impl Strategy<Value = (u32, u32)> {
    prop_oneof![
        2 => Just((0, last)),
        3 => (0..=last).prop_map(|at| (at, at)),
        2 => (0..=last, 0..=last).prop_map(|(a, b)| (a.min(b), a.max(b))),
        1 => (0..=last.min(9), 0..=last.min(9)).prop_map(|(a, b)| (a.min(b), a.max(b))),
    ]
}

/// Random rules with conditions on a few fields. Conditions use few distinct values, so that rules overlap.
pub fn any_rule() -> impl Strategy<Value = Rule<u128>> {
    let fields = proptest::collection::vec((0..Field::ALL.len(), 0u32..4), 0..4);
    let mask = (any::<u8>(), prop_oneof![Just(0u8), Just(0x12), any::<u8>()]);
    (
        any_range(40),
        any_range(40),
        fields,
        proptest::collection::vec(any_range(6), 4),
        mask,
    )
        .prop_map(|(source, destination, fields, ranges, (set, of))| {
            // Widely spaced values, including both ends of the address space.
            let spread = |value: u32| match value {
                40 => u128::MAX,
                value => u128::from(value) << 120 | u128::from(value),
            };
            let range = |(first, last)| Range {
                first: spread(first),
                last: spread(last),
            };
            let mut rule = Rule::any().between(range(source), range(destination)).unwrap();
            for (field, which) in fields {
                let field = Field::ALL[field];
                let (first, last) = ranges[which as usize];
                let max = field.last_named();
                rule = rule.with(field, first.min(max), last.min(max)).unwrap();
            }
            rule.with_flags(FlagsMask { set: set & of, of }).unwrap()
        })
}

pub fn any_header() -> impl Strategy<Value = Header<u128>> {
    let address = (0u32..42, -1i128..2).prop_map(|(value, off)| match value {
        40.. => u128::MAX.wrapping_add_signed(off.min(0)),
        value => (u128::from(value) << 120 | u128::from(value)).wrapping_add_signed(off),
    });
    let values = proptest::collection::vec(
        prop_oneof![6 => 0u32..9, 1 => 0u32..260, 1 => Just(NONE)],
        Field::ALL.len(),
    );
    (address.clone(), address, values).prop_map(|(source, destination, values)| {
        let header = Header::new(source, destination);
        Field::ALL
            .into_iter()
            .zip(values)
            .fold(header, |header, (field, value)| header.with(field, value))
    })
}
