//! A free list of indices. The most recently released index is allocated first, because its memory is likely in the
//! cache.

/// Allocates and releases indices below a limit.
#[derive(Debug)]
pub(super) struct FreeList<'m> {
    stack: &'m mut [u32],
    /// Number of free indices in the stack.
    remaining: usize,
}

impl<'m> FreeList<'m> {
    /// Creates a list in which all indices below the length of `stack` are free.
    pub(super) fn new(stack: &'m mut [u32]) -> Self {
        let remaining = stack.len();
        for (number, place) in stack.iter_mut().rev().enumerate() {
            *place = number as u32;
        }
        Self { stack, remaining }
    }

    /// Number of free indices.
    pub(super) fn available(&self) -> usize {
        self.remaining
    }

    /// Number of allocated indices.
    pub(super) fn used(&self) -> usize {
        self.stack.len() - self.remaining
    }

    #[inline]
    pub(super) fn allocate(&mut self) -> Option<u32> {
        self.remaining = self.remaining.checked_sub(1)?;
        self.stack.get(self.remaining).copied()
    }

    /// Releases an index, which must be allocated.
    #[inline]
    pub(super) fn release(&mut self, number: u32) {
        if let Some(place) = self.stack.get_mut(self.remaining) {
            *place = number;
            self.remaining += 1;
        }
    }
}
