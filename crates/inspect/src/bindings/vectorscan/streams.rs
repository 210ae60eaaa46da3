//! What scans remember of streams.
//!
//! The states of a pool lie in one piece of zeroed memory, which the system commits page by page as states are first
//! used. The library opens a stream by asking its allocator for one piece of memory and owns nothing else of it, so an
//! allocator that hands out the state's place in the pool makes opening free of allocation, and closing unnecessary.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Once};

use super::{Database, Error, MatchAction, ScanEnd, Scratch, Streaming, check, length, raw, report, scanned};

/// States begin at cache lines.
const LINE: usize = 64;

/// What `malloc` aligns to, so that zeroed memory comes from it untouched.
const ALIGNMENT: usize = 16;

/// A fixed pool of stream states for one database.
#[derive(Debug)]
pub struct ScanStreams {
    database: Arc<Database<Streaming>>,
    memory: NonNull<u8>,
    layout: Layout,
    first: NonNull<u8>,
    stride: usize,
    /// States that are not in use, the last given back on top: its memory is likely still cached.
    free: Vec<u32>,
    used: Box<[bool]>,
    /// States that the library has initialised: those before this one.
    initialised: u32,
    /// Streams at their begin, where scans are written down; and the number of the first stream there.
    begun: Option<Box<[bool]>>,
    first_number: u32,
}

// SAFETY: the memory belongs to this value alone and knows no thread; the database is shared and never written.
unsafe impl Send for ScanStreams {}

impl ScanStreams {
    /// A pool of `count` streams. It allocates; nothing else here does.
    pub fn new(database: Arc<Database<Streaming>>, count: u32) -> Result<ScanStreams, Error> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            // SAFETY: the hooks have the signatures that the library asks for, and no stream exists before this call:
            // only pools open streams.
            unsafe { raw::hs_set_stream_allocator(take_place, leave_place) };
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
        // SAFETY: `LINE` bytes more than the states take were allocated, and fewer are skipped.
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
            begun: None,
            first_number: 0,
        })
    }

    /// The database that they are scanned for.
    pub fn database(&self) -> &Arc<Database<Streaming>> {
        &self.database
    }

    /// Scans are written down from now on, under numbers from `first` on: which streams are at their begin is kept for that.
    pub fn record(&mut self, first: u32) {
        self.first_number = first;
        self.begun = Some(vec![false; self.used.len()].into());
    }

    /// How many more can be opened.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Bytes between two states.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// A stream at its begin; `None`: all are in use.
    pub fn open(&mut self) -> Option<u32> {
        let stream = self.free.pop()?;
        self.used[stream as usize] = true;
        // States are first given out in their order, so that what was never used was never touched.
        if stream < self.initialised {
            self.reset(stream);
        } else {
            assert_eq!(stream, self.initialised, "states are first used in order");
            self.initialise(stream);
            self.initialised += 1;
            if let Some(begun) = &mut self.begun {
                begun[stream as usize] = true;
            }
        }
        Some(stream)
    }

    /// Gives a stream back. One that is not open is left as it is.
    pub fn close(&mut self, stream: u32) {
        if let Some(used) = self.used.get_mut(stream as usize)
            && std::mem::take(used)
        {
            self.free.push(stream);
        }
    }

    /// Ask for the state of a stream, some time before it is scanned.
    #[inline(always)]
    pub fn prefetch(&self, stream: u32) {
        let place = self.first.as_ptr().wrapping_add(stream as usize * self.stride);
        for line in 0..self.stride.div_ceil(LINE).min(2) {
            sluice_table::prefetch::prefetch_write_address(place.wrapping_add(line * LINE));
        }
    }

    /// Looks at the next piece of a stream; the sink gets identifier and end of each match, counted from the begin of
    /// the stream. After [`Next::Stop`], further pieces are not looked at until the stream is reset or finished.
    ///
    /// # Panics
    ///
    /// Where the scratch does not serve the database, the stream is not open, or the data is 4 GiB or longer. A panic
    /// of the sink aborts the process.
    pub fn scan<S: FnMut(u32, u64) -> MatchAction>(
        &mut self,
        stream: u32,
        data: &[u8],
        scratch: &mut Scratch,
        mut sink: S,
    ) -> ScanEnd {
        let begins = || {
            let begun = self.begun.as_mut().and_then(|begun| begun.get_mut(stream as usize));
            Some((self.first_number + stream, begun.is_some_and(std::mem::take)))
        };
        scratch.log_scan(self.database.serial(), begins, data);
        let memory = scratch.memory_for(self.database.serial());
        let state = self.state(stream);
        // SAFETY: the state is initialised for the database that `self` keeps alive and borrowed mutably with `self`,
        // the data is readable, the scratch large enough and borrowed mutably, and `report::<S>` is handed the sink
        // that it expects, which outlives the call.
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

    /// Says that the stream ended, which is a match for expressions that end in `$`, and puts it back to its begin.
    ///
    /// # Panics
    ///
    /// As [`Streams::scan`].
    pub fn finish<S: FnMut(u32, u64) -> MatchAction>(&mut self, stream: u32, scratch: &mut Scratch, mut sink: S) {
        let memory = scratch.memory_for(self.database.serial());
        let state = self.state(stream);
        // SAFETY: as in `scan`.
        let code =
            unsafe { raw::hs_reset_stream(state, 0, memory.as_ptr(), Some(report::<S>), (&raw mut sink).cast()) };
        scanned(code);
    }

    /// Puts a stream back to its begin.
    ///
    /// # Panics
    ///
    /// Where the stream is not open.
    pub fn reset(&mut self, stream: u32) {
        if let Some(begun) = &mut self.begun {
            begun[stream as usize] = true;
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
        // SAFETY: the database is alive and of streaming mode; the library writes one pointer and asks the hook once.
        let code = unsafe { raw::hs_open_stream(self.database.raw(), 0, &raw mut state) };
        ALLOCATION.set((ptr::null_mut(), 0));
        check(code).expect("a stream fits where its database said it would");
        assert_eq!(place.as_ptr().cast(), state, "a stream is where it was put");
    }
}

impl Drop for ScanStreams {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout; streams own nothing else, and none is used afterwards.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

thread_local! {
    /// Where the stream that is being opened on this thread is to lie, and its bytes.
    static ALLOCATION: Cell<(*mut c_void, usize)> = const { Cell::new((ptr::null_mut(), 0)) };
}

/// The library's allocator of streams.
unsafe extern "C" fn take_place(size: usize) -> *mut c_void {
    let (place, room) = ALLOCATION.replace((ptr::null_mut(), 0));
    if size <= room { place } else { ptr::null_mut() }
}

/// Its counterpart: the pool keeps the memory.
unsafe extern "C" fn leave_place(_place: *mut c_void) {}
