//! Tests files that are not valid configurations. For any bytes, problems are reported in a text that is safe for a
//! terminal and of limited length.

use proptest::prelude::*;
use sluice_config::hostile;

/// The error is beyond column 65,535 of its line.
#[test]
fn mistake_far_behind_in_a_long_line_is_told() {
    let addresses: Vec<_> = (0..6000)
        .map(|k| format!("\"10.{}.{}.1/24\"", k / 250, k % 250))
        .collect();
    let text = format!(
        "[interfaces.a]\ndevice=\"null:\"\naddresses=[{}] oops",
        addresses.join(",")
    );
    hostile::text(text.as_bytes());
    let diagnosis = sluice_config::parse("a.toml", &text).unwrap_err();
    let column = text.lines().nth(2).unwrap().find("oops").unwrap() + 1;
    assert!(column > usize::from(u16::MAX));
    let rendered = diagnosis.render(100, false);
    assert!(rendered.contains(&format!("a.toml:3:{column}")), "{rendered}");
    assert!(rendered.contains("] oops") && rendered.len() < 2_000, "{rendered}");
}

#[test]
fn nesting_of_any_depth_and_kind_is_told() {
    for depth in [10, 79, 81, 1_000, 200_000] {
        for (begin, step, end) in [
            ("x = ", "[", ""),
            ("x = ", "{a=", ""),
            ("", "a.", "a = 1"),
            ("[", "a.", "a]"),
            ("[[", "a.", "a]]"),
            ("", "[[a.b]]\n", ""),
        ] {
            hostile::text(format!("{begin}{}{end}", step.repeat(depth)).as_bytes());
        }
        let closed = format!("x = {}1{}", "[".repeat(depth), "]".repeat(depth));
        hostile::text(closed.as_bytes());
        let closed = format!("x = {}1{}", "{a.b.c=".repeat(depth), "}".repeat(depth));
        hostile::text(closed.as_bytes());
    }
    // Each level of brackets has the maximum number of dotted keys.
    let dotted = format!("{}a=", "a.".repeat(70));
    hostile::text(format!("[{}a]\n{dotted}{}", "b.".repeat(70), format!("{{{dotted}").repeat(70)).as_bytes());
}

#[test]
fn megabytes_of_one_kind_are_told_in_a_few_lines() {
    for part in [
        "\u{1b}",
        "x",
        "ä",
        "\"",
        "[",
        "a=1\n",
        "a\n",
        "\r",
        "\t",
        "\u{202e}",
        "#\u{7f}\n",
        "'",
        "'''\n",
        "\\",
        "=",
        ".",
    ] {
        hostile::text(part.repeat(100_000).as_bytes());
        hostile::text(format!("[sessions]\n{} = 1", part.repeat(100_000)).as_bytes());
        hostile::text(format!("[sessions]\nipv4 = {}", part.repeat(100_000)).as_bytes());
        hostile::text(format!("[interfaces.\"{}\"]\n", part.repeat(100_000)).as_bytes());
    }
    for byte in [0, 0xff, 0x80, 0xe2] {
        hostile::text(&vec![byte; 1 << 20]);
    }
    // A value that spans 100,000 lines.
    hostile::text(format!("[interfaces.a]\naddresses = 3\nmtu = [\n{}]\n", "1,\n".repeat(100_000)).as_bytes());
}

#[test]
fn listing_of_the_corpus_cut_and_changed_and_of_megabytes_is_told() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/listing");
    for entry in std::fs::read_dir(folder).unwrap() {
        let mut bytes = std::fs::read(entry.unwrap().path()).unwrap();
        hostile::listing(&bytes);
        for at in (0..bytes.len()).step_by(bytes.len() / 20 + 1) {
            hostile::listing(&bytes[..at]);
            let before = std::mem::replace(&mut bytes[at], b'"');
            hostile::listing(&bytes);
            bytes[at] = before;
        }
    }
    for (begin, end) in [
        ("*filter\n:FORWARD ACCEPT [0:0]\n-A ", " -j ACCEPT\nCOMMIT\n"),
        ("*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -s ", "\nCOMMIT\n"),
        ("*", "\n"),
        ("{\"nftables\":[", "]}"),
        ("{\"", "\":1}"),
    ] {
        for part in ["x", "[", "\u{1b}", "\"", "-", "ä", "{\"a\":"] {
            hostile::listing(format!("{begin}{}{end}", part.repeat(100_000)).as_bytes());
        }
    }
}

/// Parts of a configuration, either complete or truncated.
fn parts() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        proptest::sample::select(vec![
            "[system]\n",
            "[interfaces.a]\n",
            "device = \"null:\"\n",
            "addresses = [",
            "\"10.0.0.1/24\"",
            ",",
            "]",
            "[[nat.source]]\n",
            "from = ",
            "{",
            "}",
            "\n",
            " = ",
            "\"",
            "'''",
            "name",
            "shards",
            ".",
            "1",
            "-",
            "\u{1b}[2J",
            "\u{202e}",
            "\t",
            "\r\n",
            "ä",
        ])
        .prop_map(|part| part.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 1..4),
        (32_u8..127, 200_usize..2_000).prop_map(|(byte, length)| vec![byte; length]),
    ];
    proptest::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn any_bytes_are_told(bytes in parts()) {
        hostile::text(&bytes);
    }

    #[test]
    fn corpus_with_bytes_changed_is_told(
        file in any::<proptest::sample::Index>(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/config");
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let mut bytes = std::fs::read(file.get(&files)).unwrap();
        for (at, byte) in changes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        hostile::text(&bytes);
    }
}
