//! Generates pools and translation rules.

use super::choices::{Choices, list, table};

const POOLS: [&str; 3] = ["a", "b", "c"];

/// Interfaces and pools to which the generated rules of a router may refer.
pub struct Scope {
    pub interfaces: Vec<&'static str>,
    pub pools: Vec<&'static str>,
}

/// Those of `names` that a text defines by tables such as `[table.NAME]`.
pub fn present(text: &str, table: &str, names: &[&'static str]) -> Vec<&'static str> {
    let is_there = |name: &&&str| text.contains(&format!("[{table}.{}]", name.trim_matches('"')));
    names.iter().filter(is_there).copied().collect()
}

/// The table `[nat]` with the rules of the default router, and `[nat.pools]`.
pub fn translation(choose: &mut Choices, interfaces: Vec<&'static str>) -> String {
    let pools = pools(choose);
    let scope = Scope {
        interfaces,
        pools: present(&pools, "nat.pools", &["\"a\"", "\"b\""]),
    };
    let mut text = String::from("[nat]\n");
    choose.line(&mut text, 8, "spare-addresses", &["0", "1048576"]);
    choose.line(&mut text, 16, "subscriber-prefix", &["8", "24"]);
    choose.line(&mut text, 8, "subscribers", &["1", "65536", "16777216"]);
    choose.line(&mut text, 8, "unsolicited-syn", &["\"drop\""]);
    choose.line(&mut text, 8, "untranslated-inbound", &["\"drop\""]);
    let limits = [
        "{ sessions = 1 }",
        "{ sessions = 1073741824 }",
        "{ new-sessions = { rate = 1, burst = 1 } }",
    ];
    choose.line(&mut text, 8, "limits", &limits);
    text + &rules(choose, &scope) + &pools
}

fn pools(choose: &mut Choices) -> String {
    let mut text = String::new();
    for (name, networks) in POOLS.into_iter().zip(ADDRESSES) {
        if choose.below(4) > 0 {
            let usual = [networks[0]];
            let networks = if choose.one_in(3) { networks } else { &usual };
            text += &format!("[nat.pools.{name}]\naddresses = {}\n", choose.of(networks));
            pool(choose, &mut text);
        }
    }
    text
}

const ADDRESSES: [&[&str]; 3] = [
    &[
        "[\"203.0.113.0/28\"]",
        "[\"203.0.113.0/28\"]",
        "[\"203.0.113.0/30\", \"203.0.113.9\"]",
        "[\"203.0.113.1\"]",
        "[\"192.0.2.1\"]",
        "[\"198.18.0.0/22\"]",
        "[\"198.18.0.0/23\"]",
    ],
    &[
        "[\"203.0.113.32-203.0.113.40\"]",
        "[\"203.0.113.32/27\"]",
        "[\"192.0.2.1\"]",
        "[\"203.0.113.8/29\"]",
    ],
    &["[\"203.0.113.64/26\"]", "[\"203.0.113.1\"]", "[\"203.0.113.32/27\"]"],
];

fn pool(choose: &mut Choices, text: &mut String) {
    choose.line(
        text,
        3,
        "ports",
        &[
            "\"1-65535\"",
            "\"16384-65535\"",
            "[\"1024-4999\", \"5100-65535\"]",
            "\"1024\"",
            "\"40000-40063\"",
        ],
    );
    choose.line(
        text,
        5,
        "reserved-ports",
        &["[80]", "[\"5000-6000\", 9999]", "[\"1-65534\"]", "[\"1-65535\"]"],
    );
    let soft = choose.one_in(4);
    *text += if soft { "pairing = \"soft\"\n" } else { "" };
    choose.line(text, 8, "parity", &["true"]);
    choose.line(text, 8, "rewrite-ip-id", &["false"]);
    choose.line(
        text,
        8,
        "protocols",
        &["[\"gre\", \"200\"]", "[]", "[\"0\", \"255\"]", "[\"tcp\"]"],
    );
    choose.line(text, 6, "quarantine", &["\"0s\"", "\"30s\"", "\"1h\"", "\"500ms\""]);
    choose.line(
        text,
        6,
        "subscriber",
        &[
            "{ ports = { udp = 100 } }",
            "{ ports = 1 }",
            "{ sessions = 300, new-sessions = { rate = 5, burst = 7 } }",
        ],
    );
    choose.line(
        text,
        6,
        "limits",
        &[
            "{ sessions = 9000 }",
            "{ sessions = 0 }",
            "{ new-sessions = { rate = 1, burst = 1073741824 } }",
        ],
    );
    choose.line(
        text,
        6,
        "timeouts",
        &[
            "{ udp = \"120s\", udp-ports = { 53 = \"1s\", 1024 = \"120s\" } }",
            "{ tcp-established = \"8h\" }",
            "{ icmp = \"60s\", other = \"1s\" }",
        ],
    );
    let dependent = "\"address-and-port-dependent\"";
    match choose.below(6) {
        1 => *text += &format!("mapping = {dependent}\n"),
        2 => *text += &format!("mapping = {{ tcp = {dependent} }}\noverlap = true\n"),
        3 => *text += "port-selection = \"preserve\"\n",
        4 => *text += &format!("mapping = {dependent}\noverlap = true\nport-selection = \"preserve\"\n"),
        _ => {}
    }
    choose.line(
        text,
        8,
        "filtering",
        &[
            "\"address-dependent\"",
            "\"address-and-port-dependent\"",
            "{ udp = \"address-dependent\" }",
        ],
    );
    let algorithms = [
        "\"sequential\"",
        "\"staggered\"",
        "\"round-robin\"",
        "\"interlaced\"",
        "\"random\", key = \"000000000000000a000000000000000b\"",
    ];
    let inside = ["10.0.0.0/28", "10.0.0.0/24", "10.0.0.5", "100.64.0.0/10"];
    match choose.below(8) {
        1 => {
            *text += &format!(
                "block = {{ size = {}, maximum = {} }}\n",
                choose.of(&["64", "256", "1024", "32768"]),
                choose.of(&["1", "4", "1023"])
            )
        }
        2 => {
            *text += &format!(
                "deterministic = {{ inside = \"{}\", compression = {}, algorithm = {} }}\n",
                choose.of(&inside),
                choose.of(&["1", "16", "256", "65535"]),
                choose.of(&algorithms)
            )
        }
        3 => {
            *text += &format!(
                "deterministic = {{ inside = \"{}\", compression = {}, dynamic = {}, algorithm = {} }}\nblock = {{ size = 64, maximum = 2 }}\n",
                choose.of(&inside),
                choose.of(&["1", "16", "256"]),
                choose.of(&["1", "5"]),
                choose.of(&algorithms)
            )
        }
        _ => {}
    }
}

/// Translation rules of a router, as keys of its table `nat`.
pub fn rules(choose: &mut Choices, scope: &Scope) -> String {
    let sources = if scope.pools.is_empty() { 0 } else { choose.below(4) };
    let source: Vec<_> = (0..sources).map(|_| source(choose, scope)).collect();
    let destination: Vec<_> = (0..choose.below(4)).map(|_| destination(choose, scope)).collect();
    let fixed: Vec<_> = (0..choose.below(3).saturating_sub(1))
        .map(|_| fixed(choose, scope))
        .collect();
    let exempt: Vec<_> = (0..choose.below(3).saturating_sub(1))
        .map(|_| exempt(choose, scope))
        .collect();
    list("source", &source) + &list("destination", &destination) + &list("static", &fixed) + &list("exempt", &exempt)
}

const PROTOCOLS: [&str; 2] = ["\"tcp\"", "\"udp\""];

fn source(choose: &mut Choices, scope: &Scope) -> String {
    let from = choose.of(&[
        "10.0.0.0/24",
        "10.0.0.0/8",
        "0.0.0.0/0",
        "172.16.0.0/24",
        "10.0.0.5/32",
        "192.0.2.0/24",
    ]);
    let mut items = vec![
        format!("from = \"{from}\""),
        format!("pool = {}", choose.of(&scope.pools)),
    ];
    choose.item(&mut items, 2, "out", &scope.interfaces);
    choose.item(&mut items, 4, "protocol", &PROTOCOLS);
    choose.item(&mut items, 20, "local", &["true"]);
    table(&items)
}

fn destination(choose: &mut Choices, scope: &Scope) -> String {
    let mut items = Vec::new();
    let address = [
        "\"203.0.113.1\"",
        "\"203.0.113.33\"",
        "\"192.0.2.1\"",
        "\"198.51.100.7\"",
        "\"203.0.113.254\"",
        "\"203.0.113.65\"",
    ];
    match choose.below(10) {
        0..=4 => items.push(format!("address = {}", choose.of(&address))),
        5 | 6 => items.push(format!("in = {}", choose.of(&scope.interfaces))),
        7 | 8 => items.extend([
            format!("address = {}", choose.of(&address)),
            format!("in = [{}]", choose.of(&scope.interfaces)),
        ]),
        _ => items.push("local = true".to_owned()),
    }
    let port = choose.below(4);
    if port > 0 {
        items.push(format!(
            "port = {}",
            choose.of(&[
                "80",
                "443",
                "\"8000-8100\"",
                "\"8050\"",
                "\"1-65535\"",
                "65535",
                "\"1-1023\""
            ])
        ));
        choose.item(&mut items, 3, "to-port", &["80", "8080", "65535", "1"]);
    }
    choose.item(&mut items, 2, "protocol", &PROTOCOLS);
    match choose.below(6) {
        0..=2 => items.push(format!(
            "to = {}",
            choose.of(&["\"10.0.0.5\"", "\"10.0.0.1\"", "\"172.16.0.5\""])
        )),
        3 => items.push("to = \"gateway\"".to_owned()),
        4 => items.push("to = [\"10.0.0.5\", \"10.0.0.6\"]".to_owned()),
        _ => {
            items.push("to = [\"10.0.0.5\", { host = \"10.0.0.6\", weight = 1000 }]".to_owned());
            choose.item(&mut items, 2, "balance", &["\"source\""]);
            choose.item(
                &mut items,
                3,
                "health",
                &[
                    "{ protocol = \"icmp\" }",
                    "{ port = 80 }",
                    "{ interval = \"100ms\", timeout = \"100ms\" }",
                ],
            );
        }
    }
    table(&items)
}

fn fixed(choose: &mut Choices, scope: &Scope) -> String {
    let pair = choose.of(&[
        "inside = \"10.0.0.7/32\", outside = \"198.51.100.7/32\"",
        "inside = \"10.0.0.0/28\", outside = \"198.51.100.0/28\"",
        "inside = \"10.0.0.7/32\", outside = \"203.0.113.33/32\"",
        "inside = \"10.0.0.0/24\", outside = \"203.0.113.0/24\"",
        "inside = \"10.0.0.0/24\", outside = \"198.51.100.0/25\"",
    ]);
    let mut items = vec![pair.to_owned()];
    choose.item(&mut items, 2, "out", &scope.interfaces);
    table(&items)
}

fn exempt(choose: &mut Choices, scope: &Scope) -> String {
    let mut items = Vec::new();
    match choose.below(2) {
        0 => {
            items.push(format!(
                "to = {}",
                choose.of(&["\"198.51.100.0/24\"", "\"203.0.113.1/32\"", "\"0.0.0.0/0\""])
            ));
            choose.item(&mut items, 2, "port", &["80", "\"1-65535\""]);
        }
        _ => {
            items.push(format!("from = {}", choose.of(&["\"10.0.0.0/24\"", "\"10.0.0.5/32\""])));
            choose.item(&mut items, 2, "out", &scope.interfaces);
        }
    }
    choose.item(&mut items, 2, "protocol", &PROTOCOLS);
    table(&items)
}
