//! Tests that no packet is dropped if rules only alert, not even a packet that can't be inspected.

use crate::lab::{Connection, Lab};
use sluice_inspect::signatures::Dialect::Suricata;
use sluice_inspect::stream::{Exception, Policy};
use sluice_inspect::{Skipped, Verdict};
use sluice_wire::Direction;

fn lab() -> Lab {
    let mut lab = Lab::new(
        Suricata,
        r#"drop tcp any any -> any any (msg:"d"; content:"evil"; sid:1;)"#,
    );
    lab.settings.passive = true;
    lab
}

#[test]
fn every_policy_that_drops_is_one_that_passes() {
    let mut settings = lab().settings;
    for &exception in Exception::ALL {
        for said in [Policy::DropPacket, Policy::DropFlow, Policy::Pass, Policy::Bypass] {
            settings.policies = settings.policies.with(exception, said);
            let expected = match said {
                Policy::Bypass => Policy::Bypass,
                _ => Policy::Pass,
            };
            assert_eq!(expected, settings.policy(exception), "{exception:?}");
        }
    }
    settings.passive = false;
    settings.policies = settings.policies.with(Exception::Work, Policy::DropFlow);
    assert_eq!(Policy::DropFlow, settings.policy(Exception::Work));
}

#[test]
fn segments_that_no_receiver_takes_pass_uninspected_and_the_others_are_searched() {
    let mut lab = lab();
    let mut connection = Connection::open(&mut lab, 80);
    assert_eq!(
        Verdict::Skip(Skipped::OutOfWindow),
        connection.client(10_000_000, b"far away")
    );
    assert_eq!(Verdict::Pass, connection.client(0, b"evil"));
    assert_eq!(Verdict::Pass, connection.finish(Direction::Forward, 4));
    assert_eq!(Verdict::Skip(Skipped::BeyondEnd), connection.client(5, b"evil"));
    assert_eq!(vec![1], lab.fired);
}
