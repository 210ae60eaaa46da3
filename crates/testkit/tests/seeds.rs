//! Checks that random tests use fixed seeds. Otherwise a random failure can't be distinguished from a regression.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::test_runner::{Config, RngSeed};

#[test]
fn property_draws_the_same_cases_each_time() {
    for config in [Config::default(), Config::with_cases(7)] {
        assert!(matches!(config.rng_seed, RngSeed::Fixed(_)), "{:?}", config.rng_seed);
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|extension| extension == "rs") => found.push(path),
            false => {}
        }
    }
}

#[test]
fn no_source_draws_from_a_generator_without_a_seed() {
    let mut found = Vec::new();
    sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")), &mut found);
    assert!(found.len() > 300);
    for path in found.iter().filter(|path| !path.ends_with("testkit/tests/seeds.rs")) {
        let text = fs::read_to_string(path).unwrap();
        for way in [
            "thread_rng",
            "rand::random",
            "rand::rng()",
            "from_os_rng",
            "from_entropy",
            "quickcheck",
        ] {
            assert!(!text.contains(way), "{way} in {}", path.display());
        }
    }
}
