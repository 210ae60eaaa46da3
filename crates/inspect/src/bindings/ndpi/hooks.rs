//! Allocator hooks of nDPI and libgcrypt. While a core processes a packet, memory comes from that core's arena. At all
//! other times, in particular when modules are created and destroyed, it comes from the C library.
//!
//! libgcrypt terminates the process if an allocation fails during a digest. Therefore libgcrypt has a separate arena,
//! which is empty before and after each packet.
//!
//! The hooks are global to the process and receive only a size, so a thread-local variable holds the current arena.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Once;

use super::arena::{Arena, BLOCK_UNIT};
use super::raw;

/// Memory of a core with its arena.
pub struct Memory {
    base: NonNull<u8>,
    layout: Layout,
    pub arena: Arena,
    /// Owner to which new blocks are assigned.
    owner: u32,
    /// Number of ignored calls to free a pointer that was not allocated from this arena.
    pub foreign: u64,
}

impl Memory {
    pub fn new(bytes: usize, owners: u32) -> Self {
        let units = u32::try_from(bytes.div_ceil(BLOCK_UNIT).max(1)).expect("less than 256 GiB");
        let layout =
            Layout::from_size_align(units as usize * BLOCK_UNIT, BLOCK_UNIT).expect("a size in the address space");
        // SAFETY: the layout has a size of at least one unit.
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
            // SAFETY: the arena returns offsets of blocks that lie completely within the memory.
            Some(offset) => unsafe { self.base.as_ptr().add(offset) }.cast(),
            None => ptr::null_mut(),
        }
    }

    /// Offset of a pointer, if a block is allocated there.
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
            // SAFETY: the old block has `old` bytes, the new one is longer, and blocks do not overlap.
            unsafe { ptr::copy_nonoverlapping(pointer.cast::<u8>(), new.cast::<u8>(), old) };
            self.free(pointer);
        }
        new
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

/// Size in bytes of the arena for libgcrypt. The ciphers and digests of one QUIC packet take about a third of this
/// memory.
const CIPHERS: usize = 64 << 10;

/// Arenas of a core.
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

/// Calls nDPI with these arenas, on behalf of this owner. The call must not unwind; C code never unwinds.
pub fn within<R>(memories: &mut Memories, owner: u32, call: impl FnOnce() -> R) -> R {
    memories.flows.owner = owner;
    let memories = ptr::from_mut(memories);
    CURRENT.set(memories);
    let result = call();
    CURRENT.set(ptr::null_mut());
    // SAFETY: the pointer is derived from the borrow that this function holds; the hooks no longer use it.
    unsafe { (*memories).ciphers.arena.release(0) };
    result
}

/// Selects the arena of a library.
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

/// Runs a function with the current arena, if the thread is executing [`within`].
fn current<U: Use, R>(inside: impl FnOnce(&mut Memory) -> R) -> Option<R> {
    // SAFETY: `within` borrows the arenas mutably as long as the pointer is set. Meanwhile only the hooks use that
    // borrow, and hooks do not call each other.
    unsafe { CURRENT.get().as_mut() }.map(|memories| inside(U::memory(memories)))
}

unsafe extern "C" fn allocate<U: Use>(size: usize) -> *mut c_void {
    // SAFETY: `malloc` accepts any size.
    current::<U, _>(|memory| memory.allocate(size)).unwrap_or_else(|| unsafe { raw::malloc(size) })
}

unsafe extern "C" fn reallocate<U: Use>(pointer: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: outside of packets every pointer is from the C library, because memory allocated for packets was released
    // with its flow.
    current::<U, _>(|memory| memory.reallocate(pointer, size)).unwrap_or_else(|| unsafe { raw::realloc(pointer, size) })
}

unsafe extern "C" fn free<U: Use>(pointer: *mut c_void) {
    // SAFETY: outside of packets every pointer is from the C library, as in `reallocate`.
    current::<U, _>(|memory| memory.free(pointer)).unwrap_or_else(|| unsafe { raw::free(pointer) })
}

unsafe extern "C" fn is_secure(_: *const c_void) -> c_int {
    0
}

/// Sets the hooks, once, before the first module is created.
pub fn set() {
    static SET: Once = Once::new();
    // SAFETY: the hooks have the types that both libraries declare and are sound on every thread; neither library has
    // allocated memory before.
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
