//! Tests contents and expressions: every modifier in the spelling of every dialect, and the inspected buffers.

use crate::rules::*;
use sluice_inspect::signature::{Buffer, Condition, Content, Expression, FastPattern, Value};

fn one(content: Content) -> Vec<Condition> {
    vec![Condition::Content(content)]
}

#[test]
fn content_bytes_are_read() {
    compare(&[
        (&EVERY, r#"content:"abc";"#, one(content(b"abc"))),
        (&EVERY, r#"content:"a|0D 0a|b|41|";"#, one(content(b"a\r\nbA"))),
        (&EVERY, r#"content:"\"a\;b\:c\\";"#, one(content(b"\"a;b:c\\"))),
        (&EVERY, r#"content:"a,b;c)(";"#, one(content(b"a,b;c)("))),
        (&EVERY, "content:\"\u{e9}\";", one(content(&[0xc3, 0xa9]))),
        (
            &EVERY,
            r#"content:!"abc";"#,
            one(Content {
                negated: true,
                ..content(b"abc")
            }),
        ),
        (
            &EVERY,
            r#"content : ! "abc" ;"#,
            one(Content {
                negated: true,
                ..content(b"abc")
            }),
        ),
    ]);
}

#[test]
fn content_modifiers_are_read() {
    let behind = [Suricata, Snort2];
    let nocase = Content {
        nocase: true,
        ..content(b"abc")
    };
    let placed = Content {
        offset: constant(4),
        depth: constant(8),
        ..content(b"abc")
    };
    let chosen = Content {
        fast: FastPattern::Chosen,
        ..content(b"abc")
    };
    let part = Content {
        fast: FastPattern::Part(1, 2),
        ..content(b"abc")
    };
    let tail = Content {
        fast: FastPattern::Part(1, 2),
        ..content(b"abc")
    };
    let first = Content {
        offset: constant(0),
        depth: constant(3),
        ..content(b"abc")
    };
    compare(&[
        (&behind, r#"content:"abc"; nocase;"#, one(nocase.clone())),
        (&[Snort3], r#"content:"abc",nocase;"#, one(nocase)),
        (&behind, r#"content:"abc"; offset:4; depth:8;"#, one(placed.clone())),
        (&[Snort3], r#"content:"abc",offset 4,depth 8;"#, one(placed)),
        (&behind, r#"content:"abc"; fast_pattern;"#, one(chosen.clone())),
        (&[Snort3], r#"content:"abc",fast_pattern;"#, one(chosen.clone())),
        (&behind, r#"content:"abc"; fast_pattern:1,2;"#, one(part.clone())),
        (
            &[Snort3],
            r#"content:"abc",fast_pattern,fast_pattern_offset 1,fast_pattern_length 2;"#,
            one(part),
        ),
        (
            &[Snort3],
            r#"content:"abc",fast_pattern_offset 1,fast_pattern;"#,
            one(tail),
        ),
        (&[Suricata], r#"content:"abc"; startswith;"#, one(first)),
        (
            &[Suricata],
            r#"content:"abc"; endswith;"#,
            one(Content {
                ends: true,
                ..content(b"abc")
            }),
        ),
        (&behind, r#"content:"abc"; rawbytes;"#, one(content(b"abc"))),
        // Snort searches case-insensitively and does not verify the position. Suricata is case-sensitive and verifies
        // the position.
        (
            &[Snort2],
            r#"content:"abc"; fast_pattern:only;"#,
            one(Content {
                fast: FastPattern::Only,
                nocase: true,
                ..content(b"abc")
            }),
        ),
        (&[Suricata], r#"content:"abc"; fast_pattern:only;"#, one(chosen)),
    ]);
}

#[test]
fn relative_content_follows_the_match_before() {
    let two = |second: Content| vec![Condition::Content(content(b"a")), Condition::Content(second)];
    let second = Content {
        distance: constant(-2),
        within: constant(9),
        ..content(b"b")
    };
    compare(&[
        (
            &[Suricata, Snort2],
            r#"content:"a"; content:"b"; distance:-2; within:9;"#,
            two(second.clone()),
        ),
        (
            &[Snort3],
            r#"content:"a"; content:"b",distance -2,within 9;"#,
            two(second),
        ),
    ]);
}

#[test]
fn relative_content_with_no_match_before_counts_from_the_begin() {
    let of = |offset, depth| Content {
        offset,
        depth,
        ..content(b"b")
    };
    let negated = Content {
        negated: true,
        ..content(b"a")
    };
    compare(&[
        (
            &[Suricata, Snort2],
            r#"content:"b"; distance:4; within:9;"#,
            one(of(constant(4), constant(9))),
        ),
        (
            &[Suricata, Snort2],
            r#"content:"b"; distance:-4; within:9;"#,
            one(of(None, constant(5))),
        ),
        (&[Snort3], r#"content:"b",distance 0;"#, one(of(None, None))),
        (
            &[Snort3],
            r#"content:!"a"; content:"b",within 9;"#,
            vec![Condition::Content(negated), Condition::Content(of(None, constant(9)))],
        ),
        // The buffer is selected again, so it has no preceding match.
        (
            &[Snort3],
            r#"http_uri; content:"a"; http_uri; content:"b",distance 4;"#,
            vec![
                content_of(Buffer::HttpUri, b"a"),
                Condition::Content(Content {
                    buffer: Buffer::HttpUri,
                    ..of(constant(4), None)
                }),
            ],
        ),
        (
            &[Snort2],
            r#"content:"a"; http_uri; content:"b"; http_header; distance:4;"#,
            vec![
                content_of(Buffer::HttpUri, b"a"),
                Condition::Content(Content {
                    buffer: Buffer::HttpHeader,
                    ..of(constant(4), None)
                }),
            ],
        ),
    ]);
}

#[test]
fn buffers_of_suricata_are_gathered_so_that_relative_contents_meet() {
    let options = r#"http.uri; content:"a"; http.header; content:"b"; http.uri; content:"c"; distance:0; dsize:5;"#;
    let expected = [
        Condition::PayloadSize(5..=5),
        content_of(Buffer::HttpUri, b"a"),
        Condition::Content(Content {
            buffer: Buffer::HttpUri,
            distance: constant(0),
            ..content(b"c")
        }),
        content_of(Buffer::HttpHeader, b"b"),
    ];
    assert_eq!(expected, *loaded(Suricata, options).conditions);
}

#[test]
fn contents_look_where_the_rule_says() {
    use Buffer::*;
    let table = [
        (HttpUri, "http_uri", "http.uri"),
        (HttpRawUri, "http_raw_uri", "http.uri.raw"),
        (HttpMethod, "http_method", "http.method"),
        (HttpHeader, "http_header", "http.header"),
        (HttpRawHeader, "http_raw_header", "http.header.raw"),
        (HttpCookie, "http_cookie", "http.cookie"),
        (HttpClientBody, "http_client_body", "http.request_body"),
        (HttpStatusCode, "http_stat_code", "http.stat_code"),
        (HttpStatusMessage, "http_stat_msg", "http.stat_msg"),
    ];
    for (buffer, name, dotted) in table {
        let expected = vec![content_of(buffer, b"a")];
        compare(&[
            (
                &[Suricata, Snort2],
                &format!(r#"content:"a"; {name};"#),
                expected.clone(),
            ),
            (&[Snort3], &format!(r#"{name}; content:"a";"#), expected.clone()),
            (&[Suricata], &format!(r#"{dotted}; content:"a";"#), expected),
        ]);
    }
    let table: &[(_, &[_], _)] = &[
        (HttpHost, &[Suricata], "http.host"),
        (HttpRawHost, &[Suricata], "http.host.raw"),
        (HttpUserAgent, &[Suricata], "http.user_agent"),
        (DnsQuery, &[Suricata], "dns.query"),
        (DnsQuery, &[Suricata], "dns_query"),
        (TlsSni, &[Suricata], "tls.sni"),
        (TlsSni, &[Suricata], "tls_sni"),
        (Ja3Hash, &[Suricata], "ja3.hash"),
        (Ja3Hash, &[Suricata], "ja3_hash"),
        (FileData, &[Suricata], "file.data"),
        (FileData, &EVERY, "file_data"),
        (FileData, &[Suricata], "flow:to_client; http.response_body"),
        (Payload, &EVERY, "file_data; pkt_data"),
        (Payload, &[Snort3], "raw_data"),
        (HttpUserAgent, &[Snort3], "http_header:field user-agent"),
        (HttpRawHost, &[Snort3], "http_header:field host"),
        (HttpCookie, &[Snort3], "http_header:field cookie"),
        (HttpCookie, &[Snort3], "http_raw_cookie"),
    ];
    for (buffer, dialects, name) in table {
        compare(&[(
            dialects,
            &format!(r#"{name}; content:"a";"#),
            vec![content_of(*buffer, b"a")],
        )]);
    }
    compare(&[(
        &[Suricata, Snort2],
        r#"uricontent:"a";"#,
        vec![content_of(HttpUri, b"a")],
    )]);
}

#[test]
fn dot_before_a_name_is_an_expression_beside_its_content() {
    let expected = [
        Condition::Content(Content {
            buffer: Buffer::DnsQuery,
            nocase: true,
            ends: true,
            ..content(b"a.b")
        }),
        Condition::Expression(Expression {
            buffer: Buffer::DnsQuery,
            caseless: true,
            ..expression(r"(?:^|\.)\x61\x2e\x62\z")
        }),
    ];
    assert_eq!(
        expected,
        *loaded(Suricata, r#"dns.query; dotprefix; content:".a.b"; nocase; endswith;"#).conditions
    );
}

#[test]
fn expression_flags_are_read() {
    let of = |expression| vec![Condition::Expression(expression)];
    let all = Expression {
        caseless: true,
        dot_all: true,
        multi_line: true,
        extended: true,
        anchored: true,
        dollar_end_only: true,
        ungreedy: true,
        ..expression("a/b")
    };
    compare(&[
        (&EVERY, r#"pcre:"/a\/b/";"#, of(expression(r"a\/b"))),
        (&EVERY, r#"pcre:"/a/b/ismxAEGO";"#, of(all)),
        (
            &EVERY,
            r#"pcre:!"/a;\"b/i";"#,
            of(Expression {
                negated: true,
                caseless: true,
                ..expression(r#"a;\"b"#)
            }),
        ),
        (
            &EVERY,
            r#"pcre:"m|a|i";"#,
            of(Expression {
                caseless: true,
                ..expression("a")
            }),
        ),
        (
            &EVERY,
            r#"content:"a"; pcre:"/b/R";"#,
            vec![
                Condition::Content(content(b"a")),
                Condition::Expression(Expression {
                    relative: true,
                    ..expression("b")
                }),
            ],
        ),
        (&EVERY, r#"pcre:"/b/R";"#, of(expression("b"))),
        (
            &[Snort3],
            r#"http_uri; pcre:"/b/i";"#,
            of(Expression {
                buffer: Buffer::HttpUri,
                caseless: true,
                ..expression("b")
            }),
        ),
    ]);
}

#[test]
fn expression_flags_say_where_it_looks() {
    use Buffer::*;
    let both: &[_] = &[Suricata, Snort2];
    for (dialects, flag, buffer) in [
        (both, "U", HttpUri),
        (both, "I", HttpRawUri),
        (both, "P", HttpClientBody),
        (both, "H", HttpHeader),
        (both, "D", HttpRawHeader),
        (both, "M", HttpMethod),
        (both, "C", HttpCookie),
        (both, "S", HttpStatusCode),
        (both, "Y", HttpStatusMessage),
        (both, "B", Payload),
        (&[Snort2], "K", HttpCookie),
        (&[Suricata], "V", HttpUserAgent),
        (&[Suricata], "W", HttpHost),
        (&[Suricata], "Z", HttpRawHost),
    ] {
        let expected = vec![Condition::Expression(Expression {
            buffer,
            ..expression("a")
        })];
        compare(&[(dialects, &format!(r#"pcre:"/a/{flag}";"#), expected)]);
    }
}

#[test]
fn extracted_numbers_are_positions() {
    let found = loaded(
        Snort3,
        r#"content:"a"; byte_extract:1,0,len,relative; content:"b",within len;"#,
    )
    .conditions;
    assert_eq!(
        Condition::Content(Content {
            within: Some(Value::Extracted(0)),
            ..content(b"b")
        }),
        found[2],
    );
    let found = loaded(
        Snort2,
        r#"byte_extract:1,0,a; byte_extract:1,1,a; content:"b"; offset:a;"#,
    )
    .conditions;
    assert_eq!(
        Condition::Content(Content {
            offset: Some(Value::Extracted(1)),
            ..content(b"b")
        }),
        found[2]
    );
}
