mod floods;

use std::net::Ipv4Addr;

use dhcproto::v4::relay::{RelayAgentInformation, RelayCode, RelayInfo};
use dhcproto::v4::{
    Decodable, Decoder, DhcpOption, Encodable, Encoder, Flags, Message, MessageType, Opcode, OptionCode,
};
use proptest::prelude::*;

use super::*;

const TERMINAL: Mac = [2, 0, 0, 0, 0, 7];
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 50);
const SITE: Site = Site(7);
const SECOND: u64 = 1_000_000_000;

const ORIGIN: Origin<'_> = Origin {
    site: SITE,
    gateway: GATEWAY,
    circuit: b"S100.C7",
    remote: b"",
    link: None,
    trusted: false,
};

/// A terminal's message, encoded by an independent library.
fn request_message(kind: MessageType) -> Message {
    let mut message = Message::new_with_id(
        0x1234,
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::UNSPECIFIED,
        &TERMINAL,
    );
    message.opts_mut().insert(DhcpOption::MessageType(kind));
    message.opts_mut().insert(DhcpOption::Hostname("kitchen".into()));
    message
}

/// A server's reply to a relayed message.
fn answered(to: &[u8], kind: MessageType) -> Message {
    let mut message = decoded(to);
    let relay = message.opts().get(OptionCode::RelayAgentInformation).cloned();
    message.set_opcode(Opcode::BootReply).set_yiaddr(ADDRESS);
    message.opts_mut().clear();
    message.opts_mut().insert(DhcpOption::MessageType(kind));
    message.opts_mut().insert(DhcpOption::AddressLeaseTime(600));
    if let Some(relay) = relay {
        message.opts_mut().insert(relay);
    }
    message
}

fn bytes(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message
        .encode(&mut Encoder::new(&mut bytes))
        .expect("it can be written");
    bytes
}

fn decoded(bytes: &[u8]) -> Message {
    Message::decode(&mut Decoder::new(bytes)).expect("it can be read")
}

fn relay() -> Relay {
    let terminal = TokenRate::new(2, 4);
    let site = TokenRate::new(10, 20);
    Relay::new(Limits::default(), Rates { terminal, site }, 16, 8)
}

fn home(circuit: &[u8]) -> Option<Home> {
    let (site, gateway) = (SITE, GATEWAY);
    (circuit == b"S100.C7").then_some(Home { site, gateway })
}

fn relayed(payload: &[u8], origin: &Origin<'_>) -> Result<Vec<u8>, Refused> {
    let mut out = Vec::new();
    relay().request(payload, origin, 0, &mut out).map(|_| out)
}

fn returned(payload: &[u8]) -> Result<(RelayedReply, Vec<u8>), Refused> {
    let (mut relay, mut out) = (relay(), Vec::new());
    relay
        .request(&bytes(&request_message(MessageType::Request)), &ORIGIN, 0, &mut out)
        .expect("it is relayed");
    let replied = relay.reply(payload, home, 0, &mut out);
    replied.map(|replied| (replied, out))
}

fn information(message: &Message) -> RelayAgentInformation {
    match message.opts().get(OptionCode::RelayAgentInformation) {
        Some(DhcpOption::RelayAgentInformation(information)) => information.clone(),
        other => panic!("no relay agent information: {other:?}"),
    }
}

/// Option 82 with a single suboption.
fn named(part: RelayInfo) -> DhcpOption {
    let mut information = RelayAgentInformation::default();
    information.insert(part);
    DhcpOption::RelayAgentInformation(information)
}

#[test]
fn request_relayed_names_its_site_and_changes_nothing_else() {
    let sent = request_message(MessageType::Discover);
    let origin = Origin {
        remote: b"line 3",
        link: Some(Ipv4Addr::new(10, 9, 0, 0)),
        ..ORIGIN
    };
    let out = relayed(&bytes(&sent), &origin).expect("it is relayed");
    let mut expected = sent.clone();
    expected.set_giaddr(GATEWAY).set_hops(1);
    let mut relay = RelayAgentInformation::default();
    relay.insert(RelayInfo::AgentCircuitId(b"S100.C7".into()));
    relay.insert(RelayInfo::AgentRemoteId(b"line 3".into()));
    relay.insert(RelayInfo::LinkSelection(Ipv4Addr::new(10, 9, 0, 0)));
    expected.opts_mut().insert(DhcpOption::RelayAgentInformation(relay));
    assert_eq!(expected, decoded(&out));
    // Option 82 is the last option, and the message has at least BOOTP's minimum length.
    assert!(out.len() >= 300);
    let end = out.iter().rposition(|&byte| byte == 255).expect("it ends");
    assert_eq!(&b"\x05\x04\x0a\x09\x00\x00\xff"[..], &out[end - 6..=end]);
}

#[test]
fn request_with_nothing_but_a_circuit_has_no_other_parts() {
    let out = relayed(&bytes(&request_message(MessageType::Request)), &ORIGIN).expect("it is relayed");
    let information = information(&decoded(&out));
    let expected = RelayInfo::AgentCircuitId(b"S100.C7".into());
    assert_eq!(
        vec![&expected],
        information.iter().map(|(_, info)| info).collect::<Vec<_>>()
    );
}

/// A terminal's message in which some bytes are replaced.
fn changed(place: usize, to: &[u8]) -> Vec<u8> {
    let mut bytes = bytes(&request_message(MessageType::Discover));
    bytes[place..place + to.len()].copy_from_slice(to);
    bytes
}

#[test]
fn request_that_is_not_a_terminals_is_refused_by_name() {
    let discover = bytes(&request_message(MessageType::Discover));
    let mut forged = request_message(MessageType::Discover);
    forged
        .opts_mut()
        .insert(named(RelayInfo::AgentCircuitId(b"S100.C7".into())));
    let endless: Vec<u8> = discover.iter().copied().take_while(|byte| *byte != 255).collect();
    for (expected, payload) in [
        (Refused::Short, discover[..240].to_vec()),
        (Refused::Long, vec![1; 1473]),
        (Refused::Direction, changed(0, &[2])),
        (Refused::Hardware, changed(1, &[6])),
        (Refused::Hardware, changed(2, &[16])),
        (Refused::Hardware, changed(28, &[1])),
        (Refused::Hardware, changed(28, &[0; 6])),
        (Refused::Cookie, changed(236, &[0])),
        (Refused::Malformed, endless),
        (Refused::Malformed, changed(241, &[200])),
        (Refused::Malformed, [&discover[..240], &[53, 2, 1, 1, 255]].concat()),
        (Refused::Malformed, [&discover[..240], &[53]].concat()),
        (Refused::Kind, bytes(&request_message(MessageType::Offer))),
        (Refused::Kind, bytes(&request_message(MessageType::LeaseQuery))),
        (Refused::Kind, [&discover[..240], &[255]].concat()),
        (Refused::Hops, changed(3, &[16])),
        (Refused::Hops, changed(3, &[255])),
        (Refused::Gateway, changed(24, &[10, 1, 0, 1])),
        (Refused::Gateway, changed(24, &[1, 2, 3, 4])),
        (Refused::OptionForged, bytes(&forged)),
    ] {
        assert_eq!(Err(expected), relayed(&payload, &ORIGIN), "{}", expected.name());
        let mut relay = relay();
        let _ = relay.request(&payload, &ORIGIN, 0, &mut Vec::new());
        let mut tally = Tally::default();
        tally.refused[expected as usize] = 1;
        assert_eq!(&tally, relay.tally(), "it is counted once");
    }
    assert!(relayed(&changed(3, &[15]), &ORIGIN).is_ok());
}

#[test]
fn request_of_a_trusted_relay_passes_as_it_is() {
    let trusted = Origin {
        trusted: true,
        ..ORIGIN
    };
    let payload = changed(24, &[1, 2, 3, 4]);
    let mut expected = payload.clone();
    expected[3] = 1;
    assert_eq!(Ok(expected), relayed(&payload, &trusted));
    // Even a trusted relay must not use this relay's address.
    assert_eq!(Err(Refused::Gateway), relayed(&changed(24, &[10, 1, 0, 1]), &trusted));
}

#[test]
fn request_with_the_option_of_a_trusted_bridge_gets_the_relays() {
    let mut sent = request_message(MessageType::Discover);
    sent.opts_mut()
        .insert(named(RelayInfo::AgentCircuitId(b"bridge".into())));
    let (mut relay, mut out) = (relay(), Vec::new());
    let trusted = Origin {
        trusted: true,
        ..ORIGIN
    };
    relay
        .request(&bytes(&sent), &trusted, 0, &mut out)
        .expect("it is relayed");
    let expected = RelayInfo::AgentCircuitId(b"S100.C7".into());
    assert_eq!(
        Some(&expected),
        information(&decoded(&out)).get(RelayCode::AgentCircuitId)
    );
    assert_eq!([0, 1, 0], relay.tally().noted);
}

#[test]
fn request_without_room_goes_without_the_option_and_its_answer_finds_home() {
    let mut sent = bytes(&request_message(MessageType::Discover));
    sent.truncate(sent.iter().rposition(|&byte| byte == 255).expect("it ends"));
    while sent.len() < 1470 {
        let length = (1470 - sent.len() - 2).min(255);
        sent.extend([224, length as u8]);
        sent.resize(sent.len() + length, b'x');
    }
    sent.push(255);
    let (mut relay, mut out, mut back) = (relay(), Vec::new(), Vec::new());
    let relayed = relay.request(&sent, &ORIGIN, 0, &mut out).expect("it is relayed");
    assert_eq!((false, sent.len()), (relayed.marked, out.len()));
    assert_eq!([1, 0, 0], relay.tally().noted);
    let answer = bytes(&answered(&out, MessageType::Offer));
    assert_eq!(
        Ok(SITE),
        relay.reply(&answer, home, SECOND, &mut back).map(|to| to.site)
    );
    let late = 31 * SECOND;
    assert_eq!(
        Err(Refused::OptionMissing),
        relay.reply(&answer, home, late, &mut back).map(|to| to.site)
    );
}

#[test]
fn request_of_a_site_whose_name_is_too_long_is_refused() {
    let discover = bytes(&request_message(MessageType::Discover));
    let (longest, longer) = ([b'x'; 253], [b'x'; 254]);
    let with = |circuit| Origin { circuit, ..ORIGIN };
    assert!(relayed(&discover, &with(&longest)).is_ok());
    assert_eq!(Err(Refused::Information), relayed(&discover, &with(&longer)));
    assert_eq!(Err(Refused::Information), relayed(&discover, &with(b"")));
}

#[test]
fn reply_goes_back_without_the_option_and_tells_the_lease() {
    let sent = relayed(&bytes(&request_message(MessageType::Request)), &ORIGIN).expect("it is relayed");
    let answer = answered(&sent, MessageType::Ack);
    let (acknowledged, out) = returned(&bytes(&answer)).expect("it is relayed");
    let expected = RelayedReply {
        site: SITE,
        gateway: GATEWAY,
        kind: 5,
        hardware: TERMINAL,
        to: ReplyDestination::Terminal(ADDRESS, TERMINAL),
        lease: Some((ADDRESS, 600)),
    };
    assert_eq!(expected, acknowledged);
    let mut bare = answer.clone();
    bare.opts_mut().remove(OptionCode::RelayAgentInformation);
    assert_eq!(bare, decoded(&out));
    assert!(out.len() >= 300);
}

#[test]
fn reply_goes_where_the_terminal_can_hear_it() {
    let sent = relayed(&bytes(&request_message(MessageType::Request)), &ORIGIN).expect("it is relayed");
    let to = |answer: &Message| returned(&bytes(answer)).expect("it is relayed").0;
    let offer = answered(&sent, MessageType::Offer);
    assert_eq!(
        (ReplyDestination::Terminal(ADDRESS, TERMINAL), None),
        (to(&offer).to, to(&offer).lease)
    );
    let mut broadcast = offer.clone();
    broadcast.set_flags(Flags::default().set_broadcast());
    assert_eq!(ReplyDestination::Broadcast, to(&broadcast).to);
    let refusal = answered(&sent, MessageType::Nak);
    assert_eq!(ReplyDestination::Broadcast, to(&refusal).to);
    // The reply to a DHCPINFORM.
    let mut informed = answered(&sent, MessageType::Ack);
    informed.set_yiaddr(Ipv4Addr::UNSPECIFIED).set_ciaddr(ADDRESS);
    assert_eq!(
        (ReplyDestination::Terminal(ADDRESS, TERMINAL), None),
        (to(&informed).to, to(&informed).lease)
    );
    informed.set_ciaddr(Ipv4Addr::UNSPECIFIED);
    assert_eq!(ReplyDestination::Broadcast, to(&informed).to);
}

#[test]
fn reply_that_is_not_this_relays_is_refused_by_name() {
    let sent = relayed(&bytes(&request_message(MessageType::Request)), &ORIGIN).expect("it is relayed");
    let answer = answered(&sent, MessageType::Ack);
    let with = |part: RelayInfo| {
        let mut answer = answer.clone();
        answer.opts_mut().insert(named(part));
        answer
    };
    let (mut elsewhere, mut bare) = (answer.clone(), answer.clone());
    elsewhere.set_giaddr(Ipv4Addr::new(10, 2, 0, 1));
    bare.opts_mut().remove(OptionCode::RelayAgentInformation);
    for (expected, answer) in [
        (Refused::Direction, request_message(MessageType::Discover)),
        (Refused::Kind, answered(&sent, MessageType::Discover)),
        (Refused::Kind, answered(&sent, MessageType::ForceRenew)),
        (Refused::OptionMissing, bare),
        (Refused::Circuit, with(RelayInfo::AgentCircuitId(b"S100.C8".into()))),
        (Refused::Circuit, with(RelayInfo::AgentRemoteId(b"S100.C7".into()))),
        (Refused::Gateway, elsewhere),
    ] {
        assert_eq!(
            Err(expected),
            returned(&bytes(&answer)).map(drop),
            "{}",
            expected.name()
        );
    }
}

#[test]
fn reply_to_what_nobody_of_the_site_has_asked_lately_is_refused() {
    let question = bytes(&request_message(MessageType::Request));
    let answer = bytes(&answered(
        &relayed(&question, &ORIGIN).expect("it is relayed"),
        MessageType::Ack,
    ));
    let (mut relay, mut out) = (relay(), Vec::new());
    let mut ask = |relay: &mut Relay, origin: &Origin<'_>, now| {
        let relayed = relay.request(&question, origin, now, &mut Vec::new());
        relayed.expect("it is relayed");
        relay.reply(&answer, home, now, &mut out).map(|to| to.site)
    };
    let elsewhere = Origin {
        site: Site(3),
        ..ORIGIN
    };
    assert_eq!(Err(Refused::Unsolicited), ask(&mut relay, &elsewhere, 0));
    assert_eq!(Ok(SITE), ask(&mut relay, &ORIGIN, 0));
    let mut later = |seconds| {
        relay
            .reply(&answer, home, seconds * SECOND, &mut Vec::new())
            .map(|to| to.site)
    };
    assert_eq!([Ok(SITE), Err(Refused::Unsolicited)], [29, 90].map(&mut later));
}

#[test]
fn options_in_other_fields_are_read_and_cleaned() {
    let sent = relayed(&bytes(&request_message(MessageType::Request)), &ORIGIN).expect("it is relayed");
    let mut answer = answered(&sent, MessageType::Ack);
    answer.opts_mut().remove(OptionCode::RelayAgentInformation);
    answer.opts_mut().remove(OptionCode::MessageType);
    answer.opts_mut().insert(DhcpOption::OptionOverload(3));
    let mut payload = bytes(&answer);
    // The server name field contains the message type, and the file field contains option 82.
    payload[44..48].copy_from_slice(&[53, 1, 5, 255]);
    payload[108..124].copy_from_slice(b"\x0c\x01k\x52\x09\x01\x07S100.C7\xff\0");
    let (acknowledged, out) = returned(&payload).expect("it is relayed");
    assert_eq!((5, Some((ADDRESS, 600))), (acknowledged.kind, acknowledged.lease));
    assert_eq!(b"\x0c\x01k\0\0\0\0\0\0\0\0\0\0\0\xff\0", &out[108..124]);
    // An options field without an end option is invalid.
    payload[108..236].fill(0);
    assert_eq!(Err(Refused::Malformed), returned(&payload).map(drop));
}

#[test]
fn corpus_is_relayed_or_refused() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/relay");
    let files = std::fs::read_dir(folder).expect("it is there");
    let count = files.map(|file| hostile(&std::fs::read(file.expect("a file").path()).expect("it is read")));
    assert!(count.count() > 0);
}

/// An option whose value is unchanged after the library has encoded and decoded it.
fn option() -> impl Strategy<Value = DhcpOption> {
    prop_oneof![
        "[a-z]{1,60}".prop_map(DhcpOption::Hostname),
        proptest::collection::vec(any::<u8>(), 1..200).prop_map(DhcpOption::ClientIdentifier),
        proptest::collection::vec(any::<u8>(), 1..200).prop_map(DhcpOption::ClassIdentifier),
        any::<[u8; 4]>().prop_map(|address| DhcpOption::RequestedIpAddress(address.into())),
        any::<u16>().prop_map(DhcpOption::MaxMessageSize),
    ]
}

proptest! {
    #[test]
    fn message_there_and_back_is_what_was_sent(
        options in proptest::collection::vec(option(), 0..5), xid: u32, secs: u16, ciaddr: [u8; 4], broadcast: bool,
    ) {
        let mut sent = request_message(MessageType::Request);
        sent.set_xid(xid).set_secs(secs).set_ciaddr(ciaddr);
        for option in options {
            sent.opts_mut().insert(option);
        }
        let (mut relay, mut out, mut back) = (relay(), Vec::new(), Vec::new());
        relay.request(&bytes(&sent), &ORIGIN, 0, &mut out).expect("it is relayed");
        let mut expected = sent.clone();
        expected.set_giaddr(GATEWAY).set_hops(1);
        let mut there = decoded(&out);
        there.opts_mut().remove(OptionCode::RelayAgentInformation);
        prop_assert_eq!(&expected, &there);
        let mut answer = decoded(&out);
        answer.set_opcode(Opcode::BootReply).set_yiaddr(ADDRESS);
        answer.opts_mut().insert(DhcpOption::MessageType(MessageType::Ack));
        if broadcast {
            answer.set_flags(Flags::default().set_broadcast());
        }
        let acknowledged = relay.reply(&bytes(&answer), home, 0, &mut back).expect("it is relayed");
        prop_assert_eq!(broadcast, acknowledged.to == ReplyDestination::Broadcast);
        answer.opts_mut().remove(OptionCode::RelayAgentInformation);
        prop_assert_eq!(answer, decoded(&back));
    }

    #[test]
    fn any_bytes_are_relayed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        hostile(&bytes);
    }

    #[test]
    fn messages_changed_are_relayed_or_refused(
        answer: bool, changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..12),
    ) {
        let sent = bytes(&request_message(MessageType::Discover));
        let sent = match answer {
            true => bytes(&answered(&relayed(&sent, &ORIGIN).expect("it is relayed"), MessageType::Offer)),
            false => sent,
        };
        let mut bytes = [&[0][..], &sent].concat();
        for (place, byte, how) in changes {
            let place = place.index(bytes.len());
            match how {
                0 => bytes.insert(place, byte),
                1 => drop(bytes.remove(place)),
                _ => bytes[place] = byte,
            }
        }
        hostile(&bytes);
    }
}
