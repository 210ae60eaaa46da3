//! Translation of one address family, as a commit defines it.

use std::sync::Arc;

use sluice_nat::rule::{Changed, SourceAction};
use sluice_nat::sites::Sites;
use sluice_nat::{Pools, Rules};
use sluice_table::changes::Changes;
use sluice_wire::Context;

use crate::session::family::{Family, PerFamily};
use crate::snapshot::inside_hosts::InsideHosts;
use crate::snapshot::translation_targets::TranslationTargets;

use super::Interface;

/// Translation of one address family.
#[derive(Clone, Debug)]
pub struct Nat<F: Family> {
    /// Translation rules.
    pub rules: Rules<F::Address>,
    /// Changes of individual rules in recent generations.
    pub changes: Changes<Changed>,
    /// Address pools.
    pub pools: Pools<F::Address>,
    /// Networks of inside hosts; `None` if untranslated flows have no sessions.
    pub hosts: Option<InsideHosts<F::Address>>,
    /// Endpoints of which each flow belongs to the shard of the flow's client; `None` if no rule defines such
    /// endpoints.
    pub spread: Option<TranslationTargets<F::Address>>,
    /// The sites that have public addresses.
    pub sites: Option<Arc<Sites>>,
    /// Networks of inside hosts to which outside hosts may connect. The snapshot derives these networks.
    pub inside: InsideHosts<F::Address>,
    /// Whether at least one rule is not restricted to specific outside interfaces. Interfaces with inside hosts then
    /// also count as outside interfaces. Derived from the rules.
    pub everywhere: bool,
}

impl<F: Family> Nat<F> {
    /// Derives the networks of inside hosts from the rules and the interfaces.
    pub(super) fn find_inside_hosts(&mut self, interfaces: &[Interface]) {
        self.inside = InsideHosts::of(self, interfaces, true);
        let rules = self.rules.sources(usize::MAX);
        self.everywhere = rules
            .iter()
            .any(|(_, rule, _)| rule.outside.is_none() && rule.action != SourceAction::Exempt);
    }

    /// Whether a packet from outside starts a flow to the untranslated address of an inside host. If untranslated flows
    /// have sessions, the function returns `false`, because both endpoints of the flow determine its shard.
    #[inline(always)]
    pub fn starts_outside(&self, context: Context, source: F::Address, destination: F::Address) -> bool {
        self.hosts.is_none()
            && self.inside.has(context, destination)
            && !(self.everywhere && self.inside.has(context, source))
    }
}

impl<F: Family> Default for Nat<F> {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            changes: Changes::default(),
            pools: Pools::default(),
            hosts: None,
            spread: None,
            sites: None,
            inside: InsideHosts::default(),
            everywhere: false,
        }
    }
}

/// Translation of both families.
pub(super) struct AllNat;

impl PerFamily for AllNat {
    type Of<F: Family> = Nat<F>;
}
