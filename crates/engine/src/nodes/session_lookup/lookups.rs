//! Temporary memory of the lookup passes.

use sluice_table::flow::Candidate;

use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::session::family::{Family, PerFamily, V4, V6};

/// Temporary memory of the lookup passes, indexed by the packet's position in the list.
pub struct Lookups<F: Family> {
    pub(super) slots: [BufferIndex; BURST_BUFFERS],
    pub(super) keys: [F::Key; BURST_BUFFERS],
    pub(super) hashes: [u64; BURST_BUFFERS],
    pub(super) candidates: [Candidate; BURST_BUFFERS],
}

impl<F: Family> Default for Lookups<F> {
    fn default() -> Self {
        Self {
            slots: [0; BURST_BUFFERS],
            keys: [F::Key::default(); BURST_BUFFERS],
            hashes: [0; BURST_BUFFERS],
            candidates: [Candidate::NONE; BURST_BUFFERS],
        }
    }
}

/// Temporary memory for both address families.
#[derive(Default)]
pub struct LookupScratch {
    v4: Box<Lookups<V4>>,
    v6: Box<Lookups<V6>>,
}

/// Selects the [`Lookups`] of an address family.
struct PerFamilyLookups;

impl PerFamily for PerFamilyLookups {
    type Of<F: Family> = Lookups<F>;
}

impl LookupScratch {
    #[inline(always)]
    pub(super) fn of<F: Family>(&mut self) -> &mut Lookups<F> {
        F::select_mut::<PerFamilyLookups>(&mut self.v4, &mut self.v6)
    }
}
