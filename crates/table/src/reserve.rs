//! A reserve of parts that several tables share. A full table takes a part from the reserve and later returns the part,
//! without locks.

use core::fmt;

use crossbeam_queue::ArrayQueue;

/// Parts that no table currently uses. All parts are equivalent.
pub struct Reserve<T> {
    parts: ArrayQueue<T>,
}

impl<T> Reserve<T> {
    /// Creates a reserve of these parts; `None` if `parts` is empty.
    pub fn new(parts: Vec<T>) -> Option<Self> {
        if parts.is_empty() {
            return None;
        }
        let queue = ArrayQueue::new(parts.len());
        for part in parts {
            // The push succeeds, because the capacity of the queue is the number of parts.
            let _ = queue.push(part);
        }
        Some(Self { parts: queue })
    }

    /// Takes a part from the reserve; `None` if the reserve is empty.
    pub fn allocate(&self) -> Option<T> {
        self.parts.pop()
    }

    /// Returns a part to the reserve.
    pub fn release(&self, part: T) {
        let _ = self.parts.push(part);
    }

    /// Current number of parts in the reserve.
    pub fn available(&self) -> usize {
        self.parts.len()
    }
}

impl<T> fmt::Debug for Reserve<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} parts", self.parts.len(), self.parts.capacity())
    }
}
