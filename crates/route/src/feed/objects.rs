//! Next hops and groups of them that a daemon has numbered, for as long as it is connected.

use std::collections::{BTreeSet, HashMap};

use super::Refused;
use crate::rib::{Group, MAX_HOPS, Rib, RibError, WeightedNextHop};

/// What a number stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// A next hop, or why it can't be used.
    One(Result<WeightedNextHop, Refused>),
    /// Several, each with its share.
    Several(Vec<(u32, u8)>),
}

#[derive(Debug)]
struct Object {
    meaning: ObjectKind,
    /// What routes that name the number use, once one does.
    group: Option<Group>,
}

/// The numbers.
#[derive(Debug, Default)]
pub struct NextHopObjects {
    known: HashMap<u32, Object>,
    /// The groups that name a number.
    members: HashMap<u32, BTreeSet<u32>>,
}

/// Most numbers that a daemon may give: what it can make the control thread keep.
const MAX_OBJECTS: usize = 1 << 17;

impl NextHopObjects {
    /// A number means this from now on; what uses it follows.
    pub fn set(&mut self, rib: &mut Rib, id: u32, meaning: ObjectKind) -> Result<(), Refused> {
        if self.known.get(&id).is_some_and(|object| object.meaning == meaning) {
            return Ok(());
        }
        if self.known.len() >= MAX_OBJECTS && !self.known.contains_key(&id) {
            return Err(Refused::Sets);
        }
        self.leave_groups(id);
        if let ObjectKind::Several(members) = &meaning {
            for (member, _) in members {
                self.members.entry(*member).or_default().insert(id);
            }
        }
        match self.known.get_mut(&id) {
            Some(object) => object.meaning = meaning,
            None => drop(self.known.insert(id, Object { meaning, group: None })),
        }
        self.follow(rib, id)
    }

    /// Whether routes to a number lead anywhere, or why not.
    pub fn usable(&self, id: u32) -> Result<(), Refused> {
        match self.known.get(&id).ok_or(Refused::NextHop)?.meaning {
            ObjectKind::One(Err(refused)) => Err(refused),
            _ => Ok(()),
        }
    }

    /// Routes that use a number lead nowhere from now on.
    pub fn empty(&mut self, rib: &mut Rib, id: u32) {
        if let Some(group) = self.known.get(&id).and_then(|object| object.group) {
            // An empty group is within every limit.
            let _ = rib.change_group(group, &[]);
        }
    }

    /// A number means nothing any more. Routes that use it keep what it meant.
    pub fn remove(&mut self, rib: &mut Rib, id: u32) -> bool {
        self.leave_groups(id);
        let Some(object) = self.known.remove(&id) else {
            return false;
        };
        if let Some(group) = object.group {
            rib.drop_group(group);
        }
        // As the kernel does it, a group goes on without it.
        let _ = self.follow(rib, id);
        true
    }

    /// All numbers mean nothing any more: another daemon gives its own. Routes keep what they meant.
    pub fn clear(&mut self, rib: &mut Rib) {
        let groups = self.known.drain().filter_map(|(_, object)| object.group);
        groups.for_each(|group| rib.drop_group(group));
        self.members.clear();
    }

    /// What a route that names a number leads to.
    pub fn group(&mut self, rib: &mut Rib, id: u32) -> Result<Group, Refused> {
        self.usable(id)?;
        if let Some(group) = self.known.get(&id).and_then(|object| object.group) {
            return Ok(group);
        }
        let group = rib.add_group(&self.hops(id)).map_err(refusal)?;
        if let Some(object) = self.known.get_mut(&id) {
            object.group = Some(group);
        }
        Ok(group)
    }

    fn leave_groups(&mut self, id: u32) {
        let Some(Object {
            meaning: ObjectKind::Several(members),
            ..
        }) = self.known.get(&id)
        else {
            return;
        };
        for (member, _) in members {
            if let Some(groups) = self.members.get_mut(member) {
                groups.remove(&id);
                if groups.is_empty() {
                    self.members.remove(member);
                }
            }
        }
    }

    /// What a number means was changed: so it was for groups that name it.
    fn follow(&self, rib: &mut Rib, id: u32) -> Result<(), Refused> {
        let groups = self.members.get(&id).into_iter().flatten();
        for id in [&id].into_iter().chain(groups) {
            if let Some(group) = self.known.get(id).and_then(|object| object.group) {
                rib.change_group(group, &self.hops(*id)).map_err(refusal)?;
            }
        }
        Ok(())
    }

    /// The next hops that a number stands for. What can't be used of a group is left out.
    fn hops(&self, id: u32) -> Vec<WeightedNextHop> {
        let one = |id: &u32, weight: u8| match self.known.get(id)?.meaning {
            ObjectKind::One(Ok(hop)) => Some(WeightedNextHop { weight, ..hop }),
            _ => None,
        };
        match self.known.get(&id).map(|object| &object.meaning) {
            Some(ObjectKind::One(_)) => one(&id, 1).into_iter().collect(),
            Some(ObjectKind::Several(members)) => members
                .iter()
                .filter_map(|(member, weight)| one(member, *weight))
                .take(MAX_HOPS)
                .collect(),
            None => Vec::new(),
        }
    }
}

/// The same refusal by the name of the messages' counter.
pub(super) fn refusal(error: RibError) -> Refused {
    match error {
        RibError::Quota(_) => Refused::Quota,
        RibError::Sets(_) => Refused::Sets,
        RibError::Hops(_) => Refused::NextHops,
        RibError::Group => Refused::NextHop,
    }
}
