//! Tests that any file is parsed to its end, and that each rule of the file is loaded or refused.

use crate::rules::*;
use proptest::prelude::*;
use sluice_inspect::signatures::hostile;

/// The corpus contains, for each dialect, a rule with every kind of option.
const NAMES: [&str; 3] = ["suricata", "snort2", "snort3"];

fn seed(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/signatures");
    std::fs::read(std::path::Path::new(folder).join(name)).unwrap()
}

proptest! {
    #[test]
    fn any_bytes_are_read(text in proptest::collection::vec(any::<u8>(), 0..400)) {
        hostile::text(&text);
    }

    #[test]
    fn any_options_are_read(options in "[a-z_]{0,9}(:[!\"|0-9a-z ,<>=-]{0,20})?; ?(content:\"[ab|0 ]{0,5}\";)?") {
        for dialect in EVERY {
            let file = file(dialect, rule(&options));
            prop_assert_eq!(1, file.signatures.len() + file.refused.len());
        }
    }

    #[test]
    fn changed_rules_are_loaded_or_refused(
        name in prop::sample::select(&NAMES[..]),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), "[ -~]", 0..3_u8), 1..6),
    ) {
        let mut text = seed(name);
        for (place, byte, how) in changes {
            let place = place.index(text.len());
            match how {
                0 => text[place] = byte.as_bytes()[0],
                1 => text.insert(place, byte.as_bytes()[0]),
                _ => drop(text.remove(place)),
            }
        }
        hostile::text(&text);
    }
}

#[test]
fn rules_before_they_are_changed_load() {
    for (dialect, name) in [Suricata, Snort2, Snort3].into_iter().zip(NAMES) {
        assert_eq!(Vec::<String>::new(), faults(&file(dialect, seed(name))));
    }
}

#[test]
fn very_long_rule_is_refused_in_time() {
    let nested = format!("alert tcp {}any any -> any any (sid:1;)", "[".repeat(20_000));
    let closed = format!(
        "alert tcp {}any{} any -> any any (sid:1;)",
        "[".repeat(20_000),
        "]".repeat(20_000)
    );
    let negated = format!("alert tcp any {}80 -> any any (sid:1;)", "!".repeat(500_000));
    let many = format!("alert tcp any any -> any any (msg:\"{}", ";a".repeat(500_000));
    for text in [nested, closed, negated, many] {
        for dialect in EVERY {
            assert_eq!(1, file(dialect, &text).refused.len());
        }
    }
}

#[test]
fn files_of_the_committed_corpus_are_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/signatures");
    let files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(files.len() >= NAMES.len());
    for path in files {
        hostile::text(&std::fs::read(path).unwrap());
    }
}
