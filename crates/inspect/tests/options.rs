//! Options that describe a rule, select its connections, and limit its rate.

use crate::rules::*;
use sluice_inspect::signature::{Condition, FlowBit, FlowBits, FlowState, Id, Rate, RateKind, Service, Toward, Track};
use sluice_inspect::signatures::{Classes, ClassesError, Variables, read};

#[test]
fn rule_says_what_it_is_about() {
    let options = r#"reference:url,example.org/a; reference:cve,2021-44228; classtype:trojan-activity; gid:3;"#;
    for dialect in EVERY {
        let signature = loaded(dialect, options);
        assert_eq!(
            Id {
                generator: 3,
                signature: 7,
                revision: 2
            },
            signature.id
        );
        assert_eq!("m", &*signature.message);
        assert_eq!(
            (Some("trojan-activity"), 1),
            (signature.class.as_deref(), signature.priority)
        );
        let references: [(Box<str>, Box<str>); 2] = [
            ("url".into(), "example.org/a".into()),
            ("cve".into(), "2021-44228".into()),
        ];
        assert_eq!(references, *signature.references);
        assert_eq!(4, loaded(dialect, "classtype:trojan-activity; priority:4;").priority);
        assert_eq!(3, loaded(dialect, "").priority);
    }
    let quoted = file(Snort2, r#"alert ip any any -> any any (msg:"a \"b\"\; c\\d"; sid:1;)"#);
    assert_eq!(r#"a "b"; c\d"#, &*quoted.signatures[0].message);
    assert_eq!(
        Id {
            generator: 1,
            signature: 1,
            revision: 0
        },
        quoted.signatures[0].id
    );
}

#[test]
fn descriptions_change_nothing() {
    for (dialect, options) in [
        (
            Suricata,
            "target:dest_ip; metadata:created_at 2020_01_01, service http; prefilter;",
        ),
        (
            Snort2,
            "metadata:policy balanced-ips drop, ruleset community, impact_flag red;",
        ),
        (Snort3, "rem:\"why\"; soid:3|1234; metadata:policy security-ips drop;"),
    ] {
        assert_eq!(loaded(dialect, "").conditions, loaded(dialect, options).conditions);
        assert_eq!(0, loaded(dialect, options).header.services.len());
    }
}

#[test]
fn services_are_named_in_each_dialect() {
    let expected = [Service::Http, Service::Http2, Service::Smtp];
    assert_eq!(
        expected,
        *loaded(Snort2, "metadata:service smtp, policy x, service http;")
            .header
            .services
    );
    assert_eq!(expected, *loaded(Snort3, "service:smtp,http;").header.services);
    assert_eq!(
        [Service::Tls],
        *loaded(Suricata, "app-layer-protocol:tls;").header.services
    );
}

#[test]
fn flow_is_read() {
    let flow = |direction, established, stream| FlowState {
        direction,
        established,
        stream,
    };
    for (value, expected) in [
        ("to_server,established", flow(Some(Toward::Server), Some(true), None)),
        ("established, from_client", flow(Some(Toward::Server), Some(true), None)),
        ("to_client,only_stream", flow(Some(Toward::Client), None, Some(true))),
        ("from_server,no_stream", flow(Some(Toward::Client), None, Some(false))),
        ("not_established", flow(None, Some(false), None)),
        ("stateless", flow(None, None, None)),
    ] {
        for dialect in EVERY {
            assert_eq!(expected, loaded(dialect, &format!("flow:{value};")).flow);
        }
    }
}

#[test]
fn flow_bits_are_read() {
    let of = |command, names: &[&str], any| {
        let names = names.iter().map(|name| (*name).into()).collect();
        vec![Condition::FlowBits(FlowBits { command, names, any })]
    };
    compare(&[
        (&EVERY, "flowbits:set,a.b;", of(FlowBit::Set, &["a.b"], false)),
        (&EVERY, "flowbits:unset,a;", of(FlowBit::Unset, &["a"], false)),
        (&EVERY, "flowbits:toggle,a;", of(FlowBit::Toggle, &["a"], false)),
        (&EVERY, "flowbits:isset, a;", of(FlowBit::IsSet, &["a"], false)),
        (&EVERY, "flowbits:isnotset,a;", of(FlowBit::IsNotSet, &["a"], false)),
        (&EVERY, "flowbits:isset,a|b;", of(FlowBit::IsSet, &["a", "b"], true)),
        (
            &[Snort2, Snort3],
            "flowbits:set,a&b;",
            of(FlowBit::Set, &["a", "b"], false),
        ),
        (
            &[Snort2, Snort3],
            "flowbits:set,a,group;",
            of(FlowBit::Set, &["a"], false),
        ),
    ]);
    assert!(
        EVERY
            .into_iter()
            .all(|dialect| loaded(dialect, "flowbits:noalert;").noalert)
    );
    assert!(loaded(Suricata, "noalert;").noalert);
}

#[test]
fn rates_are_read() {
    let rate = |kind, track| {
        Some(Rate {
            kind,
            track,
            count: 5,
            seconds: 60,
        })
    };
    for dialect in EVERY {
        let signature = loaded(dialect, "detection_filter:track by_src, count 5, seconds 60;");
        assert_eq!(rate(RateKind::After, Track::Source), signature.rate);
    }
    for (kind, word) in [
        (RateKind::Limit, "limit"),
        (RateKind::Every, "threshold"),
        (RateKind::Once, "both"),
    ] {
        let options = format!("threshold:type {word}, track by_dst, count 5, seconds 60;");
        for dialect in [Suricata, Snort2] {
            assert_eq!(rate(kind, Track::Destination), loaded(dialect, &options).rate);
        }
    }
    let signature = loaded(Suricata, "threshold:type limit, track by_rule, count 5, seconds 60;");
    assert_eq!(rate(RateKind::Limit, Track::Rule), signature.rate);
    let signature = loaded(Suricata, "threshold:type limit, track by_both, count 5, seconds 60;");
    assert_eq!(rate(RateKind::Limit, Track::Both), signature.rate);
}

#[test]
fn classes_are_read() {
    let text = "# classes\r\n\r\nconfig classification: my-own,Some, thing,2\nconfig classification: unknown,x,1\n";
    let classes = Classes::read(text).unwrap();
    assert_eq!(
        (2, 1),
        (classes.priority(Some("my-own")), classes.priority(Some("unknown")))
    );
    assert_eq!(
        (1, 3),
        (classes.priority(Some("attempted-admin")), classes.priority(None))
    );
    let text = "config classification: a,b,1\nconfig classification: a,b,none";
    let expected = ClassesError {
        line: 2,
        text: "config classification: a,b,none".into(),
    };
    assert_eq!(Err(expected), Classes::read(text));
    let file = read(
        rule("classtype:a;").as_bytes(),
        Snort2,
        &Variables::default(),
        &Classes::read("").unwrap(),
    );
    assert_eq!(3, file.signatures[0].priority);
}
