//! Tests header fields in rules, in docs/filter.md and in chains.

use std::fs;
use std::path::Path;

use indexmap::IndexMap;
use sluice_config::import::{Source, import};
use sluice_config::schema::{Class, FilterRule, HeaderField};

#[test]
fn filter_guide_has_a_row_for_every_header_field() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/filter.md");
    let guide = fs::read_to_string(&path).unwrap();
    let is_row = |line: &&str| {
        HeaderField::GUIDE
            .iter()
            .any(|(key, _)| line.starts_with(&format!("| `{key}` |")))
    };
    let rows = HeaderField::GUIDE.map(|(key, values)| format!("| `{key}` | {values} |"));
    if std::env::var_os("SLUICE_WRITE_ANSWERS").is_some() {
        let others = guide.lines().filter(|line| !is_row(line));
        let written = others.map(|line| match line.starts_with("| `flags` |") {
            true => format!("{line}\n{}\n", rows.join("\n")),
            false => format!("{line}\n"),
        });
        return fs::write(&path, written.collect::<String>()).unwrap();
    }
    let found: Vec<&str> = guide.lines().filter(is_row).collect();
    assert_eq!(rows.as_slice(), found, "SLUICE_WRITE_ANSWERS=1 writes these rows");
}

#[test]
fn graph_guide_names_every_header_field_as_a_key_of_classify() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/graph.md");
    let guide = fs::read_to_string(&path).unwrap();
    let (before, rest) = guide.split_once("`icmp`, `flags`, ").expect("the keys of classify");
    let (found, after) = rest.split_once(", `in`; groups").expect("the key `in`");
    let keys = HeaderField::GUIDE.map(|(key, _)| format!("`{key}`")).join(", ");
    if std::env::var_os("SLUICE_WRITE_ANSWERS").is_some() {
        let written = format!("{before}`icmp`, `flags`, {keys}, `in`; groups{after}");
        return fs::write(&path, written).unwrap();
    }
    assert_eq!(keys, found, "SLUICE_WRITE_ANSWERS=1 writes this list");
}

#[test]
fn header_field_of_a_class_is_that_of_its_rule() {
    for (key, value) in [
        ("fragment", "'later'"),
        ("dscp", "['ef', 10]"),
        ("ecn", "'ce'"),
        ("length", "'0-100'"),
        ("vlan", "7"),
        ("ttl", "'0-1'"),
    ] {
        let class: Class = toml::from_str(&format!("{key} = {value}")).unwrap();
        let rule: FilterRule = toml::from_str(&format!("action = 'accept'\n{key} = {value}")).unwrap();
        assert_eq!(rule, class.rule());
        let named = rule
            .header_fields()
            .into_iter()
            .filter(|field| !field.ranges.is_empty());
        assert_eq!([key], *named.map(|field| field.key).collect::<Vec<_>>());
    }
}

/// The TTLs of all rules that result from an nftables chain. The chain has one condition.
fn ttls_of_nft(hook: &str, [header, name]: [&str; 2], op: &str, right: serde_json::Value) -> Vec<String> {
    let left = serde_json::json!({"payload": {"protocol": header, "field": name}});
    let listing = serde_json::json!({"nftables": [
        {"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
        {"table": {"family": "inet", "name": "filter", "handle": 1}},
        {"chain": {
            "family": "inet", "table": "filter", "name": "c", "handle": 2, "type": "filter", "hook": hook, "prio": 0, "policy": "accept"
        }},
        {"rule": {"family": "inet", "table": "filter", "chain": "c", "handle": 3, "expr": [
            {"match": {"op": op, "left": left, "right": right}}, {"drop": null}
        ]}}
    ]});
    let text = listing.to_string();
    let source = Source {
        name: "listing",
        text: &text,
    };
    let imported = import(&[source], None, &IndexMap::new()).unwrap();
    assert!(imported.leftovers.is_empty(), "{op}");
    let rules = imported.document.filter.map(|filter| filter.rules).unwrap_or_default();
    let ttls = rules.iter().filter_map(|rule| rule.ttl);
    ttls.map(|ttl| ttl.to_string()).collect()
}

#[test]
fn nft_ttl_of_forwarded_packets_is_that_before_they_are_counted_down() {
    let (v4, v6) = (["ip", "ttl"], ["ip6", "hoplimit"]);
    assert_eq!(["2"], *ttls_of_nft("forward", v4, "==", 1.into()));
    assert_eq!(["0-5"], *ttls_of_nft("forward", v6, "<", 5.into()));
    assert_eq!(["65-255"], *ttls_of_nft("forward", v4, ">=", 64.into()));
    assert_eq!(["0-64", "66-255"], *ttls_of_nft("forward", v6, "!=", 64.into()));
    let range = serde_json::json!({"range": [10, 20]});
    assert_eq!(["11-21"], *ttls_of_nft("forward", v4, "==", range.clone()));
    assert_eq!(["10-20"], *ttls_of_nft("input", v4, "==", range));
    assert_eq!(["255"], *ttls_of_nft("input", v6, "==", 255.into()));
}
