//! Whatever a file holds, it is read to its end, and every rule in it is loaded or refused.

mod rules;

use proptest::prelude::*;
use rules::*;

/// Rules that hold every kind of option, to be mutated.
const SEEDS: [&str; 3] = [
    "alert http $HOME_NET any -> [10.0.0.0/8,!$HTTP_SERVERS] [80,!81,1024:] (msg:\"m\"; flow:established,to_server; \
     http.uri; bsize:5<>9; content:\"a|0d 0a|\\\"b\"; fast_pattern:0,2; startswith; pcre:\"/a[^b]+/Ri\"; dns.query; dotprefix; \
     content:\".a.b\"; endswith; pkt_data; byte_jump:0,0,from_end,post_offset -6; isdataat:!1,relative; \
     threshold:type limit,track by_src,count 1,seconds 60; sid:1; rev:1;)",
    "alert tcp any any <> any 21:23 (msg:\"m\"; content:\"a\"; http_uri; content:\"b\"; distance:-4; within:9; \
     byte_extract:2,0,x,relative,little; byte_test:4,!&,0xf8,x,relative,string,hex; urilen:5<>9,norm; flags:SA+,12; \
     flowbits:isset,a|b; metadata:service http, policy x; base64_decode:bytes 5,relative; base64_data; ttl:3-5; \
     stream_size:client,>,6; detection_filter:track by_dst,count 5,seconds 9; sid:2;)",
    "alert file ( msg:\"m\"; service:http,smtp; http_header:field host; content:!\"a\",nocase,offset 4,depth 8; \
     content:\"bcd\",fast_pattern,fast_pattern_offset 1,fast_pattern_length 2,distance 0; bufferlen:>=519,relative; \
     dsize:5<=>9; raw_data; stream_size:1,to_client; itype:>3; fragbits:!MDR; ip_proto:!tcp; window:!5; sid:3; )",
];

proptest! {
    #[test]
    fn any_bytes_are_read(text in proptest::collection::vec(any::<u8>(), 0..400)) {
        for dialect in EVERY {
            let file = file(dialect, &text);
            prop_assert!(file.signatures.len() + file.refused.len() <= text.len() + 1);
        }
    }

    #[test]
    fn any_options_are_read(options in "[a-z_]{0,9}(:[!\"|0-9a-z ,<>=-]{0,20})?; ?(content:\"[ab|0 ]{0,5}\";)?") {
        for dialect in EVERY {
            let file = file(dialect, rule(&options));
            prop_assert_eq!(1, file.signatures.len() + file.refused.len());
        }
    }

    #[test]
    fn changed_rules_are_loaded_or_refused(
        seed in 0..SEEDS.len(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), "[ -~]", 0..3_u8), 1..6),
    ) {
        let mut text = SEEDS[seed].as_bytes().to_vec();
        for (place, byte, how) in changes {
            let place = place.index(text.len());
            match how {
                0 => text[place] = byte.as_bytes()[0],
                1 => text.insert(place, byte.as_bytes()[0]),
                _ => drop(text.remove(place)),
            }
        }
        for dialect in EVERY {
            let file = file(dialect, &text);
            prop_assert!(file.signatures.len() + file.refused.len() + file.commented <= 1);
        }
    }
}

#[test]
fn rules_before_they_are_changed_load() {
    for (dialect, seed) in [(Suricata, 0), (Snort2, 1), (Snort3, 2)] {
        assert_eq!(Vec::<String>::new(), faults(&file(dialect, SEEDS[seed])));
    }
}

#[test]
fn very_long_rule_is_refused_in_time() {
    let nested = format!("alert tcp {}any any -> any any (sid:1;)", "[".repeat(20_000));
    let closed = format!(
        "alert tcp {}any{} any -> any any (sid:1;)",
        "[".repeat(20_000),
        "]".repeat(20_000)
    );
    let negated = format!("alert tcp any {}80 -> any any (sid:1;)", "!".repeat(500_000));
    let many = format!("alert tcp any any -> any any (msg:\"{}", ";a".repeat(500_000));
    for text in [nested, closed, negated, many] {
        for dialect in EVERY {
            assert_eq!(1, file(dialect, &text).refused.len());
        }
    }
}
