//! Checks that every test file is run: it must be a module of its crate's test program, or a separate program.

use std::fs;
use std::path::Path;

#[test]
fn every_file_of_tests_is_in_a_program() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = 0;
    for folder in fs::read_dir(crates).unwrap() {
        let folder = folder.unwrap().path();
        let Ok(all) = fs::read_to_string(folder.join("tests/all.rs")) else {
            continue;
        };
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        for file in fs::read_dir(folder.join("tests")).unwrap() {
            let file = file.unwrap().path();
            if file.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let name = file.file_stem().unwrap().to_str().unwrap();
            let is_module = all.lines().any(|line| line == format!("mod {name};"));
            let is_program = manifest.contains(&format!("[[test]]\nname = \"{name}\""));
            assert!(
                is_module || is_program,
                "{}: neither a module of all.rs nor a program of Cargo.toml",
                file.display()
            );
            files += 1;
        }
    }
    assert!(files > 100, "{files}");
}
