//! Inspection in the test gateway, with small limits and rules in Suricata's syntax.

use sluice_engine::features::inspection::InspectionPolicy;
use sluice_inspect::host_table::HostTable;
use sluice_inspect::inspector::{self, Settings};
use sluice_inspect::protocols::ParserCapacity;
use sluice_inspect::ruleset::OrderedRules;
use sluice_inspect::signatures::{Classes, Dialect, Variables, read};
use sluice_inspect::stream;

/// Inspection, with these rules, of flows on the inside interface.
pub fn inspection(rules: &str) -> InspectionPolicy {
    let file = read(
        rules.as_bytes(),
        Dialect::Suricata,
        &Variables::default(),
        &Classes::default(),
    );
    assert!(file.refused.is_empty(), "{:?}", file.refused);
    let ordered = OrderedRules::new(file.signatures);
    let prefilter = ordered.pattern_set().compile(&mut |_, _| {}).unwrap();
    InspectionPolicy {
        settings: Settings::default(),
        rates: HostTable::new(64, [1, 2]).into(),
        rules: ordered.with_prefilter(prefilter).into(),
        alerts: 16,
        records: Default::default(),
        interfaces: vec![true, false],
        fragments: Default::default(),
        overload: Default::default(),
        bypass: Vec::new(),
    }
}

/// Capacity of the inspection.
pub fn plan() -> inspector::InspectorCapacity {
    let streams = stream::StreamCapacity::of(8);
    inspector::InspectorCapacity {
        flows: 8,
        streams,
        protocols: ParserCapacity {
            messages: 8,
            names: 8,
            inflaters: 1,
            transactions: 8,
            ..ParserCapacity::default()
        },
    }
}
