use super::*;

const MAC: Mac = [2, 0, 0, 0, 0, 7];

/// A server's reply with these options, which follow its message type.
fn reply(kind: u8, options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; OPTIONS];
    bytes[..4].copy_from_slice(&[2, 1, 6, 0]);
    bytes[4..8].copy_from_slice(&[1, 2, 3, 4]);
    bytes[16..20].copy_from_slice(&[203, 0, 113, 7]);
    bytes[28..34].copy_from_slice(&MAC);
    bytes[236..].copy_from_slice(&MAGIC);
    bytes.extend([53, 1, kind]);
    bytes.extend(options);
    bytes.push(255);
    bytes
}

#[test]
fn reply_with_all_options_is_read() {
    let options = [
        &[
            1, 4, 255, 255, 255, 0, 3, 8, 203, 0, 113, 1, 203, 0, 113, 2, 51, 4, 0, 0, 14, 16,
        ][..],
        &[54, 4, 198, 51, 100, 2, 58, 4, 0, 0, 7, 8, 59, 4, 0, 0, 12, 78, 61, 7, 1],
        &MAC,
    ];
    let expected = Reply {
        answer: Answer::Acknowledge,
        xid: 0x0102_0304,
        mac: MAC,
        address: Ipv4Addr::new(203, 0, 113, 7),
        server: Some(Ipv4Addr::new(198, 51, 100, 2)),
        prefix_length: Some(24),
        router: Some(Ipv4Addr::new(203, 0, 113, 1)),
        lease: Some(3_600),
        renew: Some(1_800),
        rebind: Some(3_150),
        identifier: Some([&[1], &MAC[..]].concat().into()),
    };
    assert_eq!(Ok(expected), Reply::read(&reply(5, &options.concat())));
}

#[test]
fn reply_whose_options_go_on_in_the_names_is_read() {
    let mut bytes = reply(2, &[52, 1, 3]);
    bytes[108..115].copy_from_slice(&[54, 4, 198, 51, 100, 2, 255]);
    bytes[44..51].copy_from_slice(&[51, 4, 0, 0, 0, 60, 255]);
    let reply = Reply::read(&bytes).expect("an offer");
    assert_eq!(
        (Some(Ipv4Addr::new(198, 51, 100, 2)), Some(60)),
        (reply.server, reply.lease)
    );
}

#[test]
fn reply_that_is_none_of_a_servers_is_refused() {
    let changed = |place: usize, byte| {
        let mut bytes = reply(5, &[]);
        bytes[place] = byte;
        Reply::read(&bytes).expect_err("it is refused")
    };
    assert_eq!(MessageError::Foreign, changed(0, 1));
    assert_eq!(MessageError::Foreign, changed(236, 0));
    assert_eq!(MessageError::Hardware, changed(1, 6));
    assert_eq!(MessageError::Hardware, changed(2, 255));
    for kind in [0, 1, 3, 4, 7, 8, 99] {
        assert_eq!(Err(MessageError::Kind), Reply::read(&reply(kind, &[])));
    }
    assert_eq!(Err(MessageError::Length(239)), Reply::read(&reply(5, &[])[..239]));
    assert_eq!(Err(MessageError::Length(2_000)), Reply::read(&[2; 2_000]));
}

#[test]
fn reply_with_an_option_of_a_wrong_length_is_refused() {
    for (code, length) in [(1, 3), (3, 0), (3, 5), (51, 2), (52, 2), (54, 5), (58, 0), (59, 8)] {
        let options = [&[code, length][..], &vec![9; length as usize]].concat();
        assert_eq!(
            Err(MessageError::Option(code)),
            Reply::read(&reply(5, &options)),
            "{code}"
        );
    }
}

#[test]
fn reply_with_a_mask_of_no_network_has_none() {
    for mask in [[255, 0, 255, 0], [0, 0, 0, 0], [0, 0, 0, 255]] {
        let options = [&[1, 4][..], &mask].concat();
        assert_eq!(None, Reply::read(&reply(5, &options)).expect("an answer").prefix_length);
    }
}

#[test]
fn request_is_padded_and_says_what_it_was_told() {
    let request = Request {
        question: Question::Discover,
        xid: 0x0102_0304,
        seconds: 3,
        broadcast: true,
        client: Ipv4Addr::UNSPECIFIED,
        mac: MAC,
        identifier: Some(&[1, 2, 0, 0, 0, 0, 7]),
        requested: Some(Ipv4Addr::new(203, 0, 113, 7)),
        server: None,
        host_name: Some("site"),
    };
    let bytes = request.bytes();
    assert_eq!(SHORTEST, bytes.len());
    assert_eq!([1, 1, 6, 0, 1, 2, 3, 4, 0, 3, 0x80, 0], bytes[..12]);
    assert_eq!(MAC, bytes[28..34]);
    let options = [
        &[12, 4][..],
        b"site",
        &[
            50, 4, 203, 0, 113, 7, 53, 1, 1, 55, 6, 1, 3, 51, 54, 58, 59, 57, 2, 5, 192, 61, 7, 1, 2, 0, 0, 0, 0, 7,
            255,
        ],
    ];
    let options = options.concat();
    assert_eq!(options, bytes[OPTIONS..OPTIONS + options.len()]);
    let release = Request {
        question: Question::Release,
        ..request
    };
    assert!(!release.bytes().contains(&55), "a release asks for nothing");
}
