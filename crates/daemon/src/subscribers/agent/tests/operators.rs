//! Tests with servers that violate the protocol or do not respond. Faults are reported and counted, the work is
//! bounded, and other sites are not affected.

use MessageType::{Ack, Decline, Discover, Nak, Offer, Request};
use dhcproto::v4::DhcpOption;

use super::*;

fn last_reports(world: &World, wanted: Fault) -> Vec<(Option<Site>, Option<Site>)> {
    let fault = |event: &Event| match event {
        Event::Fault { fault, site, other, .. } if *fault == wanted => Some((*site, *other)),
        _ => None,
    };
    world.events.iter().filter_map(fault).collect()
}

/// A world in which site 0 acquires an address. All server messages of one type are changed.
fn changed(kind: MessageType, settings: AgentSettings, change: impl Fn(&mut Message) + 'static) -> World {
    let mut world = World::new(settings);
    world.twist(move |answer| {
        if answer.opts().msg_type() == Some(kind) {
            change(answer);
        }
    });
    world.want(0);
    world.run(seconds(20));
    world
}

/// Check that no lease results if offers and acknowledgements are changed in this way.
fn is_refused(fault: Fault, settings: AgentSettings, change: impl Fn(&mut Message) + Copy + 'static) {
    for kind in [Offer, Ack] {
        let world = changed(kind, settings.clone(), change);
        assert_eq!(None, world.agent.lease(Site(0)), "{kind:?} {}", fault.name());
        assert!(world.faults(fault) > 0, "{kind:?} {}", fault.name());
        assert_eq!((Some(Site(0)), None), last_reports(&world, fault)[0]);
        let requests = world.kinds().iter().filter(|kind| **kind == Request).count();
        assert_eq!(kind == Ack, requests > 0, "{kind:?} {}", fault.name());
    }
}

fn option(option: DhcpOption) -> impl Fn(&mut Message) {
    move |answer| drop(answer.opts_mut().insert(option.clone()))
}

#[test]
fn lease_too_short_or_without_a_time_is_refused() {
    for lease in [0, 1, 59] {
        is_refused(Fault::LeaseTooShort, settings(), move |answer| {
            option(DhcpOption::AddressLeaseTime(lease))(answer)
        });
    }
    is_refused(Fault::LeaseMissing, settings(), |answer| {
        drop(answer.opts_mut().remove(OptionCode::AddressLeaseTime))
    });
}

#[test]
fn answer_without_its_server_is_refused() {
    is_refused(Fault::ServerMissing, settings(), |answer| {
        drop(answer.opts_mut().remove(OptionCode::ServerIdentifier))
    });
    let none = || DhcpOption::ServerIdentifier(Ipv4Addr::UNSPECIFIED);
    is_refused(Fault::ServerMissing, settings(), move |answer| option(none())(answer));
}

#[test]
fn address_outside_of_the_prefixes_is_refused() {
    let prefixes = vec!["203.0.0.0/16".parse().expect("a prefix")];
    let settings = AgentSettings { prefixes, ..settings() };
    assert!(changed(Offer, settings.clone(), |_| {}).agent.lease(Site(0)).is_some());
    let world = changed(Offer, settings, |answer| {
        answer.set_yiaddr(Ipv4Addr::new(203, 1, 0, 1));
    });
    assert_eq!(
        (None, false),
        (world.agent.lease(Site(0)), world.kinds().contains(&Request))
    );
    assert_eq!((Some(Site(0)), None), last_reports(&world, Fault::OutsidePrefixes)[0]);
}

#[test]
fn address_that_no_host_can_have_is_refused() {
    for address in [
        [0, 0, 0, 0],
        [127, 0, 0, 1],
        [224, 0, 0, 1],
        [255, 255, 255, 255],
        [240, 0, 0, 1],
    ] {
        let world = changed(Offer, settings(), move |answer| {
            answer.set_yiaddr(Ipv4Addr::from(address));
        });
        assert!(world.faults(Fault::Unusable) > 0, "{address:?}");
        assert!(!world.kinds().contains(&Request));
    }
}

#[test]
fn server_that_is_not_configured_is_not_listened_to() {
    let servers = vec![Ipv4Addr::new(198, 51, 100, 9)];
    let world = changed(Ack, AgentSettings { servers, ..settings() }, |_| {});
    assert_eq!(
        (None, false),
        (world.agent.lease(Site(0)), world.kinds().contains(&Request))
    );
    assert_eq!((Some(Site(0)), None), last_reports(&world, Fault::ServerNotAllowed)[0]);
    let servers = vec![Ipv4Addr::new(198, 51, 100, 2)];
    assert!(
        changed(Ack, AgentSettings { servers, ..settings() }, |_| {})
            .agent
            .lease(Site(0))
            .is_some()
    );
}

#[test]
fn answer_to_somebody_else_is_refused() {
    is_refused(Fault::OtherHardware, settings(), |answer| {
        answer.set_chaddr(&mac(1));
    });
    is_refused(Fault::OtherIdentifier, settings(), |answer| {
        option(DhcpOption::ClientIdentifier(vec![1, 2, 3]))(answer)
    });
    let world = changed(Offer, settings(), |answer| {
        answer.set_xid(answer.xid() ^ 1);
    });
    assert!(world.faults(Fault::UnknownExchange) > 0);
    let mut world = World::new(settings());
    world.twist = Box::new(|_, answer| vec![answer]);
    world.want(0);
    world.step();
    let (payload, _) = world.underway.pop_first().expect("an offer").1;
    world.agent.receive(&payload, mac(1), world.now);
    assert_eq!(1, world.faults(Fault::OtherDestination));
    world.agent.receive(&payload, mac(0), world.now);
    assert_eq!(State::Requesting, world.agent.state(Site(0)));
}

#[test]
fn acknowledgement_of_another_address_or_by_another_server_is_refused() {
    let world = changed(Ack, settings(), |answer| {
        answer.set_yiaddr(Ipv4Addr::new(203, 0, 9, 9));
    });
    assert_eq!(
        (None, 3),
        (world.agent.lease(Site(0)), world.faults(Fault::OtherAddress))
    );
    let other = || DhcpOption::ServerIdentifier(Ipv4Addr::new(198, 51, 100, 9));
    let world = changed(Ack, settings(), move |answer| option(other())(answer));
    assert_eq!(
        (None, 3),
        (world.agent.lease(Site(0)), world.faults(Fault::OtherServer))
    );
}

#[test]
fn address_without_a_mask_is_alone_in_its_network() {
    let world = changed(Ack, settings(), |answer| {
        drop(answer.opts_mut().remove(OptionCode::SubnetMask))
    });
    assert_eq!(
        (32, 1),
        (world.lease(0).prefix_length, world.faults(Fault::MaskMissing))
    );
}

#[test]
fn times_that_are_not_in_order_are_the_usual_ones() {
    for (renew, rebind) in [(3_000, 2_000), (1_800, 3_600), (0, 3_000), (9_999, 99_999)] {
        let world = changed(Ack, settings(), move |answer| {
            option(DhcpOption::Renewal(renew))(answer);
            option(DhcpOption::Rebinding(rebind))(answer);
        });
        assert_eq!(1, world.faults(Fault::OddTimes));
        let lease = world.lease(0);
        assert_eq!(seconds(450), lease.expires - lease.rebind);
        assert!(
            (seconds(1_800)..seconds(1_920)).contains(&(lease.expires - lease.renew)),
            "{lease:?}"
        );
    }
    let world = changed(Ack, settings(), |answer| {
        option(DhcpOption::Renewal(600))(answer);
        option(DhcpOption::Rebinding(1_200))(answer);
    });
    assert_eq!(
        (0, seconds(2_400)),
        (
            world.faults(Fault::OddTimes),
            world.lease(0).expires - world.lease(0).rebind
        )
    );
}

#[test]
fn renewal_that_makes_a_lease_too_short_does_not_end_it() {
    let mut world = World::bound();
    let lease = world.lease(0);
    world.server.lease = 5;
    world.run(seconds(3_500));
    assert_eq!((lease, Vec::new()), (world.lease(0), world.losses()));
    assert!(world.faults(Fault::LeaseTooShort) > 0);
}

#[test]
fn address_that_another_site_has_is_declined_and_both_are_named() {
    let mut world = World::bound();
    let address = world.lease(0).address;
    world.server.stuck = Some(address);
    world.want(1);
    world.run(seconds(9));
    assert_eq!(vec![Discover, Request, Decline], world.kinds());
    assert_eq!(
        vec![(Some(Site(1)), Some(Site(0)))],
        last_reports(&world, Fault::AddressTwice)
    );
    assert_eq!((Vec::new(), None), (world.losses(), world.agent.lease(Site(1))));
    // The wait increases with each attempt.
    world.run(seconds(600));
    let declines: Vec<_> = world
        .sent
        .iter()
        .filter(|sent| sent.kind == Decline)
        .map(|sent| sent.at / SECOND)
        .collect();
    assert_eq!(
        vec![0, 10, 30, 70, 150, 310],
        declines.iter().map(|at| at - declines[0]).collect::<Vec<_>>()
    );
    assert_eq!(address, world.lease(0).address);
    world.agent.check();
    world.server.stuck = None;
    world.run(seconds(400));
    assert!(world.agent.lease(Site(1)).is_some());
}

#[test]
fn server_that_refuses_all_is_asked_slowly_until_it_acknowledges() {
    let mut world = World::new(settings());
    world.twist = Box::new(|_, mut answer| {
        if answer.opts().msg_type() == Some(Ack) {
            option(DhcpOption::MessageType(Nak))(&mut answer);
        }
        vec![answer]
    });
    (0..1_000).for_each(|site| world.want(site));
    world.run(seconds(300));
    assert_eq!(Some(&Event::Servers(Servers::Refusing)), world.events.first());
    assert_eq!(Servers::Refusing, world.agent.servers(world.now));
    let late = world.sent.iter().filter(|sent| sent.at > seconds(200)).count();
    assert!(late <= 2 * 10 * 100, "{late} messages in 100 s");
    assert!(late >= 10 * 100, "{late} messages in 100 s");
    world.behave();
    world.run(seconds(70));
    assert_eq!(1_000, world.agent.leases().count());
    assert_eq!(Servers::Answering, world.agent.servers(world.now));
    world.agent.check();
}

#[test]
fn servers_that_are_silent_are_asked_slowly_and_all_ask_when_one_answers() {
    let mut world = World::new(settings());
    world.be_silent();
    (0..20_000).for_each(|site| world.want(site));
    world.run(seconds(600));
    assert_eq!(vec![Event::Servers(Servers::Silent)], world.events);
    let late = world.sent.iter().filter(|sent| sent.at > seconds(500)).count();
    assert!((900..=1_001).contains(&late), "{late} messages in 100 s");
    world.behave();
    world.run(seconds(45));
    assert_eq!(20_000, world.agent.leases().count());
    world.agent.check();
}

#[test]
fn flood_of_answers_changes_nothing_and_is_counted() {
    let mut world = World::bound();
    let lease = world.lease(0);
    let question = {
        let mut other = World::new(settings());
        other.be_silent();
        other.want(0);
        other.step();
        other.sent[0].message()
    };
    let mut answer = world.server.answer(&question).expect("an offer");
    for number in 0..100_000_u32 {
        answer.set_xid(number.wrapping_mul(0x9e37_79b9));
        world.agent.receive(&answer.to_vec().expect("bytes"), mac(0), world.now);
    }
    world.run(MILLISECOND);
    for _ in 0..1_000 {
        world.agent.receive(&[], mac(0), world.now);
    }
    world.run(MILLISECOND);
    assert_eq!(
        (1, 1_000),
        (
            last_reports(&world, Fault::Malformed).len(),
            world.faults(Fault::Malformed)
        )
    );
    assert!(world.faults(Fault::UnknownExchange) >= 99_990);
    assert_eq!((lease, Vec::new()), (world.lease(0), world.kinds()));
}

#[test]
fn bytes_that_are_no_message_are_counted() {
    let mut world = World::bound();
    for bytes in [&[][..], &[2; 239], &[2; 240], &[0; 1_472], &[2; 9_000]] {
        world.agent.receive(bytes, mac(0), world.now);
    }
    assert_eq!(5, world.faults(Fault::Malformed));
}

#[test]
fn answer_that_comes_again_is_untimely() {
    let mut world = World::new(settings());
    world.twist = Box::new(|_, answer| vec![answer.clone(), answer]);
    world.want(0);
    world.run(seconds(2));
    assert_eq!(
        (1, 1),
        (world.faults(Fault::Untimely), world.faults(Fault::UnknownExchange))
    );
    assert_eq!(vec![Event::Bound(Site(0), world.lease(0))], world.events);
}

#[test]
fn every_fault_is_in_the_guide_with_its_help() {
    let guide = include_str!("../../../../../../docs/subscribers.md");
    for fault in Fault::ALL {
        let row = format!("| `{}` | {} |", fault.name(), fault.help());
        assert_eq!(1, guide.matches(&row).count(), "docs/subscribers.md lacks {row}");
    }
}
