//! Validation of application identification.

use super::Check;
use crate::config::{Applications, Interface};
use crate::problem::{InspectionProblem, Problem};
use crate::read::place;

impl Check<'_> {
    /// Settings of application identification, with interfaces by index. `None` if application identification is not
    /// configured.
    pub(super) fn applications(&mut self, interfaces: &[Interface]) -> Option<Applications> {
        let written = self.document.applications.as_ref()?;
        let at = |key| place!["applications", key].to_vec();
        self.in_range(&at("flows"), "a number of sessions", written.flows, 64..=1 << 20);
        self.in_range(&at("memory"), "a number of bytes", written.memory, 1 << 20..=1 << 30);
        self.in_range(
            &at("tcp-packets"),
            "a number of packets",
            written.tcp_packets,
            1..=u8::MAX,
        );
        self.in_range(
            &at("other-packets"),
            "a number of packets",
            written.other_packets,
            1..=u8::MAX,
        );
        if written.interfaces.is_empty() {
            self.report(place!["applications"], InspectionProblem::NothingNamed.into());
        }
        let interfaces = self.chosen("applications", &written.interfaces, interfaces);
        Some(Applications { interfaces })
    }

    /// For each interface, whether the key `interfaces` of a table lists the interface. Interfaces that are listed
    /// twice are reported.
    pub(super) fn chosen(&mut self, table: &str, names: &[String], interfaces: &[Interface]) -> Vec<bool> {
        let mut chosen = vec![false; interfaces.len()];
        for (k, name) in names.iter().enumerate() {
            match interfaces.iter().position(|interface| interface.name == *name) {
                Some(index) if chosen[index] => {
                    let twice = InspectionProblem::Twice(name.clone());
                    self.report(place![table, "interfaces", k], twice.into());
                }
                Some(index) => chosen[index] = true,
                None => {
                    let known = interfaces.iter().map(|interface| interface.name.clone()).collect();
                    let name = name.clone();
                    let unknown = Problem::UnknownInterface { name, known };
                    self.report(place![table, "interfaces", k], unknown);
                }
            }
        }
        chosen
    }
}
