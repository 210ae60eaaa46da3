//! Tests that leftovers of a killed process do not prevent the start of the next process.

use sluice_testkit::process;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use crate::support::{self, exchange, on_each_memory, port, private_path, veth};
use sluice_dpdk::{Driver, Plan, PortPlan};

const ROLE: &str = "SLUICE_SCENARIO_HOLDS";

/// Open the named devices in a separate process, and kill this process. The function never returns in the separate
/// process.
fn killed_while_open(test: &str, scenario: &support::Scenario, names: &[String]) {
    if let Ok(names) = std::env::var(ROLE) {
        let _opened = scenario.open(&Plan::new(names.split(' ').map(port).collect(), 1));
        println!("\nopen");
        std::io::stdout().flush().expect("stdout");
        // Wait until this process is killed by its parent, or until the parent ends.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    }
    let mut holder = Command::new(std::env::current_exe().expect("the path of this test"))
        .args([&process::name(test), "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, names.join(" "))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test starts itself");
    let lines = BufReader::new(holder.stdout.take().expect("its output")).lines();
    let opened = lines.map_while(Result::ok).any(|line| line == "open");
    holder.kill().expect("it is killed");
    holder.wait().expect("it is gone");
    assert!(opened, "the holder opened {names:?}");
}

#[test]
fn af_xdp_after_a_killed_process_receives_again() {
    const TEST: &str = "af_xdp_after_a_killed_process_receives_again";
    on_each_memory(TEST, |scenario| {
        if std::env::var_os(ROLE).is_none() {
            veth("va", "vb", 1500);
        }
        killed_while_open(TEST, &scenario, &["va".into()]);
        let packet_socket = PortPlan {
            driver: Some(Driver::AfPacket),
            ..port("vb")
        };
        let mut opened = scenario.open(&Plan::new(vec![port("va"), packet_socket], 1));
        exchange(&mut opened.hand, 1, 0, 5_000, 64);
        opened.close();
    });
}

#[test]
fn sockets_of_a_killed_process_are_taken_over() {
    const TEST: &str = "sockets_of_a_killed_process_are_taken_over";
    on_each_memory(TEST, |scenario| {
        let names = [
            format!("vhost:{}", private_path("v")),
            format!("memif:{},role=server", private_path("m")),
        ];
        killed_while_open(TEST, &scenario, &names);
        let opened = scenario.open(&Plan::new(names.iter().map(|name| port(name)).collect(), 1));
        opened.close();
    });
}
