//! Bounded rings of buffers between threads of this process.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::eal::{Eal, error_text};
use crate::pool::Pool;
use crate::sys;

/// The creation of a ring failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a ring with {depth} entries can't be created: {reason}")]
pub struct RingError {
    /// Number of entries.
    pub depth: u32,
    /// DPDK's error text.
    pub reason: String,
}

/// A ring with one consumer. Dropping the ring frees its remaining buffers.
#[derive(Debug)]
pub(crate) struct Ring {
    raw: *mut sys::rte_ring,
}

// SAFETY: DPDK's rings pass buffers between threads. The creation flags of a ring state whether it has one or several
// producers and consumers.
unsafe impl Send for Ring {}
// SAFETY: the reason for `Send` applies.
unsafe impl Sync for Ring {}

impl Ring {
    pub(crate) fn new(_eal: &Eal, depth: u32) -> Result<Ring, RingError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = CString::new(format!("ring{}", NUMBER.fetch_add(1, Ordering::Relaxed))).unwrap_or_default();
        let mut raw = std::ptr::null_mut();
        // SAFETY: the EAL is running (`eal` proves it), the name is a C string, and the call writes the result.
        match unsafe { sys::sluice_ring_create(name.as_ptr(), depth, &mut raw) } {
            0 => Ok(Ring { raw }),
            error => Err(RingError {
                depth,
                reason: error_text(error),
            }),
        }
    }

    #[inline(always)]
    pub(crate) fn raw(&self) -> *mut sys::rte_ring {
        self.raw
    }

    pub(crate) fn len(&self) -> usize {
        // SAFETY: the ring is alive.
        unsafe { sys::sluice_ring_count(self.raw) as usize }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `self` was the last reference to the ring, so the ring has no producer or consumer, and its buffers
        // have no other owner. The owners of a ring keep its pools alive longer than the ring.
        unsafe {
            sys::sluice_ring_drain(self.raw);
            sys::sluice_ring_destroy(self.raw);
        }
    }
}

/// The rings between two ring ports with one name, in both directions. A loop has rings in one direction.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) depth: u32,
    /// Rings from end A to end B, one per queue. A loop has only rings in this direction.
    pub(crate) forward: Vec<Ring>,
    pub(crate) reverse: Vec<Ring>,
    /// Pools of the buffers in the rings. The pools are dropped after the rings.
    pools: Mutex<Vec<Arc<Pool>>>,
}

static PAIRS: Mutex<Option<HashMap<String, Weak<Pair>>>> = Mutex::new(None);

impl Pair {
    /// The pair with this name, created when its first end is opened.
    pub(crate) fn named(eal: &Eal, name: &str, looped: bool, depth: u32, queues: u16) -> Result<Arc<Pair>, RingError> {
        let mut pairs = PAIRS.lock().unwrap_or_else(PoisonError::into_inner);
        let pairs = pairs.get_or_insert_default();
        if let Some(pair) = pairs.get(name).and_then(Weak::upgrade) {
            let fits =
                pair.forward.len() == queues as usize && pair.depth == depth && !looped && !pair.reverse.is_empty();
            return if fits {
                Ok(pair)
            } else {
                let reason = format!("a ring {name} with another kind, depth or number of queues already exists");
                Err(RingError { depth, reason })
            };
        }
        let rings = |count: u16| (0..count).map(|_| Ring::new(eal, depth)).collect::<Result<Vec<_>, _>>();
        let pair = Arc::new(Pair {
            depth,
            forward: rings(queues)?,
            reverse: rings(if looped { 0 } else { queues })?,
            pools: Mutex::default(),
        });
        pairs.insert(name.to_owned(), Arc::downgrade(&pair));
        Ok(pair)
    }

    /// Keep a pool alive, because the rings may contain buffers of the pool.
    pub(crate) fn keep(&self, pool: &Arc<Pool>) {
        self.pools
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(pool.clone());
    }

    /// Number of frames in the rings to end B (`forward`) or to end A.
    pub(crate) fn waiting(&self, forward: bool) -> usize {
        if forward { &self.forward } else { &self.reverse }
            .iter()
            .map(Ring::len)
            .sum()
    }
}
