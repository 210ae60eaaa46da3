//! Throughput of one TCP connection, measured by iperf3.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::Failure;
use super::hosts::{CLIENT, Hosts, SERVER, Way};
use crate::netns::{self, within};
use crate::process::{Background, await_some, run as run_command};

/// Maximum time until the server accepts connections.
const READY: Duration = Duration::from_secs(10);

/// Starts the server for all paths.
pub fn server(hosts: &Hosts) -> Result<Background, Failure> {
    let mut command = netns::command(SERVER, hosts.cores.traffic);
    command
        .args(["iperf3", "--server"])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let server = Background(command.spawn()?);
    let line = format!("{} ss -Hltn sport = :5201", within(SERVER));
    let listening = || Ok(Some(run_command(&line)?).filter(|sockets| !sockets.is_empty()));
    await_some(READY, listening)?.ok_or("iperf3 does not listen")?;
    Ok(server)
}

/// Result of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Received data in megabits per second.
    pub mbit_s: f64,
    /// Number of retransmitted segments.
    pub sent_again: f64,
}

impl Sample {
    fn parse(text: &str) -> Result<Self, Failure> {
        let whole: Value = serde_json::from_str(text)?;
        if let Some(error) = whole.get("error").and_then(Value::as_str) {
            return Err(format!("iperf3: {error}").into());
        }
        let number = |sum: &str, field: &str| whole.get("end")?.get(sum)?.get(field)?.as_f64();
        let bits = number("sum_received", "bits_per_second").ok_or("iperf3 tells no sum")?;
        Ok(Self {
            mbit_s: bits / 1e6,
            sent_again: number("sum_sent", "retransmits").unwrap_or(0.0),
        })
    }
}

/// Number of retries, and their interval, while the server is still busy with the previous client.
const BUSY: (u32, Duration) = (20, Duration::from_millis(250));

/// Measures one connection from the client to the server.
pub fn run(hosts: &Hosts, way: Way, seconds: u32) -> Result<Sample, Failure> {
    let (mut tries, pause) = BUSY;
    loop {
        match once(hosts, way, seconds) {
            Err(failure) if tries > 0 && failure.to_string().contains("busy") => {
                tries -= 1;
                std::thread::sleep(pause);
            }
            said => return said,
        }
    }
}

fn once(hosts: &Hosts, way: Way, seconds: u32) -> Result<Sample, Failure> {
    let (server, seconds) = (way.server().to_string(), seconds.to_string());
    let output = netns::command(CLIENT, hosts.cores.traffic)
        .args(["iperf3", "--client", &server, "--json", "--time", &seconds])
        .args(["--connect-timeout", "10000"])
        .stdin(Stdio::null())
        .output()?;
    Sample::parse(&String::from_utf8_lossy(&output.stdout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_is_read_from_what_iperf3_tells() {
        let text = r#"{"end": {"sum_sent": {"retransmits": 7}, "sum_received": {"bits_per_second": 25000000.0}}}"#;
        let expected = Sample {
            mbit_s: 25.0,
            sent_again: 7.0,
        };
        assert_eq!(expected, Sample::parse(text).expect("a sample"));
        let failed = Sample::parse(r#"{"error": "no route"}"#)
            .expect_err("an error")
            .to_string();
        assert_eq!("iperf3: no route", failed);
    }
}
