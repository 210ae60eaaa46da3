//! What routes of the kernel lead to, each kept once.

use std::collections::HashMap;
use std::sync::Arc;

use crate::DropKind;
use crate::feed::netlink::NextHopMember;

/// What a route of the kernel leads to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KernelTarget {
    /// Next hops; exactly one in IPv6, where each is a route of its own.
    Legs(Box<[NextHopMember]>),
    /// A numbered next hop, or a group of them.
    Object(u32),
    /// Nowhere.
    Refused(DropKind),
    /// What only the kernel can follow: connected and local routes. Such a route has its place in the order alone.
    Unfollowed,
    /// Its next-hop object was deleted, and its routes with it.
    Deleted,
}

impl KernelTarget {
    /// Whether both are the same next hops. Whether a link is down or `onlink` does not tell them apart, nor does the weight
    /// of a single one: IPv6 leaves it out where a route has one next hop.
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

/// All of them, by number.
#[derive(Debug, Default)]
pub struct KernelTargets {
    kept: Vec<Kept>,
    free: Vec<u32>,
    known: HashMap<Arc<KernelTarget>, u32>,
}

impl KernelTargets {
    /// Take a use.
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

    /// Give a use back.
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

    /// What a number stands for.
    pub fn get(&self, number: u32) -> &KernelTarget {
        &self.kept[number as usize].lead
    }

    /// The number of a next-hop object that routes lead to.
    pub fn of_object(&self, id: u32) -> Option<u32> {
        self.known.get(&KernelTarget::Object(id)).copied()
    }

    /// A next-hop object is deleted: what leads to it is gone. A new object of the same number is another one.
    pub fn delete_object(&mut self, id: u32) -> Option<u32> {
        let number = self.known.remove(&KernelTarget::Object(id))?;
        self.kept[number as usize].lead = Arc::new(KernelTarget::Deleted);
        Some(number)
    }
}
