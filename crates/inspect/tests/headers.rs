//! Rule headers, and the variables in them.

use crate::rules::*;
use sluice_inspect::Signature;
use sluice_inspect::signature::{Action, Addresses, FlowState, Ports, Protocol, Service};
use sluice_inspect::signatures::{Classes, RuleError, Variables, read};

fn headed(dialect: sluice_inspect::signatures::Dialect, header: &str) -> Signature {
    let mut file = file(dialect, format!("{header} (msg:\"m\"; sid:7;)"));
    assert_eq!(Vec::<String>::new(), faults(&file), "{dialect:?} {header}");
    file.signatures.pop().unwrap()
}

fn fault(dialect: sluice_inspect::signatures::Dialect, header: &str) -> RuleError {
    let mut file = file(dialect, format!("{header} (msg:\"m\"; sid:7;)"));
    assert_eq!(0, file.signatures.len(), "{header} loads");
    file.refused.pop().unwrap().why
}

fn addresses(within: &[&str], without: &[&str]) -> Addresses {
    let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    Addresses {
        within: nets(within),
        without: nets(without),
    }
}

fn ports(ranges: &[(u16, u16)]) -> Ports {
    Ports(ranges.iter().map(|(first, last)| *first..=*last).collect())
}

#[test]
fn action_of_each_word_is_known() {
    for (word, action) in [
        ("alert", Action::Alert),
        ("log", Action::Alert),
        ("pass", Action::Pass),
        ("drop", Action::Drop),
        ("sdrop", Action::Drop),
        ("block", Action::Drop),
        ("reject", Action::Reject),
        ("rejectsrc", Action::Reject),
        ("rejectdst", Action::Reject),
        ("rejectboth", Action::Reject),
    ] {
        assert_eq!(
            action,
            headed(Suricata, &format!("{word} tcp any any -> any any")).action,
            "{word}"
        );
    }
}

#[test]
fn protocol_of_each_word_is_known() {
    for (dialect, word, protocol, services) in [
        (Snort2, "ip", Protocol::Ip, &[][..]),
        (Snort2, "tcp", Protocol::Tcp, &[]),
        (Snort3, "udp", Protocol::Udp, &[]),
        (Suricata, "icmp", Protocol::Icmp, &[]),
        (Suricata, "sctp", Protocol::Number(132), &[]),
        (Suricata, "dns", Protocol::Application, &[Service::Dns]),
        (Suricata, "krb5", Protocol::Application, &[Service::Krb5]),
        (Snort3, "ssl", Protocol::Application, &[Service::Tls]),
        (Snort3, "netbios-ssn", Protocol::Application, &[Service::Smb]),
    ] {
        let header = headed(dialect, &format!("alert {word} any any -> any any")).header;
        assert_eq!((protocol, services), (header.protocol, &*header.services), "{word}");
    }
    let packets = headed(Suricata, "alert tcp-pkt any any -> any any").flow;
    assert_eq!(
        FlowState {
            stream: Some(false),
            ..FlowState::default()
        },
        packets
    );
}

#[test]
fn short_headers_of_snort_3_have_no_sides() {
    let header = headed(Snort3, "alert http").header;
    assert_eq!(
        (Protocol::Application, &[Service::Http, Service::Http2][..]),
        (header.protocol, &*header.services)
    );
    assert_eq!(
        (addresses(&[], &[]), ports(&[])),
        (header.source.addresses, header.source.ports)
    );
    assert_eq!(7, headed(Snort3, "alert file").header.services.len());
    assert_eq!(RuleError::NotAHeader, fault(Snort2, "alert tcp"));
}

#[test]
fn sides_are_read() {
    let header = headed(
        Suricata,
        "alert tcp [10.1.2.3/8, !10.1.0.0/16,2001:db8::1] [80,81,1024:2000,!1500] <> !1.2.3.4 !21:23",
    );
    let header = header.header;
    assert!(header.bidirectional);
    assert_eq!(
        addresses(&["10.0.0.0/8", "2001:db8::1/128"], &["10.1.0.0/16"]),
        header.source.addresses
    );
    assert_eq!(ports(&[(80, 81), (1024, 1499), (1501, 2000)]), header.source.ports);
    assert_eq!(addresses(&[], &["1.2.3.4/32"]), header.destination.addresses);
    assert_eq!(ports(&[(0, 20), (24, 65535)]), header.destination.ports);
    let header = headed(Snort2, "alert tcp $HOME_NET 1024: -> $EXTERNAL_NET :1024").header;
    assert_eq!(
        addresses(&["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"], &[]),
        header.source.addresses
    );
    assert_eq!(ports(&[(1024, 65535)]), header.source.ports);
    assert_eq!(addresses(&[], &[]), header.destination.addresses);
    assert_eq!(ports(&[(0, 1024)]), header.destination.ports);
}

#[test]
fn header_that_is_none_is_refused() {
    use RuleError::*;
    let unknown = |written: &str, hint| Unknown {
        written: written.into(),
        hint,
    };
    let variable = |name: &str, hint: Option<&str>| UndefinedVariable {
        name: name.into(),
        hint: hint.map(Into::into),
    };
    for (header, expected) in [
        ("alrt tcp any any -> any any", unknown("alrt", Some("alert"))),
        ("include x.rules", unknown("include", None)),
        ("alert htpp any any -> any any", unknown("htpp", Some("http"))),
        ("alert tcp any any => any any", Direction("=>".into())),
        ("alert tcp any any <- any any", Direction("<-".into())),
        ("alert", NotAHeader),
        ("alert tcp any any -> any", NotAHeader),
        (
            "alert tcp $HOME_NETS any -> any any",
            variable("HOME_NETS", Some("HOME_NET")),
        ),
        ("alert tcp any $QUITE_OTHER -> any any", variable("QUITE_OTHER", None)),
        (
            "alert tcp 10.0.0.0/33 any -> any any",
            NotAnAddress("10.0.0.0/33".into()),
        ),
        ("alert tcp any 70000 -> any any", NotAPort("70000".into())),
        ("alert tcp any 90:80 -> any any", NotAPort("90:80".into())),
        ("alert tcp any : -> any any", NotAPort(":".into())),
        ("alert tcp any [80,] -> any any", NotAPort("".into())),
        ("alert tcp any !any -> any any", EmptySet("!any".into())),
        ("alert tcp !any any -> any any", EmptySet("any".into())),
        ("alert tcp [10.0.0.0/8 any -> any any", NotAHeader),
        (
            "alert tcp ![10.0.0.0/8,!10.1.0.0/16] any -> any any",
            NestedNegation("[10.0.0.0/8,!10.1.0.0/16]".into()),
        ),
    ] {
        assert_eq!(expected, fault(Suricata, header), "{header}");
    }
    assert_eq!(unknown("http", None), fault(Snort2, "alert http any any -> any any"));
}

#[test]
fn variables_are_set_and_follow_each_other() {
    let mut variables = Variables::default();
    variables
        .set_addresses("HOME_NET", "[192.0.2.0/24,!192.0.2.1]")
        .unwrap();
    variables.set_addresses("EXTERNAL_NET", "!203.0.113.0/24").unwrap();
    variables.set_ports("MINE", "[$SSH_PORTS,!22,23,24]").unwrap();
    assert_eq!(
        Ok(addresses(&["192.0.2.0/24"], &["192.0.2.1/32"])),
        variables.addresses("$HTTP_SERVERS")
    );
    assert_eq!(
        Ok(addresses(&[], &["203.0.113.0/24"])),
        variables.addresses("$EXTERNAL_NET")
    );
    assert_eq!(
        Ok(addresses(&["203.0.113.0/24"], &[])),
        variables.addresses("!$EXTERNAL_NET")
    );
    assert_eq!(Ok(ports(&[(23, 24)])), variables.ports("$MINE"));
    assert_eq!(Ok(ports(&[])), variables.ports("any"));
    assert_eq!(Ok(ports(&[(80, 80)])), variables.ports("!$SHELLCODE_PORTS"));
    let before = variables.clone();
    assert_eq!(
        Err(RuleError::CircularVariable("A".into())),
        variables.set_addresses("A", "$A")
    );
    assert_eq!(
        Err(RuleError::NotAVariable("$A".into())),
        variables.set_ports("$A", "80")
    );
    assert!(variables.set_ports("HTTP_PORTS", "$NONE").is_err());
    assert_eq!(before, variables);
    let text = rule("").replacen("any any", "$HOME_NET any", 1);
    let file = read(text.as_bytes(), Snort3, &Variables::none(), &Classes::default());
    assert_eq!("$HOME_NET", &*file.refused[0].option);
}
