//! A reserve of parts that several tables share: a table takes a part when needed and returns it, without locks.

use core::fmt;

use crossbeam_queue::ArrayQueue;

/// Parts that no table uses at present. All are alike.
pub struct Reserve<T> {
    parts: ArrayQueue<T>,
}

impl<T> Reserve<T> {
    /// Create a reserve of these parts; `None` if there are none.
    pub fn new(parts: Vec<T>) -> Option<Self> {
        if parts.is_empty() {
            return None;
        }
        let queue = ArrayQueue::new(parts.len());
        for part in parts {
            // The queue has room for each part.
            let _ = queue.push(part);
        }
        Some(Self { parts: queue })
    }

    /// Take a part.
    pub fn allocate(&self) -> Option<T> {
        self.parts.pop()
    }

    /// Return a part.
    pub fn release(&self, part: T) {
        let _ = self.parts.push(part);
    }

    /// Number of available parts at this moment.
    pub fn available(&self) -> usize {
        self.parts.len()
    }
}

impl<T> fmt::Debug for Reserve<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} parts", self.parts.len(), self.parts.capacity())
    }
}
