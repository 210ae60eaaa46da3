use super::*;

#[test]
fn terminal_is_mapped_with_the_tags_of_the_site_that_its_lease_names() {
    let mut world = World::new();
    world.gain(lease(1, 1, "homes-100.5"));
    world.gain(lease(1, 2, "shops-9"));
    // Two sites use the same address, but the lease file of one server can contain the address only once.
    assert_eq!(vec![(7, 2)], world.mapped(address(1)));
    world.gain(lease(2, 1, "homes-100.5"));
    let (context, terminal) = world.entries.terminals.iter().next().expect("one");
    assert_eq!(sites::context(0, 0, false), context.0);
    assert_eq!([Some(vlan::Tag::service(100)), Some(vlan::Tag::vlan(5))], terminal.tags);
    let pooled = world.entries.terminals.values().last().expect("one");
    assert_eq!(sites::context(7, 0, true), pooled.context);
    assert_eq!([Some(vlan::Tag::vlan(9)), None], pooled.tags);
    assert_eq!(Some(&(None, Some(7))), world.entries.sites.get(&7));
    assert_eq!(
        Some(&(Some(world.parameters.mac(Site(0))), None)),
        world.entries.sites.get(&0)
    );
    world.check();
}

#[test]
fn address_is_a_terminals_in_each_of_two_sites() {
    // Two servers assign addresses of the same network.
    let shops = "tags = \"8-9\"\ndhcp = \"inside\"";
    let text = TEXT.replace(shops, "tags = \"8-9\"\ndhcp = \"second\"");
    let second = "[subscribers.dhcp.second]\nserver = \"192.0.2.11\"\nleases = \"/second\"\nformat = \"kea\"\n";
    let parameters = parameters_of(&format!("{text}{second}"));
    let mut world = World::of(
        parameters,
        Entries {
            most: 9,
            ..Entries::default()
        },
        SavedState::default(),
        0,
    );
    world.gain(lease(1, 1, "homes-100.5"));
    world.change(2, &Change::Gained(Arc::new(lease(1, 2, "shops-8"))));
    assert_eq!(vec![(0, 1), (6, 2)], world.mapped(address(1)));
    world.check();
}

#[test]
fn lease_that_names_no_site_of_its_server_is_outside() {
    let mut world = World::new();
    let circuits = ["homes-100.8", "homes", "hall", "", "\u{fffd}", "homes-0100.5"];
    for (last, circuit) in (1..).zip(circuits) {
        world.gain(lease(last, last, circuit));
    }
    world.gain(bare(9, 9));
    assert_eq!(7, world.count(Count::TerminalOutside));
    assert_eq!([0, 7], world.service.terminals());
    let unmapped: Vec<_> = world.service.leases_apart((0, Ipv4Addr::UNSPECIFIED)).collect();
    assert!(
        unmapped
            .iter()
            .all(|view| (view.site, view.status) == (None, LeaseStatus::Outside))
    );
    assert_eq!(1, world.notes.len(), "one line a second");
    // A repeated entry is not counted again.
    world.change(
        INSIDE,
        &Change::Renewed(Arc::new(Lease {
            renewed: START + 9,
            ..bare(9, 9)
        })),
    );
    assert_eq!(7, world.count(Count::TerminalOutside));
    world.gain(lease(9, 9, "homes-100.5"));
    assert_eq!(
        ([1, 6], vec![(0, 9)]),
        (world.service.terminals(), world.mapped(address(9)))
    );
    world.check();
}

#[test]
fn lease_of_a_prefix_is_of_its_site_by_the_address() {
    let mut world = World::new();
    let of = |third, last| {
        Arc::new(Lease {
            address: Ipv4Addr::new(10, 1, third, last),
            ..bare(last, last)
        })
    };
    world.change(1, &Change::Gained(of(7, 1)));
    world.change(1, &Change::Gained(of(8, 2)));
    assert_eq!(vec![(8, 1)], world.mapped(Ipv4Addr::new(10, 1, 7, 1)));
    let mut elsewhere = (*of(8, 3)).clone();
    elsewhere.relay = lease(1, 1, "hall").relay;
    world.change(1, &Change::Gained(Arc::new(elsewhere)));
    assert_eq!(
        (1, 1),
        (world.count(Count::TerminalOutside), world.count(Count::TerminalNetwork))
    );
    assert_eq!([1, 2], world.service.terminals());
    world.check();
}

#[test]
fn lease_of_an_address_that_its_site_cannot_have_is_refused() {
    let mut world = World::new();
    for (number, address) in [
        [10, 1, 0, 5],
        [10, 0, 0, 1],
        [10, 0, 0, 0],
        [10, 0, 255, 255],
        RELAY.octets(),
    ]
    .into_iter()
    .enumerate()
    {
        let lease = Lease {
            address: address.into(),
            ..lease(1, 1, "homes-100.5")
        };
        world.gain(lease.clone());
        assert_eq!(number as u64 + 1, world.count(Count::TerminalNetwork), "{address:?}");
        world.change(INSIDE, &Change::Renewed(Arc::new(lease)));
        assert_eq!(number as u64 + 1, world.count(Count::TerminalNetwork));
    }
    assert_eq!([0, 5], world.service.terminals());
    let view = world.service.lease(INSIDE, RELAY).expect("a lease");
    assert_eq!((Some(Site(0)), "conflict"), (view.site, view.status.word()));
    world.check();
}

#[test]
fn lease_without_relay_is_where_the_answer_went() {
    for answer_first in [true, false] {
        let mut world = World::new();
        if answer_first {
            world.acknowledge(Site(2), 1, address(1));
            world.acknowledge(Site(3), 2, address(2));
        }
        world.gain(bare(1, 1));
        // The lease in the file belongs to a different terminal than the observed reply.
        world.gain(bare(2, 3));
        if !answer_first {
            assert_eq!([0, 2], world.service.terminals());
            world.acknowledge(Site(2), 1, address(1));
            world.acknowledge(Site(3), 2, address(2));
        }
        assert_eq!(
            (vec![(2, 1)], vec![]),
            (world.mapped(address(1)), world.mapped(address(2)))
        );
        // If the terminal renews the lease without the relay, the lease remains in its site.
        let renewed = Lease {
            renewed: START + 50,
            ..bare(1, 1)
        };
        world.change(INSIDE, &Change::Renewed(Arc::new(renewed)));
        assert_eq!(vec![(2, 1)], world.mapped(address(1)));
        world.run(5 * SECOND);
        assert_eq!(0, world.count(Count::TerminalMismatch));
        world.check();
    }
}

#[test]
fn answer_that_the_file_confirms_is_no_mismatch() {
    let mut world = World::new();
    let was = world.gain(lease(1, 1, "homes-100.5"));
    world.now += 10 * SECOND;
    // The reply is observed before the entry is in the lease file.
    world.acknowledge(Site(1), 1, address(1));
    assert_eq!(vec![(1, 1)], world.mapped(address(1)));
    world.now += 100 * MILLISECOND;
    let now = Arc::new(Lease {
        renewed: START + 10,
        ..lease(1, 1, "homes-100.6")
    });
    world.change(INSIDE, &Change::Changed { was, now });
    world.run(5 * SECOND);
    assert_eq!(
        (0, vec![(1, 1)]),
        (world.count(Count::TerminalMismatch), world.mapped(address(1)))
    );
    world.check();
}

#[test]
fn answer_that_the_file_never_confirms_wins_and_is_told_once() {
    let mut world = World::new();
    let was = world.gain(lease(1, 1, "homes-100.5"));
    world.now += 10 * SECOND;
    world.acknowledge(Site(1), 1, address(1));
    world.run(SECOND);
    assert_eq!(0, world.count(Count::TerminalMismatch));
    world.run(2 * SECOND);
    let expected = Note::Mismatch {
        address: address(1),
        hardware: hardware(1),
        file: Site(0),
        answer: Site(1),
    };
    assert_eq!(Some(&expected), world.notes.last());
    // The file repeats an earlier entry.
    let again = Lease {
        renewed: START + 60,
        ..(*was).clone()
    };
    world.change(INSIDE, &Change::Renewed(Arc::new(again)));
    assert_eq!(
        (1, vec![(1, 1)]),
        (world.count(Count::TerminalMismatch), world.mapped(address(1)))
    );
    world.check();
}

#[test]
fn file_that_contradicts_an_answer_wins_where_it_is_newer() {
    for (renewed, expected) in [(START + 9, (1, 1)), (START + 10, (1, 1)), (START + 11, (2, 1))] {
        let mut world = World::new();
        let was = world.gain(lease(1, 1, "homes-100.5"));
        world.now += 10 * SECOND;
        world.acknowledge(Site(1), 1, address(1));
        let now = Arc::new(Lease {
            renewed,
            ..lease(1, 1, "homes-100.7")
        });
        world.change(INSIDE, &Change::Changed { was, now });
        assert_eq!(
            (1, vec![expected]),
            (world.count(Count::TerminalMismatch), world.mapped(address(1)))
        );
        world.check();
    }
}

#[test]
fn mac_in_two_sites_is_served_in_both_and_told_once() {
    let mut world = World::new();
    world.gain(lease(1, 1, "homes-100.5"));
    world.gain(lease(2, 1, "homes-100.5"));
    assert_eq!(0, world.count(Count::MacInTwoSites));
    let third = world.gain(lease(3, 1, "homes-100.6"));
    world.change(
        INSIDE,
        &Change::Renewed(Arc::new(Lease {
            renewed: START + 9,
            ..(*third).clone()
        })),
    );
    world.gain(lease(4, 1, "homes-100.6"));
    assert_eq!((1, 1), (world.count(Count::MacInTwoSites), world.notes.len()));
    assert_eq!([4, 0], world.service.terminals());
    assert!(world.service.site(Site(0)).expect("a site").shares_mac);
    world.check();
    world.lose(&third);
    world.check();
    world.lose(&Arc::new(lease(4, 1, "homes-100.6")));
    assert!(!world.service.site(Site(0)).expect("a site").shares_mac);
    world.check();
}

#[test]
fn lease_without_room_gets_it_when_another_goes() {
    let mut world = World::new();
    world.entries.most = 2;
    let one = world.gain(lease(1, 1, "homes-100.5"));
    world.gain(lease(2, 2, "homes-100.6"));
    for last in 3..6 {
        world.gain(lease(last, last, "homes-100.7"));
    }
    assert_eq!(3, world.count(Count::TerminalFull));
    assert_eq!([2, 3], world.service.terminals());
    assert_eq!(
        "full",
        world.service.lease(INSIDE, address(3)).expect("a lease").status.word()
    );
    assert_eq!(
        agent::State::Idle,
        world.service.agent(0).expect("a client").state(Site(2))
    );
    world.change(
        INSIDE,
        &Change::Renewed(Arc::new(Lease {
            renewed: START + 9,
            ..lease(3, 3, "homes-100.7")
        })),
    );
    assert_eq!(3, world.count(Count::TerminalFull));
    world.lose(&one);
    assert_eq!(
        (vec![(2, 3)], [2, 2]),
        (world.mapped(address(3)), world.service.terminals())
    );
    assert_eq!(3, world.count(Count::TerminalFull));
    world.check();
}

#[test]
fn lease_that_is_lost_or_moves_leaves_nothing_behind() {
    let mut world = World::new();
    let was = world.gain(lease(1, 1, "homes-100.5"));
    let now = Arc::new(lease(1, 1, "shops-8"));
    world.change(INSIDE, &Change::Changed { was, now: now.clone() });
    assert_eq!(vec![(6, 1)], world.mapped(address(1)));
    world.check();
    world.lose(&now);
    assert_eq!(([0, 0], 0), (world.service.terminals(), world.entries.terminals.len()));
    world.check();
}

#[test]
fn changes_that_were_seen_before_do_nothing() {
    let mut world = World::new();
    world.gain(lease(1, 1, "homes-100.5"));
    let before = world.entries.changes;
    for renewed in 1..100 {
        let lease = Lease {
            renewed: START + renewed,
            ..lease(1, 1, "homes-100.5")
        };
        world.change(INSIDE, &Change::Renewed(Arc::new(lease)));
    }
    assert_eq!(before, world.entries.changes);
    assert_eq!(
        START + 99,
        world.service.lease(INSIDE, address(1)).expect("a lease").lease.renewed
    );
}
