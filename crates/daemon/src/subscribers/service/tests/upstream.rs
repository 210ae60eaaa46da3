use super::*;

/// Create a world in which the first site has a terminal and a public address.
fn bound() -> (World, Arc<Lease>, Ipv4Addr) {
    let mut world = World::new();
    let lease = world.gain(lease(1, 1, "homes-100.5"));
    world.run(SECOND);
    let public = world.public(Site(0)).expect("an address");
    (world, lease, public)
}

#[test]
fn site_with_a_terminal_gets_a_public_address_and_says_so() {
    let mut world = World::new();
    world.gain(lease(1, 1, "homes-100.5"));
    let view = world.service.lease(INSIDE, address(1)).expect("a lease");
    assert!(matches!(view.status, LeaseStatus::Active | LeaseStatus::Waiting));
    world.run(SECOND);
    let public = world.public(Site(0)).expect("an address");
    let mac = world.parameters.mac(Site(0));
    assert_eq!(Some(&public), world.operator.leases.get(&mac));
    assert_eq!(
        vec![(mac, 0, public.to_bits()), (mac, public.to_bits(), public.to_bits())],
        world.arp()
    );
    let view = world.service.site(Site(0)).expect("a site");
    assert_eq!(
        (Some(mac), Some(public), "bound"),
        (view.mac, view.public, view.state.expect("a state").word())
    );
    assert_eq!(
        "active",
        world.service.lease(INSIDE, address(1)).expect("a lease").status.word()
    );
    // No address was requested for another site.
    assert_eq!(1, world.operator.leases.len());
    world.check();
}

#[test]
fn site_with_a_pool_asks_nobody() {
    let mut world = World::new();
    world.gain(lease(1, 1, "shops-8"));
    world.run(60 * SECOND);
    assert_eq!((0, 0), (world.sent.len(), world.operator.leases.len()));
    let view = world.service.site(SHOP).expect("a site");
    assert_eq!((None, None, 1), (view.mac, view.state, view.terminals));
    assert_eq!(
        "active",
        world.service.lease(INSIDE, address(1)).expect("a lease").status.word()
    );
    world.check();
}

#[test]
fn site_keeps_its_address_for_the_hold_after_its_last_terminal() {
    let (mut world, lease, public) = bound();
    world.lose(&lease);
    world.run(299 * SECOND);
    assert_eq!(Some(public), world.public(Site(0)));
    world.check();
    world.change(INSIDE, &Change::Gained(lease.clone()));
    world.run(600 * SECOND);
    assert_eq!(Some(public), world.public(Site(0)), "it came back");
    world.lose(&lease);
    world.run(301 * SECOND);
    assert_eq!((None, 0), (world.public(Site(0)), world.operator.leases.len()));
    world.check();
}

#[test]
fn terminal_that_is_replaced_by_another_keeps_the_sites_address() {
    let (mut world, was, public) = bound();
    let released = world.service.agent(0).expect("a client").counters().releases;
    let now = Arc::new(Lease {
        hardware: hardware(2),
        ..(*was).clone()
    });
    world.change(INSIDE, &Change::Changed { was, now });
    assert_eq!(vec![(0, 2)], world.mapped(address(1)));
    world.run(600 * SECOND);
    assert_eq!(Some(public), world.public(Site(0)));
    assert_eq!(released, world.service.agent(0).expect("a client").counters().releases);
    world.check();
}

#[test]
fn renewal_goes_to_where_the_servers_acknowledgement_came_from() {
    let (mut world, _, public) = bound();
    world.sent.clear();
    world.run(1_800 * SECOND);
    let renewals: Vec<_> = world
        .sent
        .iter()
        .filter_map(|frame| Datagram::of(&frame.bytes))
        .collect();
    let [renewal] = renewals[..] else {
        panic!("{renewals:?}")
    };
    assert_eq!(
        (ROUTER_MAC, world.parameters.mac(Site(0))),
        (renewal.destination_mac, renewal.source_mac)
    );
    assert_eq!(
        (public, world.operator.address),
        (*renewal.source.ip(), *renewal.destination.ip())
    );
    assert_eq!(Some(public), world.public(Site(0)));
}

#[test]
fn renewal_to_a_server_that_was_never_heard_goes_to_all() {
    let (world, lease, public) = bound();
    let saved = world.service.saved();
    let mut world = World::of(world.parameters, world.entries, saved, world.now);
    world.twist = Box::new(|_| Vec::new());
    world.change(INSIDE, &Change::Gained(lease));
    world.run(3_000 * SECOND);
    let sent = world.sent.iter().filter_map(|frame| Datagram::of(&frame.bytes));
    let mut renewals = sent.filter(|datagram| *datagram.destination.ip() == world.operator.address);
    let renewal = renewals.next().expect("it is renewed");
    assert_eq!((BROADCAST, public), (renewal.destination_mac, *renewal.source.ip()));
}

#[test]
fn address_that_answers_the_probe_is_declined() {
    let (mut world, _, public) = bound();
    world.claim(public, ROUTER_MAC);
    assert_eq!((None, 1), (world.public(Site(0)), world.count(Count::PublicConflict)));
    world.run(SECOND);
    assert!(world.operator.declined.contains(&public));
    world.run(20 * SECOND);
    let other = world.public(Site(0)).expect("another address");
    assert_ne!(public, other);
    // A second conflict within ten seconds is effective, because it is a reply to a probe.
    world.claim(other, ROUTER_MAC);
    assert_eq!((None, 2), (world.public(Site(0)), world.count(Count::PublicConflict)));
    world.check();
}

#[test]
fn address_that_is_claimed_later_is_given_up_once_in_ten_seconds() {
    let (mut world, _, public) = bound();
    world.run(60 * SECOND);
    // A claim with the MAC of the site itself is not a conflict.
    let own = world.parameters.mac(Site(0));
    world.claim(public, own);
    assert_eq!(Some(public), world.public(Site(0)));
    world.claim(public, ROUTER_MAC);
    assert_eq!(None, world.public(Site(0)));
    let expected = Note::Conflict {
        site: Site(0),
        address: public,
        hardware: ROUTER_MAC,
    };
    assert_eq!(Some(&expected), world.notes.last());
    for _ in 0..1_000 {
        world.claim(public, ROUTER_MAC);
    }
    assert_eq!(1, world.count(Count::PublicConflict));
    world.run(20 * SECOND);
    assert!(world.public(Site(0)).is_some());
    world.check();
}

#[test]
fn operator_that_refuses_all_leaves_terminals_waiting() {
    let mut world = World::new();
    world.twist = Box::new(|mut answer| {
        if answer.opts().msg_type() == Some(MessageType::Ack) {
            answer.opts_mut().insert(DhcpOption::MessageType(MessageType::Nak));
        }
        vec![answer]
    });
    for (last, site) in (1..=6).zip(["100.5", "100.6", "100.7", "101.5", "101.6", "101.7"]) {
        world.gain(lease(last, last, &format!("homes-{site}")));
    }
    world.gain(lease(7, 7, "shops-8"));
    world.run(600 * SECOND);
    assert_eq!(0, world.entries.publics.len());
    assert_eq!([7, 0], world.service.terminals());
    assert_eq!(
        "waiting",
        world.service.lease(INSIDE, address(1)).expect("a lease").status.word()
    );
    world.check();
    world.twist = Box::new(|answer| vec![answer]);
    world.run(200 * SECOND);
    assert_eq!(6, world.entries.publics.len());
    world.check();
}

#[test]
fn operator_that_gives_one_address_to_two_sites_takes_it_from_none() {
    let (mut world, _, public) = bound();
    world.operator.stuck = Some(public);
    world.gain(lease(2, 2, "homes-100.6"));
    world.run(60 * SECOND);
    assert_eq!((Some(public), None), (world.public(Site(0)), world.public(Site(1))));
    let fault = agent::Fault::AddressTwice;
    assert!(world.service.agent(0).expect("a client").counters().fault(fault) > 0);
    assert!(world.events.iter().any(|event| matches!(event, Event::Fault { .. })));
    world.operator.stuck = None;
    world.run(400 * SECOND);
    assert!(world.public(Site(1)).is_some());
    world.check();
}

#[test]
fn public_address_that_another_site_has_is_counted() {
    let mut world = World::new();
    world
        .entries
        .publics
        .insert(77, (0, Ipv4Addr::new(203, 0, 0, 3).to_bits()));
    world.gain(lease(1, 1, "homes-100.5"));
    world.run(SECOND);
    assert_eq!((None, 1), (world.public(Site(0)), world.count(Count::PublicTaken)));
    // The address is written to the table again at the next renewal.
    world.entries.publics.clear();
    world.run(1_800 * SECOND);
    assert!(world.public(Site(0)).is_some());
    world.check();
}

#[test]
fn machine_that_follows_another_keeps_what_is_still_so() {
    let (mut world, one, public) = bound();
    let two = world.gain(lease(2, 2, "homes-100.6"));
    let three = world.gain(lease(3, 3, "homes-100.7"));
    world.gain(lease(4, 4, "shops-8"));
    world.run(SECOND);
    let moved = Arc::new(lease(3, 9, "homes-100.7"));
    let (saved, changes) = (world.service.saved(), world.entries.changes);
    let mut next = World::of(world.parameters, world.entries, saved, world.now);
    next.operator = world.operator;
    assert_eq!(3, next.entries.publics.len());
    next.change(INSIDE, &Change::Gained(one));
    next.change(INSIDE, &Change::Gained(moved));
    assert_eq!(changes + 1, next.entries.changes, "what is as it was is not touched");
    next.run(SECOND);
    assert_eq!(Some(public), next.public(Site(0)));
    next.environment(|service, environment| service.settle(environment));
    assert_eq!(2, next.entries.terminals.len());
    assert_eq!((Some(public), None), (next.public(Site(0)), next.public(Site(1))));
    next.check();
    let _ = (two, three);
}

#[test]
fn announcements_of_many_sites_are_spread() {
    let mut text = TEXT.replace("100-101.5-7", "100.1-1000");
    text.push_str("rate = 100\n");
    let entries = Entries {
        most: 1_000,
        ..Entries::default()
    };
    let mut world = World::of(parameters_of(&text), entries, SavedState::default(), 0);
    let site = |number: u32| Lease {
        address: Ipv4Addr::from_bits(0x0a00_0200 + number),
        ..lease(1, 1, &format!("homes-100.{}", number + 1))
    };
    // All sites have leases at the start, as after a restart.
    let kept = (0..1_000).map(|number| {
        let lease = agent::PublicLease {
            address: Ipv4Addr::from_bits(0xcb00_0100 + number),
            prefix_length: 16,
            router: None,
            server: SERVER,
            renew: 1_000 * SECOND,
            rebind: 2_000 * SECOND,
            expires: 3_000 * SECOND,
        };
        (world.parameters.mac(Site(number)), lease)
    });
    world.service.restore(0, kept.collect::<Vec<_>>());
    world.twist = Box::new(|_| Vec::new());
    for number in 0..1_000 {
        world.gain(site(number));
    }
    assert_eq!(1_000, world.entries.publics.len());
    for _ in 0..5 {
        let before = world.count(Count::PublicAnnounced);
        world.run(SECOND);
        let announced = world.count(Count::PublicAnnounced) - before;
        assert!((99..=120).contains(&announced), "{announced}");
    }
    world.run(10 * SECOND);
    assert_eq!(1_000, world.count(Count::PublicAnnounced));
}
