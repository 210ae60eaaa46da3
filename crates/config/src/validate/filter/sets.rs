//! Validation of sets of addresses, networks and ports.

use crate::filter::FilterSet;
use crate::problem::FilterProblem;
use crate::read::place;
use crate::schema::SetType;
use crate::validate::Check;
use crate::validate::routers::Scope;

/// Maximum number of ports in a set.
const MAX_PORTS: u32 = 65_536;
/// Maximum number of addresses or networks in a set.
const MAX_ADDRESSES: u32 = 262_144;

impl Check<'_> {
    /// Sets of all routers' filters.
    pub(in crate::validate) fn filter_sets(&mut self) -> Vec<FilterSet> {
        let mut found = Vec::new();
        for scope in self.scopes() {
            self.scope = scope;
            let Some(filter) = self.scope.filter else { continue };
            for (name, set) in &filter.sets {
                let at = place!["filter", "sets", name];
                self.name(at, name);
                if filter.addresses.contains_key(name) || filter.ports.contains_key(name) {
                    self.refuse(at, FilterProblem::SetAndGroup(name.clone()));
                }
                let max = if set.kind == SetType::Ports {
                    MAX_PORTS
                } else {
                    MAX_ADDRESSES
                };
                self.in_range(&[at, place!["size"]].concat(), "a size", set.size, 1..=max);
                let at_elements = [at, place!["elements"]].concat();
                let mut count = 0;
                for element in &set.elements {
                    match element.count(set.kind) {
                        Some(of) => count += of,
                        None => {
                            let (element, kind) = (element.to_string(), set.kind);
                            self.refuse(&at_elements, FilterProblem::NotOfSet { element, kind });
                        }
                    }
                }
                if count > set.size as usize {
                    let size = set.size;
                    self.refuse(&at_elements, FilterProblem::SetTooSmall { count, size, max });
                }
                found.push(FilterSet {
                    name: self.in_router(name.clone()),
                    settings: set.clone(),
                });
            }
        }
        self.scope = Scope::top(self.document);
        found
    }
}
