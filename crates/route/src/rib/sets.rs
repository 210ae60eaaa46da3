//! Sets of next hops, kept once, with where they lead.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::offer::{Group, MAX_HOPS, OfferedNextHop, ResolvedSet, RibError, WeightedNextHop};
use super::slab::{NONE, Slab};
use crate::InterfaceIndex;

/// A set.
#[derive(Debug)]
pub struct Set {
    /// What was offered.
    pub hops: Arc<[WeightedNextHop]>,
    /// Where that leads; nowhere where no next hop can be reached.
    pub resolved: Option<ResolvedSet>,
    /// Offers that lead to it, and its owner where it is a group.
    uses: u32,
    /// Those of them that are not used.
    pub spare_uses: u32,
    /// The first entry of each family that uses it.
    pub heads: [u32; 2],
    /// Its owner can change it, and nobody else shares it.
    is_group: bool,
    /// It is in the list of what has to be resolved again.
    is_dirty: bool,
    /// It has gateways that are found by routes.
    pub is_floating: bool,
}

impl Set {
    /// Whether a next hop names this interface.
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
    /// The one asked for last: a daemon sends many routes to the same next hops in a row.
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
    /// None, and at most so many.
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

    /// Bytes on the heap, nearly.
    pub fn bytes(&self) -> usize {
        let hops: usize = self.iter().map(|(_, set)| size_of_val(&*set.hops) + 48).sum();
        self.all.bytes() + hops
    }

    /// The set.
    pub fn get(&self, index: u32) -> Option<&Set> {
        (index < self.all.places()).then(|| self.all[index].as_ref())?
    }

    fn get_mut(&mut self, index: u32) -> Option<&mut Set> {
        (index < self.all.places()).then(|| self.all[index].as_mut())?
    }

    /// Where the set leads.
    #[inline]
    pub fn resolved(&self, index: u32) -> Option<&ResolvedSet> {
        self.get(index)?.resolved.as_ref()
    }

    /// All sets.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Set)> {
        (0..self.all.places()).filter_map(|index| Some((index, self.all[index].as_ref()?)))
    }

    /// The first entry of the list of who uses a set.
    ///
    /// # Panics
    /// There is no such set: entries and offers name sets that they hold a use of.
    pub fn head(&mut self, index: u32, family: usize) -> &mut u32 {
        let set = self.all[index].as_mut().expect("a use is held");
        &mut set.heads[family]
    }

    /// Take a use of the set of these next hops. True beside it where it is new.
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

    /// Make a group, one use taken.
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

    /// Whether it is a group that is there.
    pub fn is_group(&self, group: Group) -> bool {
        self.get(group.0).is_some_and(|set| set.is_group)
    }

    /// Give a group other next hops; its old ones.
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

    /// Let a set be resolved again.
    pub fn mark(&mut self, index: u32) {
        let Some(set) = self.get_mut(index) else { return };
        if !std::mem::replace(&mut set.is_dirty, true) {
            self.dirty.push(index);
        }
    }

    /// A set leads here now. True where that is somewhere else than before.
    pub fn resolve(&mut self, index: u32, resolved: Option<ResolvedSet>) -> bool {
        let Some(set) = self.get_mut(index) else { return false };
        set.is_dirty = false;
        let differs = set.resolved != resolved;
        set.resolved = resolved;
        differs
    }

    /// Take a use.
    pub fn hold(&mut self, index: u32) {
        if let Some(set) = self.get_mut(index) {
            set.uses += 1;
        }
    }

    /// An offer that leads to it is spare now, or is not any more.
    pub fn count_spare(&mut self, index: u32, more: bool) {
        if let Some(set) = self.get_mut(index) {
            set.spare_uses = if more { set.spare_uses + 1 } else { set.spare_uses - 1 };
        }
    }

    /// Give a use back; the next hops where it was the last one.
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
