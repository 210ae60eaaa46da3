//! Binding of nDPI, which identifies the application of a flow.
//!
//! nDPI is C code that parses untrusted data. The library is linked dynamically, so that security updates of the
//! distribution apply. The binding isolates nDPI as far as possible. nDPI allocates from a fixed arena per core and can
//! free only memory of that arena. All memory allocated for a flow is released with the flow, including leaked memory.
//! nDPI receives only complete packets of the flow's protocol. The binding can limit neither the accesses of nDPI to
//! its own memory nor the run time of nDPI.
//!
//! A [`DetectionModule`] contains all that a core needs: nDPI's tables, slots for the flows under identification, and
//! the arena. Creating a module allocates some megabytes; processing packets allocates only from the arena.

mod arena;
mod hooks;
mod raw;
mod shape;
#[cfg(test)]
mod tests;

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use hooks::Memories;
use shape::{Shape, shape};
use sluice_wire::Direction;

/// Why a module can't be created.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The loaded library has a different version than the header from which the bindings were generated.
    #[error("the installed nDPI ({0}) differs from the version with which this program was built")]
    Version(Box<str>),
    /// nDPI could not be initialised.
    #[error("nDPI could not be started")]
    Start,
}

/// Protocol numbers that nDPI reports for a flow; 0 is unknown. Both numbers are set if one protocol carries the other:
/// 91 with 126 is Google over TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProtocolPair {
    /// Number of the carrying protocol.
    pub master: u16,
    /// Number of the carried protocol, or of the only protocol.
    pub application: u16,
}

impl From<raw::ndpi_protocol> for ProtocolPair {
    fn from(said: raw::ndpi_protocol) -> Self {
        match (said.master_protocol, said.app_protocol) {
            (master, 0) => Self {
                master: 0,
                application: master,
            },
            (master, application) => Self {
                master: if master == application { 0 } else { master },
                application,
            },
        }
    }
}

/// Why nDPI returns no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetectionError {
    /// The arena is exhausted: nDPI's state of the flow is incomplete and has been discarded.
    Memory,
    /// The packet was not passed to nDPI, because it is incomplete or its protocol differs from that of the flow's first
    /// packet.
    Packet,
}

/// Counters of the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaCounters {
    /// Size in bytes.
    pub size: usize,
    /// Allocated bytes.
    pub used: usize,
    /// Highest number of allocated bytes so far.
    pub peak: usize,
    /// Allocations that failed.
    pub refused: u64,
    /// Pointers that nDPI freed without having allocated them from the arena.
    pub foreign: u64,
}

/// A detection module of nDPI with all of its memory.
pub struct DetectionModule {
    module: NonNull<raw::ndpi_detection_module_struct>,
    flows: Box<[raw::ndpi_flow_struct]>,
    /// IP version and transport protocol of each flow's first packet, which all later packets of the flow must have,
    /// too.
    shapes: Box<[Option<Shape>]>,
    memories: Memories,
}

// SAFETY: the module, the flows and the memory belong to this value alone, and none of them is bound to a thread: the
// only thread-local variable is set and cleared within each call.
unsafe impl Send for DetectionModule {}

/// Serialises the creation and destruction of modules.
static MODULE_LOCK: Mutex<()> = Mutex::new(());

impl DetectionModule {
    /// Size in bytes of a flow's slot.
    pub const FLOW: usize = size_of::<raw::ndpi_flow_struct>();

    /// Creates a module with `flows` slots and an arena of `memory` bytes.
    pub fn new(flows: u32, memory: usize) -> Result<Self, Error> {
        let _making = MODULE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        hooks::set();
        same_version()?;
        // SAFETY: no other module is being created.
        let module = NonNull::new(unsafe { raw::ndpi_init_detection_module(0) }).ok_or(Error::Start)?;
        let module = Self {
            module,
            flows: zeroed_flows(flows),
            shapes: vec![None; flows as usize].into(),
            memories: Memories::new(memory, flows.max(1)),
        };
        module.set_up()?;
        initialise_libraries()?;
        Ok(module)
    }

    fn set_up(&self) -> Result<(), Error> {
        let module = self.module.as_ptr();
        // Enable all protocols except tinc: its cache outlives the flow, and its code does not check allocations.
        let mut all = raw::ndpi_protocol_bitmask_struct { fds_bits: [!0; _] };
        let tinc = raw::ndpi_protocol_id_t_NDPI_PROTOCOL_TINC as usize;
        all.fds_bits[tinc / 32] &= !(1 << (tinc % 32));
        // SAFETY: the module is new and not shared; nDPI copies the set. The layout of a module is not part of nDPI's
        // interface. In a module, the field `name` comes long after the caches: if the library finds `name` at the
        // expected offset, the offsets of the caches are right, too.
        unsafe {
            let name = (*module).proto_defaults[1].protoName;
            if name.is_null() || name != raw::ndpi_get_proto_by_id(module, 1) {
                return Err(version());
            }
            raw::ndpi_set_protocol_detection_bitmask2(module, &raw const all);
            raw::ndpi_set_detection_preferences(
                module,
                raw::ndpi_detection_preference_ndpi_pref_direction_detect_disable,
                1,
            );
            // Create the caches in advance. Otherwise nDPI would allocate a cache for the first packet that needs it,
            // from the memory of that packet's flow.
            for (cache, entries) in [
                (&raw mut (*module).ookla_cache, 1024),
                (&raw mut (*module).bittorrent_cache, 32768),
                (&raw mut (*module).zoom_cache, 512),
                (&raw mut (*module).stun_cache, 1024),
                (&raw mut (*module).tls_cert_cache, 1024),
                (&raw mut (*module).mining_cache, 1024),
                (&raw mut (*module).msteams_cache, 1024),
            ] {
                if (*cache).is_null() {
                    *cache = raw::ndpi_lru_cache_init(entries);
                }
                if (*cache).is_null() {
                    return Err(Error::Start);
                }
            }
            raw::ndpi_finalize_initialization(module);
        }
        Ok(())
    }

    /// Number of flow slots.
    pub fn flows(&self) -> u32 {
        self.flows.len() as u32
    }

    /// Releases all memory that a slot's flow has allocated from the arena, and clears the slot for another flow.
    pub fn release(&mut self, flow: u32) {
        // nDPI's own release function is not used, because it leaks memory of flows that were reassigned to another
        // protocol.
        self.memories.flows.arena.release(flow);
        self.shapes[flow as usize] = None;
        // SAFETY: the slot has the size of one flow and is plain memory; all zeros is the initial state of a flow.
        unsafe { ptr::write_bytes(&raw mut self.flows[flow as usize], 0, 1) };
    }

    /// Passes one packet of a flow to nDPI. The packet must be complete and begin with its IP header.
    pub fn packet(
        &mut self,
        flow: u32,
        packet: &[u8],
        direction: Direction,
        time_ms: u64,
    ) -> Result<ProtocolPair, DetectionError> {
        let (shape, packet) = shape(packet).ok_or(DetectionError::Packet)?;
        if *self.shapes[flow as usize].get_or_insert(shape) != shape {
            return Err(DetectionError::Packet);
        }
        self.flows[flow as usize].set_packet_direction(direction as u8);
        let length = u16::try_from(packet.len()).map_err(|_| DetectionError::Packet)?;
        let data = packet.as_ptr();
        self.call(flow, |module, state| {
            // SAFETY: module and flow are valid and owned; nDPI reads `length` bytes at `data` and writes none of them;
            // the packet contains the transport header that nDPI expects in this flow.
            unsafe { raw::ndpi_detection_process_packet(module, state, data, length, time_ms) }
        })
    }

    /// Whether further packets may refine the result of an identified flow.
    pub fn wants_more(&mut self, flow: u32) -> bool {
        let state = &raw mut self.flows[flow as usize];
        // SAFETY: module and flow are valid and owned.
        unsafe { raw::ndpi_extra_dissection_possible(self.module.as_ptr(), state) != 0 }
    }

    /// The most probable protocol of the flow, and whether it is a guess from addresses and ports.
    pub fn give_up(&mut self, flow: u32) -> Result<(ProtocolPair, bool), DetectionError> {
        let mut guessed = 0;
        let pair = self.call(flow, |module, state| {
            // SAFETY: module and flow are valid and owned; the flag is written.
            unsafe { raw::ndpi_detection_giveup(module, state, 1, &raw mut guessed) }
        })?;
        Ok((pair, guessed != 0))
    }

    fn call(
        &mut self,
        flow: u32,
        call: impl FnOnce(*mut raw::ndpi_detection_module_struct, *mut raw::ndpi_flow_struct) -> raw::ndpi_protocol,
    ) -> Result<ProtocolPair, DetectionError> {
        let refused = self.memories.flows.arena.refused();
        let (module, state) = (self.module.as_ptr(), &raw mut self.flows[flow as usize]);
        let said = hooks::within(&mut self.memories, flow, || call(module, state));
        if refused != self.memories.flows.arena.refused() {
            self.release(flow);
            return Err(DetectionError::Memory);
        }
        Ok(said.into())
    }

    /// Names of protocols, indexed by number from 0 (`Unknown`).
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let module = self.module.as_ptr();
        // SAFETY: the module is valid.
        let count = unsafe { raw::ndpi_get_num_supported_protocols(module) };
        (0..count).map(move |number| {
            // SAFETY: the module is valid.
            let name = unsafe { raw::ndpi_get_proto_by_id(module, number) };
            if name.is_null() {
                return "";
            }
            // SAFETY: names are null-terminated and live as long as the module, which is borrowed.
            unsafe { CStr::from_ptr(name) }.to_str().unwrap_or_default()
        })
    }

    /// Counters of the arena.
    pub fn arena_counters(&self) -> ArenaCounters {
        let (used, peak, refused) = self.memories.flows.arena.usage();
        ArenaCounters {
            size: self.memories.flows.bytes(),
            used,
            peak,
            refused,
            foreign: self.memories.flows.foreign + self.memories.ciphers.foreign,
        }
    }

    /// Makes the arena refuse all allocations after this number of requests.
    #[cfg(test)]
    pub(crate) fn refuse_in(&mut self, requests: Option<u32>) {
        self.memories.flows.arena.refuse_in = requests;
    }
}

impl Drop for DetectionModule {
    fn drop(&mut self) {
        let _making = MODULE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the module is owned and destroyed once, and no other module is being created or destroyed. The
        // module's memory is from the C library, because arena memory belongs to flows only, and flows have no pointers
        // into the module.
        unsafe { raw::ndpi_exit_detection_module(self.module.as_ptr()) }
    }
}

impl std::fmt::Debug for DetectionModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Module")
    }
}

/// Revision of the loaded library.
pub fn revision() -> &'static str {
    // SAFETY: the function returns a constant of the library.
    unsafe { CStr::from_ptr(raw::ndpi_revision()) }
        .to_str()
        .unwrap_or_default()
}

fn version() -> Error {
    Error::Version(revision().into())
}

fn same_version() -> Result<(), Error> {
    // SAFETY: both functions return constants.
    let (interface, flow) = unsafe {
        (
            u32::from(raw::ndpi_get_api_version()),
            raw::ndpi_detection_get_sizeof_ndpi_flow_struct() as usize,
        )
    };
    if interface != raw::NDPI_API_VERSION || flow != DetectionModule::FLOW {
        return Err(version());
    }
    Ok(())
}

fn zeroed_flows(flows: u32) -> Box<[raw::ndpi_flow_struct]> {
    let layout = Layout::array::<raw::ndpi_flow_struct>(flows as usize).expect("a size in the address space");
    if layout.size() == 0 {
        return Box::default();
    }
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc_zeroed(layout) }.cast::<raw::ndpi_flow_struct>();
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: the memory has this length and is from the global allocator; a flow is plain C data, for which all zeros
    // is valid.
    unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(memory, flows as usize)) }
}

/// Triggers lazy initialisation in libgcrypt (ciphers for QUIC) and the C library (time zone). Both libraries keep the
/// memory that they allocate.
fn initialise_libraries() -> Result<(), Error> {
    let key = [0u8; 32];
    for mode in [raw::GCRY_CIPHER_MODE_ECB, raw::GCRY_CIPHER_MODE_GCM] {
        let mut cipher: *mut c_void = ptr::null_mut();
        // SAFETY: the cipher is opened, gets a key of the right length, and is closed.
        unsafe {
            if raw::gcry_cipher_open(&raw mut cipher, raw::GCRY_CIPHER_AES128, mode as c_int, 0) != 0 {
                return Err(Error::Start);
            }
            raw::gcry_cipher_setkey(cipher, key.as_ptr().cast(), 16);
            raw::gcry_cipher_close(cipher);
        }
    }
    let mut digest: *mut c_void = ptr::null_mut();
    // SAFETY: the digest is opened, gets a key, is read, and is closed.
    unsafe {
        if raw::gcry_md_open(&raw mut digest, raw::GCRY_MD_SHA256, raw::GCRY_MD_FLAG_HMAC as c_uint) != 0 {
            return Err(Error::Start);
        }
        raw::gcry_md_setkey(digest, key.as_ptr().cast(), key.len());
        raw::gcry_md_read(digest, raw::GCRY_MD_SHA256);
        raw::gcry_md_close(digest);
        raw::tzset();
    }
    Ok(())
}
