//! Tests of the import of iptables and nftables listings.

use indexmap::IndexMap;
use sluice_config::import::{Imported, Source, import, text};
use sluice_config::memory::EntryBytes;
use sluice_config::schema::{Action, RejectWith, Verdict};
use sluice_config::value::Target;
use sluice_config::{Checked, Machine, check};

fn imported(texts: &[&str], addresses: &[(&str, &str)]) -> Imported {
    let sources: Vec<_> = texts.iter().map(|text| Source { name: "listing", text }).collect();
    let addresses: IndexMap<_, _> = addresses
        .iter()
        .map(|(name, address)| ((*name).to_owned(), address.parse().unwrap()))
        .collect();
    let imported = import(&sources, None, &addresses).unwrap_or_else(|wrong| panic!("{wrong}"));
    let checked = read_again(&imported);
    assert_eq!(imported.document.filter, checked.config.document.filter);
    assert_eq!(imported.document.nat, checked.config.document.nat);
    imported
}

fn read_again(imported: &Imported) -> Checked {
    let machine = Machine {
        cores: vec![0, 1],
        memory: 1 << 40,
        entry: EntryBytes::default(),
    };
    let text = imported.print().unwrap();
    // A configuration must have an interface, but a listing may contain none.
    let stub = match imported.document.interfaces.is_empty() {
        true => "\n[interfaces.any]\ndevice = \"null:\"\n",
        false => "",
    };
    check("imported", &format!("{text}{stub}"), &machine).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"))
}

fn forward(policy: &str, rules: &str) -> Imported {
    imported(
        &[&format!(
            "*filter\n:FORWARD {policy} [0:0]\n:sub - [0:0]\n{rules}\nCOMMIT\n"
        )],
        &[],
    )
}

fn translated(rules: &str, addresses: &[(&str, &str)]) -> Imported {
    let text = format!("*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n{rules}\nCOMMIT\n");
    imported(&[&text], addresses)
}

/// The rules without default values, one line each.
fn rules(imported: &Imported) -> Vec<String> {
    let filter = imported.document.filter.as_ref().expect("there is a filter");
    let rule = |rule| {
        toml::to_string(rule)
            .unwrap()
            .trim()
            .replace('\n', ", ")
            .replace('"', "'")
    };
    filter.rules.iter().map(rule).collect()
}

/// Lines that were not converted, with the reasons.
fn left(imported: &Imported) -> Vec<String> {
    let line = |left: &sluice_config::import::Leftover| format!("{}: {}", left.line.unwrap_or(0), left.reason);
    imported.leftovers.iter().map(line).collect()
}

fn refused(text: &str) -> String {
    let source = Source { name: "listing", text };
    import(&[source], None, &IndexMap::new())
        .expect_err("it is no listing")
        .to_string()
}

const NONE: [&str; 0] = [];

#[test]
fn iptables_conditions_become_keys() {
    for (listed, key) in [
        ("-s 10.0.0.0/255.0.0.0", "from = '10.0.0.0/8'"),
        (
            "! -d 10.0.0.0/8",
            "to = ['0.0.0.0-9.255.255.255', '11.0.0.0-255.255.255.255']",
        ),
        ("-m iprange --src-range 10.0.0.1-10.0.0.9", "from = '10.0.0.1-10.0.0.9'"),
        (
            "-s 10.0.0.1/32 -p tcp -m tcp --dport 22",
            "from = '10.0.0.1', protocol = 'tcp', to-port = '22'",
        ),
        (
            "-s 10.0.0.1/32 -p udp -m multiport --sports 1:9,53",
            "from = '10.0.0.1', protocol = 'udp', from-port = ['1-9', '53']",
        ),
        ("-p icmp -m icmp --icmp-type 3/4", "protocol = 'icmp', icmp = '3/4'"),
        (
            "-p icmp -m icmp --icmp-type any",
            "from = '0.0.0.0/0', protocol = 'icmp'",
        ),
        (
            "-s 10.0.0.1/32 -p tcp -m tcp --tcp-flags SYN,ACK SYN",
            "from = '10.0.0.1', protocol = 'tcp', flags = 'syn/syn,ack'",
        ),
        ("-d 10.0.0.1/32 -f", "to = '10.0.0.1', fragment = 'later'"),
        ("-d 10.0.0.1/32 -m dscp --dscp 0x2e", "to = '10.0.0.1', dscp = 'ef'"),
        (
            "-d 10.0.0.1/32 -m length --length 0:100",
            "to = '10.0.0.1', length = '0-100'",
        ),
        (
            "-d 10.0.0.1/32 -i eth0 -o eth1",
            "to = '10.0.0.1', in = 'eth0', out = 'eth1'",
        ),
        (
            "-d 10.0.0.1/32 -m ecn ! --ecn-ip-ect 0",
            "to = '10.0.0.1', ecn = ['ect1', 'ect0', 'ce']",
        ),
        (
            "-d 10.0.0.1/32 -m mac ! --mac-source 02:00:00:00:00:01",
            "to = '10.0.0.1', from-mac = '!02:00:00:00:00:01'",
        ),
        ("-d 10.0.0.1/32 ! -i eth0", "to = '10.0.0.1', in = '!eth0'"),
        // Linux decrements the TTL before its chains see a forwarded packet.
        ("-d 10.0.0.1/32 -m ttl --ttl-eq 1", "to = '10.0.0.1', ttl = '2'"),
        ("-d 10.0.0.1/32 -m ttl --ttl-lt 5", "to = '10.0.0.1', ttl = '0-5'"),
        ("-d 10.0.0.1/32 -m ttl --ttl-gt 63", "to = '10.0.0.1', ttl = '65-255'"),
    ] {
        let imported = forward("DROP", &format!("-A FORWARD {listed} -j ACCEPT"));
        assert_eq!(NONE, *left(&imported), "{listed}");
        assert_eq!([format!("action = 'accept', {key}")], *rules(&imported), "{listed}");
    }
}

#[test]
fn iptables_conditions_without_counterpart_are_listed() {
    for (listed, why) in [
        ("-m limit --limit 5/sec", "match `limit` has no counterpart"),
        (
            "-m set --match-set bad src",
            "set `bad` is not listed: add the output of `ipset save` as a further file",
        ),
        ("-m mark --mark 0x1", "match `mark` has no counterpart"),
        (
            "-i eth+",
            "the interface pattern `eth+` has no counterpart: each interface must be named",
        ),
        (
            "-p sctp -m multiport --dports 99",
            "ports can be matched only for tcp and udp",
        ),
        ("-s 10.0.0.0/255.0.255.0", "the mask is not contiguous"),
        ("-m conntrack --ctstate DNAT", "state `DNAT` has no counterpart"),
        (
            "-p tcp -m tcp --dport 99999",
            "`99999` is not a number or a range of numbers up to 65535",
        ),
        ("-m ttl --ttl-eq 256", "`256` is not a number from 0 to 255"),
        ("--frobnicate 7", "option `--frobnicate` has no counterpart"),
    ] {
        let imported = forward("DROP", &format!("-A FORWARD {listed} -j ACCEPT"));
        assert_eq!([format!("4: {why}")], *left(&imported), "{listed}");
        assert_eq!(NONE, *rules(&imported));
        assert!(imported.print().unwrap().contains(listed), "{listed}");
    }
}

#[test]
fn iptables_targets_become_actions() {
    let with = |target: &str| {
        let imported = forward("ACCEPT", &format!("-A FORWARD -p tcp {target}"));
        let filter = imported.document.filter.clone();
        let rule = filter.and_then(|filter| filter.rules.into_iter().next());
        (rule.map(|rule| (rule.action, rule.with, rule.name)), left(&imported))
    };
    let plain = |action, with| (Some((action, with, None)), Vec::new());
    assert_eq!(plain(Action::Drop, RejectWith::Reset), with("-j DROP"));
    assert_eq!(
        plain(Action::Reject, RejectWith::Reset),
        with("-j REJECT --reject-with tcp-reset")
    );
    assert_eq!(
        plain(Action::Reject, RejectWith::PortUnreachable),
        with("-j REJECT --reject-with icmp-port-unreachable")
    );
    assert_eq!(
        plain(Action::Reject, RejectWith::Prohibited),
        with("-j REJECT --reject-with icmp-admin-prohibited")
    );
    assert_eq!(plain(Action::Count, RejectWith::Reset), with(""));
    let log = Some((Action::Log, RejectWith::Reset, Some("web-in".into())));
    assert_eq!(
        (log, Vec::new()),
        with("-j LOG --log-prefix \"web in: \" --log-level 6")
    );
    let host = "4: the reply `icmp-host-unreachable` to senders has no counterpart".to_owned();
    assert_eq!(
        (None, vec![host]),
        with("-j REJECT --reject-with icmp-host-unreachable")
    );
    let queue = "4: target `NFQUEUE` has no counterpart".to_owned();
    assert_eq!((None, vec![queue]), with("-j NFQUEUE --queue-num 1"));
}

#[test]
fn iptables_reset_of_any_protocol_is_listed() {
    let imported = forward("ACCEPT", "-A FORWARD -j REJECT --reject-with tcp-reset");
    assert_eq!(["4: a reset can be sent only for tcp"], *left(&imported));
}

#[test]
fn iptables_chains_are_made_flat() {
    let text = "-A FORWARD -s 10.0.0.0/8 -j sub\n-A FORWARD -j DROP\n-A sub -d 192.0.2.0/24 -j ACCEPT\n\
                -A sub -s 10.9.0.0/16 -j RETURN\n-A sub -s 11.0.0.0/8 -j ACCEPT\n-A sub -j ACCEPT";
    let imported = forward("ACCEPT", text);
    assert_eq!(NONE, *left(&imported));
    assert_eq!(
        [
            "action = 'accept', from = '10.0.0.0/8', to = '192.0.2.0/24'",
            "action = 'accept', from = ['10.0.0.0-10.8.255.255', '10.10.0.0-10.255.255.255']",
            "action = 'drop', from = '0.0.0.0/0'",
        ],
        *rules(&imported)
    );
    let notes: Vec<_> = imported
        .notes
        .iter()
        .map(|note| (note.line, note.reason.as_str()))
        .collect();
    assert_eq!([(Some(8), "no packet reaches this line")], *notes);
}

#[test]
fn iptables_chain_behind_a_line_that_is_listed_is_listed() {
    let imported = forward("DROP", "-A FORWARD -m limit --limit 1/sec -j sub\n-A sub -j ACCEPT");
    assert_eq!(
        [
            "4: match `limit` has no counterpart",
            "5: no converted rule leads to chain `sub`"
        ],
        *left(&imported)
    );
}

#[test]
fn iptables_policy_becomes_the_default() {
    let of = |policy, rules| forward(policy, rules).document.filter.map(|filter| filter.default);
    assert_eq!(Some(Verdict::Drop), of("DROP", ""));
    assert_eq!(Some(Verdict::Accept), of("ACCEPT", "-A FORWARD -s 10.0.0.1/32 -j DROP"));
    assert_eq!(None, of("ACCEPT", ""));
}

const ESTABLISHED: &str = "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT";

#[test]
fn iptables_state_first_is_sessions() {
    let imported = forward(
        "DROP",
        &format!("{ESTABLISHED}\n-A FORWARD -m state --state INVALID -j DROP\n-A FORWARD -i eth1 -j ACCEPT"),
    );
    assert_eq!(NONE, *left(&imported));
    assert_eq!(
        [Some(4), Some(5)],
        *imported.notes.iter().map(|note| note.line).collect::<Vec<_>>()
    );
    assert!(imported.document.filter.as_ref().unwrap().sessions);
    assert_eq!(
        ["action = 'accept', from = '0.0.0.0/0', in = 'eth1'"],
        *rules(&imported)
    );
    assert!(
        !forward("DROP", "-A FORWARD -i eth1 -j ACCEPT")
            .document
            .filter
            .unwrap()
            .sessions
    );
}

#[test]
fn iptables_state_of_one_way_is_sessions_where_that_is_the_way_back() {
    let text = "-A FORWARD -i eth0 -o eth1 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A FORWARD -i eth1 -o eth0 -j ACCEPT";
    assert_eq!(NONE, *left(&forward("DROP", text)));
    let text = format!("{text}\n-A FORWARD -i eth2 -o eth0 -j ACCEPT");
    assert_eq!(
        ["4: with `sessions = true`, all later packets of a flow pass; the listing refuses some"],
        *left(&forward("DROP", &text))
    );
}

#[test]
fn iptables_state_of_new_packets_alone_is_listed_where_later_ones_do_not_pass() {
    let rule = "-A FORWARD -s 10.0.0.0/8 -m conntrack --ctstate NEW -j ACCEPT";
    assert_eq!(
        ["4: with `sessions = true`, all later packets of a flow pass; the listing refuses some"],
        *left(&forward("DROP", rule))
    );
    assert_eq!(NONE, *left(&forward("DROP", &format!("{ESTABLISHED}\n{rule}"))));
}

#[test]
fn iptables_state_behind_a_refusal_is_listed() {
    let imported = forward(
        "DROP",
        &format!("-A FORWARD -s 192.0.2.1/32 -j DROP\n{ESTABLISHED}\n-A FORWARD -i eth1 -j ACCEPT"),
    );
    assert_eq!(
        ["5: with `sessions = true`, all later packets of a flow pass; line 4 refuses some"],
        *left(&imported)
    );
}

#[test]
fn iptables_families_make_one_filter() {
    let text = |v6: &str, policy: &str, net: &str| {
        format!(
            "# Generated by ip{v6}tables-save\n*filter\n:FORWARD {policy} [0:0]\n-A FORWARD -s {net} -j DROP\nCOMMIT\n"
        )
    };
    let imported = imported(
        &[&text("", "DROP", "10.0.0.0/8"), &text("6", "ACCEPT", "2001:db8::/32")],
        &[],
    );
    assert_eq!(
        [
            "action = 'drop', from = '10.0.0.0/8'",
            "action = 'drop', from = '2001:db8::/32'",
            "action = 'accept', from = '::/0'"
        ],
        *rules(&imported)
    );
    assert_eq!(Verdict::Drop, imported.document.filter.unwrap().default);
}

/// Notes on lines that were converted to a different form.
fn noted(imported: &Imported) -> Vec<String> {
    let line = |note: &sluice_config::import::Leftover| format!("{}: {}", note.line.unwrap_or(0), note.reason);
    imported.notes.iter().map(line).collect()
}

/// Import an IPv4 INPUT chain.
fn input(policy: &str, rules: &str) -> Imported {
    let text = format!("*filter\n:INPUT {policy} [0:0]\n:sub - [0:0]\n{rules}\nCOMMIT\n");
    imported(&[&text], &[])
}

#[test]
fn iptables_input_becomes_rules_about_the_gateway() {
    let found = input(
        "DROP",
        "-A INPUT -i lo -j ACCEPT\n\
         -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
         -A INPUT -m conntrack --ctstate INVALID -j DROP\n\
         -A INPUT -p tcp -m tcp --dport 22 -m conntrack --ctstate NEW -j ACCEPT\n\
         -A INPUT -i eth0 -j sub\n\
         -A sub -p icmp -m icmp --icmp-type 8 -j ACCEPT\n\
         -A sub -p udp -m udp --dport 53 -j REJECT --reject-with icmp-port-unreachable",
    );
    assert_eq!(NONE, *left(&found));
    assert_eq!(
        [
            "action = 'accept', from = '0.0.0.0/0', protocol = 'tcp', to-port = '22', out = 'gateway'",
            "action = 'accept', protocol = 'icmp', icmp = '8', in = 'eth0', out = 'gateway'",
            "action = 'reject', from = '0.0.0.0/0', protocol = 'udp', to-port = '53', in = 'eth0', out = 'gateway', with = 'port-unreachable'",
            "action = 'drop', out = 'gateway'",
        ],
        *rules(&found)
    );
    assert_eq!(
        [
            "4: packets that the host sends to itself through the loopback interface do not reach Sluice",
            "5: not needed: later packets of a flow to the gateway, and ICMP errors about the flow, pass without a rule",
            "6: not needed: a packet to the gateway either belongs to a flow or is evaluated like the first packet of a flow",
        ],
        *noted(&found)
    );
    // The input chain does not cause any filtering of forwarded packets.
    let filter = found.document.filter.as_ref().unwrap();
    assert_eq!((Verdict::Accept, false), (filter.default, filter.sessions));
    assert_eq!(["eth0"], *found.document.interfaces.keys().collect::<Vec<_>>());
    read_again(&found);
}

#[test]
fn iptables_input_that_refuses_packets_of_flows_says_so() {
    let of_flows = "replies to flows of the gateway's host, and later packets of accepted flows, pass nevertheless";
    let found = input("DROP", "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT");
    assert_eq!([format!("2: {of_flows}")], *noted(&found));
    let found = input(
        "ACCEPT",
        "-A INPUT -s 192.0.2.0/24 -j DROP\n-A INPUT -m state --state ESTABLISHED -j ACCEPT\n-A INPUT -p tcp -m tcp --dport 23 -j DROP",
    );
    assert_eq!(
        [
            format!("4: {of_flows}"),
            "5: not needed: later packets of a flow to the gateway, and ICMP errors about the flow, pass without a rule".into()
        ],
        noted(&found)[..2]
    );
    assert_eq!(
        [
            "action = 'drop', from = '192.0.2.0/24', out = 'gateway'",
            "action = 'drop', from = '0.0.0.0/0', protocol = 'tcp', to-port = '23', out = 'gateway'",
        ],
        *rules(&found)
    );
}

#[test]
fn iptables_input_that_refuses_nothing_needs_no_rules() {
    let found = input("ACCEPT", "-A INPUT -i br0 -p tcp -m tcp --dport 22 -j ACCEPT");
    assert_eq!(None, found.document.filter);
    assert_eq!(
        ["4: not needed: packets to the gateway pass, because the chain refuses no packets"],
        *noted(&found)
    );
}

#[test]
fn iptables_input_of_an_interface_that_is_called_gateway_is_listed() {
    let found = input("DROP", "-A INPUT -i gateway -p tcp -m tcp --dport 22 -j ACCEPT");
    let called = "an interface is named `gateway`, but in rules of Sluice `gateway` means the gateway itself";
    assert_eq!([format!("2: {called}"), format!("4: {called}")], *left(&found));
    assert_eq!(None, found.document.filter);
}

#[test]
fn iptables_input_shares_chains_with_forward_and_names_are_told_apart() {
    let text = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:bad - [0:0]\n-A INPUT -j bad\n-A FORWARD -j bad\n\
                -A bad ! -o eth0 -s 192.0.2.1/32 -m comment --comment bad -j DROP\nCOMMIT\n";
    let found = imported(&[text], &[]);
    assert_eq!(NONE, *left(&found));
    assert_eq!(
        [
            "name = 'bad', action = 'drop', from = '192.0.2.1', out = '!eth0'",
            "name = 'bad-2', action = 'drop', from = '192.0.2.1', out = 'gateway'",
        ],
        *rules(&found)
    );
    read_again(&found);
}

#[test]
fn iptables_output_is_listed() {
    let text =
        "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT DROP [0:0]\n-A OUTPUT -o lo -j ACCEPT\nCOMMIT\n";
    assert_eq!(
        [
            "4: this chain has no counterpart, because packets that the gateway itself sends are not filtered",
            "5: chain `OUTPUT` of table filter has no counterpart"
        ],
        *left(&imported(&[text], &[]))
    );
}

#[test]
fn docker_any_interface_but_one_is_carried_where_others_decide_the_same() {
    let imported = imported(&[include_str!("import/docker.iptables")], &[]);
    assert_eq!(
        [
            "action = 'accept', to = '172.17.0.2', protocol = 'tcp', to-port = '80', out = 'docker0'",
            "action = 'accept', from = '0.0.0.0/0', in = 'docker0'",
            "action = 'accept', from = '0.0.0.0/0', in = 'docker0', out = 'docker0'",
        ],
        *rules(&imported)
    );
    let lines: Vec<_> = imported.leftovers.iter().filter_map(|left| left.line).collect();
    assert_eq!([8, 9, 10, 11, 12], *lines);
}

#[test]
fn gateway_of_a_whole_listing_is_carried_over() {
    let imported = imported(
        &[
            include_str!("import/gateway.iptables"),
            include_str!("import/gateway.ip6tables"),
        ],
        &[("eth0", "203.0.113.1/24")],
    );
    let lines: Vec<_> = imported.leftovers.iter().filter_map(|left| left.line).collect();
    assert_eq!([8, 40], *lines);
    let nat = &imported.document.nat;
    assert_eq!(
        (1, 4, 1, 1),
        (
            nat.source.len(),
            nat.destination.len(),
            nat.one_to_one.len(),
            nat.exempt.len()
        )
    );
    assert_eq!(3, nat.pools[0].reserved_ports.0.len());
}

#[test]
fn nft_ruleset_is_carried_over() {
    let imported = imported(&[include_str!("import/router.nft.json")], &[("wan0", "203.0.113.8/24")]);
    let places: Vec<_> = imported
        .leftovers
        .iter()
        .filter_map(|left| left.place.as_deref())
        .collect();
    assert_eq!(
        [
            // The rejections in the second table also apply to packets of existing flows.
            "inet filter forward handle 14",
            "inet filter forward handle 23",
            "inet filter inward handle 46",
            "ip nat pre handle 8",
            "ip nat pre handle 9",
            "ip nat post handle 14",
        ],
        *places
    );
    let rules = rules(&imported);
    let all = [
        "action = 'drop', from = ['10.1.1.1-10.1.1.9', '198.51.100.0/24', '203.0.113.66']",
        "action = 'accept', from = '10.0.0.1', protocol = 'tcp', to-port = '80'",
        "action = 'accept', protocol = 'icmp', icmp = '3/4', in = ['wan0', 'wan1'], out = 'lan0'",
        "action = 'accept', protocol = ['tcp', 'udp'], to-port = '53'",
        "name = 'fw-drop', action = 'log'",
    ];
    for rule in all {
        assert!(rules.iter().any(|other| other == rule), "{rule}\n{rules:#?}");
    }
    assert_eq!(
        (4, 4),
        (
            imported.document.nat.source.len(),
            imported.document.nat.destination.len()
        )
    );
}

const SETS: &str = "create banned hash:ip family inet hashsize 1024 maxelem 500 timeout 3600
add banned 192.0.2.7 timeout 0
add banned 192.0.2.8 timeout 371
create bogons hash:net family inet hashsize 1024 maxelem 65536 comment
add bogons 10.0.0.0/8 comment \"of RFC 1918\"
add bogons 192.0.2.1
create bogons6 hash:net family inet6 maxelem 65536
add bogons6 2001:db8::/32
create services bitmap:port range 0-65535
add services 80
add services 8000-8010
create hosts hash:ip,port family inet maxelem 65536
add hosts 10.0.0.5,tcp:80
add hosts 10.0.0.6,udp:53-54
create odd hash:net family inet maxelem 65536
add odd 10.0.0.0/8
add odd 10.1.0.0/16 nomatch
create several list:set size 8
add several banned
";

/// A filter with the sets to which its lines refer.
fn with_sets(rules: &str) -> Imported {
    let text = format!("*filter\n:FORWARD ACCEPT [0:0]\n:sub - [0:0]\n{rules}\nCOMMIT\n");
    imported(&[&text, SETS], &[])
}

#[test]
fn ipset_sets_that_rules_name_are_sets_of_the_filter() {
    for (listed, rule) in [
        (
            "-m set --match-set banned src -j DROP",
            "action = 'drop', from = '@banned'",
        ),
        (
            "-p tcp -m set ! --match-set bogons dst -m tcp --dport 80 -j DROP",
            "action = 'drop', from = '0.0.0.0/0', to = '!@bogons', protocol = 'tcp', to-port = '80'",
        ),
        (
            "-d 10.0.0.1/32 -m set ! --match-set bogons src -j DROP",
            "action = 'drop', from = '!@bogons', to = '10.0.0.1'",
        ),
        (
            "-p tcp -m set --match-set services dst -j DROP",
            "action = 'drop', from = '0.0.0.0/0', protocol = 'tcp', to-port = '@services'",
        ),
        (
            "-p tcp -m set --match-set banned src -m set ! --match-set services src -j DROP",
            "action = 'drop', from = '@banned', protocol = 'tcp', from-port = '!@services'",
        ),
        (
            "-p tcp -m tcp --dport 23 -j SET --add-set banned src --exist",
            "action = 'add-to-set', from = '0.0.0.0/0', protocol = 'tcp', to-port = '23', set = 'banned'",
        ),
    ] {
        let imported = with_sets(&format!("-A FORWARD {listed}"));
        assert_eq!(NONE, *left(&imported), "{listed}");
        assert_eq!([rule], *rules(&imported), "{listed}");
        let sets = &imported.document.filter.as_ref().unwrap().sets;
        assert!(
            !sets.is_empty() && sets.keys().all(|name| listed.contains(name)),
            "{listed}"
        );
    }
    let imported =
        with_sets("-A FORWARD -m set --match-set banned src -j DROP\n-A FORWARD -m set --match-set bogons src -j DROP");
    let sets = &imported.document.filter.as_ref().unwrap().sets;
    let elements = |name: &str| sets[name].elements.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(["192.0.2.7"], *elements("banned"));
    assert_eq!(["10.0.0.0/8", "192.0.2.1"], *elements("bogons"));
    let banned = &sets["banned"];
    assert_eq!(
        (500, Some("1h".into())),
        (banned.size, banned.timeout.map(|timeout| timeout.to_string()))
    );
    let notes: Vec<_> = imported.notes.iter().map(|note| note.reason.as_str()).collect();
    assert!(
        notes.iter().any(|note| note.starts_with("1 elements with a timeout")),
        "{notes:?}"
    );
    assert!(notes.contains(&"no converted rule uses set `services`"), "{notes:?}");
}

#[test]
fn ipset_sets_in_families_are_of_their_own() {
    let v6 = "# ip6tables-save\n*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -m set --match-set bogons6 src -j DROP\n\
               -A FORWARD -m set ! --match-set bogons6 src -p tcp -j DROP\nCOMMIT\n";
    let imported = imported(&[SETS, v6], &[]);
    assert_eq!(NONE, *left(&imported));
    assert_eq!(
        [
            "action = 'drop', from = '@bogons6'",
            "action = 'drop', from = '!@bogons6', to = '::/0', protocol = 'tcp'"
        ],
        *rules(&imported)
    );
}

#[test]
fn ipset_elements_of_several_parts_are_written_out() {
    let imported = with_sets("-A FORWARD -m set --match-set hosts dst,dst -j DROP");
    assert_eq!(NONE, *left(&imported));
    assert_eq!(
        [
            "action = 'drop', to = '10.0.0.5', protocol = 'tcp', to-port = '80'",
            "action = 'drop', to = '10.0.0.6', protocol = 'udp', to-port = '53-54'"
        ],
        *rules(&imported)
    );
    let others = with_sets(
        "-A FORWARD -p tcp -m set ! --match-set hosts dst,dst -j sub\n-A sub -p udp -j DROP\n-A sub -s 10.0.0.9/32 -j DROP",
    );
    assert_eq!(NONE, *left(&others));
    assert!(
        rules(&others).iter().all(|rule| rule.contains("from = '10.0.0.9'")),
        "{:?}",
        rules(&others)
    );
}

#[test]
fn ipset_sets_that_rules_cannot_say_are_listed() {
    for (listed, why) in [
        (
            "-m set --match-set several src -j DROP",
            "sets of type `list:set` have no counterpart",
        ),
        (
            "-m set --match-set odd src -j DROP",
            "set `odd` has exceptions (nomatch)",
        ),
        (
            "-s 10.0.0.0/8 -m set --match-set banned src -j DROP",
            "a rule can match one set for the source and one for the destination, without other values beside the set",
        ),
        (
            "-m set --match-set banned src -m set --match-set bogons src -j DROP",
            "a rule can match one set for the source and one for the destination, without other values beside the set",
        ),
        (
            "-m set ! --match-set banned src -m set ! --match-set bogons dst -j DROP",
            "neither the source nor the destination of the rule determines the address family",
        ),
        (
            "-m set --match-set services dst -j DROP",
            "the line names ports or ICMP types, but no protocol",
        ),
        (
            "-p sctp -m set --match-set services dst -j DROP",
            "ports can be matched only for tcp and udp",
        ),
        (
            "-m set --match-set banned both -j DROP",
            "`both` is neither src nor dst",
        ),
        (
            "-m set --match-set banned src --return-nomatch -j DROP",
            "option `--return-nomatch` has no counterpart",
        ),
        (
            "-j SET --add-set banned dst",
            "`add-to-set` can add only source addresses",
        ),
        (
            "-j SET --add-set banned src --timeout 60",
            "an element can't have a different timeout than its set",
        ),
        ("-j SET --del-set banned src", "option `--del-set` has no counterpart"),
        (
            "-j SET --add-set hosts src,src",
            "set `hosts` is not listed, or has no counterpart",
        ),
    ] {
        let imported = with_sets(&format!("-A FORWARD {listed}"));
        assert_eq!([format!("4: {why}")], *left(&imported), "{listed}");
    }
    // After a line has added an element, later lines find it in the set.
    let imported = with_sets(
        "-A FORWARD -j sub\n-A sub -m set --match-set banned src -j RETURN\n-A sub -p tcp -j SET --add-set banned src\n-A sub -p tcp -j DROP",
    );
    assert_eq!(
        ["7: the line matches only packets outside a set, but an earlier line may add their source to this set"],
        *left(&imported)
    );
}

#[test]
fn ipset_listings_that_are_none_are_refused() {
    assert_eq!(
        "listing:2:1: there is no set `b`",
        refused("create a hash:ip\nadd b 10.0.0.1")
    );
    assert_eq!(
        "listing:2:1: `flush a` is not a valid line of a listing",
        refused("create a hash:ip\nflush a")
    );
    let imported = imported(&["create a hash:ip\nadd a here\nadd a 10.0.0.1,tcp:80\n"], &[]);
    assert_eq!(2, left(&imported).len(), "{:?}", left(&imported));
}

#[test]
fn nft_sets_that_change_are_sets_of_the_filter() {
    let rule = |expr: &str| {
        format!(r#"{{"rule": {{"family": "inet", "table": "f", "chain": "fwd", "handle": 9, "expr": [{expr}]}}}}"#)
    };
    let listing = |rules: &[String]| {
        format!(
            r#"{{"nftables": [{{"table": {{"family": "inet", "name": "f"}}}},
            {{"set": {{"family": "inet", "name": "banned", "table": "f", "type": "ipv4_addr", "size": 500, "timeout": 600,
              "flags": ["timeout", "dynamic"],
              "elem": [{{"elem": {{"val": "192.0.2.1", "timeout": 60, "expires": 5}}}}, "192.0.2.2"]}}}},
            {{"set": {{"family": "inet", "name": "nets", "table": "f", "type": "ipv6_addr", "flags": ["interval", "timeout"],
              "elem": [{{"prefix": {{"addr": "2001:db8::", "len": 32}}}}, {{"range": ["2001:db9::1", "2001:db9::3"]}}]}}}},
            {{"set": {{"family": "inet", "name": "ports", "table": "f", "type": "inet_service", "flags": ["interval", "dynamic"],
              "elem": [80, {{"range": [8000, 8010]}}]}}}},
            {{"set": {{"family": "inet", "name": "marks", "table": "f", "type": "mark", "flags": ["dynamic"]}}}},
            {{"chain": {{"family": "inet", "table": "f", "name": "fwd", "type": "filter", "hook": "forward", "prio": 0,
              "policy": "accept"}}}}, {}]}}"#,
            rules.join(", ")
        )
    };
    let matching = |protocol: &str, field: &str, op: &str, set: &str| {
        format!(
            r#"{{"match": {{"op": "{op}", "left": {{"payload": {{"protocol": "{protocol}", "field": "{field}"}}}}, "right": "@{set}"}}}}"#
        )
    };
    let drop = |conditions: &[String]| rule(&format!(r#"{}, {{"drop": null}}"#, conditions.join(", ")));
    let add = |op: &str, timeout: &str| {
        rule(&format!(
            r#"{{"set": {{"op": "{op}", "set": "@banned", "elem": {{"elem": {{"val": {{"payload": {{"protocol": "ip", "field": "saddr"}}}}{timeout}}}}}}}}}"#
        ))
    };
    let imported_one = imported(
        &[&listing(&[
            drop(&[matching("ip", "saddr", "==", "banned")]),
            drop(&[
                matching("ip6", "daddr", "!=", "nets"),
                matching("tcp", "dport", "==", "ports"),
            ]),
            add("update", ""),
        ])],
        &[],
    );
    assert_eq!(NONE, *left(&imported_one));
    assert_eq!(
        [
            "action = 'drop', from = '@banned'",
            "action = 'drop', from = '::/0', to = '!@nets', protocol = 'tcp', to-port = '@ports'",
            "action = 'add-to-set', from = '0.0.0.0/0', set = 'banned'",
        ],
        *rules(&imported_one)
    );
    let sets = &imported_one.document.filter.as_ref().unwrap().sets;
    let elements = |name: &str| sets[name].elements.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(["192.0.2.2"], *elements("banned"));
    assert_eq!(["2001:db8::/32", "2001:db9::1-2001:db9::3"], *elements("nets"));
    assert_eq!(["80", "8000-8010"], *elements("ports"));
    for (rule, why) in [
        (
            drop(&[matching("ip", "saddr", "==", "marks")]),
            "set `marks` can change at run time",
        ),
        (
            add("add", ""),
            "`add-to-set` renews the timeout of elements that are already in the set, which `update` does, but not `add`",
        ),
        (
            add("update", r#", "timeout": 9"#),
            "an element can't have a different timeout than its set",
        ),
        (add("delete", ""), "packets can't remove elements from sets"),
    ] {
        assert_eq!([format!("0: {why}")], *left(&imported(&[&listing(&[rule])], &[])));
    }
}

#[test]
fn iptables_notrack_is_a_rule_without_a_session() {
    let with = |raw: &str, rules: &str| {
        imported(
            &[&format!(
                "*raw\n:PREROUTING ACCEPT [0:0]\n{raw}\nCOMMIT\n*filter\n:FORWARD DROP [0:0]\n{rules}\nCOMMIT\n"
            )],
            &[],
        )
    };
    let stateful =
        "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A FORWARD -s 10.0.0.0/8 -j ACCEPT";
    let dns = "-A PREROUTING -s 10.0.0.1/32 -j ACCEPT\n-A PREROUTING -p udp -m udp --dport 53 -j CT --notrack";
    let one = with(dns, stateful);
    assert_eq!(NONE, *left(&one));
    let untracked: Vec<_> = rules(&one).into_iter().filter(|rule| rule.contains("53")).collect();
    assert_eq!(
        [
            "action = 'accept', from = ['10.0.0.0', '10.0.0.2-10.255.255.255'], protocol = 'udp', to-port = '53', track = false",
            "action = 'drop', from = ['0.0.0.0-10.0.0.0', '10.0.0.2-255.255.255.255'], protocol = 'udp', to-port = '53'",
        ],
        *untracked
    );
    assert_eq!("action = 'accept', from = '10.0.0.0/8'", rules(&one)[2]);
    assert!(
        one.notes
            .iter()
            .any(|note| note.reason.starts_with("converted to rules with `track = false`")),
        "{:?}",
        one.notes
    );
    // The state of an untracked packet is neither new nor established.
    let by_state = with(
        "-A PREROUTING -p udp -j NOTRACK",
        "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A FORWARD -m conntrack --ctstate NEW -j ACCEPT\n\
         -A FORWARD -m conntrack --ctstate UNTRACKED -d 192.0.2.1/32 -j ACCEPT",
    );
    assert_eq!(
        [
            "action = 'accept', to = '192.0.2.1', protocol = 'udp', track = false",
            "action = 'drop', from = '0.0.0.0/0', protocol = 'udp'",
        ],
        rules(&by_state)[..2]
    );
    // Without sessions, no packets are tracked.
    let by_packet = with(dns, "-A FORWARD -s 10.0.0.0/8 -j ACCEPT");
    assert_eq!((1, NONE.len()), (rules(&by_packet).len(), left(&by_packet).len()));
    let others = with(
        "-A PREROUTING -s 10.9.0.0/16 -j DROP\n-A PREROUTING -p tcp -j CT --zone 7",
        stateful,
    );
    assert_eq!(
        [
            "3: except for `notrack`, chain `PREROUTING` of table raw has no counterpart",
            "4: target `CT` has no counterpart"
        ],
        *left(&others)
    );
}

#[test]
fn nat_masquerade_without_an_address_is_listed() {
    let rule = "-A POSTROUTING -s 10.0.0.0/8 -o eth0 -j MASQUERADE";
    assert_eq!(
        ["4: the listing does not contain the address of eth0: add --address eth0=ADDRESS"],
        *left(&translated(rule, &[]))
    );
    let imported = translated(rule, &[("eth0", "203.0.113.1")]);
    assert_eq!(NONE, *left(&imported));
    assert_eq!("203.0.113.1", imported.document.nat.source[0].pool);
}

#[test]
fn nat_rule_that_is_hidden_by_a_broader_one_is_listed() {
    let imported = translated(
        "-A POSTROUTING -s 10.0.0.0/8 -j SNAT --to-source 203.0.113.1\n\
         -A POSTROUTING -s 10.1.0.0/16 -o eth0 -j SNAT --to-source 203.0.113.2\n\
         -A POSTROUTING -s 11.0.0.0/8 -j SNAT --to-source 203.0.113.3-203.0.113.9:2000-60000",
        &[],
    );
    // The first rule matches all packets of the second.
    let notes: Vec<_> = imported
        .notes
        .iter()
        .map(|note| (note.line, note.reason.as_str()))
        .collect();
    assert_eq!(
        [(
            Some(5),
            "not needed: an earlier line matches all packets that this line matches"
        )],
        *notes
    );
    assert_eq!(2, imported.document.nat.source.len());
    let imported = translated(
        "-A POSTROUTING -s 10.0.0.0/8 -o eth0 -j SNAT --to-source 203.0.113.1\n\
         -A POSTROUTING -s 10.1.0.0/16 -j SNAT --to-source 203.0.113.2",
        &[],
    );
    assert_eq!(
        ["5: line 4 matches some of these packets first; in Sluice the most specific rule applies, whatever the order"],
        *left(&imported)
    );
}

#[test]
fn nat_one_address_both_ways_is_static() {
    let imported = translated(
        "-A PREROUTING -d 198.51.100.0/28 -j NETMAP --to 10.0.0.0/28\n\
         -A POSTROUTING -s 10.0.0.0/28 -o eth0 -j NETMAP --to 198.51.100.0/28",
        &[],
    );
    assert_eq!(NONE, *left(&imported));
    assert_eq!("10.0.0.0/28", imported.document.nat.one_to_one[0].inside.to_string());
    let half = translated("-A PREROUTING -d 198.51.100.0/28 -j NETMAP --to 10.0.0.0/28", &[]);
    assert_eq!(
        ["4: `nat.static` translates both directions, but no line after routing translates the opposite direction"],
        *left(&half)
    );
}

#[test]
fn nat_destination_of_an_interface_is_a_rule_of_that_for_whatever_address() {
    let imported = translated(
        "-A PREROUTING -i eth0 -p tcp --dport 8080 -j DNAT --to-destination 10.0.0.5:80\n\
         -A PREROUTING -i eth0 -d 203.0.113.9/32 -p udp --dport 53 -j DNAT --to-destination 10.0.0.6\n\
         -A POSTROUTING -s 10.0.0.0/8 -o eth0 -j SNAT --to-source 203.0.113.1",
        &[],
    );
    assert_eq!(NONE, *left(&imported));
    let [any, one] = imported.document.nat.destination.as_slice() else {
        panic!("{:?}", imported.document.nat.destination)
    };
    assert_eq!((None, "eth0"), (any.address, any.incoming.0[0].0.as_str()));
    assert_eq!(Some("203.0.113.9".parse().unwrap()), one.address);
    assert_eq!("eth0", one.incoming.0[0].0);
    // The pool must not allocate the port, because the port is redirected on all addresses of the pool.
    let pool = imported.document.nat.pools.values().next().unwrap();
    assert_eq!("8080", pool.reserved_ports.0[0].to_string());
}

#[test]
fn nat_redirect_leads_to_the_host_of_the_router() {
    let imported = translated(
        "-A PREROUTING -i eth1 -p tcp --dport 80 -j REDIRECT --to-ports 3128",
        &[("eth1", "10.0.0.1/24")],
    );
    assert_eq!(NONE, *left(&imported));
    let [rule] = imported.document.nat.destination.as_slice() else {
        panic!("{:?}", imported.document.nat.destination)
    };
    assert_eq!((&Target::Gateway, None), (&rule.to, rule.address));
    assert_eq!("3128", rule.to_port.unwrap().to_string());
    assert!(imported.document.routers["default"].daemon);
}

#[test]
fn nat_destinations_that_differ_in_meaning_are_listed() {
    for (rule, why) in [
        (
            "-p tcp --dport 80 -j DNAT --to-destination 10.0.0.1",
            "or an input interface",
        ),
        (
            "-d 203.0.113.0/24 -p tcp --dport 80 -j DNAT --to-destination 10.0.0.1",
            "only one outside address",
        ),
        (
            "-d 203.0.113.1/32 -p tcp --dport 80:90 -j DNAT --to-destination 10.0.0.1:80",
            "how its ports are mapped",
        ),
        (
            "-d 203.0.113.1/32 -p tcp --dport 80 -j DNAT --to-destination 10.0.0.1-10.0.0.4",
            "to a single host",
        ),
        (
            "-d 203.0.113.1/32 -p tcp --dport 80 -j DNAT --to-destination 127.0.0.1",
            "a loopback address",
        ),
        (
            "-d 203.0.113.1/32 -p tcp --dport 80 -j REDIRECT --to-ports 8080",
            "must name its input interfaces",
        ),
        (
            "-i eth1 -p tcp --dport 80 -j REDIRECT --to-ports 8080",
            "add --address eth1=ADDRESS",
        ),
        (
            "-d 203.0.113.1/32 -p tcp --dport 80 -s 192.0.2.1/32 -j DNAT --to-destination 10.0.0.1",
            "source addresses",
        ),
    ] {
        let imported = translated(&format!("-A PREROUTING {rule}"), &[]);
        assert!(
            matches!(left(&imported).as_slice(), [one] if one.contains(why)),
            "{rule}: {:?}",
            left(&imported)
        );
        assert!(imported.document.nat.destination.is_empty());
    }
}

#[test]
fn garbage_is_refused_with_place_and_reason() {
    let nothing = " \n".repeat(1 << 19);
    let deep = "[".repeat(1 << 16);
    for (text, message) in [
        ("", "listing:1:1: the file is empty"),
        (nothing.as_str(), "listing:1:1: the file is empty"),
        (
            "hello",
            "listing:1:1: the file is not a listing of iptables-save, ip6tables-save, `ipset save` or `nft -j list ruleset`",
        ),
        (
            "*filter\n:FORWARD DROP [0:0]\n",
            "listing:2:1: the previous table has no COMMIT: is the listing complete?",
        ),
        (
            "*filter\n:FORWARD FOO\nCOMMIT\n",
            "listing:2:1: `:FORWARD FOO` is not a valid declaration of a chain",
        ),
        (
            "*filter\n-A FORWARD -j DROP\nCOMMIT\n",
            "listing:2:1: there is no chain `FORWARD`",
        ),
        (
            "*filter\nwhat is this\nCOMMIT\n",
            "listing:2:1: `what is this` is not a valid line of a listing",
        ),
        (
            "{}",
            "listing:1:1: the file has no `nftables` list: write the file with `nft -j list ruleset`",
        ),
        (
            "{\"nftables\": [",
            "listing:1:14: EOF while parsing a list at line 1 column 14",
        ),
        ("{\"nftables\": [{\"rule\": {}}]}", "listing:1:1: object 1 has no expr"),
    ] {
        assert_eq!(message, refused(text));
    }
    assert!(refused(&format!("{{\"nftables\": {deep}")).contains("recursion limit"));
    assert_eq!(
        "listing:2:3: the file is not UTF-8 text",
        text("listing", b"ab\ncd\xff").unwrap_err().to_string()
    );
}

#[test]
fn chains_in_a_circle_are_refused() {
    let text = "*filter\n:FORWARD ACCEPT [0:0]\n:a - [0:0]\n:b - [0:0]\n-A a -j b\n-A b -g a\nCOMMIT\n";
    assert_eq!(
        "listing:6:1: the jump `-A b -g a` closes a loop of chains",
        refused(text)
    );
}

#[test]
fn chains_that_multiply_end_in_time() {
    let mut text = "*filter\n:FORWARD ACCEPT [0:0]\n".to_owned();
    for chain in 0..60 {
        text += &format!(":c{chain} - [0:0]\n");
    }
    text += "-A FORWARD -j c0\n";
    for chain in 0..59 {
        text += &format!("-A c{chain} -j c{0}\n-A c{chain} -j c{0}\n", chain + 1);
    }
    text += "-A c59 -s 10.0.0.1/32 -j DROP\nCOMMIT\n";
    let source = Source {
        name: "listing",
        text: &text,
    };
    let imported = import(&[source], None, &IndexMap::new()).unwrap();
    assert!(!imported.leftovers.is_empty());
}

/// The kernel does not forward packets from or to the loopback interface.
#[test]
fn loopback_is_no_interface_of_a_router() {
    let listing = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -i lo -j ACCEPT\n-A FORWARD ! -i lo -o eth1 -p tcp -j ACCEPT\n\
                   -A FORWARD -i eth0 -o lo -j DROP\nCOMMIT\n";
    let imported = imported(&[listing], &[]);
    let text = imported
        .document
        .filter
        .as_ref()
        .map_or(Vec::new(), |filter| filter.rules.clone());
    assert_eq!(1, text.len(), "{text:?}");
    assert!(text[0].incoming.0.is_empty(), "{text:?}");
    assert_eq!(vec!["eth1"], imported.document.interfaces.keys().collect::<Vec<_>>());
    let noted: Vec<_> = imported.notes.iter().map(|note| note.line).collect();
    assert_eq!(vec![Some(3), Some(5)], noted);
}

/// Lines that reject replies are reported in notes, because replies to translated packets pass even if every packet is filtered.
#[test]
fn lines_that_refuse_answers_of_translated_connections_are_named() {
    let listing = "*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -s 10.0.0.0/8 -o eth1 -j SNAT --to-source 203.0.113.1\nCOMMIT\n*filter\n:FORWARD DROP [0:0]\n\
                   -A FORWARD -s 198.51.100.0/24 -j REJECT\n-A FORWARD -i eth0 -o eth1 -j ACCEPT\nCOMMIT\n";
    let imported = imported(&[listing], &[]);
    assert_eq!(
        vec![Some(7)],
        imported.notes.iter().map(|note| note.line).collect::<Vec<_>>()
    );
    let says = |remark: &String| remark.starts_with("Replies of translated connections");
    assert!(imported.remarks.iter().any(says), "{:?}", imported.remarks);
}
