//! The program `sluice` as a benchmark runs it: in the background, with its own configuration.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::{await_some, command, end, of, run};
use crate::rows::Failure;

/// Maximum time until the daemon has started.
const START: Duration = Duration::from_secs(60);

/// Folder of the daemon's files if /run is private.
pub const FOLDER: &str = "/run/sluice-bench";

/// A running `sluice` daemon; dropping this value stops it.
#[derive(Debug)]
pub struct Daemon {
    /// Command prefix that runs a command in the daemon's network namespace and environment.
    prefix: String,
    program: PathBuf,
    folder: PathBuf,
    child: Child,
}

/// Path of the daemon's control socket in a benchmark folder.
pub fn socket(folder: &Path) -> PathBuf {
    folder.join("control")
}

/// Path of `sluice`: the path given, or by default `sluice` in the folder of the running executable.
pub fn program(named: Option<&PathBuf>) -> PathBuf {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join("sluice"));
    named.cloned().or_else(beside).unwrap_or_else(|| "sluice".into())
}

/// A configuration with one worker and this number of IPv4 sessions. The control socket is in the folder; `more`
/// contains further tables of the configuration.
pub fn configuration(core: usize, sessions: u32, folder: &Path, more: Value) -> Value {
    let mut all = json!({
        "system": {"name": "bench", "workers": [core]},
        "sessions": {"ipv4": sessions, "ipv6": 1024},
        "control": {"socket": socket(folder), "log": "warn"},
    });
    if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
        all.extend(more);
    }
    all
}

/// Rows of a listing of `sluice show`.
pub fn listing(text: &str) -> Result<Vec<Value>, Failure> {
    Ok(match serde_json::from_str(text)? {
        Value::Array(rows) => rows,
        Value::Object(fields) => {
            let lists = fields.into_iter().filter_map(|(_, value)| value.as_array().cloned());
            lists.flatten().collect()
        }
        _ => Vec::new(),
    })
}

/// Whether a listing of routes contains a route to each of these networks.
pub fn has_routes(routes: &[Value], networks: &[&str]) -> bool {
    networks
        .iter()
        .all(|&network| routes.iter().any(|route| route["to"] == network))
}

impl Daemon {
    /// Starts the daemon on the given cores, and waits until it has routes to these networks. After the start, a link
    /// counts as down for a moment, and its routes appear when it is up. The configuration must place the control
    /// socket at [`socket`] of the folder; `prefix` is prepended to commands that run in the daemon's environment.
    pub fn start(
        prefix: &str,
        cores: [usize; 2],
        program: &Path,
        folder: &Path,
        configuration: &Value,
        networks: &[&str],
    ) -> Result<Self, Failure> {
        fs::create_dir_all(folder).map_err(of(folder.display()))?;
        let (file, log) = (folder.join("gateway.toml"), folder.join("log"));
        fs::write(&file, toml::to_string(configuration)?).map_err(of(file.display()))?;
        let output = File::create(&log).map_err(of(log.display()))?;
        let [one, other] = cores;
        let child = command(&format!("{prefix} taskset -c {one},{other}"))
            .arg(program)
            .args(["run", "-c"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(of(log.display()))?)
            .stderr(output)
            .spawn()
            .map_err(of(program.display()))?;
        let mut daemon = Self {
            prefix: prefix.into(),
            program: program.into(),
            folder: folder.into(),
            child,
        };
        daemon.wait(networks)?;
        Ok(daemon)
    }

    fn wait(&mut self, networks: &[&str]) -> Result<(), Failure> {
        let mut missing = format!("no routes to {networks:?}");
        let routes = await_some(START, || {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("sluice does not run: {status}: {}", self.last_words()).into());
            }
            match self.show("routes") {
                Ok(routes) => return Ok(has_routes(&routes, networks).then_some(())),
                Err(error) => missing = error.to_string(),
            }
            Ok(None)
        })?;
        Ok(routes.ok_or_else(|| format!("sluice does not run: {missing}; {}", self.last_words()))?)
    }

    /// Rows of `sluice show WHAT --json`.
    pub fn show(&self, what: &str) -> Result<Vec<Value>, Failure> {
        let (prefix, program, socket) = (&self.prefix, self.program.display(), socket(&self.folder));
        listing(&run(&format!(
            "{prefix} {program} show {what} --json --socket {}",
            socket.display()
        ))?)
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    pub fn last_words(&self) -> String {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = run(&format!("kill -TERM {}", self.child.id()));
        end(&mut self.child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_the_named_one_or_beside_this_one() {
        let named = PathBuf::from("/usr/bin/sluice");
        assert_eq!(named, program(Some(&named)));
        let beside = std::env::current_exe().expect("the path of this program");
        assert_eq!(beside.parent(), program(None).parent());
    }

    #[test]
    fn program_that_ends_is_told_with_its_last_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let core = sluice_dpdk::eal::allowed_cores()[0];
        let failed = Daemon::start(
            "env",
            [core; 2],
            Path::new("/bin/false"),
            folder.path(),
            &json!({}),
            &[],
        );
        let error = failed.expect_err("it ends at once").to_string();
        assert!(error.starts_with("sluice does not run: exit status: 1"), "{error}");
    }

    #[test]
    fn listing_is_a_list_or_the_list_in_an_object() {
        let [plain, named] = [
            r#"[{"to": "0.0.0.0/0"}]"#,
            r#"{"routes": [{"to": "0.0.0.0/0"}], "next": null}"#,
        ]
        .map(|text| listing(text).expect("a listing"));
        assert_eq!(plain, named);
        assert!(has_routes(&plain, &["0.0.0.0/0"]) && !has_routes(&plain, &["0.0.0.0/0", "10.0.0.0/8"]));
        assert!(listing("no listing").is_err());
    }
}
