//! kirqd: which core each interface's interrupts come to, moved from the busiest core to the least busy one (Linux 2.6,
//! `arch/i386/kernel/io_apic.c`): of the busiest core's interfaces the heaviest that is no more than half of the difference.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::rig::lanes::{Count, sum};

/// Cores at most.
const CORES: usize = 2;

/// The core of each interface, and how busy cores and interfaces have been since the last look.
#[derive(Debug)]
pub struct Moving {
    cores: [AtomicUsize; 2],
    interfaces: [AtomicU64; 2],
    busy: [AtomicU64; CORES],
    /// Packets that were sent to each interface, by core, and those of them that came out.
    sent: [[Count; CORES]; 2],
    came: [[Count; CORES]; 2],
    /// Cycles between two looks.
    period: u64,
    next: AtomicU64,
}

impl Moving {
    /// All interfaces with the first core, as Linux begins.
    pub fn new(period: u64) -> Self {
        Self {
            cores: Default::default(),
            interfaces: Default::default(),
            busy: Default::default(),
            sent: Default::default(),
            came: Default::default(),
            period,
            next: AtomicU64::new(0),
        }
    }

    /// Whether an interface comes to a core.
    #[inline(always)]
    pub fn is_at(&self, interface: u16, core: usize) -> bool {
        self.cores[usize::from(interface)].load(Ordering::Relaxed) == core
    }

    /// Packets were sent to an interface by a core.
    #[inline(always)]
    pub fn sent(&self, interface: u16, core: usize, count: usize) {
        self.sent[usize::from(interface)][core % CORES].add(count);
    }

    /// Packets that had come to an interface were seen by a core when they had left.
    #[inline(always)]
    pub fn came(&self, interface: u16, core: usize, count: usize) {
        self.came[usize::from(interface)][core % CORES].add(count);
    }

    /// Whether nothing that came to an interface is still under way.
    pub fn is_empty(&self, interface: u16) -> bool {
        let came = sum(&self.came[usize::from(interface)]);
        came == sum(&self.sent[usize::from(interface)])
    }

    /// A core has worked for an interface.
    #[inline(always)]
    pub fn worked(&self, core: usize, interface: u16, cycles: u64) {
        self.interfaces[usize::from(interface)].fetch_add(cycles, Ordering::Relaxed);
        self.busy[core % CORES].fetch_add(cycles, Ordering::Relaxed);
    }

    /// Look, where it is time; the first core's business.
    #[inline(always)]
    pub fn look(&self, now: u64) {
        if now >= self.next.load(Ordering::Relaxed) {
            self.next.store(now + self.period, Ordering::Relaxed);
            self.balance();
        }
    }

    fn balance(&self) {
        let busy = [0, 1].map(|core: usize| self.busy[core].swap(0, Ordering::Relaxed));
        let loads = [0, 1].map(|interface: usize| self.interfaces[interface].swap(0, Ordering::Relaxed));
        let (most, least) = if busy[0] >= busy[1] { (0, 1) } else { (1, 0) };
        let half = (busy[most] - busy[least]) / 2;
        // What is measured is not exact: a hair more than half is half.
        let fits = |&interface: &usize| {
            let here = self.cores[interface].load(Ordering::Relaxed) == most;
            here && loads[interface] > 0 && loads[interface] <= half + half / 16
        };
        if let Some(interface) = (0..2).filter(fits).max_by_key(|&interface| loads[interface]) {
            self.cores[interface].store(least, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_two_even_interfaces_moves_once() {
        let moving = Moving::new(100);
        let cores = |moving: &Moving| [0, 1].map(|interface| usize::from(moving.is_at(interface, 1)));
        moving.look(0);
        assert_eq!([0, 0], cores(&moving));
        moving.worked(0, 0, 50);
        moving.worked(0, 1, 50);
        moving.look(99);
        assert_eq!([0, 0], cores(&moving));
        moving.look(100);
        assert_eq!(1, cores(&moving).iter().sum::<usize>());
        // What is as heavy as the difference stays.
        moving.worked(0, 0, 10);
        moving.worked(1, 1, 90);
        moving.look(200);
        assert_eq!(1, cores(&moving).iter().sum::<usize>());
    }

    #[test]
    fn light_interface_leaves_a_core_that_has_both() {
        let moving = Moving::new(1);
        moving.worked(0, 0, 90);
        moving.worked(0, 1, 10);
        moving.look(1);
        assert!(moving.is_at(0, 0) && moving.is_at(1, 1));
    }
}
