//! Collects the events of messages, and compares each event with the slot.

use std::collections::{BTreeMap, BTreeSet};

use sluice_inspect::protocols::{Anomaly, BufferLimits, Http, MessageEvent, ParserCapacity, ParserPools, Slot};
use sluice_inspect::signature::{Buffer, Toward};

/// A complete message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    pub buffers: BTreeMap<Buffer, Vec<u8>>,
    pub complete: BTreeSet<Buffer>,
    pub truncated: BTreeSet<Buffer>,
    pub anomalies: Vec<Anomaly>,
    /// Offset and length of the body's window at the end of the message.
    pub window: (u64, usize),
    pub ended: bool,
}

impl Message {
    #[allow(dead_code)]
    /// A buffer as text; empty if the buffer does not exist.
    pub fn text(&self, buffer: Buffer) -> String {
        self.buffers
            .get(&buffer)
            .map(|bytes| bytes.escape_ascii().to_string())
            .unwrap_or_default()
    }
}

/// The messages of one direction.
#[derive(Debug, Default)]
pub struct Gathered {
    pub messages: Vec<Message>,
    open: bool,
}

impl Gathered {
    pub fn hear(&mut self, slot: Slot<'_>, piece: MessageEvent) {
        if !self.open {
            self.messages.push(Message::default());
            self.open = true;
        }
        let message = self.messages.last_mut().unwrap();
        match piece {
            MessageEvent::Grew {
                buffer,
                fresh,
                complete,
            } => {
                let view = slot.buffer(buffer);
                let known = message.buffers.entry(buffer).or_default();
                assert_eq!(view.bytes.len(), fresh.end, "{buffer:?}: fresh bytes are the last ones");
                assert_eq!(
                    known.len() as u64,
                    view.base + fresh.start as u64,
                    "{buffer:?}: no byte is left out"
                );
                assert!(
                    known.ends_with(&view.bytes[..fresh.start]),
                    "{buffer:?}: what was shown stays"
                );
                assert_eq!(view.complete, complete);
                known.extend(&view.bytes[fresh]);
                assert!(!message.complete.contains(&buffer), "{buffer:?} is complete once");
                if complete {
                    message.complete.insert(buffer);
                }
                if view.truncated {
                    message.truncated.insert(buffer);
                }
            }
            MessageEvent::Anomaly(anomaly) => message.anomalies.push(anomaly),
            MessageEvent::End => {
                for (buffer, known) in &message.buffers {
                    let view = slot.buffer(*buffer);
                    assert!(view.complete, "{buffer:?} is complete at the end");
                    assert!(known.ends_with(view.bytes));
                    assert_eq!(known.len() as u64, view.base + view.bytes.len() as u64);
                }
                let body = slot.buffer(Buffer::FileData);
                message.window = (body.base, body.bytes.len());
                message.ended = true;
                message.anomalies.sort();
                self.open = false;
            }
        }
    }
}

/// Capacities small enough that limits are reached.
#[allow(dead_code)]
pub fn small() -> ParserCapacity {
    let limits = BufferLimits {
        method: 16,
        uri: 64,
        header: 256,
        host: 32,
        cookie: 32,
        user_agent: 32,
        body: 64,
        ..BufferLimits::default()
    };
    ParserCapacity {
        messages: 4,
        names: 4,
        inflaters: 2,
        limits,
        decoded_bytes: 1 << 20,
        decoded_ratio: 100,
        transactions: 0,
    }
}

/// Result of a connection.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub requests: Vec<Message>,
    pub responses: Vec<Message>,
    pub opaque: (bool, bool),
    pub parsed: (usize, usize),
}

/// Runs a conversation. Each part is split at the positions that `cut` returns for its length. Both directions of the
/// connection are closed afterwards.
#[allow(dead_code)]
pub fn converse(
    capacity: &ParserCapacity,
    parts: &[(Toward, &[u8])],
    mut cut: impl FnMut(usize) -> Vec<usize>,
) -> Outcome {
    let mut store = ParserPools::new(capacity);
    let pages = store.inflaters.pages();
    let (mut http, mut requests, mut responses) = (Http::default(), Gathered::default(), Gathered::default());
    let mut parsed = (0, 0);
    for (toward, bytes) in parts {
        let mut cuts = cut(bytes.len());
        cuts.push(bytes.len());
        cuts.sort();
        let mut from = 0;
        for to in cuts {
            let piece = &bytes[from..to];
            from = to;
            match toward {
                Toward::Server => parsed.0 += http.request(&mut store, piece, &mut |s: Slot, p| requests.hear(s, p)),
                Toward::Client => parsed.1 += http.response(&mut store, piece, &mut |s: Slot, p| responses.hear(s, p)),
            }
        }
    }
    let opaque = (http.is_request_opaque(), http.is_response_opaque());
    http.close_request(&mut store, &mut |slot: Slot, piece| requests.hear(slot, piece));
    http.close_response(&mut store, &mut |slot: Slot, piece| responses.hear(slot, piece));
    http.release_ended(&mut store);
    assert_eq!(
        capacity.messages as usize,
        store.messages.available(),
        "every slot came back"
    );
    assert_eq!(
        capacity.inflaters as usize,
        store.inflaters.available(),
        "every decoder came back"
    );
    assert_eq!(pages, store.inflaters.pages(), "every page came back");
    let told = requests
        .messages
        .iter()
        .chain(&responses.messages)
        .flat_map(|message| &message.anomalies);
    let mut counted = [0; Anomaly::ALL.len()];
    told.for_each(|&anomaly| counted[anomaly as usize] += 1);
    for &anomaly in Anomaly::ALL {
        assert_eq!(
            counted[anomaly as usize],
            store.anomalies.of(anomaly),
            "{}",
            anomaly.name()
        );
    }
    Outcome {
        requests: requests.messages,
        responses: responses.messages,
        opaque,
        parsed,
    }
}

/// Runs a conversation without splitting its parts.
#[allow(dead_code)]
pub fn whole(parts: &[(Toward, &[u8])]) -> Outcome {
    converse(
        &ParserCapacity {
            messages: 4,
            names: 4,
            inflaters: 2,
            ..ParserCapacity::default()
        },
        parts,
        |_| Vec::new(),
    )
}
