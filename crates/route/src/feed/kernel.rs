//! Routes of a kernel table. All routes of the table are mirrored. For each prefix, the routes that the kernel uses are
//! offered to the RIB.

use super::mirror::{DeleteResult, KernelTarget, SelectedRoute};
use super::netlink::{self, RouteMessage, RouteType};
use super::objects::refusal;
use super::protocol::{DERIVED, OWN_PROTOCOL, distance};
use super::{Feed, Refused, drops};
use crate::rib::{Group, MAX_HOPS, Offer, OfferedNextHop, Origin, Rib, Target, WeightedNextHop};
use crate::{Prefix, Time};

impl Feed {
    /// Repeats the route selection if next-hop objects have changed or were deleted since the last call. The function
    /// examines all routes, so callers should call it once after all pending messages.
    pub fn settle(&mut self, rib: &mut Rib, now: Time) {
        for (prefix, metrics) in self.mirror.settle() {
            if let Err(refused) = self.offer_chosen(rib, prefix, &metrics, now) {
                self.counts.refuse(refused);
            }
        }
    }

    /// Adds or changes a route of the kernel's table.
    pub(super) fn mirror_route(
        &mut self,
        rib: &mut Rib,
        route: &RouteMessage,
        is_of_object: bool,
        now: Time,
    ) -> Result<(), Refused> {
        // When a next-hop object changes, the kernel reports each route that uses the object as a replacement. The
        // route keeps its position among the routes of its prefix.
        if let Some(id) = route.next_hop.filter(|_| is_of_object)
            && self.mirror.has_object(route.prefix, route.metric, id)
        {
            return Ok(());
        }
        let lead = lead(route);
        let followed = Self::is_foreign(route).and_then(|()| self.count_legs(route, &lead));
        let is_listed = route.flags & netlink::MULTI != 0;
        let offered = if self.mirror.is_empty(route.prefix) {
            // Fast path: a prefix with one route, as almost all prefixes, needs no selection.
            let only = followed.is_ok().then(|| SelectedRoute {
                metric: route.metric,
                protocol: route.protocol,
                leads: vec![lead.clone()],
            });
            self.mirror.new_route(route, lead, is_listed);
            let offered = self.offer_all(rib, route.prefix, only.as_slice(), now);
            if offered == Err(Refused::Quota) {
                self.mirror.forget(route.prefix);
            }
            offered
        } else {
            let before = self.metrics(route.prefix);
            self.mirror.new_route(route, lead, is_listed);
            self.offer_chosen(rib, route.prefix, &before, now)
        };
        followed.and(offered).inspect(|()| self.counts.offered += 1)
    }

    /// Deletes a route of the kernel's table, or some of its next hops.
    pub(super) fn remove_mirrored(&mut self, rib: &mut Rib, route: &RouteMessage, now: Time) -> Result<(), Refused> {
        let lead = lead(route);
        let before = self.metrics(route.prefix);
        match self.mirror.delete_route(route, lead) {
            DeleteResult::Known => return Ok(()),
            DeleteResult::Changed => self.counts.withdrawn += 1,
            // The deletion of an unknown route shows that the mirror differs from the kernel's table.
            DeleteResult::Diverged => self.is_incomplete = true,
        }
        Self::is_foreign(route)?;
        self.offer_chosen(rib, route.prefix, &before, now)
    }

    /// Counts the unsupported next hops of a route. Returns an error if no next hop is supported.
    fn count_legs(&mut self, route: &RouteMessage, lead: &KernelTarget) -> Result<(), Refused> {
        match lead {
            KernelTarget::Legs(legs) => {
                let mut usable = false;
                for leg in legs {
                    match self.next_hop(route.prefix, leg) {
                        Ok(_) => usable = true,
                        Err(refused) => self.counts.refuse(refused),
                    }
                }
                usable.then_some(()).ok_or(Refused::NextHops)
            }
            KernelTarget::Object(id) => self.objects.usable(*id),
            KernelTarget::Refused(_) => Ok(()),
            KernelTarget::KernelOnly | KernelTarget::Deleted => Err(Refused::Kind),
        }
    }

    /// Metrics of the kernel's routes for a prefix.
    fn metrics(&self, prefix: Prefix) -> Vec<u32> {
        let all = self.mirror.chosen(prefix, |_| true);
        all.into_iter().map(|chosen| chosen.metric).collect()
    }

    /// Offers the routes that the kernel uses for a prefix, and withdraws earlier offers for the prefix at metrics at
    /// which the kernel no longer uses a route.
    ///
    /// The kernel has no administrative distances. All offers for a prefix get the administrative distance of the
    /// protocol (RTPROT) of the route that the kernel uses.
    fn offer_chosen(&mut self, rib: &mut Rib, prefix: Prefix, before: &[u32], now: Time) -> Result<(), Refused> {
        let usable = |lead: &KernelTarget| match lead {
            KernelTarget::Legs(legs) => legs.iter().any(|leg| self.next_hop(prefix, leg).is_ok()),
            KernelTarget::Object(id) => self.objects.usable(*id).is_ok(),
            KernelTarget::Refused(_) => true,
            KernelTarget::KernelOnly | KernelTarget::Deleted => false,
        };
        let all = self.mirror.chosen(prefix, usable);
        let result = self.offer_all(rib, prefix, &all, now);
        let stays = |metric: u32| all.iter().any(|chosen| chosen.metric == metric);
        for &metric in before.iter().filter(|metric| !stays(**metric)) {
            rib.withdraw(prefix, Origin::Kernel, metric);
        }
        result
    }

    fn offer_all(&mut self, rib: &mut Rib, prefix: Prefix, all: &[SelectedRoute], now: Time) -> Result<(), Refused> {
        let distance = all.first().map_or(0, |first| distance(first.protocol));
        let mut result = Ok(());
        for chosen in all {
            let offered = self.chosen_target(rib, prefix, chosen).and_then(|group| {
                let offer = Offer {
                    origin: Origin::Kernel,
                    protocol: chosen.protocol,
                    distance,
                    metric: chosen.metric,
                    target: group.map_or(Target::Hops(&self.hops), Target::Group),
                };
                rib.offer(prefix, &offer, now).map_err(refusal)
            });
            if offered.is_err() {
                rib.withdraw(prefix, Origin::Kernel, chosen.metric);
            }
            result = result.and(offered);
        }
        result
    }

    /// RIB group of a selected route. If the route has no group, stores the next hops of the route in `self.hops` and
    /// returns `None`.
    fn chosen_target(
        &mut self,
        rib: &mut Rib,
        prefix: Prefix,
        chosen: &SelectedRoute,
    ) -> Result<Option<Group>, Refused> {
        self.hops.clear();
        for lead in &chosen.leads {
            match lead {
                KernelTarget::Object(id) => return self.objects.group(rib, *id).map(Some),
                KernelTarget::Refused(refusal) => self.hops.push(WeightedNextHop::new(OfferedNextHop::Drop(*refusal))),
                KernelTarget::Legs(legs) => {
                    for leg in legs {
                        let Ok(next_hop) = self.next_hop(prefix, leg) else {
                            continue;
                        };
                        if self.hops.len() == MAX_HOPS {
                            return Err(Refused::NextHops);
                        }
                        let weight = leg.weight;
                        self.hops.push(WeightedNextHop {
                            weight,
                            ..WeightedNextHop::new(next_hop)
                        });
                    }
                }
                KernelTarget::KernelOnly | KernelTarget::Deleted => {}
            }
        }
        Ok(None)
    }
}

/// Target of a kernel route.
fn lead(route: &RouteMessage) -> KernelTarget {
    if let Some(id) = route.next_hop {
        return KernelTarget::Object(id);
    }
    if matches!(route.protocol, DERIVED | OWN_PROTOCOL) {
        return KernelTarget::KernelOnly;
    }
    match (drops(route.kind), route.kind) {
        (Some(refusal), _) => KernelTarget::Refused(refusal),
        (None, RouteType::Unicast) => KernelTarget::Legs(route.legs().into()),
        _ => KernelTarget::KernelOnly,
    }
}
