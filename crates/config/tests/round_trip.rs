//! Property tests of the text form of the configuration.

use std::time::Duration;

use indexmap::IndexMap;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sluice_config::memory::EntryBytes;
use sluice_config::schema::*;
use sluice_config::value::*;
use sluice_config::{Machine, check, parse};

fn prefix() -> impl Strategy<Value = Prefix> {
    let v4 = (any::<u32>(), 0..=32u8).prop_map(|(bits, length)| format!("{}/{length}", std::net::Ipv4Addr::from(bits)));
    let v6 =
        (any::<u128>(), 0..=128u8).prop_map(|(bits, length)| format!("{}/{length}", std::net::Ipv6Addr::from(bits)));
    prop_oneof![v4, v6].prop_map(|text| Prefix::of(text.parse().unwrap()))
}

fn interface_address() -> impl Strategy<Value = InterfaceAddress> {
    (1..=0xdfff_ffff_u32, 8..=32u8).prop_filter_map("an address of a network", |(bits, length)| {
        format!("{}/{length}", std::net::Ipv4Addr::from(bits)).parse().ok()
    })
}

fn ports() -> impl Strategy<Value = PortRange> {
    (1..=u16::MAX, 1..=u16::MAX).prop_map(|(a, b)| PortRange::new(a.min(b), a.max(b)).unwrap())
}

fn range() -> impl Strategy<Value = AddressRange> {
    any::<(u32, u32)>().prop_map(|(a, b)| AddressRange::new(a.min(b).into(), a.max(b).into()).unwrap())
}

fn period() -> impl Strategy<Value = Period> {
    (0..10_000_000u64).prop_map(|ms| {
        let period = Period::milliseconds(ms);
        assert_eq!(Duration::from_millis(ms), period.duration());
        period
    })
}

fn device() -> impl Strategy<Value = Device> {
    prop_oneof![
        "[a-z][a-z0-9]{0,14}",
        "[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\\.[0-7]",
        "(pcap|tap|memif|vhost|virtio|ring):[a-z/\"' ]{1,20}",
        Just("null:".to_owned()),
    ]
    .prop_map(|text| text.parse().unwrap())
}

fn interface() -> impl Strategy<Value = Interface> {
    let tags = prop_oneof![(1..=4094u16).prop_map(|a| a.to_string()), Just("100.200".to_owned())];
    (
        option::of(device()),
        option::of(vec(device(), 0..3)),
        option::of("[a-z]{1,5}"),
        option::of(tags),
        vec(interface_address(), 0..3),
        (
            any::<Option<u16>>(),
            any::<Option<u16>>(),
            option::of(prop_oneof![
                Just(MssClamp::Mtu),
                (88..=9_176u16).prop_map(MssClamp::Bytes)
            ]),
            option::of(prop_oneof![
                Just(VlanPriority::Keep),
                (0..8u8).prop_map(VlanPriority::Set)
            ]),
            option::of(prop_oneof![Just(TagProtocol::Service), Just(TagProtocol::Qinq9100)]),
        ),
        option::of((any::<bool>(), period(), any::<(bool, bool)>())),
    )
        .prop_map(
            |(
                device,
                members,
                parent,
                tags,
                addresses,
                (mtu, queues, mss_clamp, vlan_priority, tag_protocol),
                advertisements,
            )| Interface {
                device,
                bond: members.map(|members| Bond {
                    members,
                    mode: BondMode::Lacp,
                }),
                parent,
                vlan: tags.map(|tags| tags.parse().unwrap()),
                addresses,
                mtu,
                queues,
                mss_clamp,
                vlan_priority,
                tag_protocol,
                router_advertisements: advertisements.map(|(send, interval, (managed, other))| RouterAdvertisements {
                    send,
                    interval,
                    managed,
                    other,
                    ..RouterAdvertisements::default()
                }),
                ..Interface::default()
            },
        )
}

fn timeouts() -> impl Strategy<Value = Timeouts> {
    let port = (1..=u16::MAX).prop_map(|port| port.to_string().parse::<Port>().unwrap());
    (
        option::of(period()),
        option::of(vec((port, period()), 0..4)),
        any::<Option<bool>>(),
    )
        .prop_map(|(udp, ports, inbound_refresh)| Timeouts {
            udp,
            udp_ports: ports.map(IndexMap::from_iter),
            inbound_refresh,
            ..Timeouts::default()
        })
}

fn by_protocol<T: Copy + std::fmt::Debug>(
    one: impl Strategy<Value = T> + Clone,
) -> impl Strategy<Value = ByProtocol<T>> {
    let some = option::of(one.clone());
    prop_oneof![
        Just(ByProtocol::default()),
        one.prop_map(|one| ByProtocol::from([Some(one); 3])),
        [some.clone(), some.clone(), some].prop_map(ByProtocol::from),
    ]
}

fn rate() -> impl Strategy<Value = Option<Rate>> {
    option::of(any::<(u32, u32)>().prop_map(|(rate, burst)| Rate { rate, burst }))
}

fn limits() -> impl Strategy<Value = SessionLimits> {
    (any::<Option<u32>>(), rate()).prop_map(|(sessions, new_sessions)| SessionLimits { sessions, new_sessions })
}

fn deterministic() -> impl Strategy<Value = Deterministic> {
    let algorithm = prop_oneof![
        Just(Algorithm::Sequential),
        Just(Algorithm::Staggered),
        Just(Algorithm::RoundRobin),
        Just(Algorithm::Interlaced),
        Just(Algorithm::Random)
    ];
    let key = option::of(any::<u128>().prop_map(Key::new));
    (range(), any::<(u16, u16, Option<u32>)>(), algorithm, key).prop_map(
        |(inside, (compression, dynamic, maximum_ports), algorithm, key)| Deterministic {
            inside,
            compression,
            dynamic,
            algorithm,
            maximum_ports,
            key,
        },
    )
}

/// Generates a pool without addresses and timeouts.
fn lending() -> impl Strategy<Value = Pool> {
    let ports = || vec(ports(), 0..4).prop_map(PortRanges);
    let mapping = by_protocol(prop_oneof![
        Just(Mapping::EndpointIndependent),
        Just(Mapping::AddressAndPortDependent)
    ]);
    let filtering = by_protocol(prop_oneof![
        Just(Filtering::EndpointIndependent),
        Just(Filtering::AddressDependent),
        Just(Filtering::AddressAndPortDependent)
    ]);
    let block = option::of(any::<(u16, u16, bool)>().prop_map(|(size, maximum, spare)| Block { size, maximum, spare }));
    let subscriber = (by_protocol(any::<u32>()), limits()).prop_map(|(ports, limits)| SubscriberLimits {
        ports,
        sessions: limits.sessions,
        new_sessions: limits.new_sessions,
    });
    (
        (ports(), ports(), mapping, filtering),
        (any::<[bool; 5]>(), block, period(), option::of(deterministic())),
        (subscriber, limits()),
    )
        .prop_map(|(ports, lends, limited)| Pool {
            addresses: Vec::new(),
            ports: ports.0,
            reserved_ports: ports.1,
            pairing: if lends.0[0] { Pairing::Soft } else { Pairing::Hard },
            mapping: ports.2,
            filtering: ports.3,
            overlap: lends.0[1],
            port_selection: if lends.0[2] {
                PortSelection::Preserve
            } else {
                PortSelection::Random
            },
            parity: lends.0[3],
            block: lends.1,
            quarantine: lends.2,
            deterministic: lends.3,
            rewrite_ip_id: lends.0[4],
            protocols: vec![Protocol(47), Protocol(200)],
            subscriber: limited.0,
            limits: limited.1,
            timeouts: Timeouts::default(),
        })
}

fn message_rate() -> impl Strategy<Value = Rate> {
    any::<(u32, u32)>().prop_map(|(rate, burst)| Rate { rate, burst })
}

fn subscribers() -> impl Strategy<Value = Subscribers> {
    let name = || option::of("[a-z]{1,5}");
    let tags = prop_oneof![Just("7"), Just("7-9"), Just("100-101.5-7"), Just("1-4094.1-4094")];
    let group = (".{0,5}", option::of(tags), option::of(prefix()), name(), name(), name());
    let group = group.prop_map(|(interface, tags, prefix, dhcp, public, pool)| SiteGroup {
        interface,
        tags: tags.map(|tags| tags.parse().unwrap()),
        prefix,
        dhcp,
        public,
        pool,
    });
    let address = any::<std::net::IpAddr>;
    let format = prop_oneof![Just(LeaseFormat::Kea), Just(LeaseFormat::Dhcpd)];
    let server = (
        address(),
        option::of(address()),
        ".{0,9}",
        format,
        message_rate(),
        message_rate(),
    )
        .prop_map(
            |(server, relay, leases, format, terminal_rate, site_rate)| LeaseServer {
                server,
                relay,
                leases,
                format,
                terminal_rate,
                site_rate,
            },
        );
    let identifier = prop_oneof![
        Just(ClientIdentifier::Mac),
        Just(ClientIdentifier::Node),
        Just(ClientIdentifier::None)
    ];
    let client = (
        (vec(prefix(), 0..3), vec(address(), 0..3), identifier),
        (
            any::<[bool; 2]>(),
            option::of(".{0,9}"),
            any::<u32>(),
            option::of(".{0,9}"),
        ),
        (period(), period(), period()),
    )
        .prop_map(|(sources, settings, times)| PublicClient {
            prefixes: sources.0,
            servers: sources.1,
            identifier: sources.2,
            broadcast: settings.0[0],
            host_name: settings.1,
            rate: settings.2,
            hold: times.0,
            window: times.1,
            minimum_lease: times.2,
            use_while_confirming: settings.0[1],
            state: settings.3,
        });
    let mac_prefix = prop_oneof![Just("02"), Just("fe:00:10")];
    (
        (any::<Option<u32>>(), option::of(mac_prefix), any::<bool>()),
        vec(("[a-z]{1,5}|.{0,5}", group), 0..3),
        vec(("[a-z]{1,5}", server), 0..3),
        vec(("[a-z]{1,5}", client), 0..3),
    )
        .prop_map(|(settings, sites, dhcp, public)| Subscribers {
            terminals: settings.0,
            virtual_mac_prefix: settings.1.map(|prefix| prefix.parse().unwrap()),
            trust_option_82: settings.2,
            sites: sites.into_iter().collect(),
            dhcp: dhcp.into_iter().collect(),
            public: public.into_iter().collect(),
        })
}

fn document() -> impl Strategy<Value = Document> {
    let workers = prop_oneof![
        any::<u16>().prop_map(Workers::Count),
        vec(any::<u16>(), 0..4).prop_map(Workers::Cores)
    ];
    let system = (".*", workers, option::of(any::<u16>())).prop_map(|(name, workers, shards)| System {
        name,
        workers,
        shards,
        ..System::default()
    });
    let sessions =
        (any::<(u32, u32)>(), timeouts()).prop_map(|((ipv4, ipv6), timeouts)| Sessions { ipv4, ipv6, timeouts });
    let action = prop_oneof![
        Just(RouteAction::Blackhole),
        Just(RouteAction::Unreachable),
        Just(RouteAction::Prohibit)
    ];
    let balance = prop_oneof![Just(RouteBalance::Host), Just(RouteBalance::Flow)];
    let health = (
        vec(any::<std::net::IpAddr>(), 0..3),
        option::of(prefix()),
        any::<[u8; 2]>(),
    );
    let health = health.prop_map(|(ping, route, [failures, successes])| UplinkHealth {
        ping,
        route,
        failures,
        successes,
        ..UplinkHealth::default()
    });
    let zoned = (any::<std::net::IpAddr>(), "[a-z%.]{1,9}").prop_map(|(address, zone)| {
        let local = format!("fe80::{:x}%{zone}", zone.len());
        match address.is_ipv4() {
            true => local.parse().unwrap(),
            false => ScopedAddress::from(address),
        }
    });
    let via = vec(zoned.clone(), 0..3);
    let uplink = ("[a-z.]{1,9}", via, any::<u8>(), option::of(health));
    let uplink = uplink.prop_map(|(interface, via, weight, health)| Uplink {
        interface,
        via,
        weight,
        health,
    });
    let route = (
        (
            prefix(),
            option::of(prefix()),
            vec("[a-z]{1,4}", 0..3),
            option::of(balance),
        ),
        option::of(prop_oneof![
            any::<std::net::IpAddr>().prop_map(ScopedAddress::from),
            zoned
        ]),
        option::of("[a-z.]{1,9}"),
        option::of(action),
        any::<[bool; 2]>(),
        option::of(any::<[u8; 2]>()),
    )
        .prop_map(
            |((to, from, uplinks, balance), via, interface, action, [recursive, onlink], numbers)| Route {
                to,
                from,
                uplinks,
                balance,
                via,
                recursive,
                onlink,
                interface,
                action,
                weight: numbers.map(|[weight, _]| weight),
                distance: numbers.map(|[_, distance]| distance),
            },
        );
    let pool = (vec(range(), 0..4), lending(), timeouts()).prop_map(|(addresses, lending, timeouts)| Pool {
        addresses,
        timeouts,
        ..lending
    });
    let nat = (
        vec(("[a-z. -]{1,9}", pool), 0..3),
        vec((prefix(), option::of("[a-z]{1,9}"), ".{0,9}"), 0..3),
        vec(destination(), 0..4),
        limits(),
    )
        .prop_map(|(pools, source, destination, limits)| Nat {
            spare_addresses: 3,
            limits,
            subscribers: 5,
            unsolicited_syn: UnsolicitedSyn::Drop,
            untranslated_inbound: UntranslatedInbound::Drop,
            pools: pools.into_iter().collect(),
            source: source
                .into_iter()
                .map(|(from, out, pool)| SourceRule {
                    from,
                    protocol: None,
                    local: out.is_some(),
                    out,
                    pool,
                })
                .collect(),
            destination,
            ..Nat::default()
        });
    (
        system,
        sessions,
        vec((".{0,9}", interface()), 0..4),
        (vec(route, 0..4), vec(("[a-z]{1,4}", uplink), 0..3)),
        nat,
        option::of(subscribers()),
    )
        .prop_map(
            |(system, sessions, interfaces, (routes, uplinks), nat, subscribers)| Document {
                system,
                sessions,
                interfaces: interfaces.into_iter().collect(),
                routes,
                uplinks: uplinks.into_iter().collect(),
                nat,
                subscribers,
                ..Document::default()
            },
        )
}

fn destination() -> impl Strategy<Value = DestinationRule> {
    let host = || any::<u32>().prop_map(std::net::Ipv4Addr::from);
    let to = prop_oneof![
        host().prop_map(Target::Host),
        Just(Target::Gateway),
        vec((host(), 0u16..4), 0..4).prop_map(|hosts| Target::Hosts(
            hosts
                .into_iter()
                .map(|(host, weight)| TargetHost { host, weight })
                .collect()
        )),
    ];
    let port = || option::of((1..=u16::MAX).prop_map(|port| port.to_string().parse::<Port>().unwrap()));
    let health = (any::<bool>(), port(), period(), any::<u32>()).prop_map(|(icmp, port, interval, failures)| Health {
        protocol: if icmp {
            HealthProtocol::Icmp
        } else {
            HealthProtocol::Tcp
        },
        port,
        interval,
        failures,
        ..Health::default()
    });
    let names = vec(".{0,9}".prop_map(Name), 0..3);
    let rest = (option::of(ports()), port(), any::<bool>(), option::of(health));
    (option::of(host()), names, to, rest).prop_map(|(address, names, to, (port, to_port, by_source, health))| {
        DestinationRule {
            protocol: None,
            address,
            local: names.is_empty(),
            incoming: OneOrMore(names),
            port,
            to,
            to_port,
            balance: if by_source { Balance::Source } else { Balance::Random },
            health,
        }
    })
}

fn machine() -> Machine {
    Machine {
        cores: (0..4).collect(),
        memory: 4 << 30,
        entry: EntryBytes::default(),
    }
}

proptest! {
    #[test]
    fn document_printed_and_read_is_the_same(document in document()) {
        let printed = document.print().unwrap();
        let again = parse("printed", &printed).map_err(|e| TestCaseError::fail(format!("{e}\n{printed}")))?;
        prop_assert_eq!(document, again, "{}", printed);
    }

    #[test]
    fn document_of_any_values_is_checked_without_panic(document in document()) {
        let printed = document.print().unwrap();
        if let Err(diagnosis) = check("printed", &printed, &machine()) {
            prop_assert!(!diagnosis.found().is_empty());
            prop_assert!(!diagnosis.render(80, true).is_empty());
        }
    }

    #[test]
    fn example_with_a_piece_changed_is_checked_without_panic(
        at in any::<prop::sample::Index>(),
        length in 0..20usize,
        piece in "[\\[\\]{}=\"'.,#a-z0-9:/\n -]{0,12}|.{0,4}",
    ) {
        let text = include_str!("../../../examples/carrier-cgnat-small.toml");
        let mut characters: Vec<char> = text.chars().collect();
        let start = at.index(characters.len());
        let end = (start + length).min(characters.len());
        characters.splice(start..end, piece.chars());
        let text: String = characters.into_iter().collect();
        if let Err(diagnosis) = check("changed", &text, &machine()) {
            prop_assert!(!diagnosis.found().is_empty());
            for finding in diagnosis.findings() {
                prop_assert!(finding.line >= 1 && finding.column >= 1);
                prop_assert!(!finding.message.is_empty());
            }
            prop_assert!(!diagnosis.render(80, false).is_empty());
        }
    }
}

#[test]
fn text_of_the_committed_corpus_is_answered_without_panic() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/config");
    let files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(!files.is_empty());
    for path in files {
        sluice_config::hostile::text(&std::fs::read(path).unwrap());
    }
}
