//! Sets of ports that can change while rules refer to them.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::address_set::{SetFull, nanoseconds, until};

/// Number of all port numbers.
const PORTS: usize = 1 << 16;
/// Expiry time that marks a port without a timeout.
const NO_TIMEOUT: u64 = u64::MAX;

/// A set of ports.
#[derive(Debug)]
pub struct PortSet {
    /// Expiry time of each port in nanoseconds of the workers' clock; 0 if the port is not in the set.
    until: Box<[AtomicU64]>,
    size: usize,
    /// Default timeout of ports in nanoseconds; 0 if ports don't expire.
    timeout: AtomicU64,
    /// Lock that all modifications hold.
    writer: Mutex<()>,
    len: AtomicUsize,
}

impl PortSet {
    /// Creates an empty set for at most `size` ports.
    pub fn new(size: usize, timeout: Option<Duration>) -> Self {
        let set = Self {
            until: (0..PORTS).map(|_| AtomicU64::new(0)).collect(),
            size,
            timeout: AtomicU64::new(0),
            writer: Mutex::new(()),
            len: AtomicUsize::new(0),
        };
        set.set_timeout(timeout);
        set
    }

    /// Maximum number of ports.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Default timeout of ports.
    pub fn timeout(&self) -> Option<Duration> {
        let timeout = self.timeout.load(Ordering::Relaxed);
        (timeout != 0).then(|| Duration::from_nanos(timeout))
    }

    /// Sets the default timeout of ports that are added from now on.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.timeout.store(timeout.map_or(0, nanoseconds), Ordering::Relaxed);
    }

    /// Number of ports.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the set contains a port.
    #[inline]
    pub fn contains(&self, port: u16) -> bool {
        self.until[usize::from(port)].load(Ordering::Relaxed) != 0
    }

    fn write(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Adds ports, or updates their timeout. Without a timeout the ports don't expire. Returns the number of new ports.
    ///
    /// # Errors
    /// The set does not have space for all of the ports. In this case, none of them is added.
    pub fn add(&self, ports: RangeInclusive<u16>, timeout: Option<Duration>, now: u64) -> Result<usize, SetFull> {
        let until = match until(timeout.map_or(0, nanoseconds), now) {
            0 => NO_TIMEOUT,
            until => until,
        };
        self.add_until(ports, until)
    }

    fn add_until(&self, ports: RangeInclusive<u16>, until: u64) -> Result<usize, SetFull> {
        let _writer = self.write();
        let new = ports.clone().filter(|&port| !self.contains(port)).count();
        if self.len() + new > self.size {
            return Err(SetFull);
        }
        for port in ports {
            self.until[usize::from(port)].store(until, Ordering::Relaxed);
        }
        self.len.fetch_add(new, Ordering::Relaxed);
        Ok(new)
    }

    /// Removes the ports whose expiry time satisfies a condition. Returns their number.
    fn remove_where(&self, ports: RangeInclusive<u16>, is_removed: impl Fn(u64) -> bool) -> usize {
        let _writer = self.write();
        let mut count = 0;
        for until in &self.until[usize::from(*ports.start())..=usize::from(*ports.end())] {
            let expiry = until.load(Ordering::Relaxed);
            if expiry != 0 && is_removed(expiry) {
                until.store(0, Ordering::Relaxed);
                count += 1;
            }
        }
        self.len.fetch_sub(count, Ordering::Relaxed);
        count
    }

    /// Removes ports. Returns the number of removed ports. The range must not be reversed.
    pub fn remove(&self, ports: RangeInclusive<u16>) -> usize {
        self.remove_where(ports, |_| true)
    }

    /// Removes all ports. Returns their number.
    pub fn flush(&self) -> usize {
        self.remove(0..=u16::MAX)
    }

    /// Removes expired ports. The function must be called periodically.
    pub fn expire(&self, now: u64) {
        if !self.is_empty() {
            self.remove_where(0..=u16::MAX, |until| until <= now);
        }
    }

    /// Ranges of adjacent ports with equal expiry time, in order.
    fn ranges(&self) -> Vec<((u16, u16), u64)> {
        let _writer = self.write();
        let mut found: Vec<((u16, u16), u64)> = Vec::new();
        for (port, until) in (0..=u16::MAX).zip(&self.until) {
            let until = until.load(Ordering::Relaxed);
            match found.last_mut() {
                _ if until == 0 => {}
                Some(((_, last), same)) if *same == until && u32::from(*last) + 1 == port.into() => *last = port,
                _ => found.push(((port, port), until)),
            }
        }
        found
    }

    /// Ranges of adjacent ports with equal expiry time in order, each with its remaining lifetime in nanoseconds if it
    /// expires.
    pub fn elements(&self, now: u64) -> Vec<((u16, u16), Option<u64>)> {
        let remaining = |until: u64| (until != NO_TIMEOUT).then(|| until.saturating_sub(now));
        let ranges = self.ranges().into_iter();
        ranges.map(|(ports, until)| (ports, remaining(until))).collect()
    }

    /// Adds the ports of another set, as long as this set has space.
    pub fn copy(&self, other: &Self) {
        for ((first, last), until) in other.ranges() {
            // Ports that don't fit are not added.
            (first..=last).for_each(|port| _ = self.add_until(port..=port, until));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_side_by_side_are_one_element() {
        let set = PortSet::new(PORTS, None);
        assert_eq!(Ok(3), set.add(80..=82, None, 0));
        assert_eq!(Ok(1), set.add(82..=83, None, 0));
        assert_eq!(Ok(2), set.add(u16::MAX - 1..=u16::MAX, None, 0));
        assert_eq!([((80, 83), None), ((65_534, 65_535), None)], *set.elements(0));
        assert_eq!(1, set.remove(81..=81));
        assert_eq!(
            [(80, 80), (82, 83), (65_534, 65_535)],
            *set.elements(0).into_iter().map(|(ports, _)| ports).collect::<Vec<_>>()
        );
        assert_eq!((5, 5, 0), (set.len(), set.flush(), set.len()));
    }

    #[test]
    fn ports_go_when_their_time_is_over() {
        let set = PortSet::new(10, None);
        set.add(1..=2, Some(Duration::from_nanos(5)), 10).unwrap();
        set.add(2..=3, None, 10).unwrap();
        assert_eq!([((1, 1), Some(3)), ((2, 3), None)], *set.elements(12));
        set.expire(14);
        assert_eq!(3, set.len());
        set.expire(15);
        assert_eq!(([false, true], 2), ([1, 2].map(|port| set.contains(port)), set.len()));
    }

    #[test]
    fn ports_that_do_not_fit_are_refused_together() {
        let set = PortSet::new(3, None);
        assert_eq!(Err(SetFull), set.add(1..=4, None, 0));
        assert_eq!((Ok(2), Ok(1)), (set.add(1..=2, None, 0), set.add(1..=3, None, 0)));
        let copy = PortSet::new(2, None);
        copy.copy(&set);
        assert_eq!([((1, 2), None)], *copy.elements(0));
    }
}
