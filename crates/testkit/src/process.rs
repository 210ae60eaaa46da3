//! Runs a test in a separate process, by starting the test program again for this test only.

use std::panic::Location;
use std::path::Path;
use std::process::Command;

/// The full name of a test in the calling file, which may be a module of a test program.
#[track_caller]
pub fn name(test: &str) -> String {
    let file = Path::new(Location::caller().file());
    match file.file_stem().and_then(|stem| stem.to_str()) {
        Some(module) => format!("{module}::{test}"),
        None => test.into(),
    }
}

/// Start this program again for a single test. `command` runs the program that its arguments specify (for example `unshare
/// --net`, or `env`). `name` is the full name of the test.
///
/// # Panics
///
/// Panics if the test fails in the new process, or if no test has this name.
pub fn again(mut command: Command, name: &str) {
    let output = command
        .arg(std::env::current_exe().expect("the path of this test"))
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {}", output.status);
    assert!(
        text.contains("test result: ok. 1 passed"),
        "{name}: no test has this name"
    );
}
