//! Refused rules: the invalid option, and the reason.

use crate::rules::*;
use sluice_inspect::signatures::{Dialect, RuleError};

/// Each row contains dialects, options, the invalid option, and the reason.
fn compare(table: &[(&[Dialect], &str, &str, RuleError)]) {
    for (dialects, options, option, why) in table {
        for dialect in *dialects {
            assert_eq!(
                ((*option).to_owned(), why.clone()),
                refused(*dialect, options),
                "{dialect:?} {options}"
            );
        }
    }
}

#[test]
fn syntax_that_is_none_is_refused() {
    use RuleError::*;
    let whole = |dialect, text: &str| {
        file(dialect, text)
            .refused
            .pop()
            .map(|refusal| (refusal.option.into(), refusal.why))
    };
    let some = |option: &str, why| Some((option.to_owned(), why));
    for dialect in EVERY {
        assert_eq!(
            some("", MissingParenthesis),
            whole(dialect, "alert tcp any any -> any any sid:1;")
        );
        assert_eq!(
            some("", MissingParenthesis),
            whole(dialect, "alert tcp any any -> any any (sid:1;")
        );
        assert_eq!(
            some("sid", MissingSemicolon),
            whole(dialect, "alert tcp any any -> any any (msg:\"m\"; sid:1)")
        );
        assert_eq!(
            some("sid", NoId),
            whole(dialect, "alert tcp any any -> any any (msg:\"m\";)")
        );
        assert_eq!(
            some("sid", NotANumber("x".into())),
            whole(dialect, "alert tcp any any -> any any (sid:x;)")
        );
        assert_eq!(
            some("content", UnclosedQuote),
            whole(
                dialect,
                "alert tcp any any -> any any (msg:\"m\"; content:\"a; sid:1; )"
            )
        );
    }
}

#[test]
fn option_that_is_not_known_is_refused_with_a_hint() {
    use RuleError::*;
    compare(&[
        (
            &EVERY,
            "contnt:\"a\";",
            "contnt",
            UnknownOption { hint: Some("content") },
        ),
        (&EVERY, "whatever;", "whatever", UnknownOption { hint: None }),
        (
            &[Snort3],
            "content:\"a\"; nocase;",
            "nocase",
            UnknownOption { hint: None },
        ),
        (
            &[Snort2],
            "http.uri; content:\"a\";",
            "http.uri",
            UnknownOption { hint: Some("http_uri") },
        ),
        (
            &[Snort3],
            "content:\"a\",nocas;",
            "content",
            Unknown {
                written: "nocas".into(),
                hint: Some("nocase"),
            },
        ),
        (
            &[Snort3],
            "service:htpp;",
            "service",
            Unknown {
                written: "htpp".into(),
                hint: Some("http"),
            },
        ),
        (
            &[Snort2],
            "metadata:service htpp;",
            "metadata",
            Unknown {
                written: "htpp".into(),
                hint: Some("http"),
            },
        ),
    ]);
    assert_eq!(
        "there is no option of this name; content is meant?",
        UnknownOption { hint: Some("content") }.to_string(),
    );
}

#[test]
fn option_without_a_place_is_refused() {
    use RuleError::*;
    let part = |text: &str| PartNotInspected(text.into());
    compare(&[
        (&EVERY, "asn1:double_overflow;", "asn1", NotInspected),
        (&EVERY, "geoip:src,DE;", "geoip", NotInspected),
        (&[Suricata, Snort2], "tag:flow,5,packets;", "tag", part("flow")),
        (&[Suricata, Snort2], "tag:session,5,minutes;", "tag", part("minutes")),
        (&[Snort3], "tag:session,minutes 5;", "tag", part("minutes 5")),
        (&EVERY, "ipopts:lsrr;", "ipopts", NotInspected),
        (&EVERY, "byte_math:bytes 2;", "byte_math", MissingPart("oper")),
        (
            &EVERY,
            "byte_math:bytes 2,offset 0,oper %,rvalue 1,result r;",
            "byte_math",
            part("oper %"),
        ),
        (
            &EVERY,
            "byte_math:bytes 2,offset 0,oper /,rvalue 0,result r;",
            "byte_math",
            NeverTrue,
        ),
        (
            &EVERY,
            "byte_math:bytes 2,offset 0,oper <<,rvalue 64,result r;",
            "byte_math",
            OutOfRange("rvalue 64".into()),
        ),
        (
            &EVERY,
            "byte_math:bytes 11,offset 0,oper +,rvalue 1,result r,string dec;",
            "byte_math",
            OutOfRange("bytes 11".into()),
        ),
        (
            &EVERY,
            "byte_math:bytes 2,offset 0,oper +,rvalue 1,result r,dce;",
            "byte_math",
            part("dce"),
        ),
        (&EVERY, "dce_iface:a;", "dce_iface", NotInspected),
        (
            &[Suricata],
            "http.request_line; content:\"a\";",
            "http.request_line",
            NotInspected,
        ),
        (
            &[Suricata],
            "to_lowercase; content:\"a\";",
            "to_lowercase",
            NoBufferBefore,
        ),
        (
            &[Suricata],
            "http.uri; content:\"a\"; to_lowercase; content:\"b\";",
            "to_lowercase",
            NoBufferBefore,
        ),
        (
            &[Suricata],
            "http.uri; to_md5; bsize:1; http.uri; to_sha1; bsize:1; http.host; to_md5; bsize:1; http.host; to_sha1; bsize:1; \
             http.cookie; xor:\"01\";",
            "xor",
            TooManyTransformed,
        ),
        (&[Suricata], "http.uri; xor:\"0\";", "xor", NotHexadecimal("0".into())),
        (
            &[Suricata],
            "http.uri; pcrexform:\"ab\";",
            "pcrexform",
            NoGroup("ab".into()),
        ),
        (&[Suricata], "xbits:set,a,track ip_any;", "xbits", part("track ip_any")),
        (&[Suricata], "xbits:set,a;", "xbits", MissingPart("track")),
        (
            &[Suricata],
            "xbits:set,a,track ip_src,expire 0;",
            "xbits",
            OutOfRange("expire 0".into()),
        ),
        (
            &[Snort2, Snort3],
            "xbits:set,a,track ip_src;",
            "xbits",
            UnknownOption { hint: None },
        ),
        (
            &[Suricata],
            "flowint:a,*,1;",
            "flowint",
            Unknown {
                written: "*".into(),
                hint: None,
            },
        ),
        (&[Suricata], "flowint:a,+,1x;", "flowint", NotANumber("1x".into())),
        (
            &[Suricata],
            "flowint:a,+;",
            "flowint",
            MissingPart("name, operation, value"),
        ),
        (
            &[Suricata],
            "app-layer-event:http.too_many_warnings;",
            "app-layer-event",
            part("http.too_many_warnings"),
        ),
        (
            &[Suricata],
            "stream-event:wrong_thread;",
            "stream-event",
            part("wrong_thread"),
        ),
        (
            &[Suricata],
            "dns.query; dataset:isset,a,type string,load a.lst;",
            "dataset",
            List {
                path: "a.lst".into(),
                why: "the rules were not read from a folder".into(),
            },
        ),
        (
            &[Suricata],
            "dns.query; dataset:set,a,type string,save a.lst;",
            "dataset",
            part("save a.lst"),
        ),
        (
            &[Suricata],
            "dns.query; dataset:set,a,type float;",
            "dataset",
            part("type float"),
        ),
        (
            &[Suricata],
            "dns.query; dataset:set,a,type ip;",
            "dataset",
            NotOfList("a".into()),
        ),
        (
            &[Suricata],
            "ip.src; dataset:set,a,type md5;",
            "dataset",
            NotOfList("a".into()),
        ),
        (&[Suricata], "ip.src; content:\"a\";", "content", NotInspected),
        (
            &[Suricata],
            "app-layer-protocol:!http;",
            "app-layer-protocol",
            Unknown {
                written: "!http".into(),
                hint: Some("http"),
            },
        ),
        (&EVERY, "flowbits:reset;", "flowbits", part("reset")),
        (&[Snort2, Snort3], "flowbits:isset,any,group;", "flowbits", part("any")),
        (&EVERY, "flow:no_frag;", "flow", part("no_frag")),
        (&EVERY, "byte_test:4,>,1,0,dce;", "byte_test", part("dce")),
        (
            &[Snort2, Snort3],
            "metadata:engine shared;",
            "metadata",
            part("engine shared"),
        ),
        (
            &[Snort3],
            "http_header:field x-mine; content:\"a\";",
            "http_header",
            part("x-mine"),
        ),
        (
            &[Snort3],
            "http_header:request; content:\"a\";",
            "http_header",
            part("request"),
        ),
        (&[Snort3], "http_uri:path; content:\"a\";", "http_uri", part("path")),
        (&[Suricata], "flags:!SA;", "flags", part("!SA")),
        (&[Suricata], "fragbits:!MD;", "fragbits", part("!MD")),
        (&EVERY, "dsize:!5;", "dsize", Gap("!5".into())),
        (&EVERY, "seq:>5;", "seq", part(">5")),
        (
            &[Suricata],
            "http.response_body; content:\"a\";",
            "http.response_body",
            NeedsToClient,
        ),
        (&[Suricata], "pcre:\"/a/Q\";", "pcre", NeedsToClient),
        (&[Snort3], "pcre:\"/a/U\";", "pcre", ExpressionFlag('U')),
        (&[Snort2], "pcre:\"/a/V\";", "pcre", ExpressionFlag('V')),
        (&[Suricata], "pcre:\"/(a)/,flow:x\";", "pcre", ExpressionFlag(',')),
    ]);
}

#[test]
fn value_that_is_none_is_refused() {
    use RuleError::*;
    let behind: &[Dialect] = &[Suricata, Snort2];
    compare(&[
        (&EVERY, "content;", "content", MissingValue),
        (&EVERY, "content:a;", "content", NotQuoted("a".into())),
        (&EVERY, "content:\"\";", "content", Empty),
        (&EVERY, "content:\"|0|\";", "content", NotHexadecimal("0".into())),
        (&EVERY, "content:\"|0g|\";", "content", NotHexadecimal("0g".into())),
        (&EVERY, "content:\"|00\";", "content", UnclosedHexadecimal),
        (&EVERY, "content:\"\\n\";", "content", NotAnEscape("\\n".into())),
        (
            &[Suricata],
            "content:\"a\",nocase;",
            "content",
            Trailing(",nocase".into()),
        ),
        (&EVERY, "pcre:\"a\";", "pcre", NotAnExpression("\"a\"".into())),
        (&EVERY, "pcre:\"/a\";", "pcre", NotAnExpression("\"/a\"".into())),
        (behind, "nocase;", "nocase", NoContentBefore),
        (behind, "http_uri;", "http_uri", NoContentBefore),
        (behind, "pcre:\"/a/\"; depth:5;", "depth", NoContentBefore),
        (
            behind,
            "content:\"a\"; nocase:1;",
            "nocase",
            UnexpectedValue("1".into()),
        ),
        (behind, "content:\"a\"; depth:5; depth:6;", "depth", ModifierTwice),
        (behind, "content:\"a\"; depth:x;", "depth", UnknownValue("x".into())),
        (behind, "content:\"a\"; offset:-1;", "offset", OutOfRange("-1".into())),
        (
            behind,
            "content:\"a\"; content:\"b\"; offset:1; distance:1;",
            "content",
            MixedPositions,
        ),
        (behind, "content:\"abc\"; depth:2;", "content", NoRoom(2)),
        (
            behind,
            "content:\"abc\"; fast_pattern:2,2;",
            "content",
            OutOfRange("fast_pattern 2,2".into()),
        ),
        (
            &[Snort2],
            "content:\"abc\"; fast_pattern:only; offset:1;",
            "content",
            OnlyWithPosition,
        ),
        (&[Snort3], "content:\"a\",depth;", "content", MissingValue),
        (&EVERY, "byte_test:9,=,1,0;", "byte_test", OutOfRange("9".into())),
        (&EVERY, "byte_test:0,=,1,0;", "byte_test", OutOfRange("0".into())),
        (
            &EVERY,
            "byte_test:1,=,1;",
            "byte_test",
            MissingPart("count, operator, value, offset"),
        ),
        (
            &EVERY,
            "byte_test:1,?,1,0;",
            "byte_test",
            Unknown {
                written: "?".into(),
                hint: None,
            },
        ),
        (&EVERY, "byte_test:1,=,1,0,hex;", "byte_test", MissingPart("string")),
        (
            &EVERY,
            "byte_jump:1,0,from_end 1;",
            "byte_jump",
            PartNotInspected("from_end 1".into()),
        ),
        (&EVERY, "byte_extract:1,0,5;", "byte_extract", UnknownValue("5".into())),
        (&EVERY, "isdataat:len;", "isdataat", UnknownValue("len".into())),
        (&EVERY, "dsize:70<>60;", "dsize", OutOfRange("70<>60".into())),
        (&EVERY, "itype:256;", "itype", OutOfRange("256".into())),
        (&EVERY, "ttl:many;", "ttl", NotANumber("many".into())),
        (
            &EVERY,
            "flags:Q;",
            "flags",
            Unknown {
                written: "Q".into(),
                hint: None,
            },
        ),
        (
            &EVERY,
            "flow:to_server,to_client;",
            "flow",
            Contradiction("to_client".into()),
        ),
        (&EVERY, "flowbits:set;", "flowbits", MissingPart("name")),
        (&EVERY, "flowbits:set,a|b;", "flowbits", PartNotInspected("a|b".into())),
        (
            &EVERY,
            "detection_filter:track by_src,count 5;",
            "detection_filter",
            MissingPart("seconds"),
        ),
        (&EVERY, "priority:0;", "priority", OutOfRange("0".into())),
        (
            &EVERY,
            "reference:url;",
            "reference",
            MissingPart("what is referred to"),
        ),
        (&[Suricata], "isdataat:!0,relative;", "isdataat", NeverTrue),
        (
            &[Suricata],
            "content:\"a\"; http_uri; byte_extract:1,0,x; content:\"b\"; http_uri; offset:x;",
            "content",
            UsedBeforeExtracted,
        ),
    ]);
    let rate = "detection_filter:track by_src,count 5,seconds 1;";
    compare(&[(&EVERY, &format!("{rate} {rate}"), "detection_filter", SecondRate)]);
}
