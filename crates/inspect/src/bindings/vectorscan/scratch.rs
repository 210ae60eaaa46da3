//! Scratch memory of scans.

use std::ptr::{self, NonNull};

use super::{Database, Error, Mode, ScanLog, check, raw};

/// Scratch memory for the scans of one core. The memory can be used with every database for which it was enlarged.
#[derive(Debug)]
pub struct Scratch {
    memory: *mut raw::HsScratch,
    /// Serial numbers of the databases for which the scratch is large enough. The library does not check the size of a
    /// scratch.
    serves: Vec<u64>,
    /// Recorded scans, if recording is on.
    log: Option<Box<ScanLog>>,
}

// SAFETY: the memory belongs to this value alone and is not bound to a thread; a scan borrows it mutably.
unsafe impl Send for Scratch {}

impl Default for Scratch {
    fn default() -> Self {
        Scratch::new()
    }
}

impl Scratch {
    /// Creates a scratch that no database can use yet.
    pub fn new() -> Scratch {
        Scratch {
            memory: ptr::null_mut(),
            serves: Vec::new(),
            log: None,
        }
    }

    /// Enlarges the scratch for this database. If the enlargement fails, the scratch remains usable for the other
    /// databases.
    pub fn serve<M: Mode>(&mut self, database: &Database<M>) -> Result<(), Error> {
        if self.serves(database.serial()) {
            return Ok(());
        }
        // SAFETY: the database is alive. The memory is null or was allocated by this function, and no scan runs,
        // because `self` is borrowed mutably.
        let code = unsafe { raw::hs_alloc_scratch(database.raw(), &raw mut self.memory) };
        if let Err(error) = check(code) {
            // The library may have freed the old memory before the allocation failed; then the pointer is null.
            if self.memory.is_null() {
                self.serves.clear();
            }
            return Err(error);
        }
        self.serves.push(database.serial());
        Ok(())
    }

    /// Creates a scratch with which another core can use the same databases.
    pub fn try_clone(&self) -> Result<Scratch, Error> {
        let mut clone = Scratch {
            memory: ptr::null_mut(),
            serves: self.serves.clone(),
            log: None,
        };
        if !self.memory.is_null() {
            // SAFETY: the memory is a scratch, and no scan writes it while `self` is borrowed.
            check(unsafe { raw::hs_clone_scratch(self.memory, &raw mut clone.memory) })?;
        }
        Ok(clone)
    }

    /// Records scans from now on.
    pub fn record(&mut self) {
        self.log.get_or_insert_default();
    }

    /// Ends recording, and returns the recorded scans.
    pub fn take_log(&mut self) -> Option<Box<ScanLog>> {
        self.log.take()
    }

    /// Records a scan, if recording is on.
    #[inline(always)]
    pub(super) fn log_scan(&mut self, database: u64, stream: impl FnOnce() -> Option<(u32, bool)>, data: &[u8]) {
        if let Some(calls) = &mut self.log {
            calls.record(database, stream(), data);
        }
    }

    /// Size in bytes.
    pub fn size(&self) -> usize {
        let mut size = 0;
        if !self.memory.is_null() {
            // SAFETY: the memory is a scratch; the library writes one number.
            unsafe { raw::hs_scratch_size(self.memory, &raw mut size) };
        }
        size
    }

    pub(super) fn serves(&self, serial: u64) -> bool {
        self.serves.contains(&serial)
    }

    /// The memory, after a check that it is large enough for the database with this serial number.
    pub(super) fn memory_for(&mut self, serial: u64) -> NonNull<raw::HsScratch> {
        assert!(self.serves(serial), "the scratch was grown for this database");
        NonNull::new(self.memory).expect("a scratch that serves a database has memory")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.memory.is_null() {
            // SAFETY: the memory is a scratch of this value, no scan runs, and the memory is not used afterwards.
            unsafe { raw::hs_free_scratch(self.memory) };
        }
    }
}
