//! Tests of INIT-REBOOT with leases from before a restart.

use MessageType::{Discover, Request};

use super::*;

/// A world with a site that has a lease from before the restart. The server also still has the lease.
fn restarted(use_while_confirming: bool) -> (World, PublicLease) {
    let mut before = World::bound();
    let lease = before.lease(0);
    let mut world = World::new(AgentSettings {
        use_while_confirming,
        ..settings()
    });
    std::mem::swap(&mut world.server, &mut before.server);
    world.agent.restore([(mac(0), lease)]);
    assert_eq!(1, world.agent.unclaimed());
    (world, lease)
}

#[test]
fn lease_of_before_is_used_at_once_and_confirmed() {
    let (mut world, lease) = restarted(true);
    world.want(0);
    assert_eq!((Some(lease), 0), (world.agent.lease(Site(0)), world.agent.unclaimed()));
    world.run(SECOND);
    assert_eq!(vec![Request], world.kinds());
    assert_eq!(
        vec![Event::Bound(Site(0), lease), Event::Renewed(Site(0), world.lease(0))],
        world.events
    );
    let request = &world.sent[0];
    assert!(request.is_broadcast() && request.has(OptionCode::RequestedIpAddress));
    assert!(!request.has(OptionCode::ServerIdentifier));
    assert_eq!(Ipv4Addr::UNSPECIFIED, request.message().ciaddr());
}

#[test]
fn lease_of_before_waits_for_its_confirmation_where_that_is_configured() {
    let (mut world, lease) = restarted(false);
    world.want(0);
    assert_eq!(None, world.agent.lease(Site(0)));
    world.run(SECOND);
    assert_eq!(vec![Event::Bound(Site(0), world.lease(0))], world.events);
    assert_eq!(lease.address, world.lease(0).address);
}

#[test]
fn lease_of_before_that_is_refused_is_lost_and_another_is_got() {
    let (mut world, lease) = restarted(true);
    world.server.leases.clear();
    world.want(0);
    world.run(SECOND);
    assert_eq!(vec![Request, Discover, Request], world.kinds());
    assert_eq!(vec![(0, LossReason::Refused)], world.losses());
    assert_ne!(lease.address, world.lease(0).address);
}

#[test]
fn lease_of_before_is_used_to_its_end_where_nobody_answers() {
    for use_while_confirming in [true, false] {
        let (mut world, lease) = restarted(use_while_confirming);
        world.be_silent();
        world.want(0);
        world.run(seconds(100));
        assert_eq!(vec![Request; 3], world.kinds());
        assert_eq!((State::Bound, lease), (world.agent.state(Site(0)), world.lease(0)));
        assert_eq!(vec![Event::Bound(Site(0), lease)], world.events);
        world.run(lease.renew - world.now);
        assert_eq!(State::Renewing, world.agent.state(Site(0)));
        world.run(lease.expires - world.now);
        assert_eq!(vec![(0, LossReason::Expired)], world.losses());
    }
}

#[test]
fn lease_of_before_that_ran_out_is_left_out() {
    let (mut world, lease) = restarted(true);
    world.run(lease.expires);
    world.want(0);
    world.run(SECOND);
    assert_eq!(vec![Discover, Request], world.kinds());
}

#[test]
fn leases_of_before_with_one_address_go_to_the_first_site() {
    let (mut world, lease) = restarted(true);
    world.agent.restore([(mac(1), lease)]);
    world.want(0);
    world.want(1);
    assert_eq!(
        (true, false),
        (
            world.agent.lease(Site(0)).is_some(),
            world.agent.lease(Site(1)).is_some()
        )
    );
    world.run(SECOND);
    world.agent.check();
    assert_ne!(world.lease(0).address, world.lease(1).address);
}

#[test]
fn lease_of_before_that_is_not_allowed_any_more_is_left_out() {
    let (mut world, _) = restarted(true);
    world.agent.configure(
        AgentSettings {
            prefixes: vec!["192.0.2.0/24".parse().expect("a prefix")],
            ..settings()
        },
        0,
    );
    world.want(0);
    world.run(SECOND);
    assert_eq!(
        (Some(&Discover), None),
        (world.kinds().first(), world.agent.lease(Site(0)))
    );
}

#[test]
fn leases_of_before_are_used_soon_where_nobody_answers_however_many_they_are() {
    let (mut world, lease) = restarted(false);
    let address = |site: u32| Ipv4Addr::from_bits(lease.address.to_bits() + site);
    let leases = (0..3_000).map(|site| {
        (
            mac(site),
            PublicLease {
                address: address(site),
                ..lease
            },
        )
    });
    world.agent.restore(leases);
    world.be_silent();
    (0..3_000).for_each(|site| world.want(site));
    world.run(seconds(40));
    assert_eq!(3_000, world.agent.leases().count());
    world.agent.check();
    // As long as the server replies, all sites request confirmation.
    let (mut world, lease) = restarted(false);
    let leases = (0..3_000).map(|site| {
        (
            mac(site),
            PublicLease {
                address: address(site),
                ..lease
            },
        )
    });
    world
        .server
        .leases
        .extend((0..3_000).map(|site| (mac(site), address(site))));
    world.agent.restore(leases);
    world.agent.configure(
        AgentSettings {
            rate: 50,
            use_while_confirming: false,
            ..settings()
        },
        0,
    );
    (0..3_000).for_each(|site| world.want(site));
    world.run(seconds(61));
    assert_eq!(
        (3_000, 3_000),
        (
            world.agent.counters().requests[1],
            world.agent.counters().acknowledgements
        )
    );
}
