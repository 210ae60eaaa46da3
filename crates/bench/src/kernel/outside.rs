//! The part of the benchmark outside the namespaces: creates the namespaces, receives the rows, and does what is
//! impossible inside the namespaces.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::Value;

use super::command::run as command;
use super::machine::is_root;
use super::traffic::NEW_FLOWS;
use crate::rows::{Failure, Row, Run};

/// Starts the process inside the namespaces with these program arguments and receives its rows, with a large enough
/// connection tracking table.
pub fn run(run: &mut Run<'_>, words: Vec<OsString>) -> Result<(), Failure> {
    if !is_root() {
        return Err("network namespaces need root here: run it with sudo".into());
    }
    let _widened = Widened::conntrack()?;
    enter(run, words)
}

/// Starts the process inside the namespaces with these program arguments, and receives its rows.
pub fn enter(run: &mut Run<'_>, words: Vec<OsString>) -> Result<(), Failure> {
    if !is_root() {
        return Err("network namespaces need root here: run it with sudo".into());
    }
    let mut arguments = vec!["--pdeathsig", "KILL", "unshare"];
    arguments.extend([
        "--mount",
        "--net",
        "--pid",
        "--ipc",
        "--fork",
        "--kill-child=KILL",
        "--mount-proc",
    ]);
    let mut child = Command::new("setpriv")
        .args(arguments)
        .arg(std::env::current_exe()?)
        .args(words)
        .arg("--inside")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let broken = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
    let mut answers = child.stdin.take().ok_or_else(broken)?;
    for line in BufReader::new(child.stdout.take().ok_or_else(broken)?).lines() {
        take(&line?, run, &mut answers)?;
    }
    let status = child.wait()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("the measuring process ended with {status}").into())
    }
}

fn take(line: &str, run: &mut Run<'_>, answers: &mut ChildStdin) -> Result<(), Failure> {
    let message: Value = serde_json::from_str(line).unwrap_or_default();
    if let Some(row) = message.get("row").and_then(Row::from_json) {
        (run.row)(row);
    } else if let Some(note) = message.get("note").and_then(Value::as_str) {
        eprintln!("sluice-bench: {note}");
    } else if let Some(thread) = message.get("pin").and_then(Value::as_str) {
        let core = message.get("core").and_then(Value::as_u64).unwrap_or(0);
        let pinned = pin(thread, core);
        writeln!(answers, "{pinned}")?;
        answers.flush()?;
    } else {
        // Other lines are output of DPDK and other programs.
        eprintln!("{line}");
    }
    Ok(())
}

/// Pins kernel threads whose names start with `thread` to a core; returns the number of threads pinned.
fn pin(thread: &str, core: u64) -> usize {
    let name = |process: &Path| fs::read_to_string(process.join("comm")).unwrap_or_default();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let named = processes.filter(|process| name(&process.path()).starts_with(thread));
    named
        .filter(|process| {
            let process = process.file_name();
            command(&format!("taskset -p -c {core} {}", process.to_string_lossy())).is_ok()
        })
        .count()
}

/// Enlarges the machine's connection tracking table for all flows of a trial until this value is dropped. The previous
/// size is restored by a shell that outlives this process, even if this process is killed.
struct Widened {
    writer: Child,
}

const KEEPER: &str = r#"
trap "" INT TERM HUP
most=/proc/sys/net/netfilter/nf_conntrack_max
buckets=/sys/module/nf_conntrack/parameters/hashsize
modprobe -q nf_conntrack 2>/dev/null
before_most=$(cat $most) && before_buckets=$(cat $buckets) && {
    echo $1 > $buckets && echo $1 > $most || echo "connection tracking stays at $before_most entries" >&2
    echo ready
    cat > /dev/null
    echo $before_buckets > $buckets
    echo $before_most > $most
} 2>&1
"#;

impl Widened {
    fn conntrack() -> Result<Self, Failure> {
        let entries = NEW_FLOWS.next_power_of_two().to_string();
        let mut writer = Command::new("sh")
            .args(["-c", KEEPER, "writer", &entries])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = writer.stdout.take();
        for line in output.map(BufReader::new).into_iter().flat_map(BufRead::lines) {
            match line?.as_str() {
                "ready" => break,
                other => eprintln!("sluice-bench: {other}"),
            }
        }
        Ok(Self { writer })
    }
}

impl Drop for Widened {
    fn drop(&mut self) {
        drop(self.writer.stdin.take());
        let _ = self.writer.wait();
    }
}
