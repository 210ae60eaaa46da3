//! Sets of next hops. The resolved next hops of a set are stored with the set. Equal sets are stored once.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::offer::{Group, MAX_HOPS, OfferedNextHop, ResolvedSet, RibError, WeightedNextHop};
use super::slab::{NONE, Slab};
use crate::InterfaceIndex;

/// A set of next hops.
#[derive(Debug)]
pub struct Set {
    /// Next hops as offered.
    pub hops: Arc<[WeightedNextHop]>,
    /// Resolved next hops; `None` if no next hop is reachable.
    pub resolved: Option<ResolvedSet>,
    /// Number of offers that use the set. The owner of a group counts as one offer.
    uses: u32,
    /// Number of unselected offers that use the set.
    pub unselected_uses: u32,
    /// First entry of each family in the list of entries that use the set.
    pub heads: [u32; 2],
    /// Whether the set is a group. Only a group can be changed by its owner. Equal sets never share a group.
    is_group: bool,
    /// Whether the set is in the list of sets that need a new resolution.
    is_dirty: bool,
    /// Whether the set has recursive gateways.
    pub is_floating: bool,
}

impl Set {
    /// Whether a next hop of the set refers to this interface.
    pub fn names(&self, interface: InterfaceIndex) -> bool {
        self.hops.iter().any(|hop| match hop.next_hop {
            OfferedNextHop::Local(index)
            | OfferedNextHop::Attached(index)
            | OfferedNextHop::Gateway { interface: index, .. } => index == interface,
            OfferedNextHop::Drop(_) | OfferedNextHop::Via(_) => false,
        })
    }
}

/// All sets of a router.
#[derive(Debug)]
pub struct Sets {
    all: Slab<Option<Set>>,
    known: BTreeMap<Arc<[WeightedNextHop]>, u32>,
    /// Cache of the last acquired set, because daemons send many consecutive routes with equal next hops.
    last: Option<(Arc<[WeightedNextHop]>, u32)>,
    count: usize,
    max: usize,
    /// Numbers of the sets that need a new resolution.
    pub dirty: Vec<u32>,
}

fn is_floating(hops: &[WeightedNextHop]) -> bool {
    hops.iter().any(|hop| matches!(hop.next_hop, OfferedNextHop::Via(_)))
}

impl Sets {
    /// Creates a collection without sets. `max` is the maximum number of sets.
    pub fn new(max: usize) -> Self {
        Self {
            all: Slab::default(),
            known: BTreeMap::new(),
            last: None,
            count: 0,
            max,
            dirty: Vec::new(),
        }
    }

    /// Number of sets.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Approximate number of heap bytes.
    pub fn bytes(&self) -> usize {
        let hops: usize = self.iter().map(|(_, set)| size_of_val(&*set.hops) + 48).sum();
        self.all.bytes() + hops
    }

    /// The set with this index.
    pub fn get(&self, index: u32) -> Option<&Set> {
        (index < self.all.places()).then(|| self.all[index].as_ref())?
    }

    fn get_mut(&mut self, index: u32) -> Option<&mut Set> {
        (index < self.all.places()).then(|| self.all[index].as_mut())?
    }

    /// Resolved next hops of the set.
    #[inline]
    pub fn resolved(&self, index: u32) -> Option<&ResolvedSet> {
        self.get(index)?.resolved.as_ref()
    }

    /// All sets.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Set)> {
        (0..self.all.places()).filter_map(|index| Some((index, self.all[index].as_ref()?)))
    }

    /// First entry in the list of entries that use a set.
    ///
    /// # Panics
    /// The set does not exist. The set of an entry or offer always exists, because the entry or offer counts as a use.
    pub fn head(&mut self, index: u32, family: usize) -> &mut u32 {
        let set = self.all[index].as_mut().expect("a use is held");
        &mut set.heads[family]
    }

    /// Finds or creates the set with these next hops, and adds a use. Also returns whether the set is new.
    pub fn acquire(&mut self, hops: &[WeightedNextHop]) -> Result<(u32, bool), RibError> {
        let index = match &self.last {
            Some((last, index)) if **last == *hops => Some(*index),
            _ => self.known.get(hops).copied(),
        };
        if let Some(index) = index {
            self.hold(index);
            if self.last.as_ref().is_none_or(|(_, last)| *last != index) {
                self.last = self.get(index).map(|set| (set.hops.clone(), index));
            }
            return Ok((index, false));
        }
        let index = self.add(hops, false)?;
        let hops = self.all[index].as_ref().map(|set| set.hops.clone());
        if let Some(hops) = hops {
            self.known.insert(hops.clone(), index);
            self.last = Some((hops, index));
        }
        Ok((index, true))
    }

    /// Creates a group with one use.
    pub fn add_group(&mut self, hops: &[WeightedNextHop]) -> Result<Group, RibError> {
        self.add(hops, true).map(Group)
    }

    fn add(&mut self, hops: &[WeightedNextHop], is_group: bool) -> Result<u32, RibError> {
        if hops.is_empty() && !is_group || hops.len() > MAX_HOPS {
            return Err(RibError::Hops(hops.len()));
        }
        if self.count >= self.max {
            return Err(RibError::Sets(self.max));
        }
        self.count += 1;
        let index = self.all.add(Some(Set {
            hops: hops.into(),
            resolved: None,
            uses: 1,
            unselected_uses: 0,
            heads: [NONE; 2],
            is_group,
            is_dirty: true,
            is_floating: is_floating(hops),
        }));
        self.dirty.push(index);
        Ok(index)
    }

    /// Whether the group exists.
    pub fn is_group(&self, group: Group) -> bool {
        self.get(group.0).is_some_and(|set| set.is_group)
    }

    /// Changes the next hops of a group, and returns the old next hops.
    pub fn change_group(&mut self, group: Group, hops: &[WeightedNextHop]) -> Result<Arc<[WeightedNextHop]>, RibError> {
        if hops.len() > MAX_HOPS {
            return Err(RibError::Hops(hops.len()));
        }
        let set = self
            .get_mut(group.0)
            .filter(|set| set.is_group)
            .ok_or(RibError::Group)?;
        let old = std::mem::replace(&mut set.hops, hops.into());
        set.is_floating = is_floating(hops);
        self.mark(group.0);
        Ok(old)
    }

    /// Marks a set for another resolution.
    pub fn mark(&mut self, index: u32) {
        let Some(set) = self.get_mut(index) else { return };
        if !std::mem::replace(&mut set.is_dirty, true) {
            self.dirty.push(index);
        }
    }

    /// Stores the resolution of a set. Returns whether the resolution has changed.
    pub fn resolve(&mut self, index: u32, resolved: Option<ResolvedSet>) -> bool {
        let Some(set) = self.get_mut(index) else { return false };
        set.is_dirty = false;
        let differs = set.resolved != resolved;
        set.resolved = resolved;
        differs
    }

    /// Adds a use of a set.
    pub fn hold(&mut self, index: u32) {
        if let Some(set) = self.get_mut(index) {
            set.uses += 1;
        }
    }

    /// Updates the count of unselected offers when an offer with this set becomes unselected (`more`) or selected
    /// (`!more`).
    pub fn count_unselected(&mut self, index: u32, more: bool) {
        if let Some(set) = self.get_mut(index) {
            set.unselected_uses = if more {
                set.unselected_uses + 1
            } else {
                set.unselected_uses - 1
            };
        }
    }

    /// Removes a use of a set. After the last use, returns the set's next hops.
    pub fn release(&mut self, index: u32) -> Option<Arc<[WeightedNextHop]>> {
        let set = self.get_mut(index)?;
        set.uses -= 1;
        if set.uses > 0 {
            return None;
        }
        let set = self.all[index].take()?;
        self.all.free(index);
        self.count -= 1;
        if !set.is_group {
            self.known.remove(&set.hops);
        }
        if self.last.as_ref().is_some_and(|(_, last)| *last == index) {
            self.last = None;
        }
        Some(set.hops)
    }
}
