//! Tests the command `sluice import`.

use std::process::{Command, Output};

fn sluice(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice")).args(words).output().unwrap()
}

#[test]
fn import_of_the_guide_writes_what_the_guide_says() {
    let guide = include_str!("../../../docs/import.md");
    let block = |open: &str| {
        let (_, rest) = guide.split_once("## Example").unwrap();
        let (_, rest) = rest.split_once(open).unwrap();
        rest.split_once("```").unwrap().0.to_owned()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (listing, written) = (path("rules.v4"), path("sluice.toml"));
    std::fs::write(&listing, block("```text\n")).unwrap();
    let address = ["--address", "eth0=203.0.113.1/24"];
    let output = sluice(&[&["import", &listing, "-o", &written][..], &address].concat());
    assert_eq!(Some(1), output.status.code());
    assert!(output.stdout.is_empty());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.ends_with("rules.v4:15: match `limit` has no counterpart: -A FORWARD -p icmp -m icmp --icmp-type 8 -m limit --limit 5/sec -j ACCEPT\n"));
    let text = std::fs::read_to_string(&written).unwrap();
    assert!(text.ends_with(&block("```toml\n")), "{text}");
    let output = sluice(&[&["import", &listing, "--json"][..], &address].concat());
    assert_eq!((Some(1), true), (output.status.code(), output.stderr.is_empty()));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(15, json["leftovers"][0]["line"]);
    assert_eq!(text, json["configuration"]);
}

#[test]
fn import_of_garbage_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (listing, written) = (folder.path().join("garbage"), folder.path().join("out"));
    std::fs::write(&listing, "what is this\n").unwrap();
    let output = sluice(&["import", listing.to_str().unwrap(), "-o", written.to_str().unwrap()]);
    assert_eq!(Some(2), output.status.code());
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("garbage:1:1: the file is not a listing")
    );
    assert!(!written.exists());
}
