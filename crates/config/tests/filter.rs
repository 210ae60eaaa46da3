//! Tests packet filter configurations that are rejected or that get advice, with positions and reasons.

use sluice_config::memory::EntryBytes;
use sluice_config::{Checked, Diagnosis, Machine, check};

fn checked(filter: &str) -> Result<Checked, Diagnosis> {
    let text = format!(
        "[interfaces.lan]\ndevice = \"null:\"\naddresses = [\"10.0.0.1/24\"]\n[interfaces.wan]\ndevice = \"null:\"\n{filter}"
    );
    let machine = Machine {
        cores: vec![0, 1],
        memory: 1 << 40,
        entry: EntryBytes::default(),
    };
    check("test", &text, &machine)
}

/// Problems of a filter, one per line. Line numbers are relative to the first line of the filter, which has number 0.
fn wrong(filter: &str) -> Vec<String> {
    let findings = checked(filter).expect_err("it is wrong").findings();
    let line = |finding: &sluice_config::Finding| {
        assert!(finding.hint.is_some(), "{}", finding.message);
        format!("{}: {}: {}", finding.line - 6, finding.text, finding.message)
    };
    findings.iter().map(line).collect()
}

fn rule(keys: &str) -> String {
    format!("[filter]\n[[filter.rules]]\naction = \"accept\"\n{keys}\n")
}

#[test]
fn filter_of_a_whole_example_is_right() {
    let text = r#"
[filter]
default = "reject"
matcher = "cached-trie"
list-size = 21
list-search = "bisection"
[filter.addresses]
web = ["192.0.2.10", "192.0.2.32-192.0.2.40", "2001:db8::/64"]
all = ["@web", "198.51.100.0/24"]
[filter.ports]
mail = [25, 465, "587"]
[[filter.rules]]
name = "ping"
action = "rate-limit"
rate = 100
icmp = "echo-request"
[[filter.rules]]
name = "mail"
action = "accept"
from = "10.0.0.0/8"
to = ["@all", "203.0.113.1"]
to-port = ["@mail", "1024-2000"]
protocol = "tcp"
flags = "syn/syn,ack,rst"
in = "lan"
out = ["wan"]
[[filter.rules]]
action = "reject"
with = "prohibited"
dscp = ["ef", 10]
length = "0-100"
vlan = 7
fragment = "later"
"#;
    let checked = checked(text).unwrap_or_else(|wrong| panic!("{wrong}"));
    let rules = &checked.config.filter;
    assert_eq!(
        ["ping", "mail", "3"],
        [0, 1, 2].map(|at: usize| rules[at].name.as_str())
    );
    assert_eq!((100, 100), rules[0].rate);
    assert_eq!(vec![1, 58], rules[0].selection.protocols);
    assert_eq!(
        [vec![(0x800, 0x8ff)], vec![(0x8000, 0x80ff)]],
        rules[0].selection.messages
    );
    // One source, 4 IPv4 destinations and 4 port ranges. There are no combinations for IPv6, since the source is IPv4.
    assert_eq!(4 * 4, rules[1].selection.combinations());
    assert_eq!(2 + 2, rules[2].selection.combinations());
    assert_eq!(0, checked.advice.findings().len());
}

#[test]
fn filter_protocols_are_numbers_in_both_families_and_messages_are_of_their_own() {
    let selection = |keys: &str| checked(&rule(keys)).unwrap().config.filter[0].selection.clone();
    let of =
        |keys: &str| [false, true].map(|v6| selection(keys).concerns(v6).then(|| selection(keys).protocols_of(v6)));
    assert_eq!([Some(vec![58]), Some(vec![58])], of("protocol = [\"58\"]"));
    assert_eq!([Some(vec![1]), Some(vec![1])], of("protocol = \"icmp\""));
    assert_eq!(
        [Some(vec![58, 6]), Some(vec![58, 6])],
        of("protocol = [\"icmpv6\", \"tcp\"]")
    );
    assert_eq!([Some(vec![1]), Some(vec![58])], of("icmp = \"echo-request\""));
    assert_eq!([Some(vec![1]), None], of("icmp = 13\nprotocol = \"icmp\""));
    assert_eq!([Some(vec![58]), None], of("from = \"10.0.0.1\"\nprotocol = \"icmpv6\""));
}

#[test]
fn filter_rule_with_out_gateway_is_about_packets_to_the_gateway_itself() {
    let selection = |keys: &str| checked(&rule(keys)).unwrap().config.filter[0].selection.clone();
    let ways_out = |keys: &str| (selection(keys).gateway, selection(keys).outgoing);
    assert_eq!((false, vec![]), ways_out("to-port = 22"));
    assert_eq!((true, vec![]), ways_out("out = \"gateway\""));
    assert_eq!((true, vec![(1, 1)]), ways_out("out = [\"wan\", \"gateway\"]"));
    assert_eq!((false, vec![(0, 0), (2, u16::MAX)]), ways_out("out = \"!wan\""));
    let [all, own, both, wan] = [
        "to-port = 22",
        "out = \"gateway\"",
        "out = [\"gateway\", \"wan\"]",
        "out = \"wan\"",
    ]
    .map(selection);
    // Expected: whether the first selection covers the second.
    for (one, other, expected) in [
        (&all, &own, false),
        (&own, &all, false),
        (&both, &own, true),
        (&both, &wan, true),
        (&own, &both, false),
        (&wan, &both, false),
    ] {
        assert_eq!(expected, one.covers(other), "{one:?} {other:?}");
    }
    // An interface named `gateway` takes precedence over the gateway itself.
    let called = format!(
        "[interfaces.gateway]\ndevice = \"null:\"\n{}",
        rule("out = \"gateway\"")
    );
    let selection = checked(&called).unwrap().config.filter[0].selection.clone();
    assert_eq!((false, vec![(2, 2)]), (selection.gateway, selection.outgoing));
}

#[test]
fn filter_values_with_a_sign_mean_all_others() {
    let selection = |keys: &str| checked(&rule(keys)).unwrap().config.filter[0].selection.clone();
    let ranges = |text: &[&str]| {
        let range = |text: &&str| {
            let (first, last) = text.split_once('-').unwrap();
            (first.parse().unwrap(), last.parse().unwrap())
        };
        text.iter().map(range).collect::<Vec<_>>()
    };
    // Interfaces lan and wan have the numbers 0 and 1.
    assert_eq!(vec![(1, u16::MAX)], selection("in = \"!lan\"").incoming);
    assert_eq!(vec![(2, u16::MAX)], selection("out = [\"!wan\", \"!lan\"]").outgoing);
    assert_eq!(
        vec![(0, 21), (23, 79), (91, u16::MAX)],
        selection("to-port = [\"!22\", \"!80-90\"]").destination_ports
    );
    let others = selection("protocol = \"!tcp\"").protocols;
    assert_eq!((255, false), (others.len(), others.contains(&6)));
    // The complement has only the address family of the given addresses.
    let one = selection("from = \"!10.0.0.0/8\"");
    assert_eq!(
        ranges(&["0.0.0.0-9.255.255.255", "11.0.0.0-255.255.255.255"]),
        one.sources
    );
    assert_eq!([true, false], [false, true].map(|v6| one.concerns(v6)));
    assert_eq!(
        ranges(&["0.0.0.1-255.255.255.254"]),
        selection("to = [\"!255.255.255.255\", \"! 0.0.0.0\"]").destinations
    );
    let group = "to = \"!@web\"\n[filter.addresses]\nweb = [\"10.0.0.1\", \"::/1\", \"10.0.0.2-10.0.0.9\"]";
    assert_eq!(
        ranges(&[
            "0.0.0.0-10.0.0.0",
            "10.0.0.10-255.255.255.255",
            "8000::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
        ]),
        selection(group).destinations
    );
}

#[test]
fn filter_signs_that_contradict_each_other_are_refused() {
    assert_eq!(
        ["3: [\"!lan\", \"wan\"]: negated and plain values are mixed"],
        *wrong(&rule("in = [\"!lan\", \"wan\"]"))
    );
    assert_eq!(
        ["3: \"!0.0.0.0/0\": every possible value is excluded: no packet matches"],
        *wrong(&rule("from = \"!0.0.0.0/0\""))
    );
    assert_eq!(
        ["4: 80: `to-port` is only for tcp and udp, but the protocol of the rule is !udp"],
        *wrong(&rule("protocol = \"!udp\"\nto-port = 80"))
    );
    assert_eq!(
        ["3: \"!dmz\": there is no interface `dmz`"],
        *wrong(&rule("in = \"!dmz\""))
    );
}

#[test]
fn filter_rule_of_messages_of_one_family_covers_none_of_the_other() {
    let keys = "icmp = \"timestamp-request\"\n[[filter.rules]]\naction = \"drop\"\nicmp = 13";
    let checked = checked(&rule(keys)).unwrap();
    let rules = &checked.config.filter;
    assert_eq!(
        [[1, 0], [1, 1]],
        [0, 1].map(|at: usize| rules[at].selection.messages.each_ref().map(Vec::len))
    );
    assert!(!rules[0].selection.covers(&rules[1].selection));
    assert!(rules[1].selection.covers(&rules[0].selection));
}

#[test]
fn filter_with_impossible_values_is_refused_at_its_place() {
    assert_eq!(
        ["3: \"10.0.0.9-10.0.0.1\": the range `10.0.0.9-10.0.0.1` ends before it begins"],
        *wrong(&rule("from = \"10.0.0.9-10.0.0.1\""))
    );
    assert_eq!(
        ["3: \"10.0.0.1-2001:db8::1\": `10.0.0.1-2001:db8::1` mixes IPv4 and IPv6"],
        *wrong(&rule("from = \"10.0.0.1-2001:db8::1\""))
    );
    assert_eq!(
        ["4: \"2001:db8::1\": source and destination addresses are of different families: no packet matches"],
        *wrong(&rule("from = \"10.0.0.1\"\nto = \"2001:db8::1\""))
    );
    assert_eq!(
        ["4: 80: `to-port` is only for tcp and udp, but the protocol of the rule is icmp"],
        *wrong(&rule("protocol = \"icmp\"\nto-port = 80"))
    );
    assert_eq!(
        ["4: \"packet-too-big\": `packet-too-big` is not a message type of the rule's protocol"],
        *wrong(&rule("protocol = \"icmp\"\nicmp = \"packet-too-big\""))
    );
    assert_eq!(
        ["3: \"dmz\": there is no interface `dmz`"],
        *wrong(&rule("in = \"dmz\""))
    );
    assert_eq!(
        ["3: 9: `rate` needs the action `rate-limit`"],
        *wrong(&rule("rate = 9"))
    );
    assert_eq!(
        ["3: \"0x1\": `new-mark` needs the action `set-mark`"],
        *wrong(&rule("new-mark = \"0x1\""))
    );
    assert_eq!(
        ["4: \"set-mark\": the action set-mark needs the key `new-mark`"],
        *wrong("[filter]\n[[filter.rules]]\nname = \"x\"\n\naction = \"set-mark\"\n")
    );
    assert_eq!(
        ["3: \"ef\": `new-dscp` needs the action `set-dscp`"],
        *wrong(&rule("new-dscp = \"ef\""))
    );
    assert_eq!(
        ["3: \"0x11/0xf0\": `0x11/0xf0` is not a mark"],
        *wrong(&rule("mark = \"0x11/0xf0\""))
    );
    assert_eq!(
        ["3: 5000: 5000 is out of range for a VLAN"],
        *wrong(&rule("vlan = 5000"))
    );
    assert_eq!(
        ["3: \"0-256\": 256 is out of range for a TTL"],
        *wrong(&rule("ttl = \"0-256\""))
    );
}

#[test]
fn filter_groups_that_are_wrong_are_refused_by_name() {
    let with =
        |groups: &str, keys: &str| format!("[filter.addresses]\n{groups}\n{}", rule(keys).replace("[filter]\n", ""));
    let of = |groups: &str, keys: &str| {
        wrong(&with(groups, keys))
            .into_iter()
            .map(|line| line[3..].to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ["[\"@a\"]: group `a` contains itself, directly or through other groups"],
        *of("a = [\"@a\"]", "")
    );
    let circle = of("a = \"@b\"\nb = \"@c\"\nc = \"@a\"", "");
    assert_eq!(
        ["\"@a\": group `a` contains itself, directly or through other groups"],
        *circle
    );
    assert_eq!(
        ["\"@web\": there is no group of addresses named `web`"],
        *of("wob = \"10.0.0.1\"", "to = \"@web\"")
    );
    assert_eq!(["[]: group `none` is empty"], *of("none = []", ""));
}

#[test]
fn filter_sets_are_named_as_groups_are() {
    let text = r#"
[filter.sets.banned]
size = 100
timeout = "1h"
elements = ["192.0.2.1", "2001:db8::1"]
[filter.sets.seen]
[[filter.rules]]
action = "drop"
from = "@banned"
to = "!@seen"
[[filter.rules]]
action = "add-to-set"
set = "seen"
"#;
    let checked = checked(text).unwrap_or_else(|wrong| panic!("{wrong}"));
    let config = &checked.config;
    let names: Vec<_> = config.filter_sets.iter().map(|set| set.name.as_str()).collect();
    assert_eq!(["banned", "seen"], *names);
    assert_eq!(100, config.filter_sets[0].settings.size);
    let sets = &config.filter[0].selection.sets;
    let named = sets.each_ref().map(|set| set.as_ref().map(ToString::to_string));
    assert_eq!([Some("banned".into()), Some("!seen".into())], named);
    assert_eq!(Some("seen"), config.filter[1].adds_to.as_deref());
    assert_eq!(
        [true, true],
        [false, true].map(|v6| config.filter[0].selection.concerns(v6))
    );
}

#[test]
fn filter_sets_that_are_wrong_are_refused_at_their_place() {
    let with = |sets: &str, keys: &str| wrong(&format!("{sets}\n{}", rule(keys).replace("[filter]\n", "")));
    let one = "[filter.sets.a]\nsize = 1";
    assert_eq!(
        ["1: 0: 0 is out of range for a size"],
        *with("[filter.sets.a]\nsize = 0", "")
    );
    assert_eq!(
        ["4: [\"@a\", \"10.0.0.1\"]: the list combines set `a` with other values"],
        *with(one, "from = [\"@a\", \"10.0.0.1\"]")
    );
    assert_eq!(
        ["4: \"a\": `set` needs the action `add-to-set`"],
        *with(one, "set = \"a\"")
    );
    assert_eq!(
        ["2: [\"10.0.0.1\", \"10.0.0.2\"]: 2 elements exceed the size 1 of the set"],
        *with("[filter.sets.a]\nsize = 1\nelements = [\"10.0.0.1\", \"10.0.0.2\"]", "")
    );
    let both = "[filter.addresses]\na = \"10.0.0.1\"\n[filter.sets.a]";
    assert_eq!(
        ["2: [filter.sets.a]: `a` is already the name of a group"],
        *with(both, "")
    );
    assert_eq!(
        ["4: \"b\": there is no set `b`"],
        *wrong("[filter.sets.a]\n[[filter.rules]]\naction = \"add-to-set\"\n\nset = \"b\"")
    );
}

#[test]
fn filter_sets_have_networks_or_ports() {
    let text = r#"
[filter.ports]
mail = [25, 587]
[filter.sets.bogons]
type = "networks"
size = 5
elements = ["10.0.0.0/8", "2001:db8::/32", "192.0.2.1-192.0.2.3", "198.51.100.1"]
[filter.sets.open]
type = "ports"
size = 4
elements = [80, "8080-8082"]
[[filter.rules]]
action = "drop"
from = "@bogons"
from-port = "!@open"
[[filter.rules]]
action = "accept"
to-port = "@open"
protocol = "tcp"
[[filter.rules]]
action = "add-to-set"
set = "bogons"
to-port = "@mail"
"#;
    let checked = checked(text).unwrap_or_else(|wrong| panic!("{wrong}"));
    let rules = &checked.config.filter;
    let selection = |at: usize| &rules[at].selection;
    let names = |at: usize| {
        selection(at)
            .port_sets
            .each_ref()
            .map(|set| set.as_ref().map(ToString::to_string))
    };
    assert_eq!([Some("!open".into()), None], names(0));
    assert_eq!([None, Some("open".into())], names(1));
    assert_eq!(
        (vec![6, 17], vec![6]),
        (selection(0).protocols.clone(), selection(1).protocols.clone())
    );
    assert!(selection(0).source_ports.is_empty() && selection(2).destination_ports.len() == 2);
    let asked_alone = [0, 1, 2].map(|at| selection(at).is_evaluated_individually());
    assert_eq!([true, true, false], asked_alone);
}

#[test]
fn filter_sets_with_elements_of_another_type_are_refused_at_their_place() {
    let set = |keys: &str| wrong(&format!("[filter.sets.a]\n{keys}"));
    assert_eq!(
        ["2: [\"10.0.0.0/8\"]: `10.0.0.0/8` does not fit into a set of single addresses"],
        *set("\nelements = [\"10.0.0.0/8\"]")
    );
    assert_eq!(
        ["2: [80]: `80` does not fit into a set of networks"],
        *set("type = \"networks\"\nelements = [80]")
    );
    assert_eq!(
        ["2: [\"10.0.0.1\"]: `10.0.0.1` does not fit into a set of ports"],
        *set("type = \"ports\"\nelements = [\"10.0.0.1\"]")
    );
    assert_eq!(
        ["3: [\"1-9\"]: 9 elements exceed the size 8 of the set"],
        *set("type = \"ports\"\nsize = 8\nelements = [\"1-9\"]")
    );
    // The range is split into .1 and .2-.3.
    assert_eq!(
        ["3: [\"10.0.0.1-10.0.0.3\"]: 2 elements exceed the size 1 of the set"],
        *set("type = \"networks\"\nsize = 1\nelements = [\"10.0.0.1-10.0.0.3\"]")
    );
    assert_eq!(
        ["2: 65537: 65537 is out of range for a size"],
        *set("type = \"ports\"\nsize = 65537")
    );
    let [reversed] = &set("type = \"ports\"\nelements = [\"9-1\"]")[..] else {
        panic!("one thing is wrong");
    };
    assert!(
        reversed.ends_with("the range `9-1` ends before it begins"),
        "{reversed}"
    );
    let ports = "[filter.sets.a]\ntype = \"ports\"\n[[filter.rules]]\n";
    assert_eq!(
        ["3: \"@a\": there is no group of addresses named `a`"],
        *wrong(&format!("{ports}from = \"@a\"\naction = \"drop\""))
    );
    assert_eq!(
        ["4: \"a\": set `a` contains ports, but `add-to-set` adds addresses"],
        *wrong(&format!("{ports}action = \"add-to-set\"\nset = \"a\""))
    );
    assert_eq!(
        ["3: [\"@a\", 80]: the list combines set `a` with other values"],
        *wrong(&format!("{ports}to-port = [\"@a\", 80]\naction = \"drop\""))
    );
    let both = "[filter.ports]\na = 80\n[filter.sets.a]\ntype = \"ports\"";
    assert_eq!(["2: [filter.sets.a]: `a` is already the name of a group"], *wrong(both));
}

#[test]
fn filter_rules_without_tracking_are_refused_where_something_needs_a_session() {
    let tracks = |keys: &str| checked(&rule(keys)).unwrap().config.filter[0].track;
    assert_eq!([false, true, true], ["track = false", "track = true", ""].map(tracks));
    let applications = "application = \"TLS\"\n[applications]\ninterfaces = [\"lan\"]";
    assert_eq!(
        ["3: false: `application` needs a session, but `track = false` creates no session"],
        *wrong(&rule(&format!("track = false\n{applications}")))
    );
    assert_eq!(
        ["4: false: `track` needs the action `accept`"],
        *wrong("[filter]\n[[filter.rules]]\nname = \"a\"\naction = \"drop\"\ntrack = false\n")
    );
    assert_eq!(
        ["4: false: `track` needs a stateful filter"],
        *wrong("[filter]\nsessions = false\n[[filter.rules]]\naction = \"accept\"\ntrack = false\n")
    );
    // The order of the rules determines whether a session is created, so neither rule is redundant.
    let twice = checked(&rule("track = false\n[[filter.rules]]\naction = \"accept\"")).unwrap();
    let advice = twice.advice.findings();
    assert!(
        advice[0].message.contains("with another action"),
        "{}",
        advice[0].message
    );
}

#[test]
fn filter_code_points_of_congestion_belong_to_their_action() {
    let set = "[filter]\n[[filter.rules]]\naction = \"set-ecn\"\n";
    assert_eq!(
        ["2: \"set-ecn\": the action set-ecn needs the key `new-ecn`"],
        *wrong(set)
    );
    let rules = checked(&format!("{set}new-ecn = \"ect0\""))
        .unwrap()
        .config
        .filter
        .clone();
    assert_eq!(Some(2), rules[0].new_ecn);
    assert_eq!(
        ["3: \"ce\": `new-ecn` needs the action `set-ecn`"],
        *wrong(&rule("new-ecn = \"ce\""))
    );
    let [wrong] = &wrong(&format!("{set}new-ecn = \"on\""))[..] else {
        panic!("one thing is wrong");
    };
    assert!(wrong.starts_with("3: \"on\": "), "{wrong}");
}

#[test]
fn filter_groups_that_multiply_are_refused_in_no_time() {
    let mut groups = "g0 = [\"10.0.0.1\", \"10.0.0.2\"]\n".to_owned();
    for level in 1..16 {
        let before = format!("\"@g{}\",", level - 1);
        groups += &format!("g{level} = [{}]\n", before.repeat(9));
    }
    let text = format!("[filter.addresses]\n{groups}[[filter.rules]]\naction = \"drop\"\nfrom = \"@g15\"\n");
    let found = wrong(&text);
    assert!(found.iter().any(|line| line.contains("combinations")), "{found:?}");
}

#[test]
fn filter_rules_that_never_decide_are_advised_about() {
    let text = r#"
[filter]
[[filter.rules]]
name = "wide"
action = "accept"
from = "10.0.0.0/8"
protocol = ["tcp", "udp"]
[[filter.rules]]
name = "same"
action = "accept"
from = ["10.1.0.0/16", "10.2.0.0/16"]
to-port = 80
[[filter.rules]]
name = "other"
action = "drop"
from = "10.1.2.3"
protocol = "udp"
[[filter.rules]]
name = "icmp"
action = "drop"
from = "10.1.2.3"
[[filter.rules]]
name = "eleven"
action = "accept"
from = "11.1.2.3"
protocol = "tcp"
"#;
    let advice: Vec<_> = checked(text)
        .unwrap_or_else(|wrong| panic!("{wrong}"))
        .advice
        .findings();
    let messages: Vec<_> = advice.iter().map(|finding| finding.message.as_str()).collect();
    assert_eq!(
        [
            "`wide` matches all packets of `same`, with the same action: the rule is redundant",
            "`wide` matches all packets of `other`, with another action: the rule never matches",
        ],
        *messages
    );
}
