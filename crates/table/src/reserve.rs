//! What several tables share: parts that whoever needs one takes and gives back, without a lock.

use core::fmt;

use crossbeam_queue::ArrayQueue;

/// Parts that nobody has at present. All are alike.
pub struct Reserve<T> {
    parts: ArrayQueue<T>,
}

impl<T> Reserve<T> {
    /// A reserve of these parts; none where there are none.
    pub fn new(parts: Vec<T>) -> Option<Self> {
        if parts.is_empty() {
            return None;
        }
        let queue = ArrayQueue::new(parts.len());
        for part in parts {
            // There is a place for each.
            let _ = queue.push(part);
        }
        Some(Self { parts: queue })
    }

    /// Take one.
    pub fn allocate(&self) -> Option<T> {
        self.parts.pop()
    }

    /// Give one back that was taken.
    pub fn release(&self, part: T) {
        let _ = self.parts.push(part);
    }

    /// How many are left, by now.
    pub fn available(&self) -> usize {
        self.parts.len()
    }
}

impl<T> fmt::Debug for Reserve<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} parts", self.parts.len(), self.parts.capacity())
    }
}
