//! Tests subscriber sites on the command line: `sluice check`, and lists of a fake daemon with fixed answers.

use crate::serving;
use axum::extract::Query;
use axum::routing::get;
use axum::{Json, Router};
use clap::Parser;
use sluice_command::arguments::Arguments;
use sluice_config::api::{
    Counter, DhcpStatus, Lease, LeaseFilter, LeaseServerStatus, Page, PublicClientStatus, Site, SiteFilter, operation,
};

/// Three sites: one bound, one requesting an address, and one that uses a pool.
fn all_sites() -> Vec<Site> {
    let bound = Site {
        name: "homes-100.7".into(),
        group: "homes".into(),
        number: 0,
        interface: "access".into(),
        tags: Some("100.7".into()),
        prefix: None,
        mac: Some("02:00:5e:00:53:01".into()),
        public: Some([198, 51, 100, 7].into()),
        outside_interface: Some("outside".into()),
        pool: None,
        state: Some("bound".into()),
        server: Some([192, 0, 2, 1].into()),
        renews: Some(1_800),
        expires: Some(3_660),
        terminals: 1_200,
        flags: vec!["confirming".into()],
    };
    let endless = Site {
        name: "homes-100.9".into(),
        number: 2,
        renews: None,
        expires: None,
        terminals: 0,
        flags: Vec::new(),
        ..bound.clone()
    };
    let asking = Site {
        name: "homes-100.8".into(),
        number: 1,
        public: None,
        state: Some("selecting".into()),
        server: None,
        ..endless.clone()
    };
    let pooled = Site {
        name: "shops-8".into(),
        group: "shops".into(),
        number: 3,
        mac: None,
        outside_interface: None,
        pool: Some("shared".into()),
        state: None,
        ..asking.clone()
    };
    vec![bound, asking, endless, pooled]
}

fn all_leases() -> Vec<Lease> {
    let active = Lease {
        address: [10, 0, 0, 2].into(),
        mac: "00:00:5e:00:53:02".into(),
        host_name: Some("kitchen".into()),
        site: Some("homes-100.7".into()),
        group: Some("homes".into()),
        server: "inside".into(),
        source: "/var/lib/kea/kea-leases4.csv".into(),
        since: 60,
        expires: Some(3_540),
        state: "active".into(),
    };
    let outside = Lease {
        address: [10, 0, 0, 3].into(),
        host_name: None,
        site: None,
        group: None,
        expires: None,
        state: "outside".into(),
        ..active.clone()
    };
    vec![active, outside]
}

fn dhcp() -> DhcpStatus {
    let counter = |name: &str, count| Counter {
        name: name.into(),
        count,
    };
    DhcpStatus {
        sites: 10_000,
        terminals: [39_000, 40_000],
        left_out: 7,
        servers: vec![
            LeaseServerStatus {
                name: "inside".into(),
                source: "/leases".into(),
                there: true,
                watched: true,
                error: None,
                leases: 39_007,
                counters: vec![counter("lease-fields", 1), counter("relay-hops", 0)],
            },
            LeaseServerStatus {
                name: "other".into(),
                source: "/none".into(),
                ..LeaseServerStatus::default()
            },
        ],
        clients: vec![PublicClientStatus {
            interface: "outside".into(),
            servers: "silent".into(),
            bound: 9_999,
            counters: vec![counter("discovers", 12_000)],
        }],
        counters: vec![counter("terminal-outside", 7), counter("public-taken", 0)],
    }
}

fn sluice(words: &[&str]) -> String {
    let sites = async |Query(filter): Query<SiteFilter>| {
        Json(Page::whole(
            all_sites().into_iter().filter(|site| filter.matches(site)).collect(),
        ))
    };
    let leases = async |Query(filter): Query<LeaseFilter>| {
        Json(Page::whole(
            all_leases().into_iter().filter(|lease| filter.matches(lease)).collect(),
        ))
    };
    let router = Router::new()
        .route(operation::Sites::PATH, get(sites))
        .route(operation::Leases::PATH, get(leases))
        .route(operation::Dhcp::PATH, get(async || Json(dhcp())));
    let (_folder, socket) = serving::serve(router);
    let words = [&["sluice", "--socket", socket.to_str().unwrap()], words].concat();
    let mut output = Vec::new();
    sluice_command::execute(&Arguments::parse_from(words), &mut output).unwrap();
    String::from_utf8(output).unwrap()
}

#[test]
fn dhcp_is_shown_with_what_has_happened_alone() {
    let expected = "\
DHCP
sites                              10,000
terminals                39,000 of 40,000
leases left out                         7
  terminal-outside                      7
server inside: /leases           followed
  leases                           39,007
  lease-fields                          1
server other: /none               missing
  leases                                0
client outside                     silent
  sites with an address             9,999
  discovers                        12,000
";
    assert_eq!(expected, sluice(&["show", "dhcp"]));
    let json: DhcpStatus = serde_json::from_str(&sluice(&["show", "dhcp", "--json"])).unwrap();
    assert_eq!(dhcp(), json);
}

#[test]
fn sites_are_listed_with_what_they_are_outside() {
    let expected = "\
SITE         OUTSIDE       STATE      RENEWS  EXPIRES  SERVER     VIRTUAL MAC        TERMINALS  INTERFACE  NOTES
homes-100.7  198.51.100.7  bound         30m    1h 1m  192.0.2.1  02:00:5e:00:53:01      1,200  access     confirming
homes-100.8  -             selecting       -        -  -          02:00:5e:00:53:01          0  access
homes-100.9  198.51.100.7  bound           -    never  192.0.2.1  02:00:5e:00:53:01          0  access
shops-8      pool shared   -               -        -  -          -                          0  access
";
    assert_eq!(expected, sluice(&["show", "sites"]));
    assert_eq!(2, sluice(&["show", "sites", "--group", "shops"]).lines().count());
    assert_eq!(2, sluice(&["show", "sites", "--site", "homes-100.8"]).lines().count());
    assert_eq!(3, sluice(&["show", "sites", "--limit", "2"]).lines().count());
}

#[test]
fn leases_are_listed_with_their_sites() {
    let expected = "\
ADDRESS   MAC                SITE         STATE    SINCE  EXPIRES  HOST NAME  SOURCE
10.0.0.2  00:00:5e:00:53:02  homes-100.7  active      1m      59m  kitchen    /var/lib/kea/kea-leases4.csv
10.0.0.3  00:00:5e:00:53:02  -            outside     1m    never  -          /var/lib/kea/kea-leases4.csv
";
    assert_eq!(expected, sluice(&["show", "leases"]));
    for filter in [
        ["--address", "10.0.0.2"],
        ["--site", "homes-100.7"],
        ["--group", "homes"],
        ["--limit", "1"],
    ] {
        let text = sluice(&[&["show", "leases"], &filter[..]].concat());
        assert_eq!(2, text.lines().count(), "{filter:?}\n{text}");
    }
}

#[test]
fn sites_and_leases_as_json_are_one_document_each() {
    let read = |words: &[&str]| serde_json::from_str::<serde_json::Value>(&sluice(words)).unwrap();
    let sites = read(&["show", "sites", "--json"]);
    assert_eq!(4, sites["sites"].as_array().unwrap().len());
    assert_eq!("198.51.100.7", sites["sites"][0]["public"]);
    assert_eq!("shared", sites["sites"][3]["pool"]);
    let leases = read(&["show", "leases", "--json", "--address", "10.0.0.0/31"]);
    assert_eq!(serde_json::json!([]), leases["leases"]);
    let leases = read(&["show", "leases", "--json"]);
    assert_eq!("kitchen", leases["leases"][0]["host-name"]);
}

const SITES: &str = r#"
sessions = { ipv4 = 1_000, ipv6 = 0 }
[interfaces.access]
device = "null:"
addresses = ["10.0.0.1/16"]
[interfaces.outside]
device = "null:"
addresses = ["198.51.100.2/22"]
[subscribers.sites.homes]
interface = "access"
tags = "1-2.1-1000"
dhcp = "inside"
public = "outside"
[subscribers.dhcp.inside]
server = "192.0.2.10"
leases = "leases"
format = "kea"
[subscribers.public.outside]
prefixes = ["198.51.100.0/22"]
"#;

#[test]
fn interface_of_virtual_macs_is_told_to_be_promiscuous() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sites.toml");
    std::fs::write(&path, SITES).unwrap();
    let text = sluice(&["check", path.to_str().unwrap()]);
    assert!(
        text.contains("  outside: in promiscuous mode for the virtual MAC addresses of 2,000 sites\n"),
        "{text}"
    );
    let table = |name: &str| text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
    let cells = |name: &str| table(name).map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "));
    assert_eq!(Some("2,000 109.4 KiB".to_owned()), cells("sites"), "{text}");
    assert_eq!(Some("8,000 564.0 KiB".to_owned()), cells("terminals"), "{text}");
    let text = sluice(&["check", "--json", path.to_str().unwrap()]);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(2_000, document["interfaces"][1]["virtual-macs"]);
    assert_eq!(serde_json::Value::Null, document["interfaces"][0]["virtual-macs"]);
}
