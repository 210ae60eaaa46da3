//! Tests the limits that only large configurations reach. The data plane has the same limits.

use std::fmt::Write;

use sluice_config::memory::EntryBytes;
use sluice_config::{Machine, check};

const LAN: &str = "[interfaces.lan]\ndevice = \"null:\"\naddresses = [\"10.0.0.1/24\"]\n";

/// Problems of a configuration, one per line.
fn refused(text: &str) -> String {
    let machine = Machine {
        cores: vec![0, 1],
        memory: u64::MAX,
        entry: EntryBytes::default(),
    };
    check("test", text, &machine).map_or_else(|wrong| wrong.to_string(), |_| String::new())
}

/// Interfaces `i0`, `i1` and so on.
fn interfaces(count: usize) -> String {
    (0..count).fold(String::new(), |mut text, number| {
        write!(text, "[interfaces.i{number}]\ndevice = \"null:\"\n").unwrap();
        text
    })
}

#[test]
fn interfaces_beyond_the_limit_are_refused() {
    assert_eq!("", refused(&interfaces(2_047)));
    let expected = "a number of interfaces of 2048 is out of range (write a value in the range 0 to 2047)";
    let found = refused(&interfaces(2_048));
    assert!(found.contains(expected), "{found}");
}

#[test]
fn ports_of_destination_rules_beyond_the_limit_are_refused() {
    let rules = |count: usize, more: &str| {
        let rule = |number| {
            let address = format!("198.51.100.{number}");
            format!("[[nat.destination]]\naddress = \"{address}\"\nport = \"1-65535\"\nto = \"10.0.0.5\"\n")
        };
        format!("{LAN}{}{more}", (0..count).map(rule).collect::<String>())
    };
    // 128 ports are left.
    assert_eq!("", refused(&rules(128, "")));
    let found = refused(&rules(129, ""));
    let expected = "a number of ports in rules of 8454015 is out of range (write a value in the range 0 to 8388608)";
    assert!(found.contains(expected), "{found}");
}

#[test]
fn rules_that_differ_only_in_interface_and_protocol_are_limited() {
    let rules = |count: usize, text: &dyn Fn(usize) -> String| {
        let rules: String = (0..count).map(text).collect();
        format!(
            "{}[nat.pools.a]\naddresses = [\"203.0.113.1\"]\n{rules}",
            interfaces(300)
        )
    };
    let source = |number| format!("[[nat.source]]\nfrom = \"10.0.0.0/8\"\nout = \"i{number}\"\npool = \"a\"\n");
    assert_eq!("", refused(&rules(256, &source)));
    let found = refused(&rules(257, &source));
    assert!(
        found.contains("257 rules for `10.0.0.0/8` differ only in protocol"),
        "{found}"
    );
    // Ports of the ranges overlap at one port, which 300 interfaces share.
    let destination = |number: usize| {
        let ports = format!("{}-{}", 1_000 - number, 1_000 + number);
        format!("[[nat.destination]]\nin = \"i{number}\"\nport = \"{ports}\"\nto = \"10.0.0.5\"\n")
    };
    assert_eq!("", refused(&rules(256, &destination)));
    let found = refused(&rules(300, &destination));
    assert!(
        found.contains("300 rules for `0.0.0.0/0` differ only in protocol"),
        "{found}"
    );
    let apart = |number: usize| {
        let port = 10_000 + number;
        format!("[[nat.destination]]\nin = \"i{number}\"\nport = {port}\nto = \"10.0.0.5\"\n")
    };
    assert_eq!("", refused(&rules(300, &apart)));
}

#[test]
fn mac_addresses_of_filter_rules_are_limited() {
    let rules = |counts: &[u32]| {
        let mut next = 0;
        let mut text = format!("{LAN}[filter]\n");
        for &count in counts {
            let macs = (next..next + count).map(|mac| {
                format!(
                    "\"02:00:00:{:02x}:{:02x}:{:02x}\"",
                    mac >> 16,
                    mac >> 8 & 0xff,
                    mac & 0xff
                )
            });
            let macs: Vec<_> = macs.collect();
            next += count;
            write!(
                text,
                "[[filter.rules]]\naction = \"accept\"\nfrom-mac = [{}]\n",
                macs.join(", ")
            )
            .unwrap();
        }
        text
    };
    assert_eq!("", refused(&rules(&[30_000, 30_000, 5_533])));
    let found = refused(&rules(&[30_000, 30_000, 5_534]));
    assert!(found.contains("65534 different MAC addresses are too many"), "{found}");
}
