//! Numbered next-hop objects of a routing daemon, and groups of them. The objects are valid for the duration of the
//! daemon's connection.

use std::collections::{BTreeSet, HashMap};

use super::Refused;
use crate::rib::{Group, MAX_HOPS, Rib, RibError, WeightedNextHop};

/// Definition of a next-hop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// A single next hop, or the reason for which it is unusable.
    One(Result<WeightedNextHop, Refused>),
    /// A group of objects: their numbers and weights.
    Group(Vec<(u32, u8)>),
}

#[derive(Debug)]
struct Object {
    meaning: ObjectKind,
    /// RIB group of the routes that refer to this object; `None` if no route refers to the object.
    group: Option<Group>,
}

/// All next-hop objects of a daemon by number.
#[derive(Debug, Default)]
pub struct NextHopObjects {
    known: HashMap<u32, Object>,
    /// Numbers of the groups that contain an object, by the number of the object.
    members: HashMap<u32, BTreeSet<u32>>,
}

/// Maximum number of objects per daemon. The maximum limits the memory that a daemon can occupy in the control thread.
const MAX_OBJECTS: usize = 1 << 17;

impl NextHopObjects {
    /// Defines or changes an object, and updates the groups and routes that use the object.
    pub fn set(&mut self, rib: &mut Rib, id: u32, meaning: ObjectKind) -> Result<(), Refused> {
        if self.known.get(&id).is_some_and(|object| object.meaning == meaning) {
            return Ok(());
        }
        if self.known.len() >= MAX_OBJECTS && !self.known.contains_key(&id) {
            return Err(Refused::Sets);
        }
        self.leave_groups(id);
        if let ObjectKind::Group(members) = &meaning {
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

    /// Checks whether routes can use an object.
    pub fn usable(&self, id: u32) -> Result<(), Refused> {
        match self.known.get(&id).ok_or(Refused::NextHop)?.meaning {
            ObjectKind::One(Err(refused)) => Err(refused),
            _ => Ok(()),
        }
    }

    /// Marks all routes that use an object as unreachable.
    pub fn empty(&mut self, rib: &mut Rib, id: u32) {
        if let Some(group) = self.known.get(&id).and_then(|object| object.group) {
            // An empty group can't exceed a limit.
            let _ = rib.change_group(group, &[]);
        }
    }

    /// Deletes an object. Routes that use the object keep its last definition.
    pub fn remove(&mut self, rib: &mut Rib, id: u32) -> bool {
        self.leave_groups(id);
        let Some(object) = self.known.remove(&id) else {
            return false;
        };
        if let Some(group) = object.group {
            rib.drop_group(group);
        }
        // A group continues to exist without its deleted member, as in the kernel.
        let _ = self.follow(rib, id);
        true
    }

    /// Deletes all objects, because object numbers are valid for only one connection. Routes keep the last definitions
    /// of deleted objects.
    pub fn clear(&mut self, rib: &mut Rib) {
        let groups = self.known.drain().filter_map(|(_, object)| object.group);
        groups.for_each(|group| rib.drop_group(group));
        self.members.clear();
    }

    /// The RIB group for routes that refer to an object. The group is created if necessary.
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
            meaning: ObjectKind::Group(members),
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

    /// Updates the RIB group of a changed object, and the groups that contain the object.
    fn follow(&self, rib: &mut Rib, id: u32) -> Result<(), Refused> {
        let groups = self.members.get(&id).into_iter().flatten();
        for id in [&id].into_iter().chain(groups) {
            if let Some(group) = self.known.get(id).and_then(|object| object.group) {
                rib.change_group(group, &self.hops(*id)).map_err(refusal)?;
            }
        }
        Ok(())
    }

    /// Next hops of an object. Unusable members of a group are omitted.
    fn hops(&self, id: u32) -> Vec<WeightedNextHop> {
        let one = |id: &u32, weight: u8| match self.known.get(id)?.meaning {
            ObjectKind::One(Ok(hop)) => Some(WeightedNextHop { weight, ..hop }),
            _ => None,
        };
        match self.known.get(&id).map(|object| &object.meaning) {
            Some(ObjectKind::One(_)) => one(&id, 1).into_iter().collect(),
            Some(ObjectKind::Group(members)) => members
                .iter()
                .filter_map(|(member, weight)| one(member, *weight))
                .take(MAX_HOPS)
                .collect(),
            None => Vec::new(),
        }
    }
}

/// Converts a RIB error to a reason for which the feed ignores messages.
pub(super) fn refusal(error: RibError) -> Refused {
    match error {
        RibError::Quota(_) => Refused::Quota,
        RibError::Sets(_) => Refused::Sets,
        RibError::Hops(_) => Refused::NextHops,
        RibError::Group => Refused::NextHop,
    }
}
