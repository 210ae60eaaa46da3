//! Alerts of a run as lines of EVE JSON, and the differences between two runs.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use serde_json::Value;

/// A rule that matched in a flow. The packet that completed the match is not recorded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alert {
    /// Generator ID and signature ID of the rule.
    pub rule: (u64, u64),
    /// Protocol above IP in lower case.
    pub protocol: String,
    /// Both endpoints of the flow; the smaller one comes first.
    pub ends: [(IpAddr, u64); 2],
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (generator, number) = self.rule;
        let [(first, one), (second, other)] = self.ends;
        write!(
            f,
            "{generator}:{number} {} {first} {one} - {second} {other}",
            self.protocol
        )
    }
}

/// Parses the alert in a line; `None` if the line is an event of another type or not a valid record.
fn alert(line: &str) -> Option<Alert> {
    let record: Value = serde_json::from_str(line).ok()?;
    if record["event_type"] != "alert" {
        return None;
    }
    let end = |address: &str, port: &str| -> Option<(IpAddr, u64)> {
        let address = record[address].as_str()?.parse().ok()?;
        Some((address, record[port].as_u64().unwrap_or(0)))
    };
    let protocol = record["proto"].as_str()?.to_lowercase();
    // For ICMP, some inspectors write type and code instead of ports, and others write neither.
    let protocol = if protocol == "ipv6-icmp" {
        "icmpv6".into()
    } else {
        protocol
    };
    let mut ends = [end("src_ip", "src_port")?, end("dest_ip", "dest_port")?];
    if protocol.starts_with("icmp") {
        ends = ends.map(|(address, _)| (address, 0));
    }
    ends.sort_unstable();
    let rule = &record["alert"];
    Some(Alert {
        rule: (rule["gid"].as_u64()?, rule["signature_id"].as_u64()?),
        protocol,
        ends,
    })
}

/// Returns the distinct alerts in a log, and the number of alert lines.
pub fn alerts(log: &str) -> (BTreeSet<Alert>, usize) {
    let found: Vec<Alert> = log.lines().filter_map(alert).collect();
    let count = found.len();
    (found.into_iter().collect(), count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Log lines of Suricata 8.0.6 for a capture, and those of Sluice.
    const LOG: &str = include_str!("eve.json");

    #[test]
    fn lines_of_both_about_one_flow_are_one_alert() {
        let (found, count) = alerts(LOG);
        let texts: Vec<_> = found.iter().map(Alert::to_string).collect();
        assert_eq!(
            vec![
                "1:1 tcp 10.0.0.1 8080 - 192.0.2.9 40000",
                "1:3 udp 10.0.0.7 5000 - 192.0.2.53 53"
            ],
            texts
        );
        assert_eq!(4, count);
    }

    #[test]
    fn lines_that_are_no_alert_are_left_out() {
        let log = "{\"event_type\":\"stats\"}\nno JSON\n{\"event_type\":\"alert\"}\n";
        assert_eq!((BTreeSet::new(), 0), alerts(log));
    }
}
