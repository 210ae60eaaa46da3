//! Generates whole configurations.

use super::choices::{Choices, table};
use super::filter::{chains, filter, settings};
use super::links::{beyond, interfaces, routes};
use super::translation::{Scope, present, rules, translation};

/// The text of a configuration.
pub fn configuration(choose: &mut Choices) -> String {
    let (links, has_red) = interfaces(choose);
    let uplinks = beyond(choose, &links);
    let usual = [
        "\"wan\"",
        "\"lan\"",
        "\"dmz\"",
        "\"left\"",
        "\"tag\"",
        "\"spare\"",
        "\"tunnel\"",
        "\"near\"",
    ];
    let names = present(&links, "interfaces", &usual);
    let mut text = routes(choose, &names, uplinks.contains("[uplinks."));
    text += &system(choose);
    text += &links;
    text += &uplinks;
    let mut pools = Vec::new();
    if choose.below(3) > 0 {
        let translation = translation(choose, names);
        pools = present(&translation, "nat.pools", &["\"c\""]);
        text += &translation;
    }
    let settings = settings(choose);
    if choose.one_in(3) {
        text += &filter(choose, "filter", &settings);
    }
    text += "[policers.slow]\npackets = 1\n";
    if choose.below(4) < 3 {
        text += "[routers.default]\ndaemon = true\n";
        text += &router(choose);
    }
    if has_red {
        let interfaces = present(&links, "interfaces", &["\"red\"", "\"far\""]);
        text += "[routers.red]\n";
        text += &routes(choose, &interfaces, false);
        text += &router(choose);
        if choose.one_in(2) {
            let scope = Scope { interfaces, pools };
            text += &format!("[routers.red.nat]\n{}", rules(choose, &scope));
        }
        if choose.one_in(8) {
            text += &filter(choose, "routers.red.filter", &settings);
        }
    }
    if choose.one_in(2) && links.contains("[interfaces.access]") && links.contains("[interfaces.public]") {
        text += &subscribers(choose);
    }
    text + &inspection(choose)
}

fn inspection(choose: &mut Choices) -> String {
    let mut text = String::new();
    for name in ["inspection", "applications"] {
        if choose.one_in(8) {
            let interfaces = choose.of(&["[\"lan\"]", "[\"lan\", \"wan\"]"]);
            text += &format!("[{name}]\ninterfaces = {interfaces}\n");
            choose.line(&mut text, 3, "flows", &["64", "1048576"]);
            if name == "inspection" {
                text += "[[inspection.signatures]]\nfile = \"local.rules\"\ndialect = \"suricata\"\n";
            }
        }
    }
    text
}

fn system(choose: &mut Choices) -> String {
    let mut text = String::from("[system]\n");
    match choose.below(6) {
        0 | 1 => choose.line(&mut text, 2, "workers", &["1", "2", "3", "[1, 5]", "16"]),
        2 => text += "model = \"role-split\"\nroles = { io = [1, 2], inspect = [3] }\n",
        3 => {
            text += "model = \"pipeline\"\nstages = [{ parts = [\"receive\", \"parse\"], cores = [1] }, \
                     { parts = [\"session\", \"transmit\"], cores = [2, 3] }]\n";
        }
        4 => text += "model = \"auto\"\nworkers = 2\n",
        _ => {}
    }
    choose.line(
        &mut text,
        3,
        "shards",
        &["16", "2", "64", "1024", "4", "16", "8", "2048"],
    );
    choose.line(&mut text, 4, "steering", &["\"five-tuple\"", "\"subset\""]);
    choose.line(&mut text, 8, "allow-reserved-ranges", &["true"]);
    if choose.one_in(4) {
        text += &format!(
            "[sessions]\nipv4 = {}\n",
            choose.of(&["0", "2048", "100000", "1000000"])
        );
        choose.line(
            &mut text,
            2,
            "timeouts",
            &[
                "{ udp = \"120s\" }",
                "{ tcp-established = \"7440s\", icmp = \"60s\" }",
                "{ udp-ports = { 53 = \"1s\", 5060 = \"1h\" } }",
            ],
        );
    }
    if choose.one_in(4) {
        text += &format!(
            "[neighbours]\nipv4 = {}\n",
            choose.of(&["8192", "1", "100000", "1048577"])
        );
        choose.line(&mut text, 2, "retransmit", &["\"100ms\"", "\"1h\""]);
    }
    if choose.one_in(6) {
        text += &format!("[fragments]\npackets = {}\n", choose.of(&["1", "1048576"]));
        choose.line(&mut text, 2, "parked", &["0", "65536"]);
    }
    if choose.one_in(6) {
        let rate = choose.of(&["{ rate = 0, burst = 0 }", "{ rate = 4294967295, burst = 4294967295 }"]);
        text += &format!("[gateway]\nicmp-errors = {rate}\npolicing = {{ echo = {rate} }}\n");
    }
    text
}

/// Keys of a router that are also valid for the default router.
fn router(choose: &mut Choices) -> String {
    let mut text = String::new();
    choose.line(&mut text, 8, "share", &["{ weight = 1 }", "{ weight = 255 }"]);
    choose.line(
        &mut text,
        8,
        "host",
        &[
            "{ multicast = \"none\" }",
            "{ limits = { bfd = { rate = 0, burst = 0 } } }",
        ],
    );
    let mut limits = Vec::new();
    choose.item(&mut limits, 6, "rate", &["{ bits = \"1G\" }", "{ packets = 1 }"]);
    choose.item(&mut limits, 6, "routes", &["1", "1000000"]);
    choose.item(&mut limits, 6, "neighbours", &["1", "8192"]);
    if !limits.is_empty() {
        text += &format!("limits = {}\n", table(&limits));
    }
    if choose.one_in(3) {
        text += &chains(choose);
    }
    text
}

fn subscribers(choose: &mut Choices) -> String {
    let mut text = String::from("[subscribers]\n");
    choose.line(&mut text, 3, "terminals", &["1", "1048575"]);
    choose.line(&mut text, 3, "virtual-mac-prefix", &["\"02\"", "\"02:5e:10\""]);
    let tags = choose.of(&[
        "tags = \"100-101.5-7\"",
        "tags = \"7-9\"",
        "prefix = \"10.64.7.0/24\"",
        "",
        "tags = \"1-32.1-4094\"",
    ]);
    text +=
        &format!("[subscribers.sites.homes]\ninterface = \"access\"\n{tags}\ndhcp = \"inside\"\npublic = \"public\"\n");
    if choose.one_in(2) {
        let tags = choose.of(&[
            "tags = \"2000-2001\"",
            "tags = \"200.5-7\"",
            "prefix = \"10.64.8.0/24\"",
        ]);
        let pool = choose.of(&["a", "c", "b"]);
        text += &format!(
            "[subscribers.sites.shops]\ninterface = \"access\"\n{tags}\ndhcp = \"inside\"\npool = \"{pool}\"\n"
        );
    }
    text += "[subscribers.dhcp.inside]\nserver = \"192.0.2.10\"\nleases = \"/tmp/leases\"\nformat = \"kea\"\n";
    choose.line(
        &mut text,
        3,
        "relay",
        &["\"10.64.0.1\"", "\"10.64.0.2\"", "\"10.64.255.254\""],
    );
    text += "[subscribers.public.public]\n";
    text += &format!(
        "prefixes = {}\n",
        choose.of(&["[\"198.51.100.0/25\"]", "[\"198.51.100.0/22\", \"203.0.113.128/25\"]"])
    );
    text
}
