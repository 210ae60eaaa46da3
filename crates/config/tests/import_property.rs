//! Checks that generated listings have the same effect before and after the import.

#[path = "import/oracle.rs"]
mod oracle;

use std::net::IpAddr;

use indexmap::IndexMap;
use oracle::{GATEWAY, Header, configured, listed};
use proptest::prelude::*;
use proptest::sample::select;
use sluice_config::import::{Source, import};
use sluice_config::memory::EntryBytes;
use sluice_config::{Checked, Machine, check};

const NETS: [[&str; 5]; 2] = [
    [
        "10.0.0.0/8",
        "10.0.1.0/24",
        "10.0.1.7/32",
        "0.0.0.0/0",
        "192.0.2.128/25",
    ],
    [
        "2001:db8::/32",
        "2001:db8:0:1::/64",
        "2001:db8:0:1::7/128",
        "::/0",
        "8000::/1",
    ],
];
const ADDRESSES: [[&str; 6]; 2] = [
    [
        "10.0.1.7",
        "10.0.1.8",
        "10.9.9.9",
        "192.0.2.200",
        "192.0.2.1",
        "255.255.255.255",
    ],
    [
        "2001:db8:0:1::7",
        "2001:db8:0:1::8",
        "2001:db8:9::9",
        "ffff::1",
        "::1",
        "7fff::",
    ],
];

fn words(list: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(list).prop_map(str::to_owned)
}

/// Conditions that do not depend on the protocol.
fn general(v6: bool) -> BoxedStrategy<String> {
    let nets = &NETS[usize::from(v6)];
    let net = (select(&["", "! "][..]), select(&["-s", "-d"][..]), select(&nets[..]))
        .prop_map(|(not, side, net)| format!("{not}{side} {net}"));
    let others = words(&[
        "-i eth0",
        "-i eth1",
        "-o eth1",
        "-m dscp --dscp 0x2e",
        "-m dscp ! --dscp 0x2e",
        "-m ecn --ecn-ip-ect 3",
        "-m ecn ! --ecn-ip-ect 0",
        "-m mac --mac-source 02:00:00:00:00:01",
        "-m mac ! --mac-source 02:00:00:00:00:02",
        "! -i eth1",
        "-m length --length 0:100",
        "-m length ! --length 50:200",
    ]);
    let ttls = match v6 {
        true => words(&[
            "-m hl --hl-eq 64",
            "-m hl ! --hl-eq 1",
            "-m hl --hl-lt 5",
            "-m hl --hl-gt 63",
        ]),
        false => words(&[
            "-m ttl --ttl-eq 64",
            "-m ttl ! --ttl-eq 1",
            "-m ttl --ttl-lt 5",
            "-m ttl --ttl-gt 63",
        ]),
    };
    // Conditions that can rarely be converted.
    let rare = words(&[
        "! -o eth0",
        "-m conntrack --ctstate NEW",
        "-m conntrack --ctstate INVALID",
    ]);
    prop_oneof![40 => net, 15 => others, 4 => ttls, 1 => rare].boxed()
}

fn of_protocol(v6: bool) -> BoxedStrategy<String> {
    let ports = words(&[
        "-p tcp",
        "! -p tcp",
        "-p udp",
        "-p tcp -m tcp --dport 80",
        "-p udp -m udp --dport 53",
        "-p tcp -m tcp --dport 80 --sport 1024:65535",
        "-p tcp -m tcp ! --dport 80:90",
        "-p tcp -m multiport --dports 80,443,8000:8010",
        "-p udp -m multiport ! --sports 53,123",
        "-p tcp -m multiport --ports 80,443",
        "-p tcp -m multiport ! --ports 80,443",
        "-p tcp -m tcp --syn",
        "-p tcp -m tcp ! --syn",
        "-p tcp -m tcp --tcp-flags FIN,SYN SYN",
        "-p tcp -m tcp ! --tcp-flags SYN,ACK NONE --dport 443",
        "-p 47",
    ]);
    let v4 = words(&[
        "-f",
        "! -f",
        "-p icmp -m icmp --icmp-type 8",
        "-p icmp -m icmp ! --icmp-type 3/4",
        "-p icmp",
    ]);
    let of_six = words(&["-p ipv6-icmp -m icmp6 --icmpv6-type 128", "-p ipv6-icmp"]);
    let own = if v6 { of_six.boxed() } else { v4.boxed() };
    prop_oneof![3 => Just(String::new()), 5 => ports, 2 => own].boxed()
}

/// A rule of a chain. Chains jump only to chains with a higher number.
fn rule(v6: bool, chain: usize) -> impl Strategy<Value = String> {
    let mut targets = vec![
        "-j ACCEPT".to_owned(),
        "-j DROP".into(),
        "-j REJECT".into(),
        format!(
            "-j REJECT --reject-with {}",
            if v6 {
                "icmp6-adm-prohibited"
            } else {
                "icmp-admin-prohibited"
            }
        ),
        "-j RETURN".into(),
        "-j LOG".into(),
        String::new(),
    ];
    for to in chain + 1..4 {
        targets.extend([format!("-j c{to}"), format!("-j c{to}"), format!("-g c{to}")]);
    }
    let name = if chain == 0 {
        "FORWARD".to_owned()
    } else {
        format!("c{chain}")
    };
    (
        of_protocol(v6),
        prop::collection::vec(general(v6), 0..3),
        select(targets),
    )
        .prop_map(move |(protocol, general, target)| format!("-A {name} {protocol} {} {target}", general.join(" ")))
}

fn listing(v6: bool) -> impl Strategy<Value = String> {
    let chains = [0, 1, 2, 3].map(|chain| prop::collection::vec(rule(v6, chain), 0..6));
    let first = words(&[
        "",
        "",
        "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    ]);
    (select(&["ACCEPT", "DROP"][..]), first, chains).prop_map(|(policy, first, chains)| {
        let rules: Vec<String> = chains.into_iter().flatten().collect();
        format!(
            "*filter\n:FORWARD {policy} [0:0]\n:c1 -\n:c2 -\n:c3 -\n{first}\n{}\nCOMMIT\n",
            rules.join("\n")
        )
    })
}

fn header(v6: bool) -> impl Strategy<Value = Header> {
    let addresses = &ADDRESSES[usize::from(v6)];
    let icmp = if v6 { 58 } else { 1 };
    (
        (select(&addresses[..]), select(&addresses[..])),
        select(vec![6u8, 6, 17, icmp, 47]),
        (
            select(vec![53u16, 80, 443, 1024, 8005]),
            select(vec![0u16, 53, 80, 85, 443, 65_535]),
        ),
        select(vec![(8u8, 0u8), (3, 4), (3, 1), (128, 0)]),
        (
            0u8..=63,
            select(vec![0u8, 0, 0, 1, 2]),
            select(vec![0u8, 46]),
            select(vec![40u16, 75, 150, 1500]),
            0u8..4,
            0u8..4,
            select(vec![2u8, 5, 6, 63, 64, 65, 255]),
        ),
        (
            select(&["eth0", "eth1", "eth2"][..]),
            select(&["eth0", "eth1", "eth2"][..]),
        ),
    )
        .prop_map(
            move |((source, destination), protocol, ports, message, other, interfaces)| Header {
                source: source.parse::<IpAddr>().unwrap(),
                destination: destination.parse::<IpAddr>().unwrap(),
                protocol,
                ports,
                message,
                flags: other.0,
                // In the listings, only IPv4 rules have fragment conditions.
                fragment: if v6 { 0 } else { other.1 },
                dscp: other.2,
                length: other.3,
                ecn: other.4,
                mac: other.5,
                ttl: other.6,
                interfaces: [interfaces.0, interfaces.1],
            },
        )
}

fn checked(text: &str) -> Checked {
    let machine = Machine {
        cores: vec![0, 1],
        memory: 1 << 40,
        entry: EntryBytes::default(),
    };
    // A configuration must have an interface, but a listing may contain none.
    let stub = if text.contains("\n[interfaces.") || text.starts_with("[interfaces.") {
        ""
    } else {
        "\n[interfaces.any]\ndevice = \"null:\"\n"
    };
    check("imported", &format!("{text}{stub}"), &machine).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"))
}

/// Compares a listing with the resulting configuration. Returns whether a comparison was possible, so that the test
/// notices if the generator creates only rules that can't be converted.
fn compare(v6: bool, text: &str, headers: &[Header]) -> Result<bool, TestCaseError> {
    let format = if v6 { "# ip6tables-save\n" } else { "# iptables-save\n" };
    let text = format!("{format}{text}");
    let source = Source {
        name: "listing",
        text: &text,
    };
    let imported = import(&[source], None, &IndexMap::new()).unwrap();
    let printed = imported.print().unwrap();
    let checked = checked(&printed);
    if !imported.leftovers.is_empty() {
        return Ok(false);
    }
    for header in headers {
        prop_assert_eq!(
            listed(&text, header),
            configured(&checked, header),
            "{:?}\n{}\n{}",
            header,
            text,
            printed
        );
    }
    Ok(true)
}

#[test]
fn filter_imported_decides_as_the_listing_does() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(1000));
    let compared = std::cell::Cell::new(0);
    let cases = any::<bool>().prop_flat_map(|v6| (Just(v6), listing(v6), prop::collection::vec(header(v6), 60)));
    let cases = (cases, any::<bool>());
    runner
        .run(&cases, |((v6, mut text, mut headers), to_gateway)| {
            if to_gateway {
                text = text.replace("FORWARD", "INPUT");
                headers.iter_mut().for_each(|header| header.interfaces[1] = GATEWAY);
            }
            let done = compare(v6, &text, &headers)?;
            compared.set(compared.get() + usize::from(done));
            Ok(())
        })
        .unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(compared.get() > 500, "only {} were carried over whole", compared.get());
}

/// Pool of the first matching line. Lines that were not converted are ignored.
fn first(rules: &[(String, usize)], packet: (u32, &str, &str)) -> Option<usize> {
    let matches = |text: &str| {
        let words: Vec<_> = text.split_whitespace().collect();
        words.chunks(2).all(|pair| match pair {
            ["-s", net] => net
                .parse::<ipnet::Ipv4Net>()
                .unwrap()
                .contains(&std::net::Ipv4Addr::from(packet.0)),
            ["-p", protocol] => *protocol == packet.1,
            ["-o", out] => *out == packet.2,
            _ => true,
        })
    };
    rules.iter().find(|(text, _)| matches(text)).map(|(_, pool)| *pool)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn source_rules_imported_choose_the_pool_of_the_first_line(
        rules in prop::collection::vec((
            select(&["", "-s 10.0.0.0/8", "-s 10.1.0.0/16", "-s 10.1.1.0/24", "-s 10.1.1.1/32", "-s 10.2.0.0/16"][..]),
            select(&["", "", "-p tcp", "-p udp"][..]),
            select(&["", "-o eth0", "-o eth1"][..]),
            0usize..4,
        ), 1..7),
    ) {
        let lines: Vec<(String, usize)> = rules
            .iter()
            .map(|(from, protocol, out, pool)| (format!("{from} {protocol} {out}"), *pool))
            .collect();
        let target = |pool: usize| match pool {
            0 => "ACCEPT".to_owned(),
            pool => format!("SNAT --to-source 203.0.113.{pool}"),
        };
        let text: String = lines
            .iter()
            .map(|(line, pool)| format!("-A POSTROUTING {line} -j {}\n", target(*pool)))
            .collect();
        let text = format!("*nat\n:POSTROUTING ACCEPT [0:0]\n{text}COMMIT\n");
        let source = Source { name: "listing", text: &text };
        let imported = import(&[source], None, &IndexMap::new()).unwrap();
        checked(&imported.print().unwrap());
        let left: Vec<usize> = imported.leftovers.iter().map(|left| left.line.unwrap() - 3).collect();
        let kept: Vec<_> = lines.iter().enumerate().filter(|(at, _)| !left.contains(at)).map(|(_, line)| line.clone()).collect();
        let nat = &imported.document.nat;
        for address in ["10.1.1.1", "10.1.1.2", "10.1.2.1", "10.2.0.1", "10.3.0.1", "11.0.0.1"] {
            let address: std::net::Ipv4Addr = address.parse().unwrap();
            for protocol in ["tcp", "udp", "icmp"] {
                for out in ["eth0", "eth1", "eth2"] {
                    let fits = |from: Option<sluice_config::value::Prefix>, of: Option<sluice_config::value::Transport>, by: &Option<String>| {
                        let from = from?.ipv4()?;
                        let fits = from.contains(&address)
                            && of.is_none_or(|of| of.to_string() == protocol)
                            && by.as_ref().is_none_or(|by| by == out);
                        fits.then_some((from.prefix_len(), of.is_some(), by.is_some()))
                    };
                    let pools = nat.source.iter().filter_map(|rule| {
                        Some((fits(Some(rule.from), rule.protocol, &rule.out)?, rule.pool.chars().last()?.to_digit(10)? as usize))
                    });
                    let exempt = nat.exempt.iter().filter_map(|rule| Some((fits(rule.from, rule.protocol, &rule.out)?, 0)));
                    let chosen = pools.chain(exempt).max().map(|(_, pool)| pool).filter(|&pool| pool > 0);
                    let meant = first(&kept, (address.into(), protocol, out)).filter(|&pool| pool > 0);
                    prop_assert_eq!(meant, chosen, "{} {} {}\n{}", address, protocol, out, text);
                }
            }
        }
    }

    #[test]
    fn import_of_any_bytes_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), file in 0usize..4) {
        let fixtures: [&[u8]; 4] = [
            include_bytes!("import/gateway.iptables"),
            include_bytes!("import/docker.iptables"),
            include_bytes!("import/gateway.ip6tables"),
            include_bytes!("import/router.nft.json"),
        ];
        let whole = fixtures[file];
        let at = at.index(whole.len());
        let after = whole.len().min(at + bytes.len() / 20);
        for bytes in [bytes.clone(), whole[..at].to_vec(), [&whole[..at], &bytes[..bytes.len().min(9)], &whole[after..]].concat()] {
            let text = String::from_utf8_lossy(&bytes);
            let source = Source { name: "listing", text: &text };
            match import(&[source], None, &IndexMap::new()) {
                Ok(imported) => drop(checked(&imported.print().unwrap())),
                Err(wrong) => prop_assert!(wrong.line > 0 && wrong.column > 0),
            }
        }
    }
}
