//! Memory of buffers: slots of fixed size from a pool, addressed by handles of index and generation.

mod digest;

use crate::signature::Buffer;
use crate::source_quota::{POOL_MULTIPLE, SlotOwners};
use crate::work_budget::WorkBudget;
pub use digest::FileHashes;
use digest::{Hashing, Progress};

const BUFFERS: usize = Buffer::Base64 as usize + 1;

/// All buffers that a parser may fill. The index of a buffer is its bit in [`State::dirty`].
pub(super) const PARSED_BUFFERS: [Buffer; 38] = [
    Buffer::HttpUri,
    Buffer::HttpRawUri,
    Buffer::HttpMethod,
    Buffer::HttpHeader,
    Buffer::HttpRawHeader,
    Buffer::HttpHost,
    Buffer::HttpRawHost,
    Buffer::HttpCookie,
    Buffer::HttpUserAgent,
    Buffer::HttpClientBody,
    Buffer::HttpStatusCode,
    Buffer::HttpStatusMessage,
    Buffer::FileData,
    Buffer::DnsQuery,
    Buffer::TlsSni,
    Buffer::Ja3Hash,
    Buffer::Ja3sHash,
    Buffer::Ja4Hash,
    Buffer::TlsCertSubject,
    Buffer::TlsCertIssuer,
    Buffer::TlsCertSerial,
    Buffer::TlsCertFingerprint,
    Buffer::TlsVersion,
    Buffer::TlsAlpn,
    Buffer::SmtpHelo,
    Buffer::SmtpMailFrom,
    Buffer::SmtpRecipient,
    Buffer::FtpDataCommand,
    Buffer::FtpCommand,
    Buffer::FtpCommandData,
    Buffer::FtpCompletionCode,
    Buffer::FtpReply,
    Buffer::FtpMode,
    Buffer::FtpDynamicPort,
    Buffer::FileMd5,
    Buffer::FileSha1,
    Buffer::FileSha256,
    Buffer::Payload,
];

/// The buffers are in the order of their numbers, and the number of [`Buffer::Payload`] is higher than all listed
/// numbers.
const _: () = {
    let mut place = 0;
    while place + 1 < PARSED_BUFFERS.len() {
        assert!(PARSED_BUFFERS[place] as usize == place + 1);
        place += 1;
    }
    assert!(PARSED_BUFFERS[place] as usize == 0);
};

/// Capacity of each buffer in bytes. Bytes that don't fit are discarded, and the buffer is marked as truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLimits {
    /// Capacity of [`Buffer::HttpMethod`]. A word of more than 32 bytes is not a method.
    pub method: u32,
    /// Capacity of each of [`Buffer::HttpUri`] and [`Buffer::HttpRawUri`].
    pub uri: u32,
    /// Capacity of each of [`Buffer::HttpHeader`] and [`Buffer::HttpRawHeader`].
    pub header: u32,
    /// Capacity of each of [`Buffer::HttpHost`] (at most 512), [`Buffer::HttpRawHost`], [`Buffer::TlsSni`] and [`Buffer::DnsQuery`].
    pub host: u32,
    /// Capacity of [`Buffer::HttpCookie`].
    pub cookie: u32,
    /// Capacity of [`Buffer::HttpUserAgent`].
    pub user_agent: u32,
    /// Capacity of [`Buffer::HttpStatusMessage`].
    pub status_message: u32,
    /// Capacity of the window of a body, which [`Buffer::HttpClientBody`] and [`Buffer::FileData`] share. When the
    /// window moves on, at least half of its bytes are retained. A body is never truncated.
    pub body: u32,
}

impl Default for BufferLimits {
    fn default() -> Self {
        Self {
            method: 32,
            uri: 2048,
            header: 8192,
            host: 256,
            cookie: 4096,
            user_agent: 512,
            status_message: 128,
            body: 4096,
        }
    }
}

const STATUS_CODE: u32 = 16;
const HASH: u32 = 32;
const JA4: u32 = 36;
/// Capacity of [`Buffer::TlsAlpn`], the name of a protocol.
const PROTOCOL: u32 = 64;
/// Capacity of each of [`Buffer::TlsCertSubject`] and [`Buffer::TlsCertIssuer`].
const DISTINGUISHED_NAME: u32 = 512;
/// Capacity of [`Buffer::TlsCertSerial`]: 20 bytes (RFC 5280, section 4.1.2.2), each as two digits and a colon.
const SERIAL: u32 = 63;
/// Capacity of [`Buffer::TlsCertFingerprint`].
const FINGERPRINT: u32 = 59;
/// Maximum number of retained bytes of a certificate, for parsing.
pub(super) const CERTIFICATE: u32 = 2048;

/// Location of each buffer in a slot: start and length.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    places: [(u32, u32); BUFFERS],
    bytes: u32,
}

impl Layout {
    fn new(capacities: &[(Buffer, u32)]) -> Self {
        let (mut places, mut bytes) = ([(0, 0); BUFFERS], 0);
        for &(buffer, capacity) in capacities {
            places[buffer as usize] = (bytes, capacity);
            bytes += capacity;
        }
        Self { places, bytes }
    }

    /// Layout for an HTTP message of either direction, a mail, or an FTP file.
    pub fn message(limits: &BufferLimits) -> Self {
        Self::new(&[
            (Buffer::HttpMethod, limits.method),
            (Buffer::HttpUri, limits.uri),
            (Buffer::HttpRawUri, limits.uri),
            (Buffer::HttpHeader, limits.header),
            (Buffer::HttpRawHeader, limits.header),
            (Buffer::HttpHost, limits.host),
            (Buffer::HttpRawHost, limits.host),
            (Buffer::HttpCookie, limits.cookie),
            (Buffer::HttpUserAgent, limits.user_agent),
            (Buffer::HttpStatusCode, STATUS_CODE),
            (Buffer::HttpStatusMessage, limits.status_message),
            (Buffer::FileData, limits.body.max(2)),
            (Buffer::SmtpHelo, limits.host),
            (Buffer::SmtpMailFrom, limits.host),
            (Buffer::SmtpRecipient, limits.host),
            (Buffer::FtpDataCommand, 4),
            (Buffer::FileMd5, 16),
            (Buffer::FileSha1, 20),
            (Buffer::FileSha256, 32),
        ])
    }

    /// Layout for a DNS message or a ClientHello.
    pub fn name(limits: &BufferLimits) -> Self {
        Self::new(&[
            (Buffer::DnsQuery, limits.host),
            (Buffer::TlsSni, limits.host),
            (Buffer::Ja3Hash, HASH),
            (Buffer::Ja4Hash, JA4),
            (Buffer::TlsAlpn, PROTOCOL),
        ])
    }

    /// Layout for an FTP command or a line of a reply, with at most `line` bytes.
    pub fn command(line: u32) -> Self {
        Self::new(&[
            (Buffer::FtpCommand, line),
            (Buffer::FtpCommandData, line),
            (Buffer::FtpCompletionCode, 3),
            (Buffer::FtpReply, line),
            (Buffer::FtpMode, 7),
            (Buffer::FtpDynamicPort, 2),
        ])
    }

    /// Layout for the messages of a TLS server. The certificate is stored in the space of the payload, which a TLS server's messages
    /// don't use.
    pub fn server() -> Self {
        Self::new(&[
            (Buffer::Ja3sHash, HASH),
            (Buffer::TlsVersion, 2),
            (Buffer::TlsAlpn, PROTOCOL),
            (Buffer::TlsCertSubject, DISTINGUISHED_NAME),
            (Buffer::TlsCertIssuer, DISTINGUISHED_NAME),
            (Buffer::TlsCertSerial, SERIAL),
            (Buffer::TlsCertFingerprint, FINGERPRINT),
            (Buffer::Payload, CERTIFICATE),
        ])
    }
}

/// One buffer of a slot. Bytes from `shown` to `written` may still be removed.
#[derive(Clone, Copy, Debug, Default)]
struct Field {
    base: u64,
    written: u32,
    shown: u32,
    reported: u32,
    complete: bool,
    truncated: bool,
}

#[derive(Clone, Debug)]
struct State {
    serial: u32,
    open: bool,
    client: bool,
    /// Whether the whole message was received, so that its buffers are complete.
    whole: bool,
    dirty: u64,
    /// Number of bytes of the encoded body.
    length: u64,
    /// Digits of the version, as bytes.
    version: u16,
    /// HTTP/2 stream of the message.
    stream: u32,
    hashes: Progress,
    fields: [Field; BUFFERS],
}

impl Default for State {
    fn default() -> Self {
        Self {
            serial: 0,
            open: false,
            client: false,
            whole: false,
            dirty: 0,
            length: 0,
            version: 0,
            stream: 0,
            hashes: Progress::Begins,
            fields: [Field::default(); BUFFERS],
        }
    }
}

/// Index and generation of a slot. A stale handle refers to no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHandle {
    index: u32,
    serial: u32,
}

/// A pool of slots.
#[derive(Debug)]
pub struct Slots {
    layout: Layout,
    bytes: Box<[u8]>,
    states: Box<[State]>,
    free: Box<[u32]>,
    available: usize,
    /// State of the file hashes, for slots with files.
    hashing: Option<Hashing>,
    pub(super) holders: SlotOwners,
    /// HTTP/2 stream of the slots allocated from now on; 0 for other protocols.
    pub(super) stream: u32,
}

impl Slots {
    pub(super) fn new(count: u32, layout: Layout) -> Self {
        Self {
            bytes: vec![0; count as usize * layout.bytes as usize].into(),
            states: vec![State::default(); count as usize].into(),
            free: (0..count).rev().collect(),
            available: count as usize,
            hashing: None,
            holders: SlotOwners::new(count as usize, POOL_MULTIPLE),
            stream: 0,
            layout,
        }
    }

    /// Creates a pool of slots for files. Hashing is charged to a work budget.
    pub(super) fn for_files(count: u32, layout: Layout, work: WorkBudget) -> Self {
        Self {
            hashing: Some(Hashing::new(count, work)),
            ..Self::new(count, layout)
        }
    }

    /// Number of free slots.
    pub fn available(&self) -> usize {
        self.available
    }

    /// Size in bytes of a slot.
    pub fn bytes_per_slot(&self) -> usize {
        self.layout.bytes as usize + size_of::<State>() + size_of::<u32>()
    }

    /// Content of a slot; `None` if the handle is stale.
    pub fn slot(&self, handle: SlotHandle) -> Option<Slot<'_>> {
        let state = self.states.get(handle.index as usize)?;
        (state.open && state.serial == handle.serial).then(|| {
            let start = handle.index as usize * self.layout.bytes as usize;
            let bytes = &self.bytes[start..start + self.layout.bytes as usize];
            Slot(Some(Open {
                layout: &self.layout,
                state,
                bytes,
            }))
        })
    }

    pub(super) fn allocate(&mut self, client: bool) -> Option<SlotHandle> {
        if !self.holders.permits(1, self.available) {
            return None;
        }
        self.available -= 1;
        let index = self.free[self.available];
        self.holders.assign(index);
        let state = &mut self.states[index as usize];
        let serial = state.serial;
        *state = State {
            serial,
            open: true,
            client,
            stream: self.stream,
            ..State::default()
        };
        Some(SlotHandle { index, serial })
    }

    pub(super) fn release(&mut self, handle: SlotHandle) {
        let Some(state) = self.states.get_mut(handle.index as usize) else {
            return;
        };
        if state.open && state.serial == handle.serial {
            state.open = false;
            state.serial = state.serial.wrapping_add(1);
            self.free[self.available] = handle.index;
            self.available += 1;
            self.holders.release(handle.index);
        }
    }

    pub(super) fn field(&mut self, handle: SlotHandle, buffer: Buffer) -> Option<FieldMut<'_>> {
        let state = self.states.get_mut(handle.index as usize)?;
        let (start, capacity) = self.layout.places[buffer as usize];
        let start = handle.index as usize * self.layout.bytes as usize + start as usize;
        let open = state.open && state.serial == handle.serial;
        open.then(|| FieldMut {
            field: &mut state.fields[buffer as usize],
            dirty: &mut state.dirty,
            bit: 1 << buffer as u64,
            bytes: &mut self.bytes[start..start + capacity as usize],
        })
    }

    /// Adds to the number of encoded body bytes.
    pub(super) fn add_length(&mut self, handle: SlotHandle, bytes: usize) {
        let state = self.states.get_mut(handle.index as usize);
        if let Some(state) = state.filter(|state| state.open && state.serial == handle.serial) {
            state.length += bytes as u64;
        }
    }

    /// Records, before the first event of a message is reported, that the whole message was received.
    pub(super) fn set_whole(&mut self, handle: SlotHandle) {
        let state = self.states.get_mut(handle.index as usize);
        if let Some(state) = state.filter(|state| state.open && state.serial == handle.serial) {
            state.whole = true;
        }
    }

    /// Sets the version of the message.
    pub(super) fn set_version(&mut self, handle: SlotHandle, version: u16) {
        let state = self.states.get_mut(handle.index as usize);
        if let Some(state) = state.filter(|state| state.open && state.serial == handle.serial) {
            state.version = version;
        }
    }

    /// Returns a buffer that grew or became complete since the last call, and the offset of its new bytes.
    pub(super) fn next_dirty(&mut self, handle: SlotHandle) -> Option<(Buffer, usize)> {
        let state = self.states.get_mut(handle.index as usize)?;
        let place = match state.dirty & !(1 << Buffer::Payload as u64) {
            0 if state.dirty == 0 => return None,
            0 => PARSED_BUFFERS.len() - 1,
            others => others.trailing_zeros() as usize - 1,
        };
        let buffer = *PARSED_BUFFERS.get(place)?;
        state.dirty &= !(1 << buffer as u64);
        let field = &mut state.fields[buffer as usize];
        let from = std::mem::replace(&mut field.reported, field.shown);
        Some((buffer, from as usize))
    }
}

/// A buffer that is being filled.
pub(super) struct FieldMut<'a> {
    field: &'a mut Field,
    dirty: &'a mut u64,
    bit: u64,
    bytes: &'a mut [u8],
}

impl FieldMut<'_> {
    /// Appends bytes that are not visible yet. Returns false if some bytes did not fit.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        if self.field.truncated || self.field.complete {
            return !self.field.truncated;
        }
        let written = self.field.written as usize;
        let fits = bytes.len().min(self.bytes.len() - written);
        self.bytes[written..written + fits].copy_from_slice(&bytes[..fits]);
        self.field.written += fits as u32;
        self.field.truncated = fits < bytes.len();
        !self.field.truncated
    }

    /// Makes the appended bytes visible; afterwards they can't be removed.
    pub fn show(&mut self) {
        if self.field.shown != self.field.written {
            self.field.shown = self.field.written;
            *self.dirty |= self.bit;
        }
    }

    /// Removes the appended bytes that are not visible yet.
    pub fn undo(&mut self) {
        self.field.written = self.field.shown;
    }

    /// Marks the buffer as complete.
    pub fn complete(&mut self) {
        if !self.field.complete {
            self.field.complete = true;
            *self.dirty |= self.bit;
        }
    }

    /// Clears the buffer.
    pub fn clear(&mut self) {
        *self.field = Field::default();
    }

    /// All written bytes, visible or not.
    pub fn written(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.field.written as usize]
    }

    /// Shortens the written bytes, but does not remove visible bytes.
    pub fn truncate(&mut self, length: usize) {
        self.field.written = self.field.written.min(length as u32).max(self.field.shown);
    }

    /// Appends bytes to a window, which moves on when it is full. Returns the number of appended bytes, and whether the
    /// window is full.
    pub fn slide(&mut self, bytes: &[u8]) -> (usize, bool) {
        let capacity = self.bytes.len();
        if self.field.written as usize == capacity {
            let keep = capacity / 2;
            self.bytes.copy_within(capacity - keep.., 0);
            self.field.base += (capacity - keep) as u64;
            (self.field.written, self.field.shown, self.field.reported) = (keep as u32, keep as u32, keep as u32);
        }
        let written = self.field.written as usize;
        let fits = bytes.len().min(capacity - written);
        self.bytes[written..written + fits].copy_from_slice(&bytes[..fits]);
        self.field.written += fits as u32;
        self.show();
        (fits, self.field.written as usize == capacity)
    }
}

#[derive(Clone, Copy, Debug)]
struct Open<'a> {
    layout: &'a Layout,
    state: &'a State,
    bytes: &'a [u8],
}

/// Content of a slot.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a>(Option<Open<'a>>);

/// Content of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldView<'a> {
    /// Bytes of the buffer; for a body, only the most recent bytes.
    pub bytes: &'a [u8],
    /// Offset of `bytes` from the start of the buffer. The offset is 0 except for a body.
    pub base: u64,
    /// Whether the buffer is complete and grows no more.
    pub complete: bool,
    /// Whether bytes were discarded because they did not fit.
    pub truncated: bool,
}

impl<'a> Slot<'a> {
    /// Slot value for a message without a slot.
    pub(super) const NO_SLOT: Slot<'static> = Slot(None);

    /// Content of a buffer; empty if the message does not have it.
    pub fn buffer(&self, buffer: Buffer) -> FieldView<'a> {
        const EMPTY: FieldView = FieldView {
            bytes: &[],
            base: 0,
            complete: false,
            truncated: false,
        };
        let Some(Open { layout, state, bytes }) = self.0 else {
            return EMPTY;
        };
        let buffer = match buffer {
            Buffer::HttpClientBody if state.client => Buffer::FileData,
            Buffer::HttpClientBody => return EMPTY,
            other => other,
        };
        let (start, field) = (
            layout.places[buffer as usize].0 as usize,
            &state.fields[buffer as usize],
        );
        FieldView {
            bytes: &bytes[start..start + field.shown as usize],
            base: field.base,
            complete: field.complete || state.whole,
            truncated: field.truncated,
        }
    }

    /// Number of received encoded body bytes of an HTTP message, without chunk headers.
    pub fn length(&self) -> u64 {
        self.0.map_or(0, |open| open.state.length)
    }

    /// Version of an HTTP message, with its digits as bytes; 0 if the version is unknown.
    pub fn version(&self) -> u16 {
        self.0.map_or(0, |open| open.state.version)
    }

    /// Unique identifier of the slot and its generation.
    pub(crate) fn identity(&self) -> (usize, u32) {
        self.0.map_or((0, 0), |open| {
            (std::ptr::from_ref(open.state).addr(), open.state.serial)
        })
    }

    /// HTTP/2 stream of the message; 0 for other protocols.
    pub fn stream(&self) -> u32 {
        self.0.map_or(0, |open| open.state.stream)
    }

    /// Whether the whole message was received before its first event, so that every buffer is complete with this event.
    pub fn is_whole(&self) -> bool {
        self.0.is_some_and(|open| open.state.whole)
    }

    /// Whether the message is from the client.
    pub fn is_client(&self) -> bool {
        self.0.is_some_and(|open| open.state.client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_of_an_earlier_use_finds_nothing() {
        let mut slots = Slots::new(1, Layout::message(&BufferLimits::default()));
        let first = slots.allocate(true).expect("one is free");
        assert_eq!(None, slots.allocate(true));
        slots
            .field(first, Buffer::HttpUri)
            .expect("it is open")
            .push(b"/secret");
        slots.release(first);
        slots.release(first);
        assert_eq!(1, slots.available());
        let second = slots.allocate(true).expect("one is free");
        assert_ne!(first, second);
        assert!(slots.slot(first).is_none() && slots.field(first, Buffer::HttpUri).is_none());
        assert_eq!(
            b"",
            slots.slot(second).expect("it is open").buffer(Buffer::HttpUri).bytes
        );
    }

    #[test]
    fn window_keeps_half_when_it_goes_on() {
        let mut slots = Slots::new(
            1,
            Layout::message(&BufferLimits {
                body: 8,
                ..BufferLimits::default()
            }),
        );
        let handle = slots.allocate(false).expect("one is free");
        for (bytes, taken, expected, base) in [
            (&b"abcdef"[..], (6, false), &b"abcdef"[..], 0),
            (b"ghij", (2, true), b"abcdefgh", 0),
            (b"ij", (2, false), b"efghij", 4),
        ] {
            assert_eq!(
                taken,
                slots.field(handle, Buffer::FileData).expect("it is open").slide(bytes)
            );
            let view = slots.slot(handle).expect("it is open").buffer(Buffer::FileData);
            assert_eq!((expected, base), (view.bytes, view.base));
        }
    }

    #[test]
    fn what_is_taken_back_was_never_shown() {
        let mut slots = Slots::new(
            1,
            Layout::message(&BufferLimits {
                uri: 4,
                ..BufferLimits::default()
            }),
        );
        let handle = slots.allocate(true).expect("one is free");
        let mut field = slots.field(handle, Buffer::HttpUri).expect("it is open");
        assert!(field.push(b"ab"));
        field.show();
        assert!(field.push(b"cd"));
        field.undo();
        assert!(!field.push(b"xyz"));
        field.show();
        let view = slots.slot(handle).expect("it is open").buffer(Buffer::HttpUri);
        assert_eq!((&b"abxy"[..], true, false), (view.bytes, view.truncated, view.complete));
    }
}
