use super::*;

#[test]
fn frame_is_of_the_site_that_its_tags_or_its_address_tell() {
    let parameters = parameters_of(TEXT);
    let find = |interface, tags: &[u16], source: [u8; 4]| {
        parameters
            .finder
            .find(interface, tags, source.into())
            .map(|site| site.0)
    };
    for (expected, tags) in [
        (Some(0), &[100, 5][..]),
        (Some(2), &[100, 7]),
        (Some(3), &[101, 5]),
        (Some(5), &[101, 7]),
        (None, &[100, 8]),
        (None, &[100, 4]),
        (None, &[99, 5]),
        (None, &[102, 5]),
        (Some(6), &[8]),
        (Some(7), &[9]),
        (None, &[10]),
        (None, &[7]),
        (None, &[]),
        (None, &[100, 5, 1]),
    ] {
        assert_eq!(expected, find(ACCESS, tags, [0; 4]), "{tags:?}");
        assert_eq!(None, find(OUTSIDE, tags, [0; 4]), "{tags:?}");
    }
    // Sites are found by address. A terminal without an address belongs to the interface's only site.
    assert_eq!(Some(8), find(FLAT, &[], [10, 1, 7, 9]));
    assert_eq!(None, find(FLAT, &[], [10, 1, 8, 9]));
    assert_eq!(None, find(FLAT, &[], [10, 1, 6, 9]));
    assert_eq!(Some(8), find(FLAT, &[], [0; 4]));
    assert_eq!(None, find(FLAT, &[8], [0; 4]));
    assert_eq!(
        [true, true, false],
        [ACCESS, FLAT, OUTSIDE].map(|interface| parameters.finder.serves(interface))
    );
}

#[test]
fn site_of_a_whole_interface_has_all_that_is_untagged() {
    let text = TEXT.replace("prefix = \"10.1.7.0/24\"\n", "");
    let parameters = parameters_of(&text);
    for source in [[0; 4], [10, 1, 8, 9], [192, 0, 2, 1]] {
        assert_eq!(Some(HALL), parameters.finder.find(FLAT, &[], source.into()));
    }
    assert_eq!(None, parameters.finder.find(FLAT, &[7], [0; 4].into()));
}

#[test]
fn frame_that_nobody_asked_for_is_counted_and_changes_nothing() {
    let mut world = World::new();
    let discover = request_frame(&world.parameters, Site(0), 1, MessageType::Discover);
    let with = |tags: &[u16]| {
        let tags = [tags.first(), tags.get(1)].map(|tag| tag.map(|&tag| vlan::Tag::vlan(tag)));
        let mut buffer = Vec::new();
        tagged(plain(&discover, &mut buffer).1.to_vec(), tags)
    };
    for (expected, interface, frame) in [
        (Count::FrameUnread, ACCESS, vec![]),
        (Count::FrameUnread, ACCESS, discover[..60].to_vec()),
        (
            Count::FrameUnread,
            OUTSIDE,
            [&discover[..12], &[0x86, 0xdd], &[0; 60]].concat(),
        ),
        (
            Count::FrameUnread,
            OUTSIDE,
            [&[0; 12][..], &[8, 6, 0, 7], &[0; 40]].concat(),
        ),
        (Count::FrameSite, ACCESS, with(&[100, 8])),
        (Count::FrameSite, ACCESS, with(&[])),
        (Count::FrameOther, OUTSIDE, with(&[])),
        (Count::FrameOther, 99, with(&[])),
        (
            Count::FrameOther,
            ACCESS,
            super::super::super::frame::probe(ROUTER_MAC, address(1)),
        ),
        (
            Count::FrameOther,
            OUTSIDE,
            super::super::super::frame::announcement(ROUTER_MAC, address(1)),
        ),
    ] {
        let before = world.count(expected);
        world.receive(interface, &frame);
        assert_eq!(before + 1, world.count(expected), "{expected:?} by {interface}");
    }
    assert_eq!((0, 0, 0), (world.sent.len(), world.entries.changes, world.notes.len()));
    world.check();
}

#[test]
fn request_is_relayed_and_its_answer_comes_back_with_tags() {
    let mut world = World::new();
    let frame = request_frame(&world.parameters, Site(1), 1, MessageType::Discover);
    world.receive(ACCESS, &frame);
    let relayed = world.sent.pop().expect("it is relayed");
    assert_eq!((ACCESS, Delivery::Routed), (relayed.interface, relayed.delivery));
    let datagram = Datagram::of(&relayed.bytes).expect("a datagram");
    assert_eq!(SocketAddrV4::new(RELAY, 67), datagram.source);
    assert_eq!(SocketAddrV4::new(SERVER, 67), datagram.destination);
    let message = Message::from_bytes(datagram.payload).expect("a message");
    assert_eq!(RELAY, message.giaddr());
    assert!(datagram.payload.windows(11).any(|bytes| bytes == b"homes-100.6"));
    let answer = answered(&relayed.bytes, MessageType::Offer, address(9));
    world.receive(OUTSIDE, &answer);
    let returned = world.sent.pop().expect("it is returned");
    assert_eq!((ACCESS, Delivery::Unchanged), (returned.interface, returned.delivery));
    assert_eq!([0x88, 0xa8, 0, 100, 0x81, 0, 0, 6, 8, 0], returned.bytes[12..22]);
    let mut buffer = Vec::new();
    let (_, untagged) = plain(&returned.bytes, &mut buffer);
    let datagram = Datagram::of(untagged).expect("a datagram");
    let expected = (SocketAddrV4::new(RELAY, 67), SocketAddrV4::new(address(9), 68));
    assert_eq!(expected, (datagram.source, datagram.destination));
    assert_eq!(
        ([2, 0, 0, 0, 1, 0], hardware(1)),
        (datagram.source_mac, datagram.destination_mac)
    );
    // A site with a pool has a single tag.
    let frame = request_frame(&world.parameters, SHOP, 1, MessageType::Discover);
    world.receive(ACCESS, &frame);
    let relayed = world.sent.pop().expect("it is relayed");
    let refused = answered(&relayed.bytes, MessageType::Nak, Ipv4Addr::UNSPECIFIED);
    world.receive(OUTSIDE, &refused);
    let returned = world.sent.pop().expect("it is returned");
    assert_eq!(
        (&BROADCAST[..], [0x81, 0, 0, 8, 8, 0]),
        (&returned.bytes[..6], returned.bytes[12..18].try_into().unwrap())
    );
}

#[test]
fn request_goes_to_the_routers_host_where_the_server_is() {
    let mut world = World::new();
    let frame = request_frame(&world.parameters, HALL, 1, MessageType::Discover);
    world.receive(FLAT, &frame);
    let relayed = world.sent.pop().expect("it is relayed");
    assert_eq!((FLAT, Delivery::Host), (relayed.interface, relayed.delivery));
    let datagram = Datagram::of(&relayed.bytes).expect("a datagram");
    // The kernel drops packets with one of its own addresses as source, so the packet has a different source address.
    assert_eq!(Ipv4Addr::new(10, 1, 255, 1), *datagram.source.ip());
    assert_eq!([2, 0, 0, 0, 1, FLAT as u8], datagram.destination_mac);
}

#[test]
fn answer_from_another_address_than_the_servers_goes_nowhere() {
    let mut world = World::new();
    let frame = request_frame(&world.parameters, Site(1), 1, MessageType::Request);
    world.receive(ACCESS, &frame);
    let relayed = world.sent.pop().expect("it is relayed");
    let mut forged = Datagram::of(&relayed.bytes).expect("a datagram");
    forged.destination = SocketAddrV4::new(address(66), 67);
    let forged = answered(&forged.frame().expect("a frame"), MessageType::Ack, address(9));
    world.receive(OUTSIDE, &forged);
    assert_eq!((1, 0), (world.count(Count::ReplySource), world.sent.len()));
    // A server message that a terminal sends is also dropped.
    let answer = answered(&relayed.bytes, MessageType::Ack, address(9));
    let inside = tagged(answer, world.parameters.tags(Site(2)));
    world.receive(ACCESS, &inside);
    let refused = world.service.relay(INSIDE).expect("a relay").refused;
    assert_eq!(1, refused.iter().sum::<u64>());
    world.gain(bare(9, 1));
    assert_eq!(Vec::<(u32, u8)>::new(), world.mapped(address(9)));
}

#[test]
fn terminal_that_floods_is_told_and_takes_nothing_from_other_sites() {
    let mut world = World::new();
    let frame = request_frame(&world.parameters, Site(0), 1, MessageType::Discover);
    for _ in 0..10_000 {
        world.receive(ACCESS, &frame);
    }
    assert_eq!(20, std::mem::take(&mut world.sent).len());
    let expected = Note::Flood {
        site: Site(0),
        hardware: hardware(1),
        of_site: false,
    };
    assert_eq!(vec![expected], std::mem::take(&mut world.notes));
    for site in [Site(1), SHOP] {
        assert_eq!(1, world.acknowledge(site, 2, address(2)).len(), "{site:?}");
    }
    assert_eq!(
        1,
        world.acknowledge(Site(0), 3, address(3)).len(),
        "another terminal of the site"
    );
    world.check();
}
