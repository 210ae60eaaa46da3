//! Tests rules for files with hashes in lists: HTTP bodies, MIME parts, and FTP files.

use std::io::Write;
use std::sync::Arc;

use crate::flows::play::{Wire, in_parts, play};
use crate::lab::{Connection, Lab};
use flate2::Compression;
use flate2::write::GzEncoder;
use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::Sha256;
use sluice_inspect::ruleset::{OrderedRules, Ruleset};
use sluice_inspect::signature::Toward::{self, Client, Server};
use sluice_inspect::signatures::Dialect::Suricata;
use sluice_inspect::signatures::{Classes, Lists, SignatureFile, Variables, read_with};
use sluice_inspect::stream::{self, Exception, Policy};
use sluice_inspect::{Reason, Verdict};
use sluice_wire::Direction;

fn digits(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(file: &[u8]) -> String {
    digits(&Sha256::digest(file))
}

/// Parses rules. The files `listed.*` contain the hashes of `files`.
fn read(rules: &str, files: &[&[u8]]) -> (tempfile::TempDir, SignatureFile) {
    let folder = tempfile::tempdir().unwrap();
    let lines = |hash: &dyn Fn(&[u8]) -> String| files.iter().map(|file| hash(file) + "  a name\n").collect::<String>();
    let lists = [
        ("listed.md5", lines(&|file| digits(&Md5::digest(file)))),
        ("listed.sha1", lines(&|file| digits(&Sha1::digest(file)).to_uppercase())),
        ("listed.sha256", lines(&sha256)),
        ("bad.sha256", format!("# comment\n{}\n0011\n", sha256(b"x"))),
    ];
    for (name, text) in lists {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let lists = Lists::default().in_folder(folder.path());
    let file = read_with(
        rules.as_bytes(),
        Suricata,
        &Variables::default(),
        &Classes::default(),
        &lists,
    );
    (folder, file)
}

fn rules(rules: &str, files: &[&[u8]]) -> Arc<Ruleset> {
    let (_folder, file) = read(rules, files);
    assert!(file.refused.is_empty(), "{:?}", file.refused);
    let ordered = OrderedRules::new(file.signatures);
    let prefilter = ordered.pattern_set().compile(&mut |_, _| {}).unwrap();
    Arc::new(ordered.with_prefilter(prefilter))
}

/// For each hash type, a rule for a listed file and a rule for a file that is not listed.
const EACH: &str = r#"
    alert tcp any any -> any any (msg:"m"; filesha256:listed.sha256; sid:1;)
    alert tcp any any -> any any (msg:"m"; filesha1:listed.sha1; sid:2;)
    alert tcp any any -> any any (msg:"m"; filemd5:listed.md5; sid:3;)
    alert tcp any any -> any any (msg:"m"; filesha256:!listed.sha256; sid:4;)
    alert tcp any any -> any any (msg:"m"; filesha1:! listed.sha1; sid:5;)
    alert tcp any any -> any any (msg:"m"; filemd5:!listed.md5; sid:6;)"#;
const LISTED: &[u32] = &[1, 2, 3];
const UNLISTED: &[u32] = &[4, 5, 6];

fn wire(port: u16) -> Wire {
    Wire {
        ports: [40_000, port],
        ..Wire::default()
    }
}

fn fired(lab: &mut Lab, port: u16, messages: &[(Toward, &[u8])], step: usize) -> Vec<u32> {
    play(lab, &wire(port), &in_parts(messages, step));
    lab.fired.sort_unstable();
    std::mem::take(&mut lab.fired)
}

const STEPS: [usize; 5] = [1, 2, 7, 100, 1_460];
const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

fn response(fields: &str, body: &[u8]) -> Vec<u8> {
    [b"HTTP/1.1 200 OK\r\n", fields.as_bytes(), b"\r\n\r\n", body].concat()
}

fn with_length(body: &[u8]) -> Vec<u8> {
    response(&format!("Content-Length: {}", body.len()), body)
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Creates a file longer than the window of a body.
fn long() -> Vec<u8> {
    (0..20_000u32)
        .flat_map(|number| (number.wrapping_mul(2_654_435_761) as u16).to_be_bytes())
        .collect()
}

#[test]
fn bodies_of_http_are_listed_however_they_are_cut() {
    let long = long();
    for file in [&b"a file\r\n"[..], b"\r\n\r", &long] {
        let rules = rules(EACH, &[file]);
        let other = [file, b"x"].concat();
        for step in STEPS {
            let mut lab = Lab::of(rules.clone());
            for (expected, file) in [(LISTED, file), (UNLISTED, &other)] {
                let size = format!("{:x}\r\n", file.len());
                let chunked = [size.as_bytes(), file, b"\r\n0\r\n\r\n"].concat();
                let answers = [
                    with_length(file),
                    response("Transfer-Encoding: chunked", &chunked),
                    // The body ends when the connection is closed.
                    response("Content-Encoding: gzip", &gzip(file)),
                ];
                for answer in answers {
                    let messages: &[(Toward, &[u8])] = &[(Server, GET), (Client, &answer)];
                    assert_eq!(expected, fired(&mut lab, 80, messages, step), "segments of {step}");
                }
                let head = format!("POST /a HTTP/1.1\r\nContent-Length: {}\r\n\r\n", file.len());
                let post = [head.as_bytes(), file].concat();
                let messages: &[(Toward, &[u8])] = &[(Server, &post), (Client, b"HTTP/1.1 204 No\r\n\r\n")];
                assert_eq!(expected, fired(&mut lab, 80, messages, step), "segments of {step}");
            }
        }
    }
}

#[test]
fn rules_may_ask_for_more_than_the_hash() {
    let rules = rules(
        r#"
        alert http any any -> any any (msg:"m"; filesha256:listed.sha256; http.method; content:"PUT"; sid:1;)
        alert http any any -> any any (msg:"m"; http.method; content:"POST"; filesha256:listed.sha256; sid:2;)
        alert http any any -> any any (msg:"m"; file.data; content:"tail"; endswith; filesha256:listed.sha256; filemd5:listed.md5; sid:3;)
        alert http any any -> any any (msg:"m"; filesha256:listed.sha256; filemd5:!listed.md5; sid:4;)
        alert smtp any any -> any any (msg:"m"; filesha256:listed.sha256; sid:5;)
        alert http any any -> any any (msg:"m"; filesha256:listed.sha256; flow:to_client; sid:6;)"#,
        &[b"head and tail"],
    );
    for step in STEPS {
        let put = b"PUT /a HTTP/1.1\r\nContent-Length: 13\r\n\r\nhead and tail";
        let messages: &[(Toward, &[u8])] = &[(Server, put), (Client, b"HTTP/1.1 204 No\r\n\r\n")];
        assert_eq!(vec![1, 3], fired(&mut Lab::of(rules.clone()), 80, messages, step));
    }
}

const MAIL: &[u8] = b"EHLO a\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n\
    Content-Type: multipart/mixed; boundary=b\r\n\r\n\
    --b\r\n\r\nplain\r\n..text\r\n\r\n\
    --b\r\nContent-Transfer-Encoding: base64\r\n\r\naGVsbG8g\r\nd29ybGQNCg==\r\n\
    --b\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nsoft=\r\nbreak=3D\r\n\
    --b--\r\n.\r\n\
    MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n\r\nwhole\r\n.\r\nQUIT\r\n";

#[test]
fn each_part_of_a_mail_is_a_file() {
    let listed = r#"alert smtp any any -> any any (msg:"m"; filesha256:listed.sha256; sid:1;)"#;
    let files: [&[u8]; 4] = [b"plain\r\n.text\r\n", b"hello world\r\n", b"softbreak=", b"whole\r\n"];
    for step in [1, 2, 17, 1_460] {
        for file in files {
            let mut lab = Lab::of(rules(listed, &[file]));
            let messages: &[(Toward, &[u8])] = &[(Client, b"220 b ready\r\n"), (Server, MAIL)];
            assert_eq!(vec![1], fired(&mut lab, 25, messages, step), "{}", file.escape_ascii());
        }
        let mut lab = Lab::of(rules(listed, &[b"hello world", b"softbreak=\r\n", b"whole", b""]));
        let messages: &[(Toward, &[u8])] = &[(Client, b"220 b ready\r\n"), (Server, MAIL)];
        assert_eq!(Vec::<u32>::new(), fired(&mut lab, 25, messages, step));
    }
}

const CONTROL: &[(Toward, &[u8])] = &[
    (Client, b"220 a FTP server\r\n"),
    (Server, b"PASV\r\n"),
    (Client, b"227 Entering Passive Mode (198,51,100,7,16,1)\r\n"),
    (Server, b"RETR a\r\n"),
];

#[test]
fn file_of_ftp_ends_with_its_sender() {
    let rules = rules(EACH, &[b"some file"]);
    for step in [1, 4, 1_460] {
        let mut lab = Lab::of(rules.clone());
        for (expected, file) in [(LISTED, &b"some file"[..]), (UNLISTED, b"some files"), (&[], b"")] {
            fired(&mut lab, 21, CONTROL, step);
            assert_eq!(expected, fired(&mut lab, 4_097, &[(Client, file)], step));
        }
        // If both hosts of a data connection send data, the data is not a file.
        fired(&mut lab, 21, CONTROL, step);
        let mixed: &[(Toward, &[u8])] = &[(Client, b"some "), (Server, b"x"), (Client, b"file")];
        assert_eq!(Vec::<u32>::new(), fired(&mut lab, 4_097, mixed, step));
    }
    let mut lab = Lab::of(rules);
    fired(&mut lab, 21, CONTROL, 1_460);
    let mut connection = Connection::open(&mut lab, 4_097);
    connection.server(0, b"some ");
    connection.finish(Direction::Forward, 0);
    connection.server(5, b"file");
    assert_eq!(Vec::<u32>::new(), connection.lab.fired);
    connection.finish(Direction::Reverse, 9);
    assert_eq!(LISTED, lab.fired);
}

#[test]
fn packet_that_ends_the_file_is_dropped() {
    let rule = r#"drop http any any -> any any (msg:"m"; filesha256:listed.sha256; sid:1;)"#;
    let file = long();
    let mut lab = Lab::of(rules(rule, &[&file]));
    let mut connection = Connection::open(&mut lab, 80);
    connection.client(0, GET);
    let answer = with_length(&file);
    let last = (answer.len() - 1) / 1_000;
    for (number, part) in answer.chunks(1_000).enumerate() {
        let expected = match number == last {
            true => Verdict::Drop(Reason::Signature),
            false => Verdict::Pass,
        };
        assert_eq!(expected, connection.server(number * 1_000, part), "{number}");
    }
}

/// Incomplete bodies have no hash, so that neither `listed` nor `not listed` matches.
#[test]
fn file_that_is_not_whole_has_no_hash() {
    let file = b"a file of which a part is missed";
    let zip = gzip(file);
    let mut broken = zip.clone();
    broken[20] ^= 0x55;
    let cut = &zip[..zip.len() - 12];
    let rules = rules(EACH, &[file, &file[..10], &zip, &broken, cut, b"", b"a"]);
    let with = |fields: &str, body: &[u8]| response(fields, body);
    let answers = [
        with("Content-Length: 100", &file[..10]),
        with("Transfer-Encoding: chunked", b"a\r\na file of \r\n"),
        with("Transfer-Encoding: chunked", b"a\r\na file of wxyz\r\n0\r\n\r\n"),
        with("Content-Encoding: gzip", &broken),
        with("Content-Encoding: gzip", cut),
        with("Content-Encoding: br", file),
        with("Content-Encoding: gzip, gzip, gzip, gzip, gzip, gzip", &zip),
        with("Content-Length: 0", b""),
    ];
    for (number, answer) in answers.iter().enumerate() {
        for step in STEPS {
            let mut lab = Lab::of(rules.clone());
            let messages: &[(Toward, &[u8])] = &[(Server, GET), (Client, answer)];
            assert_eq!(
                Vec::<u32>::new(),
                fired(&mut lab, 80, messages, step),
                "answer {number}, segments of {step}"
            );
        }
    }
    // Other connections occupy all decoders.
    let mut lab = Lab::of(rules);
    lab.settings.policies = lab.settings.policies.with(Exception::ParserFull, Policy::Pass);
    for port in [40_001, 40_002] {
        let mut connection = Connection::of(&mut lab, [192, 168, 0, 9].into(), [port, 80]);
        connection.client(0, GET);
        connection.server(0, &with("Content-Encoding: gzip", cut));
    }
    let messages: &[(Toward, &[u8])] = &[(Server, GET), (Client, &with("Content-Encoding: gzip", &zip))];
    assert_eq!(Vec::<u32>::new(), fired(&mut lab, 80, messages, 1_460));
}

#[test]
fn stream_with_a_gap_has_no_hashes() {
    let streams = stream::StreamCapacity {
        reassembly: 4_096,
        share: 2_048,
        ..stream::StreamCapacity::of(16)
    };
    let file = vec![b'x'; 20_000];
    let mut lab = Lab::with(rules(EACH, &[&file, &file[1_000..], &file[..19_000]]), streams);
    lab.settings.policies = lab.settings.policies.with(Exception::GapFull, Policy::Pass);
    let answer = with_length(&file);
    let mut connection = Connection::open(&mut lab, 80);
    connection.client(0, GET);
    for place in (0..answer.len()).step_by(1_000).filter(|place| *place != 3_000) {
        connection.server(place, &answer[place..answer.len().min(place + 1_000)]);
    }
    // The announced length includes the missing bytes, so the parser takes the following bytes in their place.
    connection.server(answer.len(), &[b'x'; 1_000]);
    connection.server(answer.len() + 1_000, &with_length(b"x"));
    assert_eq!(Vec::<u32>::new(), lab.fired);
}

#[test]
fn stream_whose_begin_was_not_seen_has_no_hashes() {
    let also = r#"alert tcp any any -> any any (msg:"m"; file.data; content:"x"; sid:7;)"#;
    let mut lab = Lab::of(rules(&format!("{EACH}\n{also}"), &[b"x"]));
    lab.settings.policies = lab.settings.policies.with(Exception::Midstream, Policy::Pass);
    let mut connection = Connection::open(&mut lab, 80);
    connection.handle = connection.lab.inspector.create_flow(true).unwrap();
    connection.client(0, GET);
    connection.server(0, &with_length(b"x"));
    assert_eq!(vec![7], lab.fired);
}

#[test]
fn stream_of_http_2_that_is_reset_has_no_file() {
    let frame = |kind: u8, flags: u8, stream: u8, content: &[u8]| {
        [&[0, 0, content.len() as u8, kind, flags, 0, 0, 0, stream][..], content].concat()
    };
    // `GET http /` as indexed HPACK fields, and the status 200.
    let request = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &frame(4, 0, 0, b"")[..],
        &frame(1, 5, 1, b"\x82\x86\x84"),
    ]
    .concat();
    let head = [frame(4, 0, 0, b""), frame(1, 4, 1, b"\x88"), frame(0, 0, 1, b"a ")].concat();
    let whole = [&head[..], &frame(0, 1, 1, b"file")].concat();
    let reset = [&head[..], &frame(0, 0, 1, b"file"), &frame(3, 0, 1, &[0; 4])].concat();
    let rules = rules(EACH, &[b"a file"]);
    for step in STEPS {
        for (expected, answer) in [(LISTED, &whole), (&[], &reset)] {
            let messages: &[(Toward, &[u8])] = &[(Server, &request), (Client, answer)];
            assert_eq!(expected, fired(&mut Lab::of(rules.clone()), 80, messages, step));
        }
    }
}

#[test]
fn files_are_hashed_only_where_rules_ask_for_it() {
    use sluice_inspect::protocols::{FileHashes, Http, MessageEvent, ParserCapacity, ParserPools, Slot};
    use sluice_inspect::signature::Buffer::{self, FileMd5, FileSha256};
    use sluice_inspect::work_budget::WorkTokens;

    let none = rules(
        r#"alert tcp any any -> any any (msg:"m"; file.data; content:"x"; sid:1;)"#,
        &[],
    );
    assert_eq!(FileHashes::NONE, none.file_hashes());
    let of = |option: &str| {
        rules(
            &format!("alert tcp any any -> any any (msg:\"m\"; {option}; sid:1;)"),
            &[],
        )
        .file_hashes()
    };
    let (md5, sha256) = (of("filemd5:listed.md5"), of("filesha256:!listed.sha256"));
    let both = of("filemd5:listed.md5; filesha256:listed.sha256");
    // Each case contains the hashes requested during the first half and the second half of a file, and the hashes
    // available at the end.
    for (first, second, expected) in [
        (FileHashes::NONE, FileHashes::NONE, &[][..]),
        (sha256, sha256, &[FileSha256]),
        (both, both, &[FileMd5, FileSha256]),
        (md5, both, &[FileMd5]),
        (FileHashes::NONE, both, &[]),
        (both, md5, &[FileMd5]),
        (sha256, md5, &[]),
    ] {
        let mut store = ParserPools::new(&ParserCapacity {
            messages: 2,
            ..ParserCapacity::default()
        });
        let (mut http, mut told) = (Http::default(), Vec::<Buffer>::new());
        let answer = with_length(&[b'x'; 1_000]);
        let (start, end) = answer.split_at(500);
        let mut sink = |slot: Slot<'_>, piece| {
            if let MessageEvent::Grew { buffer, complete, .. } = piece
                && buffer.is_file_hash()
            {
                assert!(complete && !slot.buffer(buffer).bytes.is_empty());
                told.push(buffer);
            }
        };
        for (wanted, part) in [(first, start), (second, end)] {
            store.hash_files(wanted);
            http.response(&mut store, part, &mut sink);
        }
        assert_eq!(expected, told);
    }
    // Hashing is charged to the budget. If the budget is exhausted, the file has no hash.
    for (bytes, expected) in [(180_000, 1), (220_000, 0)] {
        let (mut store, mut http, mut told) = (ParserPools::new(&ParserCapacity::default()), Http::default(), 0);
        store.hash_files(sha256);
        store.work.start(WorkTokens::default(), 1_460);
        http.response(
            &mut store,
            &with_length(&vec![b'x'; bytes]),
            &mut |_: Slot<'_>, piece| {
                told += u32::from(matches!(piece, MessageEvent::Grew { buffer: FileSha256, .. }));
            },
        );
        assert_eq!((expected, expected == 0), (told, store.work.is_exhausted()));
    }
}

#[test]
fn list_that_can_not_be_read_is_refused() {
    for (option, why) in [
        (
            "filesha256:none.sha256",
            "none.sha256: No such file or directory (os error 2): the path of a dataset",
        ),
        (
            "filesha256:bad.sha256",
            "bad.sha256: line 3: \"0011\" is no SHA-256 of 64 hexadecimal digits: the path of a dataset",
        ),
        ("filesha1:listed.sha256", "listed.sha256: line 1: \""),
        ("filemd5:!listed.sha1", "is no MD5 of 32 hexadecimal digits"),
        ("filesha256:!", "\"file\" is missing"),
        ("filesha256", "the option needs a value"),
    ] {
        let rule = format!("alert http any any -> any any (msg:\"m\"; {option}; sid:1;)");
        let (_folder, file) = read(&rule, &[b"x"]);
        let said = file.refused[0].why.to_string();
        assert!(said.contains(why), "{option}: {said}");
    }
}
