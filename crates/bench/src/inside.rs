//! Benchmarks in private namespaces. The process inside the namespaces measures; the process outside creates the
//! namespaces, receives the rows, and does what is impossible inside.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kernel::machine::is_root;
use crate::process::{answer, message, run as command, script};
use crate::rows::{Failure, Row, Run};

/// A message from the process inside the namespaces.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Message {
    Row(Value),
    /// A text for the user.
    Note(String),
    /// Beginning of the names of kernel threads, and the core to which these threads are pinned.
    Pin(String, usize),
}

/// Passes a row to the process outside.
pub fn row(row: &Row) {
    answer(&Message::Row(row.json()));
}

/// Sends a text, which the process outside prints for the user.
pub fn note(text: &str) {
    answer(&Message::Note(text.into()));
}

/// Pins kernel threads whose names start with `thread` to a core.
pub fn pin(thread: &str, core: usize) {
    answer(&Message::Pin(thread.into(), core));
    if !matches!(message::<usize>(), Ok(Some(1..))) {
        note(&format!(
            "no kernel thread {thread}… could be pinned: its time may fall on either core"
        ));
    }
}

/// Mounts a private /run, where the names of namespaces are stored, and sets the loopback interface up.
pub fn furnish() -> Result<(), Failure> {
    let text = "mount -t tmpfs -o mode=755 sluice-bench /run\nmkdir -p /run/netns\nip link set lo up\n";
    script("env", text).map(drop)
}

/// Fails if this process may not create namespaces.
pub fn need_root() -> Result<(), Failure> {
    match is_root() {
        true => Ok(()),
        false => Err("network namespaces need root here: run it with sudo".into()),
    }
}

/// Starts this program with these arguments inside private namespaces, and receives its rows.
pub fn enter(run: &mut Run<'_>, words: Vec<OsString>) -> Result<(), Failure> {
    need_root()?;
    let line = "setpriv --pdeathsig KILL unshare --mount --net --pid --ipc --fork --kill-child=KILL --mount-proc";
    start(run, crate::process::command(line).arg(std::env::current_exe()?), words)
}

/// Starts this program by a command, with these arguments, and receives its rows.
pub fn start(run: &mut Run<'_>, command: &mut Command, words: Vec<OsString>) -> Result<(), Failure> {
    let command = command.args(words).arg("--inside");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let broken = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
    let mut answers = child.stdin.take().ok_or_else(broken)?;
    for line in BufReader::new(child.stdout.take().ok_or_else(broken)?).lines() {
        take(&line?, run, &mut answers)?;
    }
    match child.wait()? {
        status if status.success() => Ok(()),
        status => Err(format!("the measuring process ended with {status}").into()),
    }
}

fn take(line: &str, run: &mut Run<'_>, answers: &mut ChildStdin) -> Result<(), Failure> {
    match serde_json::from_str(line) {
        Ok(Message::Row(row)) => (run.row)(Row::from_json(&row).unwrap_or_default()),
        Ok(Message::Note(note)) => eprintln!("sluice-bench: {note}"),
        Ok(Message::Pin(thread, core)) => {
            writeln!(answers, "{}", pinned(&thread, core))?;
            answers.flush()?;
        }
        // Other lines are output of DPDK and other programs.
        Err(_) => eprintln!("{line}"),
    }
    Ok(())
}

/// Pins kernel threads whose names start with `thread` to a core; returns the number of threads pinned.
fn pinned(thread: &str, core: usize) -> usize {
    let name = |process: &Path| fs::read_to_string(process.join("comm")).unwrap_or_default();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let named = processes.filter(|process| name(&process.path()).starts_with(thread));
    let pin = |process: &fs::DirEntry| {
        let process = process.file_name();
        command(&format!("taskset -p -c {core} {}", process.to_string_lossy())).is_ok()
    };
    named.filter(pin).count()
}

/// Enlarges the machine's connection tracking table until this value is dropped. The previous size is restored by a
/// shell that outlives this process, even if this process is killed.
pub struct Widened(Child);

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
    /// Makes room for this number of connections.
    pub fn conntrack(connections: u32) -> Result<Self, Failure> {
        need_root()?;
        let entries = connections.next_power_of_two().to_string();
        let mut shell = Command::new("sh");
        let keeper = shell.args(["-c", KEEPER, "keeper", &entries]);
        let mut keeper = keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = keeper.stdout.take();
        for line in output.map(BufReader::new).into_iter().flat_map(BufRead::lines) {
            match line?.as_str() {
                "ready" => break,
                other => eprintln!("sluice-bench: {other}"),
            }
        }
        Ok(Self(keeper))
    }
}

impl Drop for Widened {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
