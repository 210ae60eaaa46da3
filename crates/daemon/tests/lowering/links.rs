//! Generates interfaces, bridges, uplinks, routes and static neighbours.

use super::choices::{Choices, list, table};

/// A generated interface: name, keys of its link, and possible lists of addresses. The first list is the usual one.
struct Kind {
    name: &'static str,
    link: &'static str,
    addresses: &'static [&'static str],
}

const LAN: Kind = Kind {
    name: "lan",
    link: "device = \"eth0\"\n",
    addresses: &[
        "[\"10.0.0.1/24\"]",
        "[\"10.0.0.1/24\", \"2001:db8:1::1/64\"]",
        "[\"10.0.0.1/24\"]",
        "[\"10.0.0.1/24\", \"10.0.0.129/25\"]",
        "[\"10.0.0.1/16\", \"fe80::1/64\"]",
        "[\"10.0.0.1/32\"]",
        "[\"10.0.0.1/24\", \"169.254.1.1/24\"]",
        "[\"10.0.0.1/0\"]",
        "[]",
    ],
};

const WAN: Kind = Kind {
    name: "wan",
    link: "device = \"eth1\"\n",
    addresses: &[
        "[\"192.0.2.1/24\"]",
        "[\"192.0.2.1/24\", \"2001:db8:2::1/64\"]",
        "[\"192.0.2.1/24\"]",
        "[\"192.0.2.0/31\"]",
        "[\"192.0.2.1/24\", \"fe80::1/64\"]",
        "[\"192.0.2.1/24\", \"169.254.1.1/24\"]",
        "[\"192.0.2.1/24\", \"169.254.1.2/24\"]",
    ],
};

/// Interfaces that a generated configuration may contain.
const OTHERS: [Kind; 8] = [
    Kind {
        name: "dmz",
        link: "device = \"0000:3b:00.0\"\n",
        addresses: &[
            "[\"172.16.0.1/24\"]",
            "[\"172.16.0.1/24\", \"172.16.9.1/32\"]",
            "[\"192.0.2.129/25\"]",
        ],
    },
    Kind {
        name: "trunk",
        link: "bond = { members = [\"eth2\", \"eth3\"] }\n",
        addresses: &["[]", "[\"172.17.0.1/24\"]"],
    },
    Kind {
        name: "tag",
        link: "parent = \"trunk\"\nvlan = \"7\"\n",
        addresses: &["[\"172.18.0.1/24\"]", "[\"172.18.0.1/24\", \"2001:db8:7::1/64\"]"],
    },
    Kind {
        name: "red",
        link: "device = \"eth4\"\nrouter = \"red\"\n",
        addresses: &["[\"10.0.0.1/24\"]", "[\"10.0.0.1/24\", \"192.0.2.1/24\"]"],
    },
    Kind {
        name: "tunnel",
        link: "tunnel = { type = \"gre\", local = \"192.0.2.1\", remote = \"198.51.100.9\" }\n",
        addresses: &["[\"172.19.0.1/30\"]", "[]"],
    },
    Kind {
        name: "access",
        link: "device = \"eth5\"\n",
        addresses: &["[\"10.64.0.1/16\"]", "[\"10.64.0.1/16\", \"10.65.0.1/16\"]"],
    },
    Kind {
        name: "public",
        link: "device = \"eth6\"\n",
        addresses: &["[\"198.51.100.1/22\"]", "[\"198.51.100.1/25\"]"],
    },
    Kind {
        name: "spare",
        link: "device = \"null:\"\n",
        addresses: &["[]"],
    },
];

/// Interfaces that exist in pairs.
const LINK: [Kind; 2] = [
    Kind {
        name: "near",
        link: "peer = \"far\"\n",
        addresses: &["[\"172.20.0.0/31\"]", "[\"172.20.0.0/31\", \"2001:db8:20::/127\"]"],
    },
    Kind {
        name: "far",
        link: "peer = \"near\"\nrouter = \"red\"\n",
        addresses: &["[\"172.20.0.1/31\"]", "[\"172.20.0.1/31\", \"2001:db8:20::1/127\"]"],
    },
];

const BRIDGED: [Kind; 2] = [
    Kind {
        name: "left",
        link: "device = \"eth7\"\n",
        addresses: &["[]"],
    },
    Kind {
        name: "right",
        link: "device = \"eth8\"\n",
        addresses: &["[]"],
    },
];

fn write(choose: &mut Choices, text: &mut String, kind: &Kind) {
    *text += &format!("[interfaces.{}]\n{}", kind.name, kind.link);
    let common = [kind.addresses[0]];
    let addresses = if choose.one_in(3) { kind.addresses } else { &common };
    let addresses = choose.of(addresses);
    *text += &format!("addresses = {addresses}\n");
    choose.line(text, 12, "mtu", &["1500", "1280", "576", "9216"]);
    choose.line(text, 12, "source-validation", &["\"strict\"", "\"loose\""]);
    choose.line(text, 20, "mss-clamp", &["\"mtu\"", "1300"]);
    choose.line(text, 20, "proxy-arp", &["true"]);
    choose.line(text, 20, "announce-addresses", &["true"]);
    choose.line(text, 20, "redirects", &["true"]);
    choose.line(text, 20, "rate", &["\"1G\"", "\"10M\""]);
    choose.line(text, 20, "share", &["{ weight = 1 }", "{ weight = 255 }"]);
    if addresses.contains("::1/64") {
        choose.line(
            text,
            4,
            "router-advertisements",
            &["{}", "{ managed = true, lifetime = \"0s\" }"],
        );
    }
}

/// All interfaces, and the bridge of some of them. Returns whether the virtual router `red` has an interface.
pub fn interfaces(choose: &mut Choices) -> (String, bool) {
    let mut text = String::new();
    write(choose, &mut text, &LAN);
    write(choose, &mut text, &WAN);
    let mut has_red = false;
    let mut has_trunk = false;
    for kind in &OTHERS {
        let is_there = match kind.name {
            "tag" => has_trunk,
            _ => choose.one_in(2),
        };
        if is_there {
            write(choose, &mut text, kind);
            has_red |= kind.name == "red";
            has_trunk |= kind.name == "trunk";
        }
    }
    if choose.one_in(4) {
        LINK.iter().for_each(|kind| write(choose, &mut text, kind));
        has_red = true;
    }
    if choose.one_in(4) {
        for kind in &BRIDGED {
            text += &format!("[interfaces.{}]\n{}", kind.name, kind.link);
        }
        text += "[bridges.wire]\ninterfaces = [\"left\", \"right\"]\n";
        choose.line(&mut text, 3, "fail", &["\"open\""]);
    }
    (text, has_red)
}

/// Destinations and gateways of each family.
const DESTINATIONS: [&[&str]; 2] = [
    &[
        "0.0.0.0/0",
        "10.1.0.0/16",
        "198.51.100.0/24",
        "10.0.0.0/8",
        "198.51.100.9/32",
        "172.31.0.0/16",
        "203.0.113.0/24",
        "169.254.0.0/16",
        "172.20.0.0/31",
        "10.0.0.0/24",
        "10.0.0.1/32",
        "10.0.0.255/32",
        "172.16.9.1/32",
        "10.64.0.2/32",
    ],
    &[
        "::/0",
        "2001:db8:9::/48",
        "2001:db8:1::1/128",
        "2001:db8:1::/64",
        "fe80::/10",
    ],
];
const GATEWAYS: [&[&str]; 2] = [
    &[
        "192.0.2.254",
        "10.0.0.2",
        "192.0.2.254",
        "10.0.0.2",
        "fe80::2%wan",
        "fe80::2%lan",
        "172.20.0.1",
        "10.1.0.1",
        "198.51.100.9",
        "172.16.0.2",
        "10.64.0.2",
        "fe80::2%left",
        "10.0.0.1",
    ],
    &["fe80::2%wan", "fe80::2%lan", "2001:db8:1::2", "2001:db8:2::2"],
];

fn route(choose: &mut Choices, names: &[&str], has_uplinks: bool) -> String {
    let family = usize::from(choose.one_in(4));
    let mut items = vec![format!("to = \"{}\"", choose.of(DESTINATIONS[family]))];
    let via = format!("via = \"{}\"", choose.of(GATEWAYS[family]));
    match choose.below(12) {
        0..=4 => items.push(via),
        5 => items.extend([
            via,
            format!("interface = {}", choose.of(names)),
            "onlink = true".to_owned(),
        ]),
        6 => items.extend([via, "recursive = true".to_owned()]),
        7 | 8 => items.push(format!("interface = {}", choose.of(names))),
        9 if has_uplinks => items.push("uplinks = [\"one\", \"two\"]".to_owned()),
        10 if has_uplinks => items.push("uplinks = [\"one\"]".to_owned()),
        _ => {
            let actions = ["\"blackhole\"", "\"unreachable\"", "\"prohibit\""];
            items.push(format!("action = {}", choose.of(&actions)));
        }
    }
    choose.item(&mut items, 3, "distance", &["1", "2", "200", "255"]);
    let sources = [&["\"10.0.0.0/24\"", "\"10.0.0.0/8\""][..], &["\"2001:db8:1::/64\""]];
    choose.item(&mut items, 6, "from", sources[family]);
    table(&items)
}

/// Static routes, as the key of the top level or of a router.
pub fn routes(choose: &mut Choices, names: &[&str], has_uplinks: bool) -> String {
    let routes: Vec<_> = (0..choose.below(4))
        .map(|_| route(choose, names, has_uplinks))
        .collect();
    list("routes", &routes)
}

/// Uplinks and static neighbours.
pub fn beyond(choose: &mut Choices, links: &str) -> String {
    let mut text = String::new();
    if choose.one_in(2) {
        text += "[uplinks.one]\ninterface = \"wan\"\nvia = [\"192.0.2.254\"]\n";
        choose.line(
            &mut text,
            4,
            "health",
            &["{ ping = [\"198.51.100.9\"] }", "{ route = \"198.51.100.0/24\" }"],
        );
        let two = choose.of(&[
            "interface = \"lan\"\nvia = [\"10.0.0.254\"]\n",
            "interface = \"wan\"\nvia = [\"fe80::9\"]\n",
            "interface = \"access\"\nvia = [\"10.64.0.2\"]\n",
            "interface = \"left\"\nvia = [\"fe80::9\"]\n",
        ]);
        let name = two.split('"').nth(1).unwrap_or_default();
        let usual = "interface = \"lan\"\nvia = [\"10.0.0.254\"]\n";
        let two = if links.contains(&format!("[interfaces.{name}]")) {
            two
        } else {
            usual
        };
        text += &format!("[uplinks.two]\n{two}");
        choose.line(&mut text, 4, "weight", &["1", "255"]);
    }
    if choose.one_in(4) {
        let address = choose.of(&["10.0.0.9", "192.0.2.254", "10.0.0.2"]);
        text += &format!("[[neighbours.static]]\naddress = \"{address}\"\nmac = \"02:00:00:00:00:09\"\n");
    }
    text
}
