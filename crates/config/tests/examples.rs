//! Checks that every file in `examples/` is a valid configuration, and that printing and parsing it does not change it.

use std::path::PathBuf;

use sluice_config::memory::EntryBytes;
use sluice_config::{Machine, check, parse};

fn machine() -> Machine {
    Machine {
        cores: (0..8).collect(),
        memory: 8 << 30,
        entry: EntryBytes::default(),
    }
}

fn examples() -> Vec<(PathBuf, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let configurations = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    configurations
        .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()))
        .collect()
}

#[test]
fn example_checked_is_valid_without_advice() {
    let examples = examples();
    assert!(examples.len() >= 5);
    for (path, text) in examples {
        match check(&path.display().to_string(), &text, &machine()) {
            Ok(checked) => assert_eq!("", checked.advice.to_string()),
            Err(diagnosis) => panic!("{}", diagnosis.render(100, false)),
        }
    }
}

#[test]
fn example_printed_and_read_again_is_the_same() {
    for (path, text) in examples() {
        let document = parse("example", &text).unwrap();
        let printed = document.print().unwrap();
        match parse("printed", &printed) {
            Ok(again) => assert_eq!(document, again, "{}", path.display()),
            Err(diagnosis) => panic!("{}\n{printed}", diagnosis.render(100, false)),
        }
    }
}

#[test]
fn example_listed_in_the_readme() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
    for (path, _) in examples() {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(
            readme.contains(&format!("]({name})")),
            "{name} is not in examples/README.md"
        );
    }
}
