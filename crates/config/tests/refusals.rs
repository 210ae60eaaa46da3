//! Diagnosis of wrong configurations: each file in `refused/` contains a configuration and, after `# answer`, the
//! expected diagnosis line by line. With `SLUICE_WRITE_ANSWERS=1` the diagnoses are written to the files instead.

use std::path::PathBuf;

use sluice_config::memory::EntryBytes;
use sluice_config::{Machine, check};

const MARK: &str = "# answer\n";

fn machine() -> Machine {
    Machine {
        cores: (0..4).collect(),
        memory: 4 << 30,
        entry: EntryBytes::default(),
    }
}

fn answer(name: &str, text: &str) -> String {
    match check(name, text, &machine()) {
        Ok(checked) if checked.advice.found().is_empty() => "valid".into(),
        Ok(checked) => format!("valid, but\n{}", checked.advice),
        Err(diagnosis) => diagnosis.to_string(),
    }
}

#[test]
fn wrong_configuration_is_answered_with_place_fault_and_hint() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/refused");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 12);
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let whole = std::fs::read_to_string(&path).unwrap();
        let (text, expected) = whole.split_once(MARK).unwrap_or((&whole, ""));
        let lines: Vec<_> = answer(name, text).lines().map(|line| format!("# {line}\n")).collect();
        if std::env::var_os("SLUICE_WRITE_ANSWERS").is_some() {
            std::fs::write(&path, format!("{text}{MARK}{}", lines.concat())).unwrap();
        } else {
            assert_eq!(expected, lines.concat(), "{name}");
        }
    }
}

#[test]
fn wrong_configuration_rendered_shows_its_lines() {
    let diagnosis = check("gateway.toml", "[sessions]\nipv5 = 3\n", &machine()).unwrap_err();
    let expected = "  × there is no key `ipv5` here
   ╭─[gateway.toml:2:1]
 1 │ [sessions]
 2 │ ipv5 = 3
   · ────
   ╰────
  help: did you mean `ipv4`?
";
    assert_eq!(expected, diagnosis.render(80, false));
}
