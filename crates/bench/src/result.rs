//! Result of a benchmark: its rows with machine, time and command line.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::kernel::machine::load_average;
use crate::rows::{Failure, Row};

/// Default folder of results, which the report reads.
pub const FOLDER: &str = "target/bench";

/// Path of a benchmark's result file in [`FOLDER`].
pub fn default_file(bench: &str) -> PathBuf {
    Path::new(FOLDER).join(bench).with_extension("json")
}

/// A benchmark and its rows.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub bench: String,
    pub command: String,
    /// Start time in RFC 3339 format.
    pub began: String,
    /// Properties of the machine as pairs of name and value.
    pub host: Vec<(String, String)>,
    pub rows: Vec<Row>,
    load_before: String,
}

impl Measured {
    /// Creates a result without rows whose start time is now.
    pub fn begin(bench: &str) -> Self {
        let words: Vec<String> = std::env::args().skip(1).collect();
        Self {
            bench: bench.into(),
            command: format!("sluice-bench {}", words.join(" ")),
            began: now(),
            load_before: load_average(),
            ..Self::default()
        }
    }

    /// The result as JSON, with the current state of the machine.
    pub fn json(&self) -> Value {
        let rows: Vec<_> = self.rows.iter().map(Row::json).collect();
        json!({
            "bench": self.bench,
            "command": self.command,
            "began": self.began,
            "ended": now(),
            "load_average": {"before": self.load_before, "after": load_average()},
            "host": host(),
            "rows": rows,
        })
    }

    /// Write the result to a file, creating its folder.
    pub fn write(&self, file: &Path) -> Result<(), Failure> {
        let write = || {
            std::fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
            std::fs::write(file, format!("{:#}\n", self.json()))
        };
        write().map_err(|error: std::io::Error| format!("{}: {error}", file.display()).into())
    }

    pub fn read(file: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let foreign = |reason| format!("{} holds no result of a bench: {reason}", file.display());
        Ok(Self::parse(&text).map_err(foreign)?)
    }

    /// Parses a result; the error names the missing field.
    pub fn parse(text: &str) -> Result<Self, String> {
        let whole: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let string = |name: &str| whole.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let rows = whole.get("rows").and_then(Value::as_array).ok_or("it has no rows")?;
        let bench = match string("bench") {
            bench if bench.is_empty() => return Err("it names no bench".into()),
            bench => bench,
        };
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let host = whole.get("host").and_then(Value::as_object);
        let mut host: Vec<(String, String)> = host
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), plain(value)))
            .collect();
        if let Some(load) = whole.get("load_average") {
            let at = |name: &str| load.get(name).map(plain).unwrap_or_default();
            host.push((
                "load average before; after".into(),
                format!("{}; {}", at("before"), at("after")),
            ));
        }
        Ok(Self {
            bench,
            command: string("command"),
            began: string("began"),
            host,
            rows: rows.iter().filter_map(Row::from_json).collect(),
            load_before: String::new(),
        })
    }
}

/// Current time, to the second.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = UNIX_EPOCH + Duration::from_secs(since.as_secs());
    humantime::format_rfc3339_seconds(seconds).to_string()
}

/// Properties of the machine: processor, cores, frequency of its time stamp counter, memory, kernel, DPDK.
fn host() -> Value {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let value_of = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned())
    };
    let memory = value_of(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
    let kilobytes: u64 = memory.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0);
    json!({
        "cpu": value_of(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".into()),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "tsc_hz": sluice_dpdk::tsc::frequency(),
        "memory_mib": kilobytes / 1024,
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_comes_back_from_its_file() {
        let mut measured = Measured::begin("kernel");
        measured.rows.push(
            Row::new("iptables")
                .key("rules", 1)
                .figure("packets_per_s", &[1.0, 2.0, 3.0]),
        );
        let folder = std::env::temp_dir().join(format!("sluice-bench-{}", std::process::id()));
        let file = folder.join("deeper").join("kernel.json");
        measured.write(&file).expect("a folder for temporary files");
        let back = Measured::read(&file).expect("what was written");
        std::fs::remove_dir_all(&folder).expect("it was made");
        assert_eq!("kernel", back.bench);
        assert_eq!(measured.began, back.began);
        assert_eq!(Some(2.0), back.rows[0].median("packets_per_s"));
        assert!(back.host.iter().any(|(name, value)| name == "cpu" && !value.is_empty()));
    }

    #[test]
    fn result_that_is_none_is_refused_with_a_reason() {
        assert!(Measured::parse("{").is_err());
        assert_eq!(
            Err("it has no rows".into()),
            Measured::parse("{\"bench\":\"x\"}").map(|_| ())
        );
        assert_eq!(
            Err("it names no bench".into()),
            Measured::parse("{\"rows\":[]}").map(|_| ())
        );
        let missing = Measured::read(Path::new("/no/such/file.json"))
            .expect_err("not there")
            .to_string();
        assert!(missing.starts_with("/no/such/file.json: "), "{missing}");
    }

    #[test]
    fn file_of_a_bench_has_its_name() {
        assert_eq!(Path::new("target/bench/nat-path.json"), default_file("nat-path"));
    }
}
