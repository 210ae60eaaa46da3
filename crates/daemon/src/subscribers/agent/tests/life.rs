//! Tests of the lease life cycle (RFC 2131, section 4.4), with a correct server and without any response.

use MessageType::{Decline, Discover, Release, Request};
use dhcproto::v4::DhcpOption;

use super::*;

#[test]
fn site_wanted_is_bound_by_discover_and_request() {
    let mut world = World::new(settings());
    world.want(0);
    world.run(SECOND);
    assert_eq!(vec![Discover, Request], world.kinds());
    let lease = world.lease(0);
    assert_eq!(vec![Event::Bound(Site(0), lease)], world.events);
    assert_eq!((Ipv4Addr::new(203, 0, 0, 3), 16), (lease.address, lease.prefix_length));
    assert_eq!(
        (Some(Ipv4Addr::new(203, 0, 0, 1)), world.server.address),
        (lease.router, lease.server)
    );
    // The lease time counts from the request, which was sent one millisecond after the start.
    assert_eq!(MILLISECOND + seconds(3_600), lease.expires);
    assert_eq!(MILLISECOND + seconds(3_150), lease.rebind);
    let earliest = MILLISECOND + seconds(1_800 - 1_800 / 16);
    assert!(
        (earliest..=MILLISECOND + seconds(1_800)).contains(&lease.renew),
        "{lease:?}"
    );
}

#[test]
fn messages_to_get_a_lease_are_as_the_rfc_says() {
    let mut world = World::new(AgentSettings {
        broadcast: true,
        host_name: Some("sluice".into()),
        ..settings()
    });
    world.want(5);
    world.run(SECOND);
    for sent in &world.sent {
        let message = sent.message();
        assert_eq!(mac(5), message.chaddr());
        assert_eq!(
            (mac(5), Ipv4Addr::UNSPECIFIED),
            (sent.transmit.source_mac, sent.transmit.source)
        );
        assert!(sent.is_broadcast() && message.flags().broadcast());
        assert_eq!(Ipv4Addr::UNSPECIFIED, message.ciaddr());
        let identifier = DhcpOption::ClientIdentifier([&[1], &mac(5)[..]].concat());
        assert_eq!(Some(&identifier), message.opts().get(OptionCode::ClientIdentifier));
        let name = DhcpOption::Hostname("sluice-020000000005".into());
        assert_eq!(Some(&name), message.opts().get(OptionCode::Hostname));
        for code in [OptionCode::ParameterRequestList, OptionCode::MaxMessageSize] {
            assert!(sent.has(code), "{code:?}");
        }
        assert!(!sent.has(OptionCode::RelayAgentInformation));
    }
    let [discover, request] = &world.sent[..] else {
        panic!("two messages")
    };
    assert_eq!(
        (false, true),
        (
            discover.has(OptionCode::ServerIdentifier),
            request.has(OptionCode::ServerIdentifier)
        )
    );
    assert_eq!(
        (false, true),
        (
            discover.has(OptionCode::RequestedIpAddress),
            request.has(OptionCode::RequestedIpAddress)
        )
    );
    assert_eq!(discover.message().xid(), request.message().xid());
}

#[test]
fn site_as_a_node_of_its_own_says_so() {
    assert_eq!(None, Identifier::None.bytes(mac(5)));
    let expected = vec![255, 0, 0, 0, 5, 0, 3, 0, 1, 2, 0, 0, 0, 0, 5];
    assert_eq!(Some(expected), Identifier::Node.bytes(mac(5)));
}

#[test]
fn lease_is_renewed_at_t1_from_its_address_and_by_its_server_alone() {
    let mut world = World::bound();
    let before = world.lease(0);
    world.run(seconds(1_900));
    let after = world.lease(0);
    assert_eq!(vec![Event::Renewed(Site(0), after)], world.events);
    assert_eq!(before.renew + seconds(3_600), after.expires);
    let [renewal] = &world.sent[..] else {
        panic!("one message: {:?}", world.kinds())
    };
    assert_eq!((before.renew, Request), (renewal.at, renewal.kind));
    // The server is not in the client's network.
    let (address, via) = (world.server.address, Ipv4Addr::new(203, 0, 0, 1));
    assert_eq!(Destination::Unicast { address, via }, renewal.transmit.destination);
    assert_eq!(
        (before.address, before.address),
        (renewal.transmit.source, renewal.message().ciaddr())
    );
    for code in [OptionCode::ServerIdentifier, OptionCode::RequestedIpAddress] {
        assert!(!renewal.has(code), "{code:?}");
    }
}

#[test]
fn lease_that_nobody_renews_is_asked_for_by_halves_then_of_all_and_is_lost() {
    let mut world = World::bound();
    let lease = world.lease(0);
    world.be_silent();
    world.run(lease.expires - world.now - 1);
    assert_eq!(Vec::<Event>::new(), world.events);
    let (renewals, rebinds): (Vec<_>, Vec<_>) = world.sent.iter().partition(|sent| sent.at < lease.rebind);
    assert!(renewals.iter().all(|sent| !sent.is_broadcast()) && rebinds.iter().all(|sent| sent.is_broadcast()));
    assert!(rebinds.iter().all(|sent| sent.message().ciaddr() == lease.address));
    for (sent, end) in [(&renewals, lease.rebind), (&rebinds, lease.expires)] {
        for pair in sent.windows(2) {
            let wait = ((end - pair[0].at) / 2).max(seconds(60)).min(end - pair[0].at);
            assert_eq!(pair[0].at + wait, pair[1].at);
            assert_ne!(pair[0].message().xid(), pair[1].message().xid());
        }
    }
    assert_eq!((lease.renew, lease.rebind), (renewals[0].at, rebinds[0].at));
    world.run(1);
    assert_eq!(vec![(0, LossReason::Expired)], world.losses());
    let again = world.sent.last().expect("it goes on");
    assert!(
        again.kind == Discover && again.has(OptionCode::RequestedIpAddress),
        "it hopes for the same address"
    );
    world.behave();
    world.run(seconds(10));
    assert_eq!(lease.address, world.lease(0).address);
    assert!(
        matches!(world.events.last(), Some(Event::Bound(..))),
        "{:?}",
        world.events
    );
}

#[test]
fn short_lease_whose_server_comes_back_in_time_is_kept() {
    let early = |message: &mut Message| {
        message.opts_mut().insert(DhcpOption::Renewal(6));
        message.opts_mut().insert(DhcpOption::Rebinding(12));
    };
    let mut world = World::new(settings());
    world.server.lease = 60;
    world.twist(early);
    world.want(0);
    world.run(SECOND);
    let lease = world.lease(0);
    world.be_silent();
    world.run(seconds(14));
    world.twist(early);
    world.run(seconds(60));
    assert_eq!(Vec::<(u32, LossReason)>::new(), world.losses());
    assert_eq!(lease.address, world.lease(0).address);
}

#[test]
fn short_lease_that_nobody_renews_is_asked_for_more_than_once_and_not_too_often() {
    let mut world = World::new(settings());
    world.server.lease = 60;
    world.want(0);
    world.run(SECOND);
    let lease = world.lease(0);
    world.be_silent();
    world.sent.clear();
    world.run(lease.expires - world.now - 1);
    for (from, to) in [(lease.renew, lease.rebind), (lease.rebind, lease.expires)] {
        let times = world.sent.iter().map(|sent| sent.at);
        let times: Vec<_> = times.filter(|at| (from..to).contains(at)).collect();
        assert!(times.len() > 1, "{from} to {to}: {times:?}");
        assert!(
            times.windows(2).all(|pair| pair[1] - pair[0] >= seconds(4)),
            "{times:?}"
        );
    }
}

#[test]
fn rebind_that_another_server_answers_is_taken() {
    let mut world = World::bound();
    world.twist = Box::new(|question, mut answer| {
        answer
            .opts_mut()
            .insert(DhcpOption::ServerIdentifier(Ipv4Addr::new(198, 51, 100, 9)));
        // The server of the lease is down. The other server receives only broadcasts.
        if question.secs() == 0 && question.ciaddr().is_unspecified() {
            vec![]
        } else {
            vec![answer]
        }
    });
    world.run(seconds(3_149));
    assert_eq!(
        (0, State::Renewing),
        (
            world
                .events
                .iter()
                .filter(|event| matches!(event, Event::Renewed(..)))
                .count(),
            world.agent.state(Site(0))
        )
    );
    assert!(world.faults(Fault::OtherServer) > 0);
    world.run(seconds(10));
    assert_eq!(Ipv4Addr::new(198, 51, 100, 9), world.lease(0).server);
    assert!(
        matches!(world.events.last(), Some(Event::Renewed(..))),
        "{:?}",
        world.events
    );
}

#[test]
fn renewal_that_is_refused_ends_the_lease_and_a_new_one_is_got_at_once() {
    let mut world = World::bound();
    let was = world.lease(0).address;
    world.server.leases.clear();
    world.run(seconds(1_900));
    assert_eq!(vec![Request, Discover, Request], world.kinds());
    assert_eq!(vec![(0, LossReason::Refused)], world.losses());
    let lease = world.lease(0);
    assert_eq!(
        Some(&Event::Changed {
            site: Site(0),
            was,
            lease
        }),
        world.events.last()
    );
    assert_ne!(was, lease.address);
}

#[test]
fn discover_that_nobody_answers_is_repeated_ever_more_slowly() {
    let mut world = World::new(settings());
    world.be_silent();
    world.want(0);
    world.run(seconds(400));
    for (expected, gap) in [4.0_f64, 8.0, 16.0, 32.0, 64.0, 64.0, 64.0]
        .into_iter()
        .zip(world.gaps())
    {
        assert!((expected - gap).abs() <= 1.0, "{expected}: {:?}", world.gaps());
    }
    let last = world.sent.last().expect("some").message();
    assert!(
        last.secs() > 200 && last.xid() == world.sent[0].message().xid(),
        "{last}"
    );
}

#[test]
fn request_that_nobody_answers_is_given_up_after_four() {
    let mut world = World::new(settings());
    world.twist = Box::new(|_, answer| match answer.opts().msg_type() {
        Some(MessageType::Offer) => vec![answer],
        _ => vec![],
    });
    world.want(0);
    world.run(seconds(70));
    assert_eq!(
        [Discover, Request, Request, Request, Request, Discover],
        world.kinds()[..6]
    );
    assert_eq!(1, world.agent.counters().unanswered);
    assert_ne!(world.sent[0].message().xid(), world.sent[5].message().xid());
}

#[test]
fn address_that_somebody_else_uses_is_declined_and_another_is_got_after_ten_seconds() {
    let mut world = World::bound();
    let was = world.lease(0).address;
    world.agent.conflict(Site(0), world.now);
    let start = world.now;
    world.run(seconds(11));
    assert_eq!(vec![Decline, Discover, Request], world.kinds());
    assert_eq!(vec![(0, LossReason::Conflict)], world.losses());
    let decline = &world.sent[0];
    assert!(decline.is_broadcast() && decline.has(OptionCode::ServerIdentifier));
    assert!(world.server.declined.contains(&was), "the server knows which");
    assert!(world.sent[1].at - start >= seconds(10));
    assert_ne!(was, world.lease(0).address);
}

#[test]
fn site_that_comes_back_within_the_hold_keeps_its_lease() {
    let mut world = World::bound();
    let lease = world.lease(0);
    world.agent.release(Site(0), world.now);
    world.run(seconds(299));
    world.want(0);
    world.run(seconds(100));
    assert_eq!((Vec::new(), Vec::new()), (world.kinds(), world.losses()));
    assert_eq!(lease, world.lease(0));
    world.run(seconds(1_500));
    assert_eq!(vec![Request], world.kinds());
}

#[test]
fn site_that_does_not_come_back_gives_its_address_back_after_the_hold() {
    let mut world = World::bound();
    let lease = world.lease(0);
    world.agent.release(Site(0), world.now);
    // The second call of `release` does not extend the hold time.
    world.run(seconds(200));
    world.agent.release(Site(0), world.now);
    world.run(seconds(100));
    assert_eq!(vec![Release], world.kinds());
    assert_eq!(vec![(0, LossReason::Released)], world.losses());
    let release = &world.sent[0];
    assert!(!release.is_broadcast() && release.has(OptionCode::ServerIdentifier));
    assert_eq!(
        (lease.address, lease.address),
        (release.transmit.source, release.message().ciaddr())
    );
    assert!(world.server.leases.is_empty());
    assert_eq!(State::Idle, world.agent.state(Site(0)));
    world.agent.check();
}

#[test]
fn site_that_is_forgotten_gives_its_address_back_at_once_unless_it_is_wanted_before() {
    let mut world = World::bound();
    let lease = world.lease(0);
    world.agent.forget(Site(0), world.now);
    assert_eq!(None, world.agent.lease(Site(0)));
    world.want(0);
    world.run(SECOND);
    assert_eq!(Vec::<MessageType>::new(), world.kinds());
    assert_eq!(Some(&Event::Bound(Site(0), lease)), world.events.last());
    world.agent.forget(Site(0), world.now);
    world.run(SECOND);
    assert_eq!(vec![Release], world.kinds());
}

#[test]
fn site_that_goes_before_it_has_a_lease_is_silent() {
    let mut world = World::new(settings());
    world.be_silent();
    world.want(0);
    world.run(SECOND);
    world.agent.release(Site(0), world.now);
    world.run(seconds(100));
    assert_eq!(
        (vec![Discover], State::Idle),
        (world.kinds(), world.agent.state(Site(0)))
    );
    world.agent.check();
}

#[test]
fn site_with_another_mac_gives_its_address_back_and_begins_anew() {
    let mut world = World::bound();
    world.agent.want(Site(0), mac(9), world.now).expect("a site");
    assert!(world.agent.want(Site(1), mac(9), world.now).is_err(), "it is promised");
    world.run(SECOND);
    assert_eq!(vec![Release, Discover, Request], world.kinds());
    assert_eq!(mac(9), world.sent[2].transmit.source_mac);
    world.agent.check();
    world
        .agent
        .want(Site(1), mac(0), world.now)
        .expect("the former MAC is free");
}

#[test]
fn best_offer_within_the_window_is_taken() {
    let mut world = World::new(AgentSettings {
        window: Duration::from_secs(1),
        ..settings()
    });
    world.twist = Box::new(|question, answer| match answer.opts().msg_type() {
        Some(MessageType::Offer) => [(9, 3_600), (2, 7_200), (7, 60)]
            .map(|(last, lease)| {
                let mut answer = answer.clone();
                answer
                    .opts_mut()
                    .insert(DhcpOption::ServerIdentifier(Ipv4Addr::new(198, 51, 100, last)));
                answer.opts_mut().insert(DhcpOption::AddressLeaseTime(lease));
                answer
            })
            .into(),
        _ => {
            let chosen = question.opts().get(OptionCode::ServerIdentifier);
            assert_eq!(
                Some(&DhcpOption::ServerIdentifier(Ipv4Addr::new(198, 51, 100, 2))),
                chosen
            );
            vec![answer]
        }
    });
    world.want(0);
    world.run(seconds(2));
    assert_eq!(vec![Discover, Request], world.kinds());
    assert_eq!(vec![1.001], world.gaps());
    assert_eq!(Ipv4Addr::new(198, 51, 100, 2), world.lease(0).server);
}

#[test]
fn lease_without_an_end_is_kept_in_silence() {
    let mut world = World::new(settings());
    world.server.lease = u32::MAX;
    world.want(0);
    world.run(seconds(100_000_000));
    assert_eq!(vec![Discover, Request], world.kinds());
    assert_eq!(NEVER, world.lease(0).expires);
    world.agent.forget(Site(0), world.now);
    world.run(SECOND);
    assert_eq!(Some(&Release), world.kinds().last());
}

#[test]
fn site_that_can_not_be_is_refused() {
    let mut world = World::bound();
    let mut want = |site, mac| {
        world
            .agent
            .want(Site(site), mac, 0)
            .expect_err("it can't be")
            .to_string()
    };
    assert_eq!("site 131072 exceeds the maximum of 131072 sites", want(131_072, mac(1)));
    assert_eq!(
        "site 1: 01:00:00:00:00:00 is not a unicast MAC address",
        want(1, [1, 0, 0, 0, 0, 0])
    );
    assert_eq!(
        "sites 0 and 1 have the same MAC address 02:00:00:00:00:00: change one of them",
        want(1, mac(0))
    );
}

#[test]
fn same_input_sends_the_same_bytes() {
    let bytes = || {
        let mut world = World::new(settings());
        (0..50).for_each(|site| world.want(site));
        world.run(seconds(4_000));
        world
            .sent
            .into_iter()
            .map(|sent| (sent.at, sent.transmit))
            .collect::<Vec<_>>()
    };
    assert_eq!(bytes(), bytes());
}
