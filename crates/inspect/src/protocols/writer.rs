//! Writes the output of parsers to the slot of the message, if any, and reports events to the sink.

use super::anomaly::AnomalySet;
use super::{Anomaly, AnomalyCounts, MessageEvent, Slot, SlotHandle, Slots};
use crate::signature::Buffer;

/// Access to the slot of a message while bytes are parsed.
pub(super) struct MessageWriter<'a, S> {
    pub slots: &'a mut Slots,
    pub counts: &'a mut AnomalyCounts,
    pub handle: Option<SlotHandle>,
    pub seen: AnomalySet,
    pub sink: &'a mut S,
}

impl<S: FnMut(Slot<'_>, MessageEvent)> MessageWriter<'_, S> {
    /// Starts a new message, and releases the slot of the preceding message.
    pub fn start(&mut self, client: bool) {
        self.release();
        self.seen = AnomalySet::default();
        self.handle = self.slots.allocate(client);
        if self.handle.is_none() {
            self.anomaly(Anomaly::NoSlot);
        }
    }

    pub fn release(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.slots.release(handle);
        }
    }

    /// Counts and reports an anomaly, once per message.
    pub fn anomaly(&mut self, anomaly: Anomaly) {
        if anomaly.is_missed_content()
            && let Some(handle) = self.handle
        {
            self.slots.file_incomplete(handle);
        }
        if self.seen.insert(anomaly) {
            self.counts.add(anomaly);
            self.report(MessageEvent::Anomaly(anomaly));
        }
    }

    fn report(&mut self, piece: MessageEvent) {
        let slot = self
            .handle
            .and_then(|handle| self.slots.slot(handle))
            .unwrap_or(Slot::NO_SLOT);
        (self.sink)(slot, piece);
    }

    /// Appends bytes that are not visible yet.
    pub fn push(&mut self, buffer: Buffer, bytes: &[u8]) {
        let field = self.handle.and_then(|handle| self.slots.field(handle, buffer));
        if field.is_some_and(|mut field| !field.push(bytes)) {
            self.anomaly(Anomaly::TooLong);
        }
    }

    /// Appends bytes, and makes them and all bytes before them visible.
    pub fn append(&mut self, buffer: Buffer, bytes: &[u8]) {
        self.push(buffer, bytes);
        self.show(buffer);
    }

    /// Number of bytes appended to a buffer.
    pub fn length_of(&mut self, buffer: Buffer) -> usize {
        let field = self.handle.and_then(|handle| self.slots.field(handle, buffer));
        field.map_or(0, |mut field| field.written().len())
    }

    pub fn show(&mut self, buffer: Buffer) {
        if let Some(mut field) = self.handle.and_then(|handle| self.slots.field(handle, buffer)) {
            field.show();
        }
    }

    pub fn undo(&mut self, buffer: Buffer) {
        if let Some(mut field) = self.handle.and_then(|handle| self.slots.field(handle, buffer)) {
            field.undo();
        }
    }

    pub fn clear(&mut self, buffer: Buffer) {
        if let Some(mut field) = self.handle.and_then(|handle| self.slots.field(handle, buffer)) {
            field.clear();
        }
        if buffer == Buffer::FileData
            && let Some(handle) = self.handle
        {
            self.slots.start_file(handle);
        }
    }

    /// Writes the separator between the preceding value of a list and the next value.
    pub fn join(&mut self, buffer: Buffer) {
        let mut started = false;
        self.edit(buffer, |written| {
            started = !written.is_empty();
            written.len()
        });
        if started {
            self.push(buffer, b", ");
        }
    }

    /// Excludes the line end at the current end of the file from the file's hashes.
    pub fn file_ends_before_line_end(&mut self) {
        self.flush();
        if let Some(handle) = self.handle {
            self.slots.file_ends_before_line_end(handle);
        }
    }

    pub fn complete(&mut self, buffers: &[Buffer]) {
        for &buffer in buffers {
            if let Some(mut field) = self.handle.and_then(|handle| self.slots.field(handle, buffer)) {
                field.complete();
            }
        }
    }

    /// Edits the written bytes that are not visible yet. `edit` returns the number of remaining bytes.
    pub fn edit(&mut self, buffer: Buffer, edit: impl FnOnce(&mut [u8]) -> usize) {
        if let Some(mut field) = self.handle.and_then(|handle| self.slots.field(handle, buffer)) {
            let length = edit(field.written());
            field.truncate(length);
        }
    }

    /// Adds to the number of encoded body bytes.
    pub fn count(&mut self, bytes: usize) {
        if let Some(handle) = self.handle {
            self.slots.add_length(handle, bytes);
        }
    }

    /// Sets the digits of the message's version.
    pub fn version(&mut self, version: u16) {
        if let Some(handle) = self.handle {
            self.slots.set_version(handle, version);
        }
    }

    /// Appends bytes of a body. An event is reported whenever the window is full, so that the sink receives every byte.
    pub fn body(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some(mut field) = self
                .handle
                .and_then(|handle| self.slots.field(handle, Buffer::FileData))
            else {
                return;
            };
            let (taken, full) = field.slide(bytes);
            bytes = &bytes[taken..];
            if full {
                self.flush();
            }
        }
    }

    /// Reports the buffers that grew.
    pub fn flush(&mut self) {
        let Some(handle) = self.handle else { return };
        while let Some((buffer, from)) = self.slots.next_dirty(handle) {
            if buffer == Buffer::FileData {
                self.slots.file_grows(handle, from);
            }
            let Some(slot) = self.slots.slot(handle) else { return };
            let view = slot.buffer(buffer);
            let (fresh, complete) = (from..view.bytes.len(), view.complete);
            if buffer == Buffer::FileData && slot.is_client() {
                let fresh = fresh.clone();
                (self.sink)(
                    slot,
                    MessageEvent::Grew {
                        buffer: Buffer::HttpClientBody,
                        fresh,
                        complete,
                    },
                );
            }
            (self.sink)(
                slot,
                MessageEvent::Grew {
                    buffer,
                    fresh,
                    complete,
                },
            );
        }
    }

    /// Ends the message.
    pub fn end(&mut self) {
        self.flush();
        self.report(MessageEvent::End);
    }
}
