//! An unmodified Kea as the operator's DHCP server.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::json;

use super::Failure;
use crate::process::{Background, command};

/// The running server, which is stopped when this value is dropped.
#[derive(Debug)]
pub struct Kea {
    folder: tempfile::TempDir,
    _process: Background,
}

impl Kea {
    /// Starts the server on an interface that is up and has an address. `prefix` is the prefix of commands that run in
    /// the server's environment; the server leases addresses of the range `pool` in the subnet, with this router.
    pub fn start(prefix: &str, interface: &str, router: &str, [subnet, pool]: [&str; 2]) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let (file, leases) = (folder.path().join("kea.json"), folder.path().join("leases.csv"));
        let subnet = json!({
            "id": 1, "subnet": subnet, "interface": interface, "pools": [{"pool": pool}],
            "option-data": [{"name": "routers", "data": router}],
        });
        let output = json!([{"output": "stdout"}]);
        let configuration = json!({"Dhcp4": {
            "interfaces-config": {"interfaces": [interface], "dhcp-socket-type": "raw"},
            "lease-database": {"type": "memfile", "persist": true, "name": leases, "lfc-interval": 0},
            "valid-lifetime": 3600,
            "subnet4": [subnet],
            "loggers": [{"name": "kea-dhcp4", "severity": "INFO", "output_options": output}],
        }});
        std::fs::write(&file, configuration.to_string())?;
        let mut process = command(&format!("{prefix} kea-dhcp4"))
            .arg("-c")
            .arg(&file)
            .env("KEA_PIDFILE_DIR", folder.path())
            .env("KEA_LOCKFILE_DIR", folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("kea-dhcp4: {error} (is it installed?)"))?;
        let output = process.stdout.take().ok_or("Kea has no output")?;
        let kea = Self {
            folder,
            _process: Background(process),
        };
        let mut lines = BufReader::new(output).lines();
        let mut said = Vec::new();
        for line in lines.by_ref() {
            let line = line?;
            if line.contains("DHCP4_STARTED") {
                // Continue to read the server's output, because the server would block if its pipe filled up.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(kea);
            }
            said.push(line);
        }
        Err(format!("Kea does not start: {}", said.last().cloned().unwrap_or_default()).into())
    }

    /// Number of addresses in the server's lease file.
    pub fn leases(&self) -> Result<usize, Failure> {
        let text = std::fs::read_to_string(self.folder.path().join("leases.csv"))?;
        let addresses = text.lines().skip(1).filter_map(|line| line.split(',').next());
        Ok(addresses.collect::<std::collections::HashSet<_>>().len())
    }
}
