//! Sets of next hops, stored once, with their resolution.

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
    /// Resolved next hops; `None` if none is reachable.
    pub resolved: Option<ResolvedSet>,
    /// Number of offers that use it, plus one for its owner if it is a group.
    uses: u32,
    /// Number of offers that use it but are not selected.
    pub spare_uses: u32,
    /// First entry of each family that uses it.
    pub heads: [u32; 2],
    /// Whether it is a group, which its owner can change and which is not shared with equal sets.
    is_group: bool,
    /// Whether it is in the list of sets to resolve again.
    is_dirty: bool,
    /// Whether it has recursive gateways.
    pub is_floating: bool,
}

impl Set {
    /// Whether a next hop refers to this interface.
    pub fn names(&self, interface: InterfaceIndex) -> bool {
        self.hops.iter().any(|hop| match hop.way {
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
    /// The set acquired last: daemons send many consecutive routes with the same next hops.
    last: Option<(Arc<[WeightedNextHop]>, u32)>,
    count: usize,
    most: usize,
    /// Sets to resolve again.
    pub dirty: Vec<u32>,
}

fn is_floating(hops: &[WeightedNextHop]) -> bool {
    hops.iter().any(|hop| matches!(hop.way, OfferedNextHop::Via(_)))
}

impl Sets {
    /// Create without sets, with a maximum number.
    pub fn new(most: usize) -> Self {
        Self {
            all: Slab::default(),
            known: BTreeMap::new(),
            last: None,
            count: 0,
            most,
            dirty: Vec::new(),
        }
    }

    /// Number of sets.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Approximate number of bytes on the heap.
    pub fn bytes(&self) -> usize {
        let hops: usize = self.iter().map(|(_, set)| size_of_val(&*set.hops) + 48).sum();
        self.all.bytes() + hops
    }

    /// Set with this index.
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

    /// First entry in the list of users of a set.
    ///
    /// # Panics
    /// The set does not exist. Entries and offers hold a use of their set, so it exists for them.
    pub fn head(&mut self, index: u32, family: usize) -> &mut u32 {
        let set = self.all[index].as_mut().expect("a use is held");
        &mut set.heads[family]
    }

    /// Find or create the set with these next hops, and add a use. Also returns whether it is new.
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

    /// Create a group with one use.
    pub fn add_group(&mut self, hops: &[WeightedNextHop]) -> Result<Group, RibError> {
        self.add(hops, true).map(Group)
    }

    fn add(&mut self, hops: &[WeightedNextHop], is_group: bool) -> Result<u32, RibError> {
        if hops.is_empty() && !is_group || hops.len() > MAX_HOPS {
            return Err(RibError::Hops(hops.len()));
        }
        if self.count >= self.most {
            return Err(RibError::Sets(self.most));
        }
        self.count += 1;
        let index = self.all.add(Some(Set {
            hops: hops.into(),
            resolved: None,
            uses: 1,
            spare_uses: 0,
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

    /// Change the next hops of a group; returns the old ones.
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

    /// Mark a set to be resolved again.
    pub fn mark(&mut self, index: u32) {
        let Some(set) = self.get_mut(index) else { return };
        if !std::mem::replace(&mut set.is_dirty, true) {
            self.dirty.push(index);
        }
    }

    /// Set the resolution of a set. Returns whether it has changed.
    pub fn resolve(&mut self, index: u32, resolved: Option<ResolvedSet>) -> bool {
        let Some(set) = self.get_mut(index) else { return false };
        set.is_dirty = false;
        let differs = set.resolved != resolved;
        set.resolved = resolved;
        differs
    }

    /// Add a use.
    pub fn hold(&mut self, index: u32) {
        if let Some(set) = self.get_mut(index) {
            set.uses += 1;
        }
    }

    /// Count an offer of this set that becomes or ceases to be spare.
    pub fn count_spare(&mut self, index: u32, more: bool) {
        if let Some(set) = self.get_mut(index) {
            set.spare_uses = if more { set.spare_uses + 1 } else { set.spare_uses - 1 };
        }
    }

    /// Remove a use; returns the next hops if it was the last.
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
