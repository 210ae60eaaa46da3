//! What one TCP connection carries, by iperf3.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Failure;
use super::hosts::{CLIENT, Hosts, SERVER, Way};

/// Longest time until the server listens.
const READY: Duration = Duration::from_secs(10);

/// The server; it ends when it is dropped.
pub struct Server(Child);

impl Server {
    /// Start it on all ways.
    pub fn start(hosts: &Hosts) -> Result<Self, Failure> {
        let child = hosts
            .command(SERVER, Path::new("iperf3"))
            .arg("--server")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let server = Self(child);
        let began = Instant::now();
        let line = format!("ip netns exec {SERVER} ss -Hltn sport = :5201");
        while crate::kernel::command::run(&line)?.is_empty() {
            if began.elapsed() > READY {
                return Err("iperf3 does not listen".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What came out of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Received, in megabits a second.
    pub mbit_s: f64,
    /// Segments that were sent again.
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

/// How often a server is asked again that has not done with the client before, and how long after.
const BUSY: (u32, Duration) = (20, Duration::from_millis(250));

/// One connection from the client to the server.
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
    let output = hosts
        .command(CLIENT, Path::new("iperf3"))
        .args([
            "--client",
            &way.server().to_string(),
            "--json",
            "--time",
            &seconds.to_string(),
        ])
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
