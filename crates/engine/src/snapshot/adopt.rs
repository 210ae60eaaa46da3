//! State that a snapshot keeps from the previous one.

use std::sync::Arc;

use crate::snapshot::chains::NamedPolicers;
use crate::snapshot::gateway_flows::GatewayFlows;
use crate::snapshot::marks::Marks;

use super::{Snapshot, StartParameters};

impl Snapshot {
    /// Keeps the marks and DSCPs of the previous snapshot, and allocates tables if rules now set marks or DSCPs.
    pub(crate) fn keep_marks(&mut self, before: [Option<Arc<Marks>>; 2], start: &StartParameters) {
        let filter = self.filter.as_ref();
        let sets = filter.map_or([false; 2], |filter| [filter.marks, filter.code_points]);
        let kept = |at: usize| {
            before[at]
                .clone()
                .or_else(|| sets[at].then(|| Arc::new(Marks::new(start))))
        };
        (self.marks, self.code_points) = (kept(0), kept(1));
    }

    /// Keeps the previous snapshot's flows to and from the gateway, and allocates tables if input filter rules exist.
    pub(crate) fn keep_local_flows(&mut self, before: Option<Arc<GatewayFlows>>) {
        let filter = self.filter.as_ref();
        let is_asked = filter.is_some_and(|filter| filter.gateway.is_some());
        self.local_flows = before.or_else(|| is_asked.then(Arc::default));
    }

    /// Prepares the ports of pools that shards share. Addresses that the snapshot `before` also contains keep the
    /// owners of their ports.
    pub(crate) fn share_ports(&mut self, before: Option<&Self>, start: &StartParameters) {
        let shards = start.steering.shards();
        self.nat4.pools.share(before.map(|before| &before.nat4.pools), shards);
        self.nat6.pools.share(before.map(|before| &before.nat6.pools), shards);
    }

    /// Takes over the state of the rate limits of routers and interfaces from the previous snapshot.
    pub fn adopt_shares(&mut self, before: &Self) {
        if let (Some(own), Some(old)) = (&mut self.shares, &before.shares) {
            Arc::make_mut(own).adopt(old);
        }
    }

    /// Takes over the counters and policers of unchanged chains from the previous snapshot. A policer that has a name
    /// is shared by all routers.
    pub fn adopt_chains(&mut self, before: &Self) {
        let mut named = NamedPolicers::default();
        for chains in before.chains.iter().flatten() {
            chains.note_named(&mut named);
        }
        for (router, chains) in self.routers.iter().zip(&mut self.chains) {
            let same = before.routers.iter().position(|other| other.name == router.name);
            let old = same.and_then(|place| before.chains.get(place)?.as_ref());
            let Some(chains) = chains.as_mut().and_then(Arc::get_mut) else {
                continue;
            };
            if let Some(old) = old {
                chains.adopt(old);
            }
            chains.share_named(&mut named);
        }
    }

    /// Takes over the hosts of the previous snapshot if their settings are unchanged. Their counters are always taken
    /// over.
    pub fn adopt_hosts(&mut self, before: &Self) {
        for (router, host) in self.routers.iter().zip(&mut self.hosts) {
            let same = before.routers.iter().position(|other| other.name == router.name);
            match same.and_then(|place| before.hosts.get(place)) {
                Some(old) if old.is_like(host) => *host = old.clone(),
                Some(old) => *host = Arc::new(host.changed_from(old)),
                None => {}
            }
        }
    }
}
