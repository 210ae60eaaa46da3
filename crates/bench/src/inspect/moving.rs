//! Model of kirqd, which assigns interface interrupts to cores and moves an interface from the busiest core to the
//! least busy one (Linux 2.6, `arch/i386/kernel/io_apic.c`). kirqd moves the interface with the highest load among
//! those whose load is at most half of the difference between the loads of the two cores.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::rig::progress::{Count, sum};

/// Maximum number of cores.
const CORES: usize = 2;

/// Core of each interface, and the load of cores and interfaces since the last check.
#[derive(Debug)]
pub struct Moving {
    cores: [AtomicUsize; 2],
    interfaces: [AtomicU64; 2],
    busy: [AtomicU64; CORES],
    /// For each interface: number of packets that each core has sent to it, and number of its packets that each core
    /// has received at the output.
    sent: [[Count; CORES]; 2],
    came: [[Count; CORES]; 2],
    /// Cycles between two checks.
    period: u64,
    next: AtomicU64,
}

impl Moving {
    /// Creates the assignment with all interfaces on the first core, like Linux.
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

    /// Whether an interface is assigned to a core.
    #[inline(always)]
    pub fn is_at(&self, interface: u16, core: usize) -> bool {
        self.cores[usize::from(interface)].load(Ordering::Relaxed) == core
    }

    /// Counts packets that a core sent to an interface.
    #[inline(always)]
    pub fn sent(&self, interface: u16, core: usize, count: usize) {
        self.sent[usize::from(interface)][core % CORES].add(count);
    }

    /// Counts packets of an interface that a core received at the output.
    #[inline(always)]
    pub fn came(&self, interface: u16, core: usize, count: usize) {
        self.came[usize::from(interface)][core % CORES].add(count);
    }

    /// Whether no packet of an interface is in flight.
    pub fn is_empty(&self, interface: u16) -> bool {
        let came = sum(&self.came[usize::from(interface)]);
        came == sum(&self.sent[usize::from(interface)])
    }

    /// Count the cycles that a core spent on an interface.
    #[inline(always)]
    pub fn worked(&self, core: usize, interface: u16, cycles: u64) {
        self.interfaces[usize::from(interface)].fetch_add(cycles, Ordering::Relaxed);
        self.busy[core % CORES].fetch_add(cycles, Ordering::Relaxed);
    }

    /// Checks the loads if the period has elapsed, and moves an interface if necessary; called by the first core.
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
        // Tolerates measurement errors: slightly more than half counts as half.
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
        // An interface whose load equals the whole difference is not moved.
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
