//! Tests options of Suricata, and their equivalents in other dialects, that keep state, calculate, transform buffers,
//! or test lists and events. Each option fires on matching data, and not on similar data that does not match.

use std::sync::Arc;

use crate::flows::play::{Message, Wire, play};
use crate::lab::{self, Connection, Lab};
use proptest::prelude::*;
use sluice_inspect::rule::FlowVarNames;
use sluice_inspect::ruleset::{OrderedRules, Ruleset};
use sluice_inspect::signature::Toward::{self, Client, Server};
use sluice_inspect::signatures::Dialect::{self, Snort2, Snort3, Suricata};
use sluice_inspect::signatures::{Classes, Lists, SignatureFile, Variables, read_with};
use sluice_inspect::stream::{Exception, Policy};
use sluice_inspect::{Reason, Rule, Verdict};

const EVERY: [Dialect; 3] = [Suricata, Snort2, Snort3];

fn said(messages: &[(Toward, &[u8])]) -> Vec<Message> {
    let message = |(toward, bytes): &(Toward, &[u8])| Message {
        toward: *toward,
        bytes: bytes.to_vec(),
    };
    messages.iter().map(message).collect()
}

fn fired(lab: &mut Lab, messages: &[(Toward, &[u8])]) -> Vec<u32> {
    lab.fired.clear();
    play(lab, &Wire::default(), &said(messages));
    std::mem::take(&mut lab.fired)
}

/// Each row contains options of a rule, client data on which the rule fires, and similar client data on which the rule
/// does not fire.
fn compare(rows: &[(&str, &[u8], &[u8])]) {
    for (options, yes, no) in rows {
        let rule = format!("alert tcp any any -> any any (msg:\"m\"; {options} sid:1;)");
        let mut lab = Lab::new(Suricata, &rule);
        let answer = (Client, &b"HTTP/1.1 204 No\r\n\r\n"[..]);
        assert_eq!(vec![1], fired(&mut lab, &[(Server, yes), answer]), "{options}");
        assert_eq!(
            Vec::<u32>::new(),
            fired(&mut lab, &[(Server, no), answer]),
            "{options}: neighbour"
        );
    }
}

#[test]
fn numbers_are_calculated_with() {
    for (operation, yes, no) in [
        (
            "bytes 1,offset 1,oper +,rvalue 2,result n",
            &b"a\x02--b"[..],
            &b"a\x02-b-"[..],
        ),
        ("bytes 1,offset 1,oper -,rvalue 2,result n", b"a\x06--b", b"a\x05--b"),
        ("bytes 1,offset 1,oper *,rvalue 2,result n", b"a\x02--b", b"a\x03--b"),
        ("bytes 1,offset 1,oper /,rvalue 2,result n", b"a\x09--b", b"a\x0a--b"),
        ("bytes 1,offset 1,oper <<,rvalue 1,result n", b"a\x02--b", b"a\x01--b"),
        ("bytes 1,offset 1,oper >>,rvalue 1,result n", b"a\x08--b", b"a\x04--b"),
        (
            "bytes 1,offset 0,oper +,rvalue 1,result n,relative",
            b"a\x03--b",
            b"a\x04--b",
        ),
        (
            "bytes 2,offset 1,oper +,rvalue 1,result n,endian little",
            b"a\x03\0-b",
            b"a\0\x03-b",
        ),
        (
            "bytes 2,offset 1,oper +,rvalue 1,result n,endian big",
            b"a\0\x03-b",
            b"a\x03\0-b",
        ),
        (
            "bytes 1,offset 1,oper +,rvalue 1,result n,string dec",
            b"a3--b",
            b"a2--b",
        ),
        (
            "bytes 2,offset 1,oper -,rvalue 251,result n,string hex",
            b"aff-b",
            b"afe-b",
        ),
        (
            "bytes 1,offset 1,oper +,rvalue 1,result n,bitmask 0xf0",
            b"a\x3f--b",
            b"a\x4f--b",
        ),
        // The calculation has no valid result.
        ("bytes 1,offset 1,oper -,rvalue 2,result n", b"a\x06--b", b"a\x01--b"),
    ] {
        for dialect in EVERY {
            let (content, second) = match dialect {
                Snort3 => ("content:\"a\"", "content:\"b\",offset n,depth 1"),
                _ => ("content:\"a\"", "content:\"b\"; offset:n; depth:1"),
            };
            let rule =
                format!("alert tcp any any -> any any (msg:\"m\"; {content}; byte_math:{operation}; {second}; sid:1;)");
            let mut lab = Lab::new(dialect, &rule);
            assert_eq!(vec![1], fired(&mut lab, &[(Server, yes)]), "{dialect:?} {rule}");
            assert_eq!(
                Vec::<u32>::new(),
                fired(&mut lab, &[(Server, no)]),
                "{dialect:?} {rule}"
            );
        }
    }
    let both = r#"content:"a"; byte_extract:1,0,x,relative; byte_math:bytes 1,offset 0,oper /,rvalue x,result n,relative; byte_test:1,=,n,0,relative;"#;
    compare(&[(both, b"a\x02\x08\x04", b"a\x00\x08\x04")]);
}

#[test]
fn buffers_are_changed_before_contents_look_in_them() {
    let get = |uri: &str| format!("GET {uri} HTTP/1.1\r\nHost: a\r\nX-Y:  b  c\r\n\r\n").into_bytes();
    let rows: Vec<(&str, Vec<u8>, Vec<u8>)> = vec![
        (r#"http.uri; to_lowercase; content:"/abc";"#, get("/AbC"), get("/AbD")),
        (r#"http.uri; to_uppercase; content:"/ABC";"#, get("/abC"), get("/abD")),
        (
            r#"http.header.raw; strip_whitespace; content:"X-Y:bc";"#,
            get("/"),
            b"GET / HTTP/1.1\r\nX-Y: d\r\n\r\n".to_vec(),
        ),
        (
            r#"http.header.raw; compress_whitespace; content:"X-Y: b c ";"#,
            get("/"),
            b"GET / HTTP/1.1\r\nX-Y: bc\r\n\r\n".to_vec(),
        ),
        (
            r#"http.uri; to_md5; content:"|66 66 cd 76 f9 69 56 46 9e 7b e3 9d 75 0c c7 d9|";"#,
            get("/"),
            get("/a"),
        ),
        (
            r#"http.uri; to_sha1; bsize:20; content:"|42 09 9b 4a|"; startswith;"#,
            get("/"),
            get("/a"),
        ),
        (
            r#"http.uri; to_sha256; bsize:32; content:"|8a 5e da b2|"; startswith;"#,
            get("/"),
            get("/a"),
        ),
        (
            r#"http.uri.raw; url_decode; content:"/a b";"#,
            get("/a%20b"),
            get("/a%21b"),
        ),
        (r#"http.uri; xor:"01"; content:".`c";"#, get("/ab"), get("/ac")),
        (
            r#"http.header.raw; header_lowercase; content:"x-y:  b";"#,
            get("/"),
            b"GET / HTTP/1.1\r\nX-Z: b\r\n\r\n".to_vec(),
        ),
        (
            r#"http.header.raw; strip_pseudo_headers; content:"Host";"#,
            get("/"),
            b"GET / HTTP/1.1\r\n:Host: a\r\n\r\n".to_vec(),
        ),
        (
            r#"http.uri; pcrexform:"/a=([0-9]+)"; content:"12"; bsize:2;"#,
            get("/a=12&"),
            get("/a=123"),
        ),
        (
            r#"http.host; dotprefix; content:".a";"#,
            get("/"),
            b"GET / HTTP/1.1\r\nHost: b.b\r\n\r\n".to_vec(),
        ),
        // The rule has several transforms in sequence, and two transformed buffers, one of them with a relative
        // condition.
        (
            r#"http.uri; url_decode; to_lowercase; to_md5; content:"|66 66 cd 76|"; startswith;"#,
            get("/"),
            get("/a"),
        ),
        (
            r#"http.uri; to_lowercase; content:"a"; content:"b"; distance:0; http.method; to_lowercase; content:"get";"#,
            get("/AxxB"),
            get("/BxxA"),
        ),
        (
            r#"content:"HTTP/1.1"; http.uri; to_lowercase; content:"/abc";"#,
            get("/AbC"),
            get("/AbD"),
        ),
        (r#"http.uri; to_lowercase; content:!"abc";"#, get("/abd"), get("/ABC")),
        (
            r#"http.uri; to_lowercase; pcre:"/^.ab+c$/";"#,
            get("/ABBC"),
            get("/ABBCD"),
        ),
        (
            r#"http.uri; strip_whitespace; byte_test:1,=,97,1;"#,
            get("/a"),
            get("/b"),
        ),
    ];
    for (options, yes, no) in &rows {
        compare(&[(options, yes, no)]);
    }
}

#[test]
fn changed_buffer_is_there_where_its_own_is() {
    let rule = r#"alert tcp any any -> any any (msg:"m"; http.cookie; to_lowercase; content:!"x"; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rule);
    assert_eq!(Vec::<u32>::new(), fired(&mut lab, &[(Server, b"no protocol at all")]));
    assert_eq!(
        Vec::<u32>::new(),
        fired(&mut lab, &[(Server, b"GET / HTTP/1.1\r\n\r\n"), (Client, b"-")])
    );
    let cookie = b"GET / HTTP/1.1\r\nCookie: a\r\n\r\n";
    assert_eq!(vec![1], fired(&mut lab, &[(Server, cookie), (Client, b"-")]));
}

#[test]
fn expression_without_a_group_leaves_nothing_of_a_buffer_and_is_refused() {
    let rule = r#"alert tcp any any -> any any (msg:"m"; http.uri; pcrexform:"(?:a)"; content:"a"; sid:1;)"#;
    let file = read_with(
        rule.as_bytes(),
        Suricata,
        &Variables::default(),
        &Classes::default(),
        &Lists::default(),
    );
    let why = Rule::new(Arc::new(file.signatures[0].clone()), &mut FlowVarNames::default()).unwrap_err();
    assert!(why.to_string().contains("the expression has no group"), "{why}");
}

#[test]
fn numbers_of_a_flow_are_kept_between_matches() {
    let rules = r#"
        alert tcp any any -> any any (msg:"counts"; content:"x"; flowint:n,+,1; noalert; sid:1;)
        alert tcp any any -> any any (msg:"three"; content:"x"; flowint:n,==,3; sid:2;)
        alert tcp any any -> any any (msg:"more"; content:"x"; flowint:n,>,2; flowint:n,<=,4; sid:3;)
        alert tcp any any -> any any (msg:"none"; content:"y"; flowint:n,notset; sid:4;)
        alert tcp any any -> any any (msg:"some"; content:"y"; flowint:n,isset; flowint:n,!=,1; sid:5;)
        alert tcp any any -> any any (msg:"resets"; content:"z"; flowint:n,=,1; flowint:m,=,1; sid:6;)
        alert tcp any any -> any any (msg:"other"; content:"x"; flowint:n,-,m; flowint:m,<,n; sid:7;)"#;
    let mut lab = Lab::new(Suricata, rules);
    let times = |count: usize| -> Vec<(Toward, &[u8])> {
        (0..count).flat_map(|_| [(Server, &b"x"[..]), (Client, b"-")]).collect()
    };
    assert_eq!(Vec::<u32>::new(), fired(&mut lab, &times(2)));
    assert_eq!(vec![2, 3], fired(&mut lab, &times(3)));
    assert_eq!(vec![2, 3, 3], fired(&mut lab, &times(5)));
    assert_eq!(vec![4], fired(&mut lab, &[(Server, b"y")]));
    assert_eq!(
        vec![5],
        fired(
            &mut lab,
            &[
                (Server, b"x"),
                (Client, b"-"),
                (Server, b"x"),
                (Client, b"-"),
                (Server, b"y")
            ]
        )
    );
    let said: &[(Toward, &[u8])] = &[
        (Server, b"z"),
        (Client, b"-"),
        (Server, b"x"),
        (Client, b"-"),
        (Server, b"x"),
    ];
    assert_eq!(vec![6, 7, 7], fired(&mut lab, said));
}

#[test]
fn notes_of_hosts_are_there_for_other_flows_of_theirs() {
    for track in ["ip_src", "ip_dst", "ip_pair"] {
        let rules = format!(
            r#"alert tcp any any -> any any (msg:"asks"; content:"asks"; xbits:isset,a,track {track}; sid:1;)
               alert tcp any any -> any any (msg:"sets"; content:"set"; xbits:set,a,track {track},expire 60; noalert; sid:2;)
               alert tcp any any -> any any (msg:"unsets"; content:"unset"; xbits:unset,a,track {track}; noalert; sid:3;)
               alert tcp any any -> any any (msg:"none"; content:"none"; xbits:isnotset,a,track {track}; sid:4;)"#
        );
        let mut lab = Lab::new(Suricata, &rules);
        let mut from = |source: u8, destination: u8, said: &[u8]| {
            lab.fired.clear();
            let wire = Wire {
                addresses: [[192, 168, 0, source].into(), [198, 51, 100, destination].into()],
                ..Wire::default()
            };
            let bytes = said.to_vec();
            play(&mut lab, &wire, &[Message { toward: Server, bytes }]);
            lab.fired.clone()
        };
        assert_eq!(vec![4], [from(2, 7, b"asks"), from(2, 7, b"none")].concat());
        assert_eq!(
            vec![1],
            [from(2, 7, b"sets"), from(2, 7, b"asks"), from(2, 7, b"none")].concat()
        );
        let [other_source, other_destination] = [from(3, 7, b"asks"), from(2, 8, b"asks")];
        assert_eq!(
            (track == "ip_dst", track == "ip_src"),
            (other_source == [1], other_destination == [1]),
            "{track}"
        );
        assert_eq!(
            vec![4],
            [from(2, 7, b"unset"), from(2, 7, b"asks"), from(2, 7, b"none")].concat()
        );
    }
}

#[test]
fn note_of_hosts_is_there_for_every_rule_of_its_packet() {
    let rules = r#"
        drop tcp any any -> any any (msg:"asks"; content:"x"; xbits:isset,a,track ip_src; sid:1;)
        alert tcp any any -> any any (msg:"sets"; content:"y"; xbits:set,a,track ip_src; noalert; sid:2;)"#;
    let mut lab = Lab::new(Suricata, rules);
    let dropped = Verdict::Drop(Reason::Signature);
    assert_eq!(dropped, Connection::open(&mut lab, 80).client(0, b"xy"));
}

/// Creates a folder with lists.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn listed(folder: &tempfile::TempDir, rules: &str) -> SignatureFile {
    let lists = Lists::default().in_folder(folder.path());
    read_with(
        rules.as_bytes(),
        Suricata,
        &Variables::default(),
        &Classes::default(),
        &lists,
    )
}

fn compiled(file: SignatureFile) -> Arc<Ruleset> {
    assert!(file.refused.is_empty(), "{:?}", file.refused);
    let ordered = OrderedRules::new(file.signatures);
    assert!(ordered.refused.is_empty(), "{:?}", ordered.refused);
    let prefilter = ordered.pattern_set().compile(&mut |_, _| {}).unwrap();
    Arc::new(ordered.with_prefilter(prefilter))
}

#[test]
fn values_are_looked_for_in_lists() {
    let folder = folder(&[
        ("hosts.lst", "ZXZpbC5leGFtcGxl\n"),
        ("md5.lst", "6666cd76f96956469e7be39d750cc7d9\n"),
        (
            "sha256.lst",
            "8a5edab282632443219e051e4ade2d1d5bbc671c781051bf1437897cbdfea0f1\n",
        ),
        ("ip.lst", "192.168.0.2\n2001:db8::1\n"),
    ]);
    let rules = r#"
        alert http any any -> any any (msg:"m"; http.host; dataset:isset,hosts,type string,load hosts.lst; sid:1;)
        alert http any any -> any any (msg:"m"; http.host; dataset:isnotset,hosts,type string,load hosts.lst; sid:2;)
        alert http any any -> any any (msg:"m"; http.uri; to_md5; dataset:isset,md5,type md5,load md5.lst; sid:3;)
        alert http any any -> any any (msg:"m"; http.uri; to_sha256; dataset:isset,sha,type sha256,load sha256.lst; sid:4;)
        alert http any any -> any any (msg:"m"; ip.src; dataset:isset,ip,type ip,load ip.lst; http.method; content:"GET"; sid:5;)
        alert http any any -> any any (msg:"m"; ip.dst; dataset:isset,ip,type ip; http.method; content:"GET"; sid:6;)
        alert http any any -> any any (msg:"m"; ip.dst; dataset:isnotset,ip,type ip; http.method; content:"GET"; sid:7;)"#;
    let mut lab = Lab::of(compiled(listed(&folder, rules)));
    let mut ask = |request: &str| {
        let mut fired = fired(
            &mut lab,
            &[(Server, request.as_bytes()), (Client, b"HTTP/1.1 204 No\r\n\r\n")],
        );
        fired.sort_unstable();
        fired
    };
    assert_eq!(vec![1, 3, 4, 5, 7], ask("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"));
    assert_eq!(vec![2, 5, 7], ask("GET /a HTTP/1.1\r\nHost: evil.example.org\r\n\r\n"));
    // Without a host, both `isset` and `isnotset` are false.
    assert_eq!(vec![5, 7], ask("GET /a HTTP/1.1\r\n\r\n"));
}

#[test]
fn values_are_added_to_lists_once_everything_else_holds() {
    let folder = folder(&[]);
    let rules = r#"
        alert http any any -> any any (msg:"adds"; http.host; dataset:set,seen,type string,hashsize 64; http.method; content:"PUT"; sid:1;)
        alert http any any -> any any (msg:"removes"; http.method; content:"DELETE"; http.host; dataset:unset,seen,type string; sid:2;)
        alert http any any -> any any (msg:"asks"; http.method; content:"GET"; http.host; dataset:isset,seen,type string; sid:3;)"#;
    let mut lab = Lab::of(compiled(listed(&folder, rules)));
    let mut ask = |method: &str| {
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n");
        fired(
            &mut lab,
            &[(Server, request.as_bytes()), (Client, b"HTTP/1.1 204 No\r\n\r\n")],
        )
    };
    let asked: Vec<_> = ["GET", "PUT", "GET", "PUT", "DELETE", "GET", "DELETE"]
        .map(&mut ask)
        .to_vec();
    assert_eq!(vec![vec![], vec![1], vec![3], vec![], vec![2], vec![], vec![]], asked);
}

#[test]
fn list_that_can_not_be_is_refused_with_its_file_and_line() {
    let folder = folder(&[("bad.lst", "00\n")]);
    let rule = |option: &str, number: u32| {
        format!("alert http any any -> any any (msg:\"m\"; http.uri; to_md5; dataset:{option}; sid:{number};)\n")
    };
    let rules = rule("isset,a,type md5,load bad.lst", 1)
        + &rule("isset,b,type md5,load none.lst", 2)
        + &rule("isset,c,type md5", 3)
        + &rule("isset,c,type sha256", 4);
    let file = listed(&folder, &rules);
    let refused: Vec<_> = file
        .refused
        .iter()
        .map(|refusal| (refusal.line, refusal.why.to_string()))
        .collect();
    assert_eq!(vec![1, 2, 4], refused.iter().map(|(line, _)| *line).collect::<Vec<_>>());
    for (said, (_, why)) in [
        "bad.lst: line 1: \"00\" is no MD5",
        "none.lst: ",
        "dataset \"c\" has another type",
    ]
    .iter()
    .zip(&refused)
    {
        assert!(why.contains(said), "{why}");
    }
}

#[test]
fn events_of_messages_fire() {
    let request = |lines: &str| format!("GET / HTTP/1.1\r\n{lines}\r\n\r\n").into_bytes();
    let response = |lines: &str| format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n").into_bytes();
    let fine = (request("Host: a"), response("Content-Length: 0"));
    let rows = [
        ("http.request_field_missing_colon", request("Host a"), fine.1.clone()),
        (
            "http.response_field_missing_colon",
            fine.0.clone(),
            response("Server a"),
        ),
        (
            "http.invalid_content_length_field_in_request",
            request("Content-Length: x"),
            fine.1.clone(),
        ),
        (
            "http.invalid_content_length_field_in_response",
            fine.0.clone(),
            response("Content-Length: x"),
        ),
        (
            "http.duplicate_content_length_field_in_request",
            request("Content-Length: 0\r\nContent-Length: 0"),
            fine.1.clone(),
        ),
        (
            "http.invalid_request_field_folding",
            request("Host: a\r\n b"),
            fine.1.clone(),
        ),
        (
            "http.invalid_transfer_encoding_value_in_response",
            fine.0.clone(),
            response("Transfer-Encoding: x"),
        ),
        (
            "http.response_invalid_status",
            fine.0.clone(),
            b"HTTP/1.1 2x0 OK\r\n\r\n".to_vec(),
        ),
        (
            "http.invalid_response_chunk_len",
            fine.0.clone(),
            response("Transfer-Encoding: chunked\r\n\r\nzz"),
        ),
    ];
    let mut rules = String::new();
    for (number, (event, ..)) in (1..).zip(&rows) {
        rules += &format!(
            "alert http any any -> any any (msg:\"m\"; app-layer-event:{event}; flowint:http.anomaly.count,+,1; sid:{number};)\n"
        );
    }
    rules += "drop http any any -> any any (msg:\"m\"; app-layer-event:http.request_field_missing_colon; http.method; content:\"PUT\"; sid:99;)\n";
    let mut lab = Lab::new(Suricata, &rules);
    assert_eq!(
        Vec::<u32>::new(),
        fired(&mut lab, &[(Server, &fine.0), (Client, &fine.1)])
    );
    for (number, (event, request, response)) in (1..).zip(&rows) {
        let fired = fired(&mut lab, &[(Server, request), (Client, response)]);
        assert_eq!(vec![number], fired, "{event}");
    }
    // The same anomaly in the other direction is a different event.
    assert_eq!(vec![2], fired(&mut lab, &[(Server, &fine.0), (Client, &rows[1].2)]));
    let put = b"PUT / HTTP/1.1\r\nHost a\r\n\r\n";
    assert_eq!(
        Verdict::Drop(Reason::Signature),
        Connection::open(&mut lab, 80).client(0, put)
    );
}

#[test]
fn events_of_streams_fire() {
    let of = |event: &str| format!("alert tcp any any -> any any (msg:\"m\"; stream-event:{event}; sid:1;)");
    // The data is retransmitted, once unchanged and once with different data. The rule fires each time.
    let mut lab = Lab::new(Suricata, &of("pkt_retransmission"));
    let mut connection = Connection::open(&mut lab, 80);
    connection.client(0, b"abc");
    assert_eq!(0, connection.lab.fired.len());
    connection.client(0, b"abc");
    connection.client(0, b"abc");
    assert_eq!(vec![1, 1], lab.fired);
    let mut lab = Lab::new(Suricata, &of("reassembly_overlap_different_data"));
    let mut connection = Connection::open(&mut lab, 80);
    connection.client(0, b"abc");
    connection.client(0, b"abc");
    assert_eq!(0, connection.lab.fired.len());
    connection.client(0, b"abd");
    assert_eq!(vec![1], lab.fired);
    let mut lab = Lab::new(Suricata, &of("est_packet_out_of_window"));
    let mut connection = Connection::open(&mut lab, 80);
    connection.client(0, b"abc");
    assert_eq!(0, connection.lab.fired.len());
    connection.client(1 << 31, b"abc");
    assert_eq!(vec![1], lab.fired);
}

#[test]
fn rule_about_an_event_of_a_stream_may_drop_its_packet() {
    let rule = r#"drop tcp any any -> any any (msg:"m"; stream-event:pkt_retransmission; content:"b"; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rule);
    let mut connection = Connection::open(&mut lab, 80);
    assert_eq!(Verdict::Pass, connection.client(0, b"abc"));
    assert_eq!(Verdict::Drop(Reason::Signature), connection.client(0, b"abc"));
    let mut connection = Connection::open(&mut lab, 80);
    connection.client(0, b"xyz");
    assert_eq!(Verdict::Pass, connection.client(0, b"xyz"));
}

#[test]
fn retransmissions_are_counted_by_rules_of_the_flow() {
    let rules = r#"
        alert tcp any any -> any any (msg:"counts"; stream-event:pkt_retransmission; flowint:tcp.retransmission.count,+,1; noalert; sid:1;)
        alert tcp any any -> any any (msg:"many"; flowbits:isnotset,alerted; flowint:tcp.retransmission.count,>=,3; flowbits:set,alerted; sid:2;)"#;
    let mut lab = Lab::new(Suricata, rules);
    let mut connection = Connection::open(&mut lab, 80);
    for expected in [0, 0, 0, 1, 1] {
        connection.client(0, b"abc");
        assert_eq!(expected, connection.lab.fired.len());
    }
}

#[test]
fn gap_that_a_stream_goes_on_without_fires() {
    let rule = r#"alert tcp any any -> any any (msg:"m"; stream-event:reassembly_seq_gap; sid:1;)"#;
    let streams = sluice_inspect::stream::StreamCapacity {
        reassembly: 4_096,
        share: 2_048,
        ..sluice_inspect::stream::StreamCapacity::of(16)
    };
    let mut lab = Lab::with(lab::rules(Suricata, rule), streams);
    lab.settings.policies = lab.settings.policies.with(Exception::GapFull, Policy::Pass);
    let mut connection = Connection::open(&mut lab, 80);
    for place in 0..16 {
        connection.client(1 + place * 2_000, &[b'x'; 1_000]);
    }
    assert!(lab.fired.iter().all(|number| *number == 1) && !lab.fired.is_empty());
}

#[test]
fn packets_of_any_protocol_are_those_of_pkthdr() {
    let rule = r#"alert pkthdr any any -> any any (msg:"m"; ttl:9; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rule);
    for (protocol, ttl) in [(17, 9), (1, 9), (47, 9), (17, 8)] {
        lab.fired.clear();
        let mut wire = Wire::default();
        (wire.ip.protocol, wire.ip.ttl) = (protocol, ttl);
        play(&mut lab, &wire, &said(&[(Server, b"x")]));
        assert_eq!(vec![1; usize::from(ttl == 9)], lab.fired);
    }
}

#[test]
fn tag_changes_nothing_of_what_matches() {
    for (dialect, tag) in [
        (Suricata, "tag:session,5,packets"),
        (Suricata, "tag:host,100,seconds,src"),
        (Snort2, "tag: session, 20, packets"),
        (Snort3, "tag:host_src,seconds 60"),
    ] {
        let rule = format!("alert tcp any any -> any any (msg:\"m\"; content:\"x\"; {tag}; sid:1;)");
        let mut lab = Lab::new(dialect, &rule);
        assert_eq!(vec![1], fired(&mut lab, &[(Server, b"x")]));
        assert_eq!(Vec::<u32>::new(), fired(&mut lab, &[(Server, b"y")]));
    }
}

#[test]
fn rule_about_packets_fires_at_each_of_them() {
    let rules = r#"
        alert tcp any any -> any any (msg:"m"; dsize:3; content:"a"; sid:1;)
        alert tcp any any -> any any (msg:"m"; content:"a"; sid:2;)"#;
    let mut lab = Lab::new(Suricata, rules);
    let mut fired = fired(&mut lab, &[(Server, b"abc"), (Server, b"abd"), (Server, b"xyz")]);
    fired.sort_unstable();
    assert_eq!(vec![1, 1, 2], fired);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_is_said_in_whatever_pieces_panics_at_no_rule(
        said in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..40), 0..6usize), 1..12)
    ) {
        let rules = include_str!("../../../fuzz/corpus/signatures/keywords");
        let lists = Lists::default();
        let file = read_with(rules.as_bytes(), Suricata, &Variables::default(), &Classes::default(), &lists);
        let mut lab = Lab::of(compiled(file));
        let starts = [&b"GET /%41b?a=bbb HTTP/1.1\r\nHost"[..], b": a.example\r\n", b"\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"X\r\n Y\r\n", b""];
        let messages = said.iter().map(|(to_server, bytes, start)| Message {
            toward: if *to_server { Server } else { Client },
            bytes: [starts[*start], bytes].concat(),
        });
        play(&mut lab, &Wire::default(), &messages.collect::<Vec<_>>());
    }
}
