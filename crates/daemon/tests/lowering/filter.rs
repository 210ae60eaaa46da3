//! Generates packet filters, chains and policers.

use super::choices::{Choices, list, table};

const ADDRESSES: [&str; 8] = [
    "\"10.0.0.0/24\"",
    "[\"10.0.0.0/24\", \"2001:db8:1::/64\"]",
    "\"@hosts\"",
    "\"@known\"",
    "\"!10.0.0.0/8\"",
    "\"198.51.100.1-198.51.100.9\"",
    "\"0.0.0.0/0\"",
    "[\"!::/1\", \"!0.0.0.0/32\", \"!255.255.255.255/32\"]",
];

const PORTS: [&str; 7] = [
    "80",
    "[25, \"1024-65535\"]",
    "\"@web\"",
    "\"@open\"",
    "[\"!0-79\", \"!81-65535\"]",
    "0",
    "\"!443\"",
];

fn rule(choose: &mut Choices, number: usize) -> String {
    let actions = [
        "action = \"accept\"",
        "action = \"drop\"",
        "action = \"reject\", with = \"prohibited\"",
        "action = \"count\"",
        "action = \"log\"",
        "action = \"rate-limit\", rate = 1",
        "action = \"rate-limit\", rate = 1000000000, burst = 1",
        "action = \"set-mark\", new-mark = \"0x10/0x10\"",
        "action = \"set-dscp\", new-dscp = \"ef\"",
        "action = \"set-ecn\", new-ecn = \"ce\"",
        "action = \"add-to-set\", set = \"known\"",
        "action = \"accept\", track = false",
    ];
    let mut items = vec![choose.of(&actions).to_owned()];
    if choose.one_in(2) {
        items.push(format!("name = \"rule-{number}\""));
    }
    choose.item(&mut items, 3, "from", &ADDRESSES);
    choose.item(&mut items, 3, "to", &ADDRESSES);
    match choose.below(8) {
        0 => {
            choose.item(&mut items, 2, "from-port", &PORTS);
            choose.item(&mut items, 2, "to-port", &PORTS);
        }
        1 => items.push("icmp = [\"echo-request\", \"3/4\"]".to_owned()),
        2 => items.push(format!(
            "flags = {}",
            choose.of(&["\"syn/syn,ack\"", "\"none/all\"", "\"all\""])
        )),
        3 => items.push(format!(
            "protocol = {}",
            choose.of(&["\"tcp\"", "[\"gre\", \"255\"]", "\"!tcp\"", "\"0\""])
        )),
        4 => items.push("icmp = \"255/255\"".to_owned()),
        _ => {}
    }
    choose.item(&mut items, 8, "fragment", &["\"whole\"", "\"later\""]);
    choose.item(&mut items, 8, "dscp", &["\"ef\"", "[0, 63]"]);
    choose.item(&mut items, 8, "ecn", &["\"ce\""]);
    choose.item(&mut items, 8, "length", &["40", "\"0-65535\"", "65535"]);
    choose.item(&mut items, 8, "vlan", &["7", "\"0-4095\"", "4095"]);
    choose.item(&mut items, 8, "ttl", &["255", "\"0-1\""]);
    choose.item(
        &mut items,
        8,
        "from-mac",
        &[
            "\"02:00:00:00:00:01\"",
            "[\"!02:00:00:00:00:01\", \"!02:00:00:00:00:02\"]",
        ],
    );
    choose.item(&mut items, 8, "in", &["\"lan\"", "[\"lan\", \"wan\"]", "\"!wan\""]);
    choose.item(
        &mut items,
        8,
        "out",
        &["\"wan\"", "\"gateway\"", "[\"gateway\", \"wan\"]", "\"!lan\""],
    );
    choose.item(&mut items, 8, "mark", &["\"0xffffffff\"", "\"!7\""]);
    table(&items)
}

/// The keys of a filter, with its groups and sets.
pub fn filter(choose: &mut Choices, name: &str, settings: &str) -> String {
    let mut text = format!("[{name}]\n{settings}");
    choose.line(&mut text, 2, "default", &["\"drop\"", "\"reject\""]);
    let rules: Vec<_> = (0..choose.below(5)).map(|number| rule(choose, number)).collect();
    text += &list("rules", &rules);
    text += &format!("[{name}.addresses]\nhosts = [\"10.0.0.0/28\", \"2001:db8::/32\"]\n");
    text += &format!("[{name}.ports]\nweb = [80, 443]\n");
    text += &format!("[{name}.sets]\nknown = {{ size = 16, elements = [\"10.0.0.1\"] }}\n");
    text += "open = { type = \"ports\", size = 65536, elements = [\"1-100\"] }\n";
    text
}

/// Settings that the filters of all routers share.
pub fn settings(choose: &mut Choices) -> String {
    let mut text = String::new();
    choose.line(&mut text, 3, "sessions", &["false"]);
    choose.line(
        &mut text,
        2,
        "matcher",
        &["\"linear\"", "\"best\"", "\"trie\"", "\"cached-trie\""],
    );
    choose.line(&mut text, 6, "list-size", &["0", "1", "255"]);
    text
}

fn step(choose: &mut Choices, to: &str) -> String {
    let class = [
        "{ from = \"10.0.0.0/24\" }",
        "{ to-port = 25, protocol = \"tcp\" }",
        "{ in = \"lan\", dscp = [0, 63] }",
        "{ vlan = 4095, ttl = 0, length = 65535 }",
        "{}",
        "{ icmp = \"echo-request\" }",
    ];
    match choose.below(7) {
        0 => "{ count = \"all\" }".to_owned(),
        1 | 2 => format!("{{ classify = {}, to = \"{to}\" }}", choose.of(&class)),
        3 => format!(
            "{{ police = {} }}",
            choose.of(&[
                "{ packets = 1 }",
                "{ bits = \"1M\" }",
                "{ packets = 1000000000, burst = 4000000000 }"
            ])
        ),
        4 => format!("{{ police = \"slow\", exceed = \"{to}\" }}"),
        5 => "{ mirror = \"spare\" }".to_owned(),
        _ => format!("{{ count = \"{to}\" }}"),
    }
}

/// Chains of a router, as its keys.
pub fn chains(choose: &mut Choices) -> String {
    let end = choose.of(&[
        "\"sessions\", \"forward\"",
        "\"forward\"",
        "\"drop\"",
        "{ to = \"last\" }",
    ]);
    let steps: Vec<_> = (0..choose.below(4)).map(|_| step(choose, "last") + ", ").collect();
    let last = choose.of(&["\"drop\"", "\"sessions\", \"forward\"", "{ to = \"input\" }"]);
    let last = format!("chains.last = [{last}]\n");
    let input = format!("chains.input = [{}{end}]\n", steps.concat());
    let reaches = input.contains("\"last\" }");
    if reaches { input + &last } else { input }
}
