//! Tests application identification: limits, names, malformed packets, and two cores.

use std::cell::RefCell;
use std::collections::HashMap;
use std::thread;

use crate::captured::{self, REQUEST, segment};
use proptest::collection::vec;
use proptest::prelude::*;
use sluice_inspect::applications::{ApplicationCapacity, ApplicationDetector, DetectionResult};
use sluice_inspect::signature::Service;
use sluice_wire::Direction::{Forward, Reverse};

fn applications(flows: u32, memory: usize) -> ApplicationDetector {
    let capacity = ApplicationCapacity {
        flows,
        memory,
        ..ApplicationCapacity::default()
    };
    ApplicationDetector::new(capacity).unwrap()
}

const HTTP: u16 = 7;

#[test]
fn http_is_known_at_once_and_done_with_its_response() {
    let mut applications = applications(1, 1 << 16);
    let flow = applications.allocate().unwrap();
    let known = |done| DetectionResult::Application {
        master: 0,
        application: HTTP,
        done,
    };
    let request = segment(1025, Forward, REQUEST);
    let response = segment(1025, Reverse, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(known(false), applications.packet(flow, &request, Forward, 1));
    assert_eq!(known(true), applications.packet(flow, &response, Reverse, 2));
    assert_eq!(0, applications.memory().used);
    assert_eq!(0, applications.active_flows());
    assert_eq!(
        DetectionResult::GivenUp,
        applications.packet(flow, &request, Forward, 3)
    );
    assert_eq!(DetectionResult::GivenUp, applications.give_up(flow));
    assert_eq!(1, applications.counters().found);
}

#[test]
fn packets_that_are_not_the_flows_say_nothing() {
    let mut applications = applications(1, 1 << 16);
    let flow = applications.allocate().unwrap();
    let request = segment(1025, Forward, REQUEST);
    applications.packet(flow, &request, Forward, 1);
    let mut other = request.clone();
    other[9] = 17;
    let mut broken = request.clone();
    broken[32] = 0xf0;
    broken.truncate(42);
    broken[2..4].copy_from_slice(&[0, 42]);
    for packet in [&other[..], &broken, &request[..39], &[]] {
        assert_eq!(DetectionResult::Unknown, applications.packet(flow, packet, Forward, 2));
    }
    let response = segment(1025, Reverse, b"HTTP/1.1 200 OK\r\n\r\n");
    let guess = applications.packet(flow, &response, Reverse, 3);
    assert!(
        matches!(guess, DetectionResult::Application { done: true, .. }),
        "{guess:?}"
    );
}

#[test]
fn flow_without_a_word_is_given_up_after_its_packets() {
    let mut applications = applications(1, 1 << 16);
    let flow = applications.allocate().unwrap();
    let packet = segment(1025, Forward, b"\x01\x02\x03\x04 nothing that anybody speaks");
    let mut guess = DetectionResult::Unknown;
    let mut packets = 0;
    while guess == DetectionResult::Unknown {
        guess = applications.packet(flow, &packet, Forward, packets);
        packets += 1;
    }
    // The application is guessed from the port.
    let expected = DetectionResult::Application {
        master: 0,
        application: HTTP,
        done: true,
    };
    assert_eq!((81, expected), (packets, guess));
    assert_eq!((1, 0), (applications.counters().guessed, applications.active_flows()));
}

#[test]
fn flows_beyond_the_pool_are_refused_until_one_ends() {
    let mut applications = applications(2, 1 << 16);
    let one = applications.allocate().unwrap();
    let other = applications.allocate().unwrap();
    assert_eq!(None, applications.allocate());
    assert_eq!(1, applications.counters().refused);
    applications.release(one);
    applications.release(one);
    let third = applications.allocate().unwrap();
    assert_eq!(None, applications.allocate());
    assert_eq!(
        [false, true, true],
        [one, other, third].map(|flow| applications.is_active(flow))
    );
}

#[test]
fn flows_beyond_the_arena_are_given_up_and_later_ones_are_not() {
    let mut applications = applications(64, 4 << 10);
    let flows: Vec<_> = (0..64).map(|_| applications.allocate().unwrap()).collect();
    let mut given_up = 0;
    for (flow, port) in flows.iter().zip(1025..) {
        let guess = applications.packet(*flow, &segment(port, Forward, REQUEST), Forward, 1);
        given_up += u64::from(guess == DetectionResult::GivenUp);
    }
    assert!(given_up > 0 && given_up < 64, "{given_up}");
    assert_eq!(given_up, applications.counters().out_of_memory);
    assert!(applications.memory().refused >= given_up);
    for flow in flows {
        applications.release(flow);
    }
    assert_eq!(0, applications.memory().used);
    let flow = applications.allocate().unwrap();
    assert_ne!(
        DetectionResult::GivenUp,
        applications.packet(flow, &segment(1025, Forward, REQUEST), Forward, 2)
    );
}

#[test]
fn names_and_numbers_are_of_each_other() {
    let applications = applications(0, 0);
    let names = applications.names();
    assert_eq!(Some("HTTP"), names.name(HTTP));
    assert_eq!(Some(HTTP), names.number("http"));
    assert_eq!((None, None), (names.number("no such thing"), names.name(u16::MAX)));
    assert!(names.iter().count() > 250);
    for (number, name) in names.iter().filter(|(_, name)| !name.is_empty()) {
        assert_eq!(
            Some(name),
            names.number(name).and_then(|number| names.name(number)),
            "{number}"
        );
    }
}

#[test]
fn services_of_the_dialects_have_numbers() {
    let applications = applications(0, 0);
    let names = applications.names();
    use Service::*;
    for service in [
        Http, Tls, Dns, Ftp, FtpData, Smtp, Imap, Pop3, Ssh, Smb, Telnet, Sip, Rdp, Nfs, Ntp, Snmp, Tftp, Dhcp, Krb5,
        Quic, Irc, Dcerpc, MySql, Postgres, Ldap,
    ] {
        let numbers = names.numbers(service);
        assert!(!numbers.is_empty(), "{service:?}");
        assert!(
            numbers.iter().all(|number| names.service(*number) == Some(service)),
            "{service:?}"
        );
    }
    assert_eq!(
        names.number("Netflix").into_iter().collect::<Vec<_>>(),
        names.numbers(Other("netflix"))
    );
    assert_eq!(
        [Vec::<u16>::new(), Vec::new()],
        [Rpc, Other("no such thing")].map(|service| names.numbers(service))
    );
}

#[test]
fn modules_in_two_threads_say_the_same() {
    let said = || {
        let mut applications = applications(4096, 8 << 20);
        let mut guesses = Vec::new();
        for capture in captured::captures() {
            let mut flows = HashMap::new();
            for packet in captured::packets(&capture) {
                let flow = *flows
                    .entry(packet.key.clone())
                    .or_insert_with(|| applications.allocate().unwrap());
                guesses.push(applications.packet(flow, &packet.bytes, packet.direction, packet.time_ms));
            }
            for flow in flows.into_values() {
                applications.release(flow);
            }
        }
        guesses
    };
    let threads = [thread::spawn(said), thread::spawn(said)];
    let [one, other] = threads.map(|thread| thread.join().unwrap());
    assert!(one == other);
}

#[test]
fn module_goes_from_thread_to_thread() {
    let mut applications = applications(2, 1 << 16);
    let flow = applications.allocate().unwrap();
    applications.packet(flow, &segment(1025, Forward, REQUEST), Forward, 1);
    let mut applications = thread::spawn(move || {
        applications.packet(flow, &segment(1025, Reverse, b"HTTP/1.1 200 OK\r\n\r\n"), Reverse, 2);
        applications
    })
    .join()
    .unwrap();
    applications.release(flow);
    assert_eq!((0, 0), (applications.memory().used, applications.memory().foreign));
}

fn bounded(cases: u32) -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    }
}

/// Packets of all captures: the first packets of each session, one session after another.
fn samples() -> Vec<Vec<captured::Packet>> {
    let mut sessions = Vec::new();
    for capture in captured::captures() {
        let mut packets: HashMap<_, Vec<_>> = HashMap::new();
        for packet in captured::packets(&capture) {
            let session = packets.entry(packet.key.clone()).or_default();
            if session.len() < 12 {
                session.push(packet);
            }
        }
        // Keep only a few sessions of each kind, because a port scan has many sessions.
        sessions.extend(packets.into_values().take(20));
    }
    sessions
}

proptest! {
    #![proptest_config(bounded(48))]

    #[test]
    fn packets_of_noise_do_no_harm(packets in vec((vec(any::<u8>(), 0..200), any::<bool>()), 1..60)) {
        let mut applications = applications(1, 1 << 14);
        let flow = applications.allocate().unwrap();
        for (time, (mut packet, reverse)) in (0..).zip(packets) {
            let direction = if reverse { Reverse } else { Forward };
            applications.packet(flow, &packet, direction, time);
            if let Some(first) = packet.first_mut() {
                *first = if *first % 2 == 0 { 0x45 } else { 0x60 };
            }
            applications.packet(flow, &packet, direction, time);
        }
        applications.give_up(flow);
        prop_assert_eq!(0, applications.memory().used);
    }
}

#[test]
fn packets_of_captures_cut_and_changed_do_no_harm() {
    let sessions = samples();
    let applications = RefCell::new(applications(1, 64 << 10));
    proptest!(bounded(24), |(changes in vec((any::<u32>(), any::<u8>(), any::<u8>()), 64))| {
        let mut changes = changes.iter().cycle();
        let mut applications = applications.borrow_mut();
        for session in &sessions {
            let flow = applications.allocate().unwrap();
            for packet in session {
                let mut bytes = packet.bytes.clone();
                let &(place, value, kind) = changes.next().unwrap();
                let place = place as usize % bytes.len();
                match kind % 8 {
                    0 => bytes.truncate(place),
                    1 => bytes.fill(value),
                    2 => bytes[place..].fill(value),
                    3 => bytes[place] ^= 1 << (value % 8),
                    // Change a byte after the headers, which the protocol parsers read.
                    _ => {
                        let start = 40.min(bytes.len() - 1);
                        let place = start + place % (bytes.len() - start).min(160);
                        bytes[place] = value;
                    }
                }
                // The box has no spare capacity, so that the address sanitizer detects reads beyond the end.
                applications.packet(flow, &bytes.into_boxed_slice(), packet.direction, packet.time_ms);
            }
            applications.give_up(flow);
            prop_assert_eq!(0, applications.memory().used);
        }
    });
    let applications = applications.into_inner();
    println!("{:?} {:?}", applications.counters(), applications.memory());
}
