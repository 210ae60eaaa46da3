//! Arbitrary and nearly valid protocol data. No parser panics or leaks memory, and no result depends on the
//! segmentation.

use sluice_inspect::protocols::hostile;

fn corpus() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/protocols");
    let files = std::fs::read_dir(folder).expect("the corpus is there");
    files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn corpus_of_the_fuzz_target_passes() {
    let corpus = corpus();
    assert!(corpus.len() >= 4);
    for bytes in corpus {
        hostile::stream(&bytes);
    }
}

#[test]
fn changed_files_of_the_corpus_pass() {
    let (corpus, mut state) = (corpus(), 0x9e37_79b9_7f4a_7c15_u64);
    for round in 0..4_000 {
        let mut bytes = corpus[round % corpus.len()].clone();
        for _ in 0..1 + round % 5 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = 1 + state as usize % (bytes.len() - 1);
            bytes[at] = (state >> 32) as u8;
        }
        bytes.truncate(bytes.len() - (state >> 40) as usize % 8);
        hostile::stream(&bytes);
    }
}
