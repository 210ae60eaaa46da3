//! A free list of indices. The most recently released index is allocated first, because its memory is likely in the
//! cache.

/// Allocates and releases indices below a limit.
#[derive(Debug)]
pub(super) struct FreeList<'m> {
    stack: &'m mut [u32],
    /// Number of free indices in the stack.
    left: usize,
}

impl<'m> FreeList<'m> {
    /// Creates a list in which all indices below the length of `stack` are free.
    pub(super) fn new(stack: &'m mut [u32]) -> Self {
        let left = stack.len();
        for (number, place) in stack.iter_mut().rev().enumerate() {
            *place = number as u32;
        }
        Self { stack, left }
    }

    /// Number of free indices.
    pub(super) fn available(&self) -> usize {
        self.left
    }

    /// Number of allocated indices.
    pub(super) fn used(&self) -> usize {
        self.stack.len() - self.left
    }

    #[inline]
    pub(super) fn allocate(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        self.stack.get(self.left).copied()
    }

    /// Releases an index, which must be allocated.
    #[inline]
    pub(super) fn release(&mut self, number: u32) {
        if let Some(place) = self.stack.get_mut(self.left) {
            *place = number;
            self.left += 1;
        }
    }
}
