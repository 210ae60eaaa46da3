//! Where nDPI and libgcrypt get their memory: while a core works on a packet, from that core's arena; else, which is
//! when modules are made and unmade, from the C library.
//!
//! libgcrypt ends the process where it gets no memory in the middle of a digest, so it has an arena of its own, which is
//! empty before and after each packet.
//!
//! The hooks are of the process and are told a size only, so which arena it is stands in a variable of the thread.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Once;

use super::arena::{Arena, BLOCK_UNIT};
use super::raw;

/// The memory of a core, and its book.
pub struct Memory {
    base: NonNull<u8>,
    layout: Layout,
    pub arena: Arena,
    /// Whose blocks are handed out.
    owner: u32,
    /// Pointers that came back and were never handed out from here; they are left alone.
    pub foreign: u64,
}

impl Memory {
    pub fn new(bytes: usize, owners: u32) -> Self {
        let units = u32::try_from(bytes.div_ceil(BLOCK_UNIT).max(1)).expect("less than 256 GiB");
        let layout =
            Layout::from_size_align(units as usize * BLOCK_UNIT, BLOCK_UNIT).expect("a size in the address space");
        // SAFETY: the layout is of at least one unit.
        let base = NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        Self {
            base,
            layout,
            arena: Arena::new(units, owners),
            owner: 0,
            foreign: 0,
        }
    }

    pub fn bytes(&self) -> usize {
        self.layout.size()
    }

    fn allocate(&mut self, size: usize) -> *mut c_void {
        match self.arena.allocate(self.owner, size) {
            // SAFETY: the book hands out offsets of blocks that lie in the memory whole.
            Some(offset) => unsafe { self.base.as_ptr().add(offset) }.cast(),
            None => ptr::null_mut(),
        }
    }

    /// Where in the memory this is, if a block was handed out there.
    fn offset(&self, pointer: *const c_void) -> Option<usize> {
        let offset = pointer.addr().checked_sub(self.base.addr().get())?;
        self.arena.size(offset).map(|_| offset)
    }

    fn free(&mut self, pointer: *const c_void) {
        match self.offset(pointer) {
            Some(offset) => _ = self.arena.free(offset),
            None => self.foreign += u64::from(!pointer.is_null()),
        }
    }

    fn reallocate(&mut self, pointer: *mut c_void, size: usize) -> *mut c_void {
        if pointer.is_null() {
            return self.allocate(size);
        }
        let Some(old) = self.offset(pointer).and_then(|offset| self.arena.size(offset)) else {
            self.foreign += 1;
            return ptr::null_mut();
        };
        if size <= old {
            return pointer;
        }
        let new = self.allocate(size);
        if !new.is_null() {
            // SAFETY: the old block is `old` bytes long, the new one longer, and blocks do not overlap.
            unsafe { ptr::copy_nonoverlapping(pointer.cast::<u8>(), new.cast::<u8>(), old) };
            self.free(pointer);
        }
        new
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

/// Bytes for libgcrypt: the ciphers and digests of one QUIC packet take about a third.
const CIPHERS: usize = 64 << 10;

/// The arenas of a core.
pub struct Memories {
    pub flows: Memory,
    pub ciphers: Memory,
}

impl Memories {
    pub fn new(bytes: usize, owners: u32) -> Self {
        Self {
            flows: Memory::new(bytes, owners),
            ciphers: Memory::new(CIPHERS, 1),
        }
    }
}

thread_local! {
    static CURRENT: Cell<*mut Memories> = const { Cell::new(ptr::null_mut()) };
}

/// Calls into nDPI with these memories, for this owner. The call must not unwind, which C code does not.
pub fn within<R>(memories: &mut Memories, owner: u32, call: impl FnOnce() -> R) -> R {
    memories.flows.owner = owner;
    let memories = ptr::from_mut(memories);
    CURRENT.set(memories);
    let result = call();
    CURRENT.set(ptr::null_mut());
    // SAFETY: from the borrow that this function holds; the hooks use it no longer.
    unsafe { (*memories).ciphers.arena.release(0) };
    result
}

/// Which of them a library uses.
trait Use {
    fn memory(memories: &mut Memories) -> &mut Memory;
}

struct Flows;

impl Use for Flows {
    fn memory(memories: &mut Memories) -> &mut Memory {
        &mut memories.flows
    }
}

struct Ciphers;

impl Use for Ciphers {
    fn memory(memories: &mut Memories) -> &mut Memory {
        &mut memories.ciphers
    }
}

/// What to do where the thread is inside of [`within`].
fn current<U: Use, R>(inside: impl FnOnce(&mut Memory) -> R) -> Option<R> {
    // SAFETY: `within` borrows the memories mutably for as long as they stand here, and nobody but the hooks, which do
    // not call each other, uses that borrow meanwhile.
    unsafe { CURRENT.get().as_mut() }.map(|memories| inside(U::memory(memories)))
}

unsafe extern "C" fn allocate<U: Use>(size: usize) -> *mut c_void {
    // SAFETY: any size may be asked for.
    current::<U, _>(|memory| memory.allocate(size)).unwrap_or_else(|| unsafe { raw::malloc(size) })
}

unsafe extern "C" fn reallocate<U: Use>(pointer: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: outside of packets every pointer is the C library's: what packets allocated went with their flow.
    current::<U, _>(|memory| memory.reallocate(pointer, size)).unwrap_or_else(|| unsafe { raw::realloc(pointer, size) })
}

unsafe extern "C" fn free<U: Use>(pointer: *mut c_void) {
    // SAFETY: as for `reallocate`.
    current::<U, _>(|memory| memory.free(pointer)).unwrap_or_else(|| unsafe { raw::free(pointer) })
}

unsafe extern "C" fn is_secure(_: *const c_void) -> c_int {
    0
}

/// Sets the hooks, once, before the first module is made.
pub fn set() {
    static SET: Once = Once::new();
    // SAFETY: the hooks have the types that both libraries declare and are sound on every thread; no memory of either
    // library is older than this.
    SET.call_once(|| unsafe {
        raw::gcry_set_allocation_handler(
            allocate::<Ciphers>,
            allocate::<Ciphers>,
            is_secure,
            reallocate::<Ciphers>,
            free::<Ciphers>,
        );
        raw::set_ndpi_malloc(Some(allocate::<Flows>));
        raw::set_ndpi_free(Some(free::<Flows>));
        raw::set_ndpi_flow_malloc(Some(allocate::<Flows>));
        raw::set_ndpi_flow_free(Some(free::<Flows>));
    });
}
