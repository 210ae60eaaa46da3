//! Validation of shares and rates: of routers, of packets to their host stacks, and of interfaces on their links.

use super::Check;
use crate::problem::RouterProblem;
use crate::read::place;
use crate::schema;
use crate::value::{BitRate, Period};

/// Valid bit rates. Valid rates range from the rate of a modem to more than any link supports.
const RATES: std::ops::RangeInclusive<BitRate> = BitRate::of(8_000)..=BitRate::of(4_000_000_000_000);

/// Maximum values for the numbers of routes, neighbours and buffered packets of a router. The limit exceeds the
/// capacity of tables and memory.
const MAX_ROUTES: u32 = 1 << 24;
const MAX_LIMIT: u32 = 1 << 20;

/// Maximum rate of punted packets. The limit exceeds the capacity of the thread that serves all host stacks.
const MAX_PUNT_RATE: u32 = 10_000_000;

impl Check<'_> {
    /// Check the weight, rates and limits of a router.
    pub(super) fn router_share(&mut self, name: &str, written: &schema::Router) {
        let limits = &written.limits;
        if let Some(weight) = written.share.weight {
            self.in_range(place!["routers", name, "share", "weight"], "a weight", weight, 1..=255);
        }
        for (key, description, value, max) in [
            ("routes", "a number of routes", limits.routes, MAX_ROUTES),
            ("neighbours", "a number of neighbours", limits.neighbours, MAX_LIMIT),
            ("buffers", "a number of packets", limits.buffers, MAX_LIMIT),
        ] {
            if let Some(value) = value {
                self.in_range(place!["routers", name, "limits", key], description, value, 1..=max);
            }
        }
        let Some(rate) = limits.rate else { return };
        if rate.packets.is_none() && rate.bits.is_none() {
            self.report(
                place!["routers", name, "limits", "rate"],
                RouterProblem::EmptyRate.into(),
            );
        }
        if let Some(packets) = rate.packets {
            let at = place!["routers", name, "limits", "rate", "packets"];
            self.in_range(at, "a rate", packets, 1..=u32::MAX);
        }
        if let Some(bits) = rate.bits {
            self.in_range(place!["routers", name, "limits", "rate", "bits"], "a rate", bits, RATES);
        }
        let bursts = Period::milliseconds(1)..=Period::seconds(10);
        let at = place!["routers", name, "limits", "rate", "burst"];
        self.in_range(at, "a burst", rate.burst, bursts);
    }

    /// Check the limits on packets to a router's namespace.
    pub(super) fn router_host(&mut self, name: &str, written: &schema::Router) {
        let host = written.host;
        if host != schema::RouterHost::default() && !written.daemon {
            self.report(place!["routers", name, "host"], RouterProblem::NoHost.into());
        }
        for (class, limit) in host.limits.configured() {
            let at = place!["routers", name, "host", "limits", class];
            self.in_range(&[at, place!["rate"]].concat(), "a rate", limit.rate, 0..=MAX_PUNT_RATE);
            if limit.rate > 0 {
                self.in_range(&[at, place!["burst"]].concat(), "a burst", limit.burst, 1..=MAX_LIMIT);
            }
        }
    }

    /// Check the shares of interfaces on their output links.
    pub(super) fn link_shares(&mut self) {
        let document = self.document;
        for (name, written) in &document.interfaces {
            if let Some(rate) = written.rate {
                self.in_range(place!["interfaces", name, "rate"], "a rate", rate, RATES);
            }
            let link = written.parent.as_ref().unwrap_or(name);
            self.guarantees(name, written);
            let Some(share) = written.share else { continue };
            if let Some(weight) = share.weight {
                self.in_range(
                    place!["interfaces", name, "share", "weight"],
                    "a weight",
                    weight,
                    1..=255,
                );
            }
            if written.peer.is_some() {
                let problem = RouterProblem::ShareOfVirtualLink(name.clone());
                self.report(place!["interfaces", name, "share"], problem.into());
            } else if share.guarantee.is_some() && document.interfaces.get(link).is_some_and(|link| link.rate.is_none())
            {
                let problem = RouterProblem::NoLinkRate(link.clone());
                self.report(place!["interfaces", name, "share", "guarantee"], problem.into());
            }
        }
    }

    /// Check the sum of the guarantees on a link.
    fn guarantees(&mut self, name: &String, written: &schema::Interface) {
        let Some(rate) = written.rate.filter(|_| written.parent.is_none()) else {
            return;
        };
        let others = self.document.interfaces.iter();
        let here = others.filter(|(other, one)| *other == name || one.parent.as_ref() == Some(name));
        let guaranteed = here.filter_map(|(_, one)| one.share?.guarantee).map(BitRate::bits);
        let all = BitRate::of(guaranteed.fold(0, u64::saturating_add));
        if all > rate {
            let link = name.clone();
            let problem = RouterProblem::GuaranteesAboveRate { link, all, rate };
            self.report(place!["interfaces", name, "rate"], problem.into());
        }
    }
}
