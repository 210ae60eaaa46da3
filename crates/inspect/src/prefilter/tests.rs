use super::cache::{CacheError, trusted};
use super::*;

#[test]
fn every_class_is_found_at_its_place() {
    for index in 0..PatternClass::COUNT {
        assert_eq!(Some(index), PatternClass::from_index(index).map(PatternClass::index));
    }
    assert_eq!(None, PatternClass::from_index(PatternClass::COUNT));
}

#[test]
fn file_of_another_user_is_refused() {
    let ours = rustix::process::geteuid().as_raw();
    assert!(trusted(ours, 0o100_600).is_ok());
    assert!(trusted(0, 0o100_644).is_ok());
    let other = ours + 1;
    assert!(matches!(trusted(other, 0o100_600), Err(CacheError::Owner { uid }) if uid == other));
}

#[test]
fn rarity_knows_common_texts_runs_and_cases() {
    assert!(rarity::of(b"zqx7", false) > rarity::of(b"User-Agent", false));
    assert!(rarity::of(b"\x90\x91\x92", false) > rarity::of(&[0; 10], false));
    assert!(rarity::of(b"Admin", false) > rarity::of(b"Admin", true));
    assert_eq!(
        rarity::of(&b"3f".repeat(20), false),
        rarity::of(&b"3f".repeat(40), false)
    );
    assert_eq!(0, rarity::of(b"", false));
}
