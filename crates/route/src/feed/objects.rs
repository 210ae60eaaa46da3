//! Numbered next-hop objects and groups of a daemon, for the duration of its connection.

use std::collections::{BTreeSet, HashMap};

use super::Refused;
use crate::rib::{Group, MAX_HOPS, Rib, RibError, WeightedNextHop};

/// Definition of an object number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// A next hop, or why it is unusable.
    One(Result<WeightedNextHop, Refused>),
    /// A group: object numbers with weights.
    Several(Vec<(u32, u8)>),
}

#[derive(Debug)]
struct Object {
    meaning: ObjectKind,
    /// Group in the RIB for routes that refer to this number; `None` until a route does.
    group: Option<Group>,
}

/// All next-hop objects by number.
#[derive(Debug, Default)]
pub struct NextHopObjects {
    known: HashMap<u32, Object>,
    /// By object number: the groups that contain it.
    members: HashMap<u32, BTreeSet<u32>>,
}

/// Maximum number of objects per daemon, which limits the memory that it can use in the control thread.
const MAX_OBJECTS: usize = 1 << 17;

impl NextHopObjects {
    /// Define or change an object; groups and routes that use it are updated.
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

    /// Whether an object is usable by routes, or why not.
    pub fn usable(&self, id: u32) -> Result<(), Refused> {
        match self.known.get(&id).ok_or(Refused::NextHop)?.meaning {
            ObjectKind::One(Err(refused)) => Err(refused),
            _ => Ok(()),
        }
    }

    /// Make the routes that use an object unreachable.
    pub fn empty(&mut self, rib: &mut Rib, id: u32) {
        if let Some(group) = self.known.get(&id).and_then(|object| object.group) {
            // An empty group does not exceed any limit.
            let _ = rib.change_group(group, &[]);
        }
    }

    /// Delete an object. Routes that use it keep its last definition.
    pub fn remove(&mut self, rib: &mut Rib, id: u32) -> bool {
        self.leave_groups(id);
        let Some(object) = self.known.remove(&id) else {
            return false;
        };
        if let Some(group) = object.group {
            rib.drop_group(group);
        }
        // Like in the kernel, a group continues without the deleted member.
        let _ = self.follow(rib, id);
        true
    }

    /// Delete all objects, because another daemon numbers its own. Routes keep the last definitions.
    pub fn clear(&mut self, rib: &mut Rib) {
        let groups = self.known.drain().filter_map(|(_, object)| object.group);
        groups.for_each(|group| rib.drop_group(group));
        self.members.clear();
    }

    /// The RIB group for routes that refer to an object.
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

    /// Update an object's RIB group, and the groups that contain the object, after a change.
    fn follow(&self, rib: &mut Rib, id: u32) -> Result<(), Refused> {
        let groups = self.members.get(&id).into_iter().flatten();
        for id in [&id].into_iter().chain(groups) {
            if let Some(group) = self.known.get(id).and_then(|object| object.group) {
                rib.change_group(group, &self.hops(*id)).map_err(refusal)?;
            }
        }
        Ok(())
    }

    /// Next hops of an object, without unusable group members.
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

/// Convert a RIB error to the reason that the feed counts.
pub(super) fn refusal(error: RibError) -> Refused {
    match error {
        RibError::Quota(_) => Refused::Quota,
        RibError::Sets(_) => Refused::Sets,
        RibError::Hops(_) => Refused::NextHops,
        RibError::Group => Refused::NextHop,
    }
}
