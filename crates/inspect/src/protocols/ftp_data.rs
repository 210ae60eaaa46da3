//! An FTP data connection. The whole content of the connection is a file.

use super::anomaly::AnomalySet;
use super::expectations::Transfer;
use super::writer::MessageWriter;
use super::{Anomaly, MessageEvent, ParserPools, Slot, SlotHandle};
use crate::signature::{Buffer, Toward};

/// A data connection, on which either host may send.
#[derive(Debug, Default)]
pub struct FtpData {
    handle: Option<SlotHandle>,
    seen: AnomalySet,
    transfer: Transfer,
    /// Receiver of the file.
    toward: Option<Toward>,
}

impl FtpData {
    /// Creates the parser for a command on the control connection.
    pub fn new(transfer: Transfer) -> Self {
        Self {
            transfer,
            ..Self::default()
        }
    }

    fn write<S, F>(&mut self, store: &mut ParserPools, sink: &mut S, write: F)
    where
        S: FnMut(Slot<'_>, MessageEvent),
        F: FnOnce(&mut MessageWriter<'_, S>),
    {
        let starts = self.handle.is_none() && !self.seen.has(Anomaly::NoSlot);
        let mut writer = MessageWriter {
            slots: &mut store.messages,
            counts: &mut store.anomalies,
            handle: self.handle,
            seen: self.seen,
            sink,
        };
        if starts {
            writer.start(false);
            let command: &[u8] = match self.transfer {
                Transfer::Retrieve => b"RETR",
                Transfer::Store => b"STOR",
                Transfer::Other => b"",
            };
            writer.append(Buffer::FtpDataCommand, command);
            writer.complete(&[Buffer::FtpDataCommand]);
        }
        write(&mut writer);
        writer.flush();
        (self.handle, self.seen) = (writer.handle, writer.seen);
    }

    /// Parses the next bytes of the file.
    pub fn bytes<S>(&mut self, store: &mut ParserPools, toward: Toward, bytes: &[u8], sink: &mut S)
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        if bytes.is_empty() {
            return;
        }
        let mixed = *self.toward.get_or_insert(toward) != toward;
        self.write(store, sink, |writer| {
            if mixed && let Some(handle) = writer.handle {
                writer.slots.file_incomplete(handle);
            }
            writer.body(bytes);
        });
    }

    /// Handles the end of a direction's stream, which ends a file that is sent in this direction.
    pub fn close<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, store: &mut ParserPools, toward: Toward, sink: &mut S) {
        if self.handle.is_some() && self.toward == Some(toward) {
            self.write(store, sink, |writer| {
                writer.complete(&[Buffer::FileData]);
                writer.end();
            });
        }
    }

    /// Slot of the file.
    pub fn slot<'a>(&self, store: &'a ParserPools) -> Slot<'a> {
        self.handle
            .and_then(|handle| store.messages.slot(handle))
            .unwrap_or(Slot::NO_SLOT)
    }

    /// Releases the slot at the end of the flow.
    pub fn release(&mut self, store: &mut ParserPools) {
        if let Some(handle) = self.handle.take() {
            store.messages.release(handle);
        }
    }
}
