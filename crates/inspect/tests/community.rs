//! Tests with the Snort community rules, if they are present. At least nine of ten rules load, and no option of a
//! loaded rule is ignored.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use sluice_inspect::Signature;
use sluice_inspect::signature::{Condition, FastPattern, FlowState, Id};
use sluice_inspect::signatures::{Classes, Dialect, SignatureFile, Variables, read};

fn community(name: &str, dialect: Dialect, change: fn(&str) -> String) -> Option<SignatureFile> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/signatures")
        .join(name);
    let Ok(text) = std::fs::read(&path) else {
        println!("{name} is not at hand");
        return None;
    };
    let text = change(&String::from_utf8_lossy(&text));
    Some(read(
        text.as_bytes(),
        dialect,
        &Variables::default(),
        &Classes::default(),
    ))
}

fn loaded(name: &str, dialect: Dialect, change: fn(&str) -> String) -> Option<f64> {
    let file = community(name, dialect, change)?;
    let mut options: BTreeMap<String, usize> = BTreeMap::new();
    for refusal in &file.refused {
        *options
            .entry(format!("{}: {}", refusal.option, refusal.why))
            .or_default() += 1;
    }
    let (loaded, refused) = (file.signatures.len(), file.refused.len());
    let share = loaded as f64 / (loaded + refused) as f64;
    println!(
        "{name}: {loaded} loaded, {refused} refused ({:.2} %), {} commented",
        share * 100.0,
        file.commented
    );
    for (option, count) in options {
        println!("  {count:4} {option}");
    }
    Some(share)
}

fn as_it_is(text: &str) -> String {
    text.to_owned()
}

/// Enables every rule that is commented out.
fn in_force(text: &str) -> String {
    text.replace("# alert", "alert")
}

#[test]
fn community_rules_of_snort_3_load() {
    assert!(loaded("snort3-community.rules", Dialect::Snort3, as_it_is).is_none_or(|share| share >= 0.97));
}

#[test]
fn community_rules_of_snort_2_load() {
    assert!(loaded("snort2-community.rules", Dialect::Snort2, as_it_is).is_none_or(|share| share >= 0.97));
}

#[test]
fn community_rules_of_snort_2_that_are_commented_out_load() {
    assert!(loaded("snort2-community.rules", Dialect::Snort2, in_force).is_none_or(|share| share >= 0.97));
}

/// Conditions without the parts in which two dialects may differ for the same rule: the fast pattern, and the order of
/// names.
fn conditions(signature: &Signature) -> Vec<Condition> {
    let mut conditions = signature.conditions.to_vec();
    for condition in &mut conditions {
        match condition {
            Condition::Content(content) => content.fast = FastPattern::Unspecified,
            Condition::FlowBits(bits) => bits.names.sort(),
            _ => {}
        }
    }
    conditions
}

/// The authors publish the rules in two dialects, so the two files are translations of each other.
#[test]
fn same_rule_in_two_dialects_is_the_same_signature() {
    let two = community("snort2-community.rules", Dialect::Snort2, in_force);
    let three = community("snort3-community.rules", Dialect::Snort3, as_it_is);
    let (Some(two), Some(three)) = (two, three) else { return };
    let three: HashMap<Id, Signature> = three
        .signatures
        .into_iter()
        .map(|signature| (signature.id, signature))
        .collect();
    let (mut both, mut differ) = (0, Vec::new());
    for two in &two.signatures {
        let Some(three) = three.get(&two.id) else { continue };
        both += 1;
        let same = conditions(two) == conditions(three)
            && (two.flow, two.rate, two.noalert, two.action) == (three.flow, three.rate, three.noalert, three.action);
        if !same {
            differ.push(two.id.signature);
        }
    }
    println!("{both} rules in both dialects, {} differ: {differ:?}", differ.len());
    assert!(both > 3_500 && differ.len() * 100 < both);
}

/// Options of a rule, split by an independent simple parser. Modifiers listed after a content (`content:"x",nocase`)
/// count as separate options.
fn options(rule: &str) -> Vec<String> {
    let body = &rule[rule.find('(').unwrap() + 1..rule.rfind(')').unwrap()];
    let (mut quoted, mut escaped, mut options) = (false, false, vec![String::new()]);
    for character in body.chars() {
        let ends = |option: &str| character == ';' || character == ',' && option.trim_start().starts_with("content:");
        let option = options.last_mut().unwrap();
        if !quoted && ends(option) {
            // A modifier follows the comma in the list of the content.
            options.push(if character == ',' {
                "content:,".into()
            } else {
                String::new()
            });
            continue;
        }
        quoted ^= character == '"' && !escaped;
        escaped = character == '\\' && !escaped;
        option.push(character);
    }
    let plain = |option: String| option.trim().replacen("content:,", "", 1);
    options
        .into_iter()
        .map(plain)
        .filter(|option| !option.is_empty())
        .collect()
}

/// Number of conditions in a signature that express the options with this name.
fn said(name: &str, signature: &Signature) -> Option<usize> {
    use Condition::*;
    let contents = || {
        signature.conditions.iter().filter_map(|condition| match condition {
            Content(content) => Some(content),
            _ => None,
        })
    };
    let count =
        |is: fn(&Condition) -> bool| Some(signature.conditions.iter().filter(|condition| is(condition)).count());
    match name {
        "content" => Some(contents().count()),
        "nocase" => Some(contents().filter(|content| content.nocase).count()),
        "fast_pattern" => Some(
            contents()
                .filter(|content| content.fast != FastPattern::Unspecified)
                .count(),
        ),
        "depth" => Some(
            contents()
                .filter(|content| content.depth.or(content.within).is_some())
                .count(),
        ),
        "pcre" => count(|condition| matches!(condition, Expression(_))),
        "byte_test" => count(|condition| matches!(condition, ByteTest(_))),
        "byte_jump" => count(|condition| matches!(condition, ByteJump(_))),
        "byte_extract" => count(|condition| matches!(condition, ByteExtract(_))),
        "isdataat" => count(|condition| matches!(condition, IsDataAt(_))),
        "base64_decode" => count(|condition| matches!(condition, Base64Decode(_))),
        "bufferlen" | "urilen" => count(|condition| matches!(condition, BufferLength(..))),
        "dsize" => count(|condition| matches!(condition, PayloadSize(_))),
        "flags" => count(|condition| matches!(condition, Flags(_))),
        "itype" => count(|condition| matches!(condition, IcmpType(_))),
        "icode" => count(|condition| matches!(condition, IcmpCode(_))),
        "icmp_id" => count(|condition| matches!(condition, IcmpIdentifier(_))),
        "icmp_seq" => count(|condition| matches!(condition, IcmpSequence(_))),
        "ttl" => count(|condition| matches!(condition, Ttl(_))),
        "id" => count(|condition| matches!(condition, IpIdentification(_))),
        "ip_proto" => count(|condition| matches!(condition, IpProtocol { .. })),
        "fragbits" => count(|condition| matches!(condition, FragmentBits { .. })),
        "seq" => count(|condition| matches!(condition, Sequence(_))),
        "ack" => count(|condition| matches!(condition, Acknowledgement(_))),
        "stream_size" => count(|condition| matches!(condition, StreamSize { .. })),
        "flowbits" => count(|condition| matches!(condition, FlowBits(_))),
        "flowbits:noalert" => Some(usize::from(signature.noalert)),
        "detection_filter" => Some(signature.rate.iter().count()),
        "flow" => Some(usize::from(signature.flow != FlowState::default())),
        _ => None,
    }
}

/// Options that select the buffer or position of other options. Another test checks that the two dialects agree on such
/// options.
const PLACES: &[&str] = &[
    "offset",
    "distance",
    "fast_pattern_offset",
    "fast_pattern_length",
    "rawbytes",
    "http_uri",
    "http_raw_uri",
    "http_header",
    "http_raw_header",
    "http_cookie",
    "http_method",
    "http_client_body",
    "http_stat_code",
    "http_stat_msg",
    "file_data",
    "pkt_data",
    "raw_data",
    "base64_data",
];

const DESCRIPTIONS: &[&str] = &[
    "msg",
    "reference",
    "classtype",
    "metadata",
    "sid",
    "rev",
    "gid",
    "service",
    "tag",
];

fn nothing_is_ignored(name: &str, dialect: Dialect) {
    let Some(file) = community(name, dialect, in_force) else {
        return;
    };
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/signatures")
        .join(name);
    let text = in_force(&String::from_utf8_lossy(&std::fs::read(path).unwrap()));
    let lines: Vec<&str> = text.lines().collect();
    for signature in &file.signatures {
        let mut written: BTreeMap<String, usize> = BTreeMap::new();
        for option in options(lines[signature.line as usize - 1]) {
            let name = option.split([':', ' ']).next().unwrap();
            let name = match (name, option.as_str()) {
                (_, "flowbits:noalert") => "flowbits:noalert",
                (_, "flow:stateless") => continue,
                // A relative `bufferlen` is expressed as tests for data at its two limits.
                ("bufferlen", _) if option.ends_with("relative") => "isdataat",
                ("within", _) => "depth",
                _ => name,
            };
            *written.entry(name.into()).or_default() += 1;
        }
        for (name, count) in written {
            if PLACES.contains(&&*name) || DESCRIPTIONS.contains(&&*name) {
                continue;
            }
            let said = said(&name, signature);
            // A `fast_pattern:only` content may be case-insensitive without `nocase`.
            let said = if name == "nocase" {
                said.map(|said| said.min(count))
            } else {
                said
            };
            assert_eq!(Some(count), said, "{name} of sid {}", signature.id.signature);
        }
    }
}

#[test]
fn loaded_rules_of_snort_3_say_all_that_their_options_say() {
    nothing_is_ignored("snort3-community.rules", Dialect::Snort3);
}

#[test]
fn loaded_rules_of_snort_2_say_all_that_their_options_say() {
    nothing_is_ignored("snort2-community.rules", Dialect::Snort2);
}
