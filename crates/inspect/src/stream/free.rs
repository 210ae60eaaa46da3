//! Numbers of places that are free: the one given back last is taken first, because its memory is still near.

/// Numbers below a limit, taken and given back.
#[derive(Debug)]
pub(super) struct FreeList<'m> {
    stack: &'m mut [u32],
    /// How many of the stack's entries are free numbers.
    left: usize,
}

impl<'m> FreeList<'m> {
    /// Every number below the length of `stack` is free.
    pub(super) fn new(stack: &'m mut [u32]) -> Self {
        let left = stack.len();
        for (number, place) in stack.iter_mut().rev().enumerate() {
            *place = number as u32;
        }
        Self { stack, left }
    }

    /// How many are free.
    pub(super) fn available(&self) -> usize {
        self.left
    }

    /// How many are taken.
    pub(super) fn used(&self) -> usize {
        self.stack.len() - self.left
    }

    #[inline]
    pub(super) fn allocate(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        self.stack.get(self.left).copied()
    }

    /// The number must be taken.
    #[inline]
    pub(super) fn release(&mut self, number: u32) {
        if let Some(place) = self.stack.get_mut(self.left) {
            *place = number;
            self.left += 1;
        }
    }
}
