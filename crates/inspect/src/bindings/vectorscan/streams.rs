//! States of streaming scans.
//!
//! The states of a pool are in one contiguous piece of zeroed memory, which the system commits page by page when states
//! are first used. To open a stream, the library makes a single allocation. The allocator set here serves it with a
//! slot of the pool, so opening a stream does not allocate memory. Streams own no other memory, so they need not be
//! closed in the library.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Once};

use super::{Database, Error, MatchAction, ScanEnd, Scratch, Streaming, check, length, raw, report, scanned};

/// States are aligned to cache lines.
const LINE: usize = 64;

/// Alignment of `malloc`. Zeroed memory with this alignment is not written when it is allocated.
const ALIGNMENT: usize = 16;

/// A fixed pool of stream states for one database.
#[derive(Debug)]
pub struct ScanStreams {
    database: Arc<Database<Streaming>>,
    memory: NonNull<u8>,
    layout: Layout,
    first: NonNull<u8>,
    stride: usize,
    /// Free states. The most recently released state is allocated first, because its memory is likely in the cache.
    free: Vec<u32>,
    used: Box<[bool]>,
    /// Number of states that the library has initialised. Initialised states have the lowest indices.
    initialised: u32,
    /// While scans are recorded: whether each stream is at its start, and the number of the first stream in the record.
    started: Option<Box<[bool]>>,
    first_number: u32,
}

// SAFETY: the memory belongs to this value alone and is not bound to a thread; the database is shared and never
// written.
unsafe impl Send for ScanStreams {}

impl ScanStreams {
    /// Creates a pool of `count` streams. Only this function allocates memory.
    pub fn new(database: Arc<Database<Streaming>>, count: u32) -> Result<ScanStreams, Error> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            // SAFETY: the hooks have the signatures that the library requires, and no stream exists before this call:
            // only pools open streams.
            unsafe { raw::hs_set_stream_allocator(allocate_stream, free_stream) };
        });
        let stride = database.stream_size().next_multiple_of(LINE);
        let bytes = stride
            .checked_mul(count as usize)
            .and_then(|bytes| bytes.checked_add(LINE));
        let layout = bytes.and_then(|bytes| Layout::from_size_align(bytes, ALIGNMENT).ok());
        let layout = layout.ok_or(Error::Memory)?;
        // SAFETY: the layout has at least `LINE` bytes.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Error::Memory)?;
        let skip = memory.align_offset(LINE);
        assert!(skip < LINE, "bytes can be aligned");
        // SAFETY: the allocation has `LINE` bytes more than the states take, and fewer than `LINE` bytes are skipped.
        let first = unsafe { memory.add(skip) };
        Ok(ScanStreams {
            database,
            memory,
            layout,
            first,
            stride,
            free: (0..count).rev().collect(),
            used: vec![false; count as usize].into(),
            initialised: 0,
            started: None,
            first_number: 0,
        })
    }

    /// Database of the streams.
    pub fn database(&self) -> &Arc<Database<Streaming>> {
        &self.database
    }

    /// Records scans from now on, with streams numbered from `first` on. The record includes which streams are at their
    /// start.
    pub fn record(&mut self, first: u32) {
        self.first_number = first;
        self.started = Some(vec![false; self.used.len()].into());
    }

    /// Number of free states.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Distance in bytes between the starts of two consecutive states.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Opens a stream at its start; `None` if all states are in use.
    pub fn open(&mut self) -> Option<u32> {
        let stream = self.free.pop()?;
        self.used[stream as usize] = true;
        // Unused states are allocated in ascending order, so that the memory after the highest used state is never touched.
        if stream < self.initialised {
            self.reset(stream);
        } else {
            assert_eq!(stream, self.initialised, "states are first used in order");
            self.initialise(stream);
            self.initialised += 1;
            if let Some(started) = &mut self.started {
                started[stream as usize] = true;
            }
        }
        Some(stream)
    }

    /// Closes a stream. Has no effect if the stream is not open.
    pub fn close(&mut self, stream: u32) {
        if let Some(used) = self.used.get_mut(stream as usize)
            && std::mem::take(used)
        {
            self.free.push(stream);
        }
    }

    /// Prefetches the state of a stream before it is scanned.
    #[inline(always)]
    pub fn prefetch(&self, stream: u32) {
        let place = self.first.as_ptr().wrapping_add(stream as usize * self.stride);
        for line in 0..self.stride.div_ceil(LINE).min(2) {
            sluice_table::prefetch::prefetch_write_address(place.wrapping_add(line * LINE));
        }
    }

    /// Scans the next data of a stream. The sink receives the identifier and the end of each match, counted from the
    /// start of the stream. After [`MatchAction::Stop`], later data is not scanned until the stream is reset or
    /// finished.
    ///
    /// # Panics
    ///
    /// Panics if the scratch was not enlarged for the database, the stream is not open, or the data is 4 GiB or longer.
    /// A panic of the sink aborts the process.
    pub fn scan<S: FnMut(u32, u64) -> MatchAction>(
        &mut self,
        stream: u32,
        data: &[u8],
        scratch: &mut Scratch,
        mut sink: S,
    ) -> ScanEnd {
        let starts = || {
            let started = self
                .started
                .as_mut()
                .and_then(|started| started.get_mut(stream as usize));
            Some((self.first_number + stream, started.is_some_and(std::mem::take)))
        };
        scratch.log_scan(self.database.serial(), starts, data);
        let memory = scratch.memory_for(self.database.serial());
        let state = self.state(stream);
        // SAFETY: the state is initialised for the database that `self` keeps alive, and is borrowed mutably with
        // `self`. The data is readable, and the scratch is large enough and borrowed mutably. `report::<S>` receives
        // the sink that it expects, and the sink outlives the call.
        scanned(unsafe {
            raw::hs_scan_stream(
                state,
                data.as_ptr().cast(),
                length(data),
                0,
                memory.as_ptr(),
                report::<S>,
                (&raw mut sink).cast(),
            )
        })
    }

    /// Signals the end of the stream, at which expressions that end in `$` match, and resets the stream to its start.
    ///
    /// # Panics
    ///
    /// Panics as [`ScanStreams::scan`] does.
    pub fn finish<S: FnMut(u32, u64) -> MatchAction>(&mut self, stream: u32, scratch: &mut Scratch, mut sink: S) {
        let memory = scratch.memory_for(self.database.serial());
        let state = self.state(stream);
        // SAFETY: the conditions are the same as in `scan`.
        let code =
            unsafe { raw::hs_reset_stream(state, 0, memory.as_ptr(), Some(report::<S>), (&raw mut sink).cast()) };
        scanned(code);
    }

    /// Resets a stream to its start.
    ///
    /// # Panics
    ///
    /// Panics if the stream is not open.
    pub fn reset(&mut self, stream: u32) {
        if let Some(started) = &mut self.started {
            started[stream as usize] = true;
        }
        let state = self.state(stream);
        // SAFETY: the state is initialised and borrowed mutably with `self`; without a handler no scratch is needed.
        scanned(unsafe { raw::hs_reset_stream(state, 0, ptr::null_mut(), None, ptr::null_mut()) });
    }

    /// The initialised state of an open stream.
    fn state(&mut self, stream: u32) -> *mut raw::HsStream {
        assert!(self.used[stream as usize], "the stream is open");
        self.place(stream).as_ptr().cast()
    }

    fn place(&mut self, stream: u32) -> NonNull<u8> {
        assert!((stream as usize) < self.used.len(), "the stream is of this pool");
        // SAFETY: the memory has `stride` bytes for each of the pool's streams.
        unsafe { self.first.add(stream as usize * self.stride) }
    }

    fn initialise(&mut self, stream: u32) {
        let place = self.place(stream);
        ALLOCATION.set((place.as_ptr().cast(), self.stride));
        let mut state = ptr::null_mut();
        // SAFETY: the database is alive and of streaming mode; the library writes one pointer and calls the allocator
        // once.
        let code = unsafe { raw::hs_open_stream(self.database.raw(), 0, &raw mut state) };
        ALLOCATION.set((ptr::null_mut(), 0));
        check(code).expect("a stream fits where its database said it would");
        assert_eq!(place.as_ptr().cast(), state, "a stream is where it was put");
    }
}

impl Drop for ScanStreams {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout; streams own no other memory, and no stream is used
        // afterwards.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

thread_local! {
    /// Address and size of the slot for the stream that is being opened on this thread.
    static ALLOCATION: Cell<(*mut c_void, usize)> = const { Cell::new((ptr::null_mut(), 0)) };
}

/// Stream allocator that the library calls.
unsafe extern "C" fn allocate_stream(size: usize) -> *mut c_void {
    let (place, capacity) = ALLOCATION.replace((ptr::null_mut(), 0));
    if size <= capacity { place } else { ptr::null_mut() }
}

/// Stream deallocator that the library calls. The function does nothing, because the pool owns the memory.
unsafe extern "C" fn free_stream(_place: *mut c_void) {}
