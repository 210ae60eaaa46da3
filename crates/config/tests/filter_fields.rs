//! Header fields that rules name, in the filter's guide and in chains.

use std::fs;
use std::path::Path;

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
fn header_field_of_a_class_is_that_of_its_rule() {
    for (key, value) in [
        ("fragment", "'later'"),
        ("dscp", "['ef', 10]"),
        ("ecn", "'ce'"),
        ("length", "'0-100'"),
        ("vlan", "7"),
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
