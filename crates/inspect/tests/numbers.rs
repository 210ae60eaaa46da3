//! Tests options about numbers in data, lengths and header fields, in each dialect.

use crate::rules::*;
use sluice_inspect::signature::{
    Base64Decode, Bits, Buffer, ByteExtract, ByteJump, ByteTest, Comparison, Condition, Flags, IsDataAt, JumpFrom,
    NumberField, NumberFormat, Sender, Value,
};

fn test(number: NumberField, comparison: Comparison, value: i64, negated: bool) -> Vec<Condition> {
    vec![Condition::ByteTest(ByteTest {
        number,
        comparison,
        value: Value::Constant(value),
        negated,
    })]
}

#[test]
fn byte_test_is_read() {
    use Comparison::*;
    let text = |base| NumberField {
        form: NumberFormat::Text(base),
        ..number(5, 0)
    };
    compare(&[
        (
            &EVERY,
            "byte_test:4,>,1024,20;",
            test(number(4, 20), Greater, 1024, false),
        ),
        (&EVERY, "byte_test:1, !&, 0xF8, 2;", test(number(1, 2), And, 0xf8, true)),
        (&EVERY, "byte_test:1,!,7,2;", test(number(1, 2), Equal, 7, true)),
        (&EVERY, "byte_test:1,<=,7,2;", test(number(1, 2), LessOrEqual, 7, false)),
        (
            &EVERY,
            "byte_test:1,>=,7,2;",
            test(number(1, 2), GreaterOrEqual, 7, false),
        ),
        (&EVERY, "byte_test:1,^,7,2;", test(number(1, 2), Xor, 7, false)),
        (
            &EVERY,
            "byte_test:2,=,7,2,little;",
            test(
                NumberField {
                    form: NumberFormat::Little,
                    ..number(2, 2)
                },
                Equal,
                7,
                false,
            ),
        ),
        (
            &EVERY,
            "byte_test:5,<,256,0,string,dec;",
            test(text(10), Less, 256, false),
        ),
        (
            &EVERY,
            "byte_test:5,<,256,0,hex,string;",
            test(text(16), Less, 256, false),
        ),
        (
            &EVERY,
            "byte_test:5,<,256,0,oct,string;",
            test(text(8), Less, 256, false),
        ),
        (
            &EVERY,
            "byte_test:2,=,1,0,bitmask 0x0ff0;",
            test(
                NumberField {
                    mask: Some(0xff0),
                    ..number(2, 0)
                },
                Equal,
                1,
                false,
            ),
        ),
        (&[Suricata], "byte_test:8,=,1,0;", test(number(8, 0), Equal, 1, false)),
        // The relative number has no preceding match.
        (
            &EVERY,
            "byte_test:1,=,1,4,relative;",
            test(number(1, 4), Equal, 1, false),
        ),
    ]);
    let found = loaded(Snort2, r#"content:"a"; http_uri; byte_test:1,=,1,4,relative;"#).conditions;
    let following = NumberField {
        relative: true,
        buffer: Buffer::HttpUri,
        ..number(1, 4)
    };
    assert_eq!(test(following, Equal, 1, false)[0], found[1]);
}

#[test]
fn byte_jump_is_read() {
    let jump = |number| ByteJump {
        number,
        multiplier: 1,
        align: false,
        from: JumpFrom::Number,
        post_offset: Value::Constant(0),
    };
    let of = |jump| vec![Condition::ByteJump(jump)];
    let end = ByteJump {
        from: JumpFrom::End,
        post_offset: Value::Constant(-6),
        ..jump(number(0, 0))
    };
    let start = ByteJump {
        from: JumpFrom::Begin,
        multiplier: 2,
        ..jump(number(2, -7))
    };
    compare(&[
        (&EVERY, "byte_jump:2,30;", of(jump(number(2, 30)))),
        (
            &EVERY,
            "byte_jump:4,8,align;",
            of(ByteJump {
                align: true,
                ..jump(number(4, 8))
            }),
        ),
        (&EVERY, "byte_jump:2,-7,from_beginning,multiplier 2;", of(start)),
        (&EVERY, "byte_jump:0,0,from_end,post_offset -6;", of(end)),
    ]);
}

#[test]
fn byte_extract_is_read() {
    let extract = |number| ByteExtract {
        number,
        multiplier: 1,
        align: 1,
        into: 0,
    };
    let of = |extract| vec![Condition::ByteExtract(extract)];
    compare(&[
        (&EVERY, "byte_extract:2,26,total;", of(extract(number(2, 26)))),
        (
            &EVERY,
            "byte_extract:2,26,total,multiplier 4,align 4;",
            of(ByteExtract {
                multiplier: 4,
                align: 4,
                ..extract(number(2, 26))
            }),
        ),
    ]);
}

#[test]
fn is_data_at_counts_as_each_dialect_does() {
    let after = |at| {
        let found = IsDataAt {
            at: Value::Constant(at),
            relative: true,
            negated: true,
            ..data_at(0)
        };
        vec![Condition::Content(content(b"a")), Condition::IsDataAt(found)]
    };
    compare(&[
        (&EVERY, "isdataat:10;", vec![Condition::IsDataAt(data_at(10))]),
        (
            &EVERY,
            "isdataat:!10,rawbytes;",
            vec![Condition::IsDataAt(IsDataAt {
                negated: true,
                ..data_at(10)
            })],
        ),
        (&[Snort2, Snort3], r#"content:"a"; isdataat:!0,relative;"#, after(0)),
        (&[Suricata], r#"content:"a"; isdataat:!1,relative;"#, after(0)),
        (
            &[Suricata],
            r#"content:"a"; isdataat:0,relative;"#,
            vec![Condition::Content(content(b"a"))],
        ),
    ]);
}

#[test]
fn lengths_are_read() {
    let of = |buffer, bytes| vec![Condition::BufferLength(buffer, bytes)];
    let after = |condition: &[(i64, bool)]| {
        let mut conditions = vec![Condition::Content(content(b"a"))];
        conditions.extend(condition.iter().map(|(at, negated)| {
            Condition::IsDataAt(IsDataAt {
                relative: true,
                negated: *negated,
                ..data_at(*at)
            })
        }));
        conditions
    };
    compare(&[
        (&[Snort3], "http_uri; bufferlen:5;", of(Buffer::HttpUri, 5..=5)),
        (&[Snort3], "bufferlen:5<=>10;", of(Buffer::Payload, 5..=10)),
        (&[Snort3], "bufferlen:5<>10;", of(Buffer::Payload, 6..=9)),
        (&[Snort3], "bufferlen:!0;", of(Buffer::Payload, 1..=u32::MAX)),
        (
            &[Snort3],
            r#"content:"a"; bufferlen:>=519,relative;"#,
            after(&[(518, false)]),
        ),
        (
            &[Snort3],
            r#"content:"a"; bufferlen:4,relative;"#,
            after(&[(3, false), (4, true)]),
        ),
        (&[Suricata], "http.uri; bsize:<5;", of(Buffer::HttpUri, 0..=4)),
        (&[Suricata], "http.uri; bsize:5<>10;", of(Buffer::HttpUri, 6..=9)),
        (&[Suricata], "urilen:5<>10;", of(Buffer::HttpUri, 6..=9)),
        (&[Suricata], "urilen:5,raw;", of(Buffer::HttpRawUri, 5..=5)),
        (&[Snort2], "urilen:5<>10;", of(Buffer::HttpRawUri, 5..=10)),
        (&[Snort2], "urilen:>5,norm;", of(Buffer::HttpUri, 6..=u32::MAX)),
        (&EVERY, "dsize:>300;", vec![Condition::PayloadSize(301..=u32::MAX)]),
        (&[Snort2], "dsize:300<>400;", vec![Condition::PayloadSize(300..=400)]),
        (
            &[Suricata, Snort3],
            "dsize:300<>400;",
            vec![Condition::PayloadSize(301..=399)],
        ),
        (&[Snort3], "dsize:300<=>400;", vec![Condition::PayloadSize(300..=400)]),
    ]);
}

#[test]
fn base64_is_decoded_into_its_buffer() {
    let decode = Base64Decode {
        buffer: Buffer::Payload,
        bytes: Some(150),
        offset: 10,
        relative: true,
    };
    let expected = vec![
        Condition::Content(content(b"a")),
        Condition::Base64Decode(decode),
        content_of(Buffer::Base64, b"b"),
    ];
    compare(&[(
        &EVERY,
        r#"content:"a"; base64_decode:bytes 150,offset 10,relative; base64_data; content:"b";"#,
        expected,
    )]);
    let plain = Base64Decode {
        buffer: Buffer::Payload,
        bytes: None,
        offset: 0,
        relative: false,
    };
    compare(&[(&EVERY, "base64_decode;", vec![Condition::Base64Decode(plain)])]);
}

#[test]
fn fields_of_headers_are_read() {
    use Condition::*;
    let flags = |mode, flags, ignored| vec![Flags(self::Flags { mode, flags, ignored })];
    compare(&[
        (&EVERY, "itype:8;", vec![IcmpType(8..=8)]),
        (&EVERY, "itype:>10;", vec![IcmpType(11..=255)]),
        (&EVERY, "itype:5<>9;", vec![IcmpType(6..=8)]),
        (&EVERY, "icode:<3;", vec![IcmpCode(0..=2)]),
        (&EVERY, "icmp_id:51201;", vec![IcmpIdentifier(51201)]),
        (&EVERY, "icmp_seq:0;", vec![IcmpSequence(0)]),
        (&EVERY, "ttl:>220;", vec![Ttl(221..=255)]),
        (&[Snort2], "ttl:3-5;", vec![Ttl(3..=5)]),
        (&[Snort2], "ttl:-5;", vec![Ttl(0..=5)]),
        (&[Suricata], "ttl:3-5;", vec![Ttl(4..=4)]),
        (
            &EVERY,
            "tos:!8;",
            vec![TypeOfService {
                value: 8,
                negated: true,
            }],
        ),
        (&EVERY, "id:13170;", vec![IpIdentification(13170)]),
        (
            &EVERY,
            "ip_proto:2;",
            vec![IpProtocol {
                numbers: 2..=2,
                negated: false,
            }],
        ),
        (
            &EVERY,
            "ip_proto:!tcp;",
            vec![IpProtocol {
                numbers: 6..=6,
                negated: true,
            }],
        ),
        (
            &EVERY,
            "ip_proto:>100;",
            vec![IpProtocol {
                numbers: 101..=255,
                negated: false,
            }],
        ),
        (
            &EVERY,
            "fragbits:M+;",
            vec![FragmentBits {
                mode: Bits::All,
                bits: 1,
            }],
        ),
        (
            &EVERY,
            "fragbits:!M;",
            vec![FragmentBits {
                mode: Bits::None,
                bits: 1,
            }],
        ),
        (
            &[Snort2, Snort3],
            "fragbits:!MDR;",
            vec![FragmentBits {
                mode: Bits::None,
                bits: 7,
            }],
        ),
        (&EVERY, "fragoffset:>0;", vec![FragmentOffset(1..=u16::MAX)]),
        (&EVERY, "sameip;", vec![SameAddress]),
        (&EVERY, "seq:1958810375;", vec![Sequence(1_958_810_375)]),
        (&EVERY, "ack:0;", vec![Acknowledgement(0)]),
        (
            &EVERY,
            "window:!55808;",
            vec![Window {
                values: 55808..=55808,
                negated: true,
            }],
        ),
        (&EVERY, "flags:S;", flags(Bits::Exactly, 2, 0)),
        (&EVERY, "flags:0;", flags(Bits::Exactly, 0, 0)),
        (&EVERY, "flags:SA,12;", flags(Bits::Exactly, 18, 192)),
        (&EVERY, "flags:A+;", flags(Bits::All, 16, 0)),
        (&EVERY, "flags:+A;", flags(Bits::All, 16, 0)),
        (&EVERY, "flags:FRS*;", flags(Bits::Any, 7, 0)),
        (&EVERY, "flags:!S,CE;", flags(Bits::None, 2, 192)),
    ]);
}

#[test]
fn stream_size_leaves_the_syn_out() {
    let of = |by, bytes| vec![Condition::StreamSize { by, bytes }];
    compare(&[
        (
            &[Suricata, Snort2],
            "stream_size:client,>,6;",
            of(Sender::Client, 6..=u32::MAX),
        ),
        (&[Suricata, Snort2], "stream_size:both,<=,6;", of(Sender::Both, 0..=5)),
        (&[Snort3], "stream_size:1,to_client;", of(Sender::Server, 0..=0)),
        (&[Snort3], "stream_size:>6,either;", of(Sender::Either, 6..=u32::MAX)),
    ]);
}
