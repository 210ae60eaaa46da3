//! Targets of kernel routes. Equal targets are stored once.

use std::collections::HashMap;
use std::sync::Arc;

use crate::DropKind;
use crate::feed::netlink::NextHopMember;

/// Target of a kernel route: next hops, a next-hop object, or a drop.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KernelTarget {
    /// Next hops of the route. An IPv6 route has exactly one next hop here, because the kernel stores each next hop as
    /// a separate entry.
    Legs(Box<[NextHopMember]>),
    /// Number of a next-hop object, which may be a group of objects.
    Object(u32),
    /// The route drops packets.
    Refused(DropKind),
    /// A connected or local route, which is not offered to the RIB. The mirror stores the route because it has a
    /// position in the order of routes.
    KernelOnly,
    /// A next-hop object that was deleted together with its routes.
    Deleted,
}

impl KernelTarget {
    /// Whether this target and `other` contain equal next hops. The comparison ignores link state and `onlink`. It also
    /// ignores the weight of a single next hop, because the kernel omits this weight for IPv6 routes.
    pub fn is_same(&self, other: &Self) -> bool {
        let key = |leg: &NextHopMember, single: bool| NextHopMember {
            is_onlink: false,
            is_dead: false,
            weight: if single { 1 } else { leg.weight },
            ..*leg
        };
        match (self, other) {
            (KernelTarget::Legs(own), KernelTarget::Legs(others)) => {
                let single = own.len() == 1;
                let mut pairs = own.iter().zip(others);
                own.len() == others.len() && pairs.all(|(own, other)| key(own, single) == key(other, single))
            }
            _ => self == other,
        }
    }
}

#[derive(Debug)]
struct Kept {
    lead: Arc<KernelTarget>,
    uses: u32,
}

/// All targets by number.
#[derive(Debug, Default)]
pub struct KernelTargets {
    kept: Vec<Kept>,
    free: Vec<u32>,
    known: HashMap<Arc<KernelTarget>, u32>,
}

impl KernelTargets {
    /// Adds a reference to a target, and returns the target's number.
    pub fn acquire(&mut self, lead: KernelTarget) -> u32 {
        if let Some(&number) = self.known.get(&lead) {
            self.kept[number as usize].uses += 1;
            return number;
        }
        let lead = Arc::new(lead);
        let kept = Kept {
            lead: lead.clone(),
            uses: 1,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.kept[number as usize] = kept;
                number
            }
            None => {
                self.kept.push(kept);
                (self.kept.len() - 1) as u32
            }
        };
        self.known.insert(lead, number);
        number
    }

    /// Removes a reference to a target.
    pub fn release(&mut self, number: u32) {
        let kept = &mut self.kept[number as usize];
        kept.uses -= 1;
        if kept.uses == 0 {
            let lead = std::mem::replace(&mut kept.lead, Arc::new(KernelTarget::Deleted));
            if self.known.get(&lead) == Some(&number) {
                self.known.remove(&lead);
            }
            self.free.push(number);
        }
    }

    /// The target with this number.
    pub fn get(&self, number: u32) -> &KernelTarget {
        &self.kept[number as usize].lead
    }

    /// Number of the target that represents a next-hop object; `None` if no route uses the object.
    pub fn of_object(&self, id: u32) -> Option<u32> {
        self.known.get(&KernelTarget::Object(id)).copied()
    }

    /// Deletes a next-hop object together with its routes. A later object with the same number is a different target.
    pub fn delete_object(&mut self, id: u32) -> Option<u32> {
        let number = self.known.remove(&KernelTarget::Object(id))?;
        self.kept[number as usize].lead = Arc::new(KernelTarget::Deleted);
        Some(number)
    }
}
