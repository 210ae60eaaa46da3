//! Tests of TCP through translation, requirement by requirement (RFC 5382 and its update by RFC 7857).

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::rig::{self, HOST, INSIDE, OUTSIDE, Plan, Rig, flow};
use sluice_engine::worker::request::{Filter, SessionInfo};
use sluice_nat::behaviour::{Behaviour, Filtering};
use sluice_nat::rule::{DestinationAction, DestinationRule, Prefix};
use sluice_testkit::packet::{self, Frame, flag};

const SYN: u8 = flag::SYN;
const ACK: u8 = flag::ACK;
const FIN: u8 = flag::FIN | flag::ACK;
const SYN_ACK: u8 = flag::SYN | flag::ACK;
const RST: u8 = flag::RST;
const RST_ACK: u8 = flag::RST | flag::ACK;

fn remote() -> SocketAddrV4 {
    "198.51.100.7:80".parse().unwrap()
}

fn inside() -> SocketAddrV4 {
    "192.168.1.10:40000".parse().unwrap()
}

/// The segments of a connection: sender (`C` for the client, `S` for the server), flags, length of data, and state of
/// the session afterwards. Sequence and acknowledgment numbers are those of two endpoints without packet loss.
type Script = &'static [(char, u8, u32, &'static str)];

/// Sequences that RFC 9293 permits: the segments in its figures 6 to 14, and the effects of losses.
const SCRIPTS: &[(&str, Script)] = &[
    (
        "three segments open, the client closes",
        &[
            ('C', SYN, 0, "SYN_SENT"),
            ('S', SYN_ACK, 0, "ESTABLISHED"),
            ('C', ACK, 0, "ESTABLISHED"),
            ('C', ACK, 500, "ESTABLISHED"),
            ('S', ACK, 1000, "ESTABLISHED"),
            ('C', FIN, 0, "FIN_WAIT"),
            ('S', ACK, 0, "FIN_WAIT"),
            ('S', FIN, 0, "TIME_WAIT"),
            ('C', ACK, 0, "TIME_WAIT"),
        ],
    ),
    (
        "the server closes and the client goes on sending",
        &[
            ('C', SYN, 0, "SYN_SENT"),
            ('S', SYN_ACK, 0, "ESTABLISHED"),
            ('C', ACK, 0, "ESTABLISHED"),
            ('S', FIN, 100, "FIN_WAIT"),
            ('C', ACK, 1000, "FIN_WAIT"),
            ('S', ACK, 0, "FIN_WAIT"),
            ('C', FIN, 1000, "TIME_WAIT"),
            ('S', ACK, 0, "TIME_WAIT"),
        ],
    ),
    (
        "both open at once, both close at once",
        &[
            ('C', SYN, 0, "SYN_SENT"),
            ('S', SYN, 0, "ESTABLISHED"),
            ('C', SYN_ACK, 0, "ESTABLISHED"),
            ('S', SYN_ACK, 0, "ESTABLISHED"),
            ('C', ACK, 10, "ESTABLISHED"),
            ('C', FIN, 0, "FIN_WAIT"),
            ('S', FIN, 0, "TIME_WAIT"),
            ('C', ACK, 0, "TIME_WAIT"),
            ('S', ACK, 0, "TIME_WAIT"),
        ],
    ),
    (
        "data with the SYN, as fast open sends them",
        &[
            ('C', SYN, 300, "SYN_SENT"),
            ('S', SYN_ACK, 700, "ESTABLISHED"),
            ('C', ACK, 0, "ESTABLISHED"),
        ],
    ),
    (
        "refused, and tried again",
        &[
            ('C', SYN, 0, "SYN_SENT"),
            ('S', RST_ACK, 0, "CLOSE"),
            ('C', SYN, 0, "SYN_SENT"),
            ('S', SYN_ACK, 0, "ESTABLISHED"),
        ],
    ),
    (
        "data behind both FINs",
        &[
            ('C', SYN, 0, "SYN_SENT"),
            ('S', SYN_ACK, 0, "ESTABLISHED"),
            ('C', FIN, 0, "FIN_WAIT"),
            ('S', FIN, 0, "TIME_WAIT"),
            ('S', ACK, 3, "ESTABLISHED"),
            ('C', ACK, 0, "ESTABLISHED"),
        ],
    ),
    (
        "reset by the client",
        &[
            ('C', SYN, 0, "SYN_SENT"),
            ('S', SYN_ACK, 0, "ESTABLISHED"),
            ('C', ACK, 0, "ESTABLISHED"),
            ('C', RST_ACK, 0, "CLOSE"),
        ],
    ),
    (
        "the ports used again after closing",
        &[
            ('C', SYN, 0, "SYN_SENT"),
            ('S', SYN_ACK, 0, "ESTABLISHED"),
            ('C', FIN, 0, "FIN_WAIT"),
            ('S', FIN, 0, "TIME_WAIT"),
            ('C', ACK, 0, "TIME_WAIT"),
            ('C', SYN, 0, "SYN_SENT"),
            ('S', SYN_ACK, 0, "ESTABLISHED"),
            ('C', ACK, 100, "ESTABLISHED"),
        ],
    ),
    (
        "the ports used again after a reset",
        &[
            ('C', SYN, 0, "SYN_SENT"),
            ('S', SYN_ACK, 0, "ESTABLISHED"),
            ('S', RST, 0, "CLOSE"),
            ('C', SYN, 0, "SYN_SENT"),
            ('S', SYN_ACK, 0, "ESTABLISHED"),
        ],
    ),
];

/// How a connection is opened.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Opening {
    /// The inside host opens the connection.
    Inside,
    /// A remote host connects to a forwarded port.
    Forwarded,
    /// A remote host connects to a mapped port.
    Mapped,
}

/// Both endpoints of a connection, each with the address that the other endpoint sees, and the next sequence numbers of
/// both endpoints.
struct Talk {
    rig: Rig,
    opening: Opening,
    /// The inside host's outside address and port.
    public: SocketAddrV4,
    next: [u32; 2],
}

impl Talk {
    fn new(opening: Opening) -> Self {
        let mut public = "203.0.113.20:40000".parse().unwrap();
        let mut rig = Rig::new(Plan {
            forwards: vec![DestinationRule {
                context: 0,
                protocol: Some(6),
                external: Prefix::host(Ipv4Addr::new(203, 0, 113, 20).to_bits()),
                ports: Some((40_000, 40_000)),
                inbound: None,
                action: DestinationAction::Host(inside().ip().to_bits(), None),
            }],
            ..Plan::default()
        });
        if opening != Opening::Forwarded {
            // All remote hosts use one mapping.
            public = rig.public(&packet::tcp4(inside(), "192.0.2.1:443").flags(SYN));
        }
        Self {
            rig,
            opening,
            public,
            next: [u32::MAX - 200, 77],
        }
    }

    fn shown(&mut self) -> SessionInfo {
        let sessions = self.rig.sessions(Filter::default());
        let other =
            |shown: &SessionInfo| [shown.forward.source, shown.forward.destination].contains(&(*remote().ip()).into());
        *sessions.iter().find(|shown| other(shown)).expect("a session")
    }

    /// Sends a segment. Checks that it leaves through the opposite interface, translated and otherwise unchanged.
    #[track_caller]
    fn send(&mut self, by_client: bool, flags: u8, length: u32, what: &str) {
        let (this, other) = if by_client { (0, 1) } else { (1, 0) };
        let acknowledgment = if flags & ACK != 0 { self.next[other] } else { 0 };
        let segment = |from, to| {
            packet::tcp4(from, to)
                .flags(flags)
                .numbers(self.next[this], acknowledgment)
                .payload(&vec![5; length as usize])
        };
        let from_host = by_client == (self.opening == Opening::Inside);
        let (sent, expected, port) = if from_host {
            (
                self.rig.host_sends(&segment(inside(), remote())),
                segment(self.public, remote()).macs(rig::OUTSIDE_MAC, rig::ROUTER_MAC),
                OUTSIDE,
            )
        } else {
            (
                self.rig.router_sends(&segment(remote(), self.public)),
                segment(remote(), inside()).macs(rig::INSIDE_MAC, rig::HOST_MAC),
                INSIDE,
            )
        };
        assert_eq!(1, sent.len(), "{what}: {:?}", self.rig.all_drops());
        assert_eq!(
            (port, expected.ttl(63).build()),
            (sent[0].port, sent[0].frame.clone()),
            "{what}"
        );
        let controls = u32::from(flags & SYN != 0) + u32::from(flags & flag::FIN != 0);
        self.next[this] = self.next[this].wrapping_add(length + controls);
    }

    /// Opens a connection.
    fn open(opening: Opening) -> Self {
        let mut talk = Self::new(opening);
        talk.send(true, SYN, 0, "SYN");
        talk.send(false, SYN_ACK, 0, "SYN-ACK");
        talk.send(true, ACK, 0, "ACK");
        talk
    }
}

#[test]
fn rfc5382_req2_valid_sequences_pass_whoever_opens_the_connection() {
    for opening in [Opening::Inside, Opening::Forwarded, Opening::Mapped] {
        for &(name, script) in SCRIPTS {
            let mut talk = Talk::new(opening);
            for (number, &(sender, flags, length, state)) in script.iter().enumerate() {
                let what = format!("{opening:?}, {name}, segment {number}");
                if number > 0 && flags == SYN && sender == 'C' {
                    // The sequence numbers of the new connection are independent of the old connection.
                    talk.next = talk.next.map(|next| next.wrapping_add(0x4000_0000));
                }
                talk.send(sender == 'C', flags, length, &what);
                assert_eq!(Some(state), talk.shown().state, "{what}");
            }
        }
    }
}

#[test]
fn rfc5382_req2_segments_sent_again_pass_and_change_nothing() {
    for opening in [Opening::Inside, Opening::Forwarded, Opening::Mapped] {
        for &(name, script) in SCRIPTS {
            let mut talk = Talk::new(opening);
            for (number, &(sender, flags, length, state)) in script.iter().enumerate() {
                let what = format!("{opening:?}, {name}, segment {number}");
                if number > 0 && flags == SYN && sender == 'C' {
                    talk.next = talk.next.map(|next| next.wrapping_add(0x4000_0000));
                }
                let before = talk.next;
                talk.send(sender == 'C', flags, length, &what);
                let after = std::mem::replace(&mut talk.next, before);
                talk.send(sender == 'C', flags, length, &format!("{what} again"));
                talk.next = after;
                assert_eq!(Some(state), talk.shown().state, "{what} again");
            }
        }
    }
}

#[test]
fn rfc5382_req3a_req3b_rfc7857_section6_filtering_of_tcp_is_its_own() {
    let mut rig = Rig::new(Plan {
        change_pool: |pool| {
            let strict = Behaviour {
                filtering: Filtering::AddressDependent,
                ..Behaviour::default()
            };
            pool.behaviour = [strict, Behaviour::default(), Behaviour::default()];
        },
        ..Plan::default()
    });
    let stranger: SocketAddrV4 = "192.0.2.99:5555".parse().unwrap();
    let tcp = rig.public(&packet::tcp4(inside(), remote()).flags(SYN));
    let udp = rig.public(&packet::udp4(inside(), remote()));
    assert!(rig.router_sends(&packet::tcp4(stranger, tcp).flags(SYN)).is_empty());
    assert_eq!(vec![("filtered", 1)], rig.all_drops());
    let sent = rig.router_sends(&packet::udp4(stranger, udp));
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!((stranger, inside()), flow(&sent[0].frame));
}

/// The address and port of the inside host stay mapped after a connection has ended, so that the remote host may open
/// the next connection between the same ports.
#[test]
fn other_end_opens_a_connection_on_the_ports_of_one_that_has_ended() {
    type Close = fn(&mut Talk);
    let closes: [(&str, Close); 3] = [
        ("FINs", |talk| {
            talk.send(true, FIN, 0, "FIN");
            talk.send(false, FIN, 0, "FIN");
            talk.send(true, ACK, 0, "ACK");
        }),
        ("a reset", |talk| talk.send(true, RST, 0, "RST")),
        ("a reset of the other end", |talk| talk.send(false, RST, 0, "RST")),
    ];
    for opening in [Opening::Inside, Opening::Mapped] {
        for (name, close) in closes {
            let mut talk = Talk::open(opening);
            let made = talk.rig.plane.counters()[0].sessions_created.get();
            close(&mut talk);
            talk.rig.seconds(5);
            talk.next = [600_000, 700_000];
            let what = format!("{opening:?}, {name}");
            talk.send(false, SYN, 0, &what);
            assert_eq!(made + 1, talk.rig.plane.counters()[0].sessions_created.get(), "{what}");
            let shown = talk.shown();
            assert_eq!((Some("SYN_SENT"), 240), (shown.state, shown.seconds_left), "{what}");
            talk.send(true, SYN_ACK, 0, &what);
            talk.send(false, ACK, 0, &what);
            for _ in 0..10 {
                talk.rig.seconds(60);
                talk.send(false, ACK, 1, &what);
                talk.send(true, ACK, 0, &what);
            }
            let shown = talk.shown();
            assert_eq!((Some("ESTABLISHED"), 7440), (shown.state, shown.seconds_left), "{what}");
            assert_eq!(1, talk.rig.live(), "{what}");
        }
    }
}

#[test]
fn connection_that_takes_the_place_of_one_that_has_ended_fits_into_a_full_table() {
    let mut talk = Talk::open(Opening::Inside);
    talk.send(true, RST, 0, "RST");
    let mut port = 1024;
    while talk.rig.drops("sessions-full") == 0 {
        talk.rig
            .host_sends(&packet::udp4(&*format!("192.168.1.10:{port}"), "192.0.2.9:53"));
        port += 1;
    }
    let live = talk.rig.live();
    talk.next = [600_000, 700_000];
    talk.send(true, SYN, 0, "SYN");
    talk.send(false, SYN_ACK, 0, "SYN-ACK");
    assert_eq!(live, talk.rig.live());
}

#[test]
fn forged_fins_outside_the_window_close_nothing() {
    for opening in [Opening::Inside, Opening::Forwarded, Opening::Mapped] {
        let mut talk = Talk::open(opening);
        let next = talk.next;
        talk.next = next.map(|number| number.wrapping_add(0x4000_0000));
        for by_client in [true, false] {
            talk.send(by_client, FIN, 0, "forged");
            assert_eq!(Some("ESTABLISHED"), talk.shown().state);
        }
        talk.next = next;
        talk.send(true, ACK, 10, "data");
        assert_eq!(Some("ESTABLISHED"), talk.shown().state);
    }
}

fn error_about(talk: &Talk, kind: u8, code: u8) -> Frame {
    let quoted = packet::tcp4(talk.public, remote()).numbers(talk.next[0], talk.next[1]);
    let middle = Ipv4Addr::new(198, 51, 100, 1);
    packet::icmp4_error(middle, *talk.public.ip(), kind, code, &quoted.build(), 548)
}

#[test]
fn rfc5382_req9_unreachable_messages_are_translated() {
    let mut talk = Talk::open(Opening::Inside);
    for code in 0..=15 {
        let error = error_about(&talk, 3, code);
        let sent = talk.rig.router_sends(&error);
        assert_eq!(1, sent.len(), "{code}: {:?}", talk.rig.all_drops());
        let frame = &sent[0].frame;
        assert_eq!((INSIDE, [3, code]), (sent[0].port, [frame[34], frame[35]]));
        let host: Ipv4Addr = HOST.parse().unwrap();
        assert_eq!(
            (host.octets(), host.octets()),
            (frame[30..34].try_into().unwrap(), frame[54..58].try_into().unwrap())
        );
        assert_eq!(inside().port().to_be_bytes(), frame[62..64]);
        assert!(rig::is_valid(frame));
    }
}

#[test]
fn rfc5382_req10_no_icmp_message_ends_a_connection() {
    let mut talk = Talk::open(Opening::Inside);
    for kind in [3, 4, 5, 11, 12] {
        for code in 0..=15 {
            let error = error_about(&talk, kind, code);
            talk.rig.router_sends(&error);
            let shown = talk.shown();
            assert_eq!(
                (Some("ESTABLISHED"), 7440),
                (shown.state, shown.seconds_left),
                "{kind} {code}"
            );
        }
    }
    talk.send(true, ACK, 100, "data of the client");
    talk.send(false, ACK, 100, "data of the server");
}

#[test]
fn rfc7857_section2_1_opening_and_closing_have_timers_of_their_own() {
    let mut talk = Talk::new(Opening::Inside);
    talk.rig = Rig::new(Plan {
        change_pool: |pool| {
            pool.timeouts.tcp_transitory_open = 30;
            pool.timeouts.tcp_transitory_close = 20;
        },
        ..Plan::default()
    });
    talk.public = talk.rig.public(&packet::tcp4(inside(), "192.0.2.1:443").flags(SYN));
    talk.send(true, SYN, 0, "SYN");
    assert_eq!(30, talk.shown().seconds_left);
    talk.send(false, SYN_ACK, 0, "SYN-ACK");
    assert_eq!(7440, talk.shown().seconds_left);
    talk.send(true, FIN, 0, "FIN");
    assert_eq!(7440, talk.shown().seconds_left, "half of it may last");
    talk.send(false, FIN, 0, "FIN");
    assert_eq!(20, talk.shown().seconds_left);
}

#[test]
fn rfc7857_section2_2_connection_that_goes_on_after_a_reset_lives_on() {
    for opening in [Opening::Inside, Opening::Forwarded, Opening::Mapped] {
        let mut talk = Talk::open(opening);
        talk.send(false, RST, 0, "RST");
        let shown = talk.shown();
        assert_eq!((Some("CLOSE"), 240), (shown.state, shown.seconds_left));
        talk.rig.seconds(200);
        talk.send(true, ACK, 1, "data");
        let shown = talk.shown();
        assert_eq!((Some("ESTABLISHED"), 7440), (shown.state, shown.seconds_left));
    }
}

#[test]
fn rfc7857_section7_1_resets_and_errors_from_inside_refresh_nothing() {
    let mut talk = Talk::open(Opening::Forwarded);
    talk.send(false, RST_ACK, 0, "RST");
    talk.rig.seconds(100);
    talk.send(false, RST_ACK, 0, "RST again");
    assert_eq!(140, talk.shown().seconds_left);
    let quoted = packet::tcp4(remote(), inside()).numbers(talk.next[0], talk.next[1]);
    let error = packet::icmp4_error(*inside().ip(), *remote().ip(), 3, 3, &quoted.build(), 548);
    assert_eq!(1, talk.rig.host_sends(&error).len(), "{:?}", talk.rig.all_drops());
    assert_eq!(140, talk.shown().seconds_left);
    talk.rig.seconds(141);
    assert_eq!(0, talk.rig.live());
}

#[test]
fn rfc7857_section7_1_reset_that_refuses_a_connection_refreshes_nothing() {
    for opening in [Opening::Forwarded, Opening::Mapped] {
        let mut talk = Talk::new(opening);
        talk.send(true, SYN, 0, "SYN");
        for waited in [100, 200] {
            talk.rig.seconds(100);
            talk.send(false, RST_ACK, 0, "RST");
            let shown = talk.shown();
            assert_eq!((Some("CLOSE"), 240 - waited), (shown.state, shown.seconds_left));
        }
    }
}
