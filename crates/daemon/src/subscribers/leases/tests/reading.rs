use proptest::prelude::*;

use super::*;

fn relay(circuit: &[u8], remote: &[u8]) -> Option<Box<RelayInformation>> {
    let (circuit, remote) = (circuit.into(), remote.into());
    Some(Box::new(RelayInformation { circuit, remote }))
}

fn faults(format: Format, text: &str) -> Vec<(u64, Reason)> {
    let faults = read(format, text.as_bytes()).into_iter().filter_map(Result::err);
    faults.map(|fault| (fault.line, fault.reason)).collect()
}

fn only(format: Format, text: &str) -> Entry {
    let mut read = read(format, text.as_bytes());
    assert_eq!(1, read.len(), "{read:?}");
    read.pop().unwrap().expect("an entry")
}

#[test]
fn kea_recorded_file_gives_its_leases() {
    let (table, faults) = table(read(Format::Kea, KEA), THEN);
    assert_eq!(Vec::<Fault>::new(), faults);
    let of = |last| {
        table
            .get(address(last))
            .map(|lease| (lease.hardware[5], lease.relay.clone()))
    };
    assert_eq!(5 - 1, table.len());
    assert_eq!(Some((1, relay(b"S100.C7", b"sluice"))), of(0));
    assert_eq!(Some((2, relay(b"S100.C8", b""))), of(1), "it moved");
    assert_eq!(Some((3, relay(b"S1\"0;\\{}#", b""))), of(2));
    assert_eq!(None, of(3), "released");
    assert_eq!(None, of(4), "declined");
    assert_eq!(Some((6, relay(b"S100.C9", b"\xff\xfe"))), of(5));
    let kitchen = table.get(address(0)).unwrap();
    assert_eq!(Some("kitchen"), kitchen.host_name.as_deref());
    assert_eq!(
        (1_795_486_195, Expiry::At(1_795_486_255)),
        (kitchen.renewed, kitchen.expires)
    );
}

#[test]
fn dhcpd_recorded_file_gives_its_leases() {
    let (table, faults) = table(read(Format::Dhcpd, DHCPD), THEN);
    assert_eq!(Vec::<Fault>::new(), faults);
    let of = |last| {
        table
            .get(address(last))
            .map(|lease| (lease.hardware[5], lease.relay.clone()))
    };
    assert_eq!(5, table.len());
    assert_eq!(Some((1, relay(b"S100.C7", b"sluice"))), of(0));
    assert_eq!(Some((2, relay(b"\x00\x04\xa1\xb2", b""))), of(1));
    assert_eq!(Some((3, relay(b"S1\"0;\\{}#", b""))), of(2));
    assert_eq!(None, of(3), "released");
    assert_eq!(None, of(4), "declined");
    assert_eq!(Some((6, relay(b"S100.C9", b"\xff\xfe"))), of(5));
    let porch = table.get(address(6)).unwrap();
    let expected = Lease {
        address: address(6),
        hardware: [0xc2, 0xd2, 0xb8, 0x6b, 0x0b, 0xdf],
        client_id: Some([1, 0xc2, 0xd2, 0xb8, 0x6b, 0x0b, 0xdf].into()),
        renewed: 1_795_486_224,
        expires: Expiry::At(1_795_486_284),
        relay: None,
        host_name: Some("porch".into()),
    };
    assert_eq!(expected, **porch);
}

#[test]
fn dhcpd_file_it_wrote_anew_says_the_same() {
    let (before, _) = table(read(Format::Dhcpd, DHCPD), THEN);
    let (after, faults) = table(read(Format::Dhcpd, DHCPD_REWRITTEN), THEN);
    assert_eq!(Vec::<Fault>::new(), faults);
    assert_eq!(sorted(&before), sorted(&after));
}

#[test]
fn kea_columns_are_found_by_their_names() {
    let text = "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context,pool_id\n\
        10.77.1.1,02:00:00:00:00:07,ff:1,60,1060,1,0,0,a&#x2cb,0,,3\n";
    let expected = Lease {
        client_id: Some([0xff, 1].into()),
        host_name: Some("a,b".into()),
        ..leased(1, 7, 1000)
    };
    assert_eq!(Entry::Leased(expected), only(Format::Kea, text));
    let other = "address,state,expire,valid_lifetime,hwaddr,client_id,user_context,hostname\n\
        10.77.1.1,0,1060,60,02:00:00:00:00:07,,,\n";
    assert_eq!(Entry::Leased(leased(1, 7, 1000)), only(Format::Kea, other));
}

#[test]
fn kea_both_forms_of_extended_information_are_read() {
    for information in [
        r#""0x0102616202016A""#,
        r#"{ "sub-options": "0x0102616202016A"&#x2c "remote-id": "6A" }"#,
        r#"{ "relay-id": "00"&#x2c "sub-options": "0x0102616202016a" }"#,
    ] {
        let context = format!(r#"{{ "ISC": {{ "relay-agent-info": {information} }}&#x2c "other": [ 1 ] }}"#);
        let text = format!("{HEADER}10.77.1.1,02:00:00:00:00:07,,60,1060,1,0,0,,0,{context}\n");
        let expected = Lease {
            relay: relay(b"ab", b"j"),
            ..leased(1, 7, 1000)
        };
        assert_eq!(Entry::Leased(expected), only(Format::Kea, &text));
    }
    let text = format!("{HEADER}10.77.1.1,02:00:00:00:00:07,,60,1060,1,0,0,,0,{{ \"room\": 7 }}\n");
    assert_eq!(Entry::Leased(leased(1, 7, 1000)), only(Format::Kea, &text));
}

#[test]
fn kea_states_and_lifetimes_say_who_has_an_address() {
    let of = |lifetime: u64, expire: u64, state: u8| {
        let text = format!("{HEADER}10.77.1.1,02:00:00:00:00:07,,{lifetime},{expire},1,0,0,,{state},\n");
        only(Format::Kea, &text)
    };
    let free = |renewed, why| {
        let address = address(1);
        Entry::Free { address, renewed, why }
    };
    assert_eq!(Entry::Leased(leased(1, 7, 1000)), of(60, 1060, 0));
    assert_eq!(free(1000, Lost::Declined), of(60, 1060, 1));
    assert_eq!(free(1000, Lost::Expired), of(60, 1060, 2));
    assert_eq!(free(1000, Lost::Released), of(60, 1060, 3));
    assert_eq!(free(1060, Lost::Released), of(0, 1060, 0));
    let forever = Lease {
        expires: Expiry::Never,
        ..leased(1, 7, 1000)
    };
    assert_eq!(Entry::Leased(forever), of(0xffff_ffff, 0xffff_ffff + 1000, 0));
}

#[test]
fn kea_damaged_line_is_told_and_the_others_are_read() {
    let with = |damaged: &str| format!("{HEADER}{}{damaged}\n{}", line(1, 1, 1000), line(2, 2, 1000));
    for (expected, damaged) in [
        (Reason::Fields, "10.77.1.9,02:00:00:00:00:09"),
        (Reason::Fields, "10.77.1.9,02:00:00:00:00:09,,60,1060,1,0,0,a,b,0,"),
        (Reason::Address, "10.77.1.900,02:00:00:00:00:09,,60,1060,1,0,0,,0,"),
        (Reason::Address, "224.0.0.1,02:00:00:00:00:09,,60,1060,1,0,0,,0,"),
        (Reason::Hardware, "10.77.1.9,,,60,1060,1,0,0,,0,"),
        (Reason::Hardware, "10.77.1.9,03:00:00:00:00:09,,60,1060,1,0,0,,0,"),
        (Reason::Client, "10.77.1.9,02:00:00:00:00:09,01:x,60,1060,1,0,0,,0,"),
        (Reason::Time, "10.77.1.9,02:00:00:00:00:09,,60,,1,0,0,,0,"),
        (Reason::Time, "10.77.1.9,02:00:00:00:00:09,,-1,1060,1,0,0,,0,"),
        (Reason::State, "10.77.1.9,02:00:00:00:00:09,,60,1060,1,0,0,,9,"),
        (Reason::Context, "10.77.1.9,02:00:00:00:00:09,,60,1060,1,0,0,,0,{"),
        (
            Reason::Relay,
            r#"10.77.1.9,02:00:00:00:00:09,,60,1060,1,0,0,,0,{"ISC":{"relay-agent-info":"0x01"}}"#,
        ),
        (
            Reason::Relay,
            r#"10.77.1.9,02:00:00:00:00:09,,60,1060,1,0,0,,0,{"ISC":{"relay-agent-info":"0x0105aa"}}"#,
        ),
    ] {
        assert_eq!(vec![(3, expected)], faults(Format::Kea, &with(damaged)), "{damaged}");
        assert_eq!(3, read(Format::Kea, with(damaged).as_bytes()).len());
    }
}

#[test]
fn kea_damaged_header_costs_no_lease() {
    let text = format!(
        "{}{}",
        HEADER.replace("hwaddr", "hwa#dr").replace("user_context", "?"),
        line(1, 1, 1000)
    );
    assert_eq!(vec![(1, Reason::Header)], faults(Format::Kea, &text));
    assert_eq!(
        Some(Ok(Entry::Leased(leased(1, 1, 1000)))),
        read(Format::Kea, text.as_bytes()).pop()
    );
}

#[test]
fn line_that_is_too_long_is_told_once_and_skipped() {
    let long = "x".repeat(super::lines::MAX_LINE_LENGTH + 1);
    let text = format!("{HEADER}{long}\n{}", line(1, 1, 1000));
    assert_eq!(vec![(2, Reason::TooLong)], faults(Format::Kea, &text));
    let mut reader = Reader::new(Format::Kea);
    let mut out = Vec::new();
    for piece in text.as_bytes().chunks(1000) {
        reader.read(piece, &mut out);
    }
    assert_eq!(read(Format::Kea, text.as_bytes()), out);
}

fn block(last: u8, statements: &str) -> String {
    format!("lease 10.77.1.{last} {{\n{statements}\n}}\n")
}

const ACTIVE: &str = "  starts 4 1970/01/01 00:16:40;\n  ends 4 1970/01/01 00:17:40;\n  binding state active;\n  \
    hardware ethernet 2:0:0:0:0:7;";

#[test]
fn dhcpd_statements_that_do_not_matter_are_skipped() {
    let around = format!(
        "# failover\nfailover peer \"one\" state {{\n  my state normal at 4 2023/01/01 00:00:00;\n}}\n\
         host x {{ dynamic; hardware ethernet 0:1:2:3:4:5; }}\nserver-duid \"\\000{{\";\n{}",
        block(
            1,
            &format!(
                "{ACTIVE}\n  next binding state expired;\n  set a = concat(\"x\", \"}}\");  # }}\n  \
                 on expiry or release {{\n    if (1 = 1) {{ set b = \"y\"; }}\n    binding state free;\n  }}\n  reserved;"
            )
        )
    );
    assert_eq!(Entry::Leased(leased(1, 7, 1000)), only(Format::Dhcpd, &around));
    let line = block(1, ACTIVE).replace('\n', " ");
    assert_eq!(
        Entry::Leased(leased(1, 7, 1000)),
        only(Format::Dhcpd, &format!("{line}\n"))
    );
}

#[test]
fn dhcpd_times_and_texts_are_read_in_each_of_their_forms() {
    let text = "  starts epoch 1000; # Thu Jan 01\n  ends never;\n  binding state active;\n  \
        hardware ethernet 02:00:00:00:00:07;\n  uid 1:ab:0;\n  client-hostname \"\\141\\\"\\x62\\n\";\n  \
        option agent.circuit-id a;\n  option agent.remote-id \"\\000\\377\";";
    let expected = Lease {
        client_id: Some([1, 0xab, 0].into()),
        expires: Expiry::Never,
        relay: relay(&[10], &[0, 255]),
        host_name: Some("a\"b\n".into()),
        ..leased(1, 7, 1000)
    };
    assert_eq!(Entry::Leased(expected), only(Format::Dhcpd, &block(1, text)));
}

#[test]
fn dhcpd_states_say_who_has_an_address() {
    for (state, why) in [
        ("free", Lost::Released),
        ("released", Lost::Released),
        ("backup", Lost::Released),
        ("reset", Lost::Released),
        ("expired", Lost::Expired),
        ("abandoned", Lost::Declined),
    ] {
        let text = block(1, &ACTIVE.replace("active", state));
        let (address, renewed) = (address(1), 1000);
        assert_eq!(Entry::Free { address, renewed, why }, only(Format::Dhcpd, &text));
    }
}

#[test]
fn dhcpd_damaged_block_is_told_and_the_others_are_read() {
    let damaged = |from: &str, to: &str| block(9, ACTIVE).replace(from, to);
    for (expected, damaged) in [
        (vec![(7, Reason::Address)], damaged("10.77.1.9", "10.77.1")),
        (vec![(7, Reason::Hardware)], damaged("2:0:0", "g:0:0")),
        (vec![(7, Reason::Hardware)], damaged("ethernet", "token-ring")),
        (vec![(7, Reason::Time)], damaged("ends 4", "ends")),
        (vec![(7, Reason::Time)], damaged("01/01 00:17", "13/01 00:17")),
        (vec![(7, Reason::State)], damaged("active", "awake")),
        (vec![(7, Reason::State)], damaged("binding", "bending")),
        (vec![(7, Reason::Quote)], damaged("ends 4", "uid \"ends 4")),
        (vec![(7, Reason::Unfinished)], damaged("}\n", "")),
        (vec![(7, Reason::Statement)], damaged("lease", "leas")),
        (vec![(7, Reason::Statement)], damaged("7;", "7")),
        (vec![(13, Reason::Brace)], format!("{}}}\n", block(9, ACTIVE))),
    ] {
        let text = format!("{}{damaged}{}", block(1, ACTIVE), block(2, ACTIVE));
        assert_eq!(expected, faults(Format::Dhcpd, &text), "{damaged}");
        let read = read(Format::Dhcpd, text.as_bytes());
        let entry = |last| Some(Ok(Entry::Leased(leased(last, 7, 1000))));
        assert_eq!(
            (entry(1), entry(2)),
            (read.first().cloned(), read.last().cloned()),
            "{damaged}"
        );
    }
}

#[test]
fn dhcpd_block_that_does_not_end_holds_no_more_than_it_may() {
    let mut text = String::from("lease 10.77.1.9 {\n");
    for _ in 0..5000 {
        text.push_str("  set a = \"0123456789012345678901234567890123456789\";\n");
    }
    text.push_str(&block(1, ACTIVE));
    assert_eq!(vec![(1, Reason::TooLong)], faults(Format::Dhcpd, &text));
    assert_eq!(2, read(Format::Dhcpd, text.as_bytes()).len());
}

#[test]
fn entry_that_breaks_off_is_kept_for_its_rest() {
    for (format, bytes) in [(Format::Kea, KEA), (Format::Dhcpd, DHCPD)] {
        let mut reader = Reader::new(format);
        let mut out = Vec::new();
        reader.read(&bytes[..bytes.len() - 2], &mut out);
        assert!(reader.unfinished().is_some() && !reader.is_complete());
        let before = out.len();
        reader.read(&bytes[bytes.len() - 2..], &mut out);
        assert_eq!((before + 1, true), (out.len(), reader.is_complete()));
    }
}

#[test]
fn corpus_is_read_to_its_end() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/leases");
    let files = std::fs::read_dir(folder).expect("it is there");
    let count = files.map(|file| hostile(&std::fs::read(file.expect("a file").path()).expect("it is read")));
    assert!(count.count() > 0);
}

fn recorded() -> impl Strategy<Value = (Format, &'static [u8])> {
    prop_oneof![
        Just((Format::Kea, KEA)),
        Just((Format::Dhcpd, DHCPD)),
        Just((Format::Dhcpd, DHCPD_REWRITTEN)),
    ]
}

proptest! {
    #[test]
    fn file_in_any_pieces_reads_the_same(
        (format, bytes) in recorded(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        cuts.push(bytes.len());
        let (mut reader, mut out, mut at) = (Reader::new(format), Vec::new(), 0);
        for cut in cuts {
            reader.read(&bytes[at..cut], &mut out);
            at = cut;
        }
        prop_assert_eq!(read(format, bytes), out);
    }

    #[test]
    fn file_with_bytes_changed_loses_only_what_they_touched(
        (format, bytes) in recorded(), place: prop::sample::Index, changed in proptest::collection::vec(any::<u8>(), 1..12),
    ) {
        let place = place.index(bytes.len());
        let end = (place + changed.len()).min(bytes.len());
        let mut damaged = bytes.to_vec();
        damaged[place..end].copy_from_slice(&changed[..end - place]);
        // Entries of those unchanged lines before which the line end is also unchanged.
        let untouched = |piece: &&[u8]| {
            let begin = piece.as_ptr() as usize - bytes.as_ptr() as usize;
            begin + piece.len() <= place || begin > end
        };
        let (pieces, header) = pieces(format, bytes);
        let read = read(format, &damaged);
        for piece in pieces.into_iter().filter(untouched) {
            let alone = [header, piece].concat();
            let mut expected = Vec::new();
            Reader::new(format).read(&alone, &mut expected);
            for entry in expected {
                prop_assert!(read.contains(&entry), "{:?} of {:?}", entry, String::from_utf8_lossy(&damaged));
            }
        }
    }

    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        hostile(&bytes);
    }

    #[test]
    fn recorded_bytes_mixed_up_are_read(
        (_, bytes) in recorded(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..30),
    ) {
        let mut bytes = bytes.to_vec();
        for (place, byte, how) in changes {
            let place = place.index(bytes.len());
            match how {
                0 => bytes.insert(place, byte),
                1 => drop(bytes.remove(place)),
                2 => bytes[place] = b"{};\"\n,#\\"[usize::from(byte % 8)],
                _ => bytes[place] = byte,
            }
        }
        hostile(&bytes);
    }
}

/// Lines or blocks of a recorded file, and the header before them.
fn pieces(format: Format, bytes: &'static [u8]) -> (Vec<&'static [u8]>, &'static [u8]) {
    match format {
        Format::Kea => {
            let mut lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
            (
                lines.split_off(1.min(lines.len())),
                lines.first().copied().unwrap_or_default(),
            )
        }
        Format::Dhcpd => {
            let text = std::str::from_utf8(bytes).expect("it is text");
            let begins: Vec<usize> = text.match_indices("\nlease ").map(|(at, _)| at + 1).collect();
            let ends = begins.iter().skip(1).copied().chain([text.len()]);
            let blocks = begins.iter().zip(ends).map(|(&begin, end)| &bytes[begin..end]);
            (blocks.collect(), b"")
        }
    }
}
