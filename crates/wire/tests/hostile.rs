//! Tests that arbitrary bytes and the corpus of the fuzz target cause no panic.

use proptest::prelude::*;
use sluice_testkit::{hostile, strategy};

proptest! {
    #[test]
    fn wire_of_damaged_frames_never_panics(bytes in strategy::damaged()) {
        hostile::wire(&bytes);
    }

    #[test]
    fn wire_of_arbitrary_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        hostile::wire(&bytes);
    }

    #[test]
    fn wire_of_whole_frames_agrees_with_itself(frame in strategy::frame()) {
        hostile::wire(&frame.build());
    }

    #[test]
    fn wire_of_every_truncation_never_panics(frame in strategy::frame()) {
        let bytes = frame.build();
        for length in 0..bytes.len().min(160) {
            hostile::wire(&bytes[..length]);
        }
    }
}

#[test]
fn wire_of_the_committed_corpus_never_panics() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/wire");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus is in the tree") {
        hostile::wire(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 12, "only {count} seeds");
}
