//! Arbitrary bytes as parser input, for the fuzz targets and for the tests that replay their corpora.

use std::collections::BTreeMap;

use super::ftp::ControlHosts;
use super::probe::{ProtocolProbe, probe_datagram};
use super::{
    BufferLimits, ClientHello, Ftp, Http, Http2, MessageEvent, ParserCapacity, ParserPools, Quic, Slot, Smtp, TlsServer,
};
use crate::signature::{Buffer, Toward};
use crate::work_budget::{PACKET_BUDGET, WorkTokens};

/// Output of a parser: the bytes and the number of completions of each buffer, and the anomalies.
#[derive(Debug, Default, PartialEq, Eq)]
struct ParserOutput {
    buffers: BTreeMap<Buffer, Vec<u8>>,
    ends: BTreeMap<Buffer, usize>,
    anomalies: Vec<super::Anomaly>,
}

fn store() -> ParserPools {
    ParserPools::new(&ParserCapacity {
        messages: 8,
        names: 16,
        inflaters: 1,
        ..ParserCapacity::default()
    })
}

/// Parses bytes of one direction with one parser, in segments of `step` bytes.
fn parse(parser: u8, toward: Toward, bytes: &[u8], step: usize) -> ParserOutput {
    let (mut store, mut reported) = (store(), ParserOutput::default());
    let mut sink = |slot: Slot<'_>, piece: MessageEvent| match piece {
        MessageEvent::Grew {
            buffer,
            fresh,
            complete,
        } => {
            let bytes = slot.buffer(buffer).bytes.get(fresh).unwrap_or_default();
            reported.buffers.entry(buffer).or_default().extend_from_slice(bytes);
            *reported.ends.entry(buffer).or_default() += usize::from(complete);
        }
        MessageEvent::Anomaly(anomaly) => reported.anomalies.push(anomaly),
        MessageEvent::End => {}
    };
    let (mut client, mut server) = (ClientHello::default(), TlsServer::default());
    let (mut http2, mut mail, mut ftp) = (Http2::default(), Smtp::default(), Ftp::default());
    let hosts = ControlHosts {
        client: [10, 0, 0, 1].into(),
        server: [192, 0, 2, 1].into(),
        flow: 1,
        second: 5,
    };
    for part in bytes.chunks(step.max(1)) {
        match (parser & 0x7f) % 5 {
            0 => client.bytes(&mut store, part, &mut sink),
            1 => server.bytes(&mut store, part, &mut sink),
            2 => http2.bytes(&mut store, toward, part, &mut sink),
            3 => mail.bytes(&mut store, toward, part, &mut sink),
            _ => ftp.bytes(&mut store, toward, part, &hosts, &mut sink),
        }
    }
    client.release(&mut store);
    server.release(&mut store);
    http2.release(&mut store);
    mail.release(&mut store);
    let free = [
        store.messages.available(),
        store.names.available(),
        store.servers.available(),
        store.connections.available(),
        store.mail_sessions.available(),
        store.commands.available(),
    ];
    assert_eq!([8, 16, 4, 1, 1, 1], free, "everything came back");
    // The number of times that a buffer was completed must not depend on the segmentation. Buffers that were never
    // completed are ignored.
    reported.ends.retain(|_, count| *count > 0);
    reported.buffers.retain(|_, bytes| !bytes.is_empty());
    reported
}

/// Parses bytes. The first byte selects the parser, and the second byte the segment size.
///
/// # Panics Panics if a parser panics or leaks memory, or if its output depends on the segmentation.
pub fn stream(bytes: &[u8]) {
    let &[parser, step, ref rest @ ..] = bytes else { return };
    let toward = if parser & 0x80 == 0 {
        Toward::Server
    } else {
        Toward::Client
    };
    let whole = parse(parser, toward, rest, usize::MAX);
    let cut = parse(parser, toward, rest, usize::from(step) + 1);
    assert_eq!(whole, cut, "pieces of {}", usize::from(step) + 1);

    let mut recognise = ProtocolProbe::default();
    let (first, _) = recognise.bytes(toward, rest);
    let mut again = ProtocolProbe::default();
    for part in rest.chunks(usize::from(step) + 1) {
        let (said, _) = again.bytes(toward, part);
        if said != super::ProbeResult::NeedMore {
            assert_eq!(first, said);
            break;
        }
    }

    let (mut store, mut quic) = (store(), Quic::default());
    probe_datagram(toward, [1024, 1025], rest);
    quic.datagram(&mut store, rest, &mut |_: Slot<'_>, _: MessageEvent| {});
    quic.release(&mut store);
    assert_eq!((16, 1), (store.names.available(), store.hellos.available()));
}

/// Simulates a connection with segments from the input. The first byte of a segment contains the direction in its
/// highest bit, and the length in its other bits. Every packet has its own work budget, and all resources must be
/// released at the end.
///
/// # Panics Panics if a packet yields more data to search than its work budget allows, or if a slot, a decoder or a
/// page is not released.
pub fn http(mut bytes: &[u8]) {
    let limits = BufferLimits {
        uri: 64,
        header: 256,
        body: 64,
        ..BufferLimits::default()
    };
    let capacity = ParserCapacity {
        messages: 2,
        names: 0,
        inflaters: 6,
        limits,
        ..ParserCapacity::default()
    };
    let mut store = ParserPools::new(&capacity);
    let pages = store.inflaters.pages();
    let (mut http, mut tokens) = (Http::default(), WorkTokens::default());
    while let Some((&start, rest)) = bytes.split_first() {
        let (piece, rest) = rest.split_at(rest.len().min(usize::from(start & 0x7f)));
        bytes = rest;
        let mut searched = 0;
        let mut sink = |_: Slot<'_>, piece: MessageEvent| {
            if let MessageEvent::Grew { fresh, .. } = piece {
                searched += fresh.len();
            }
        };
        let started = store.work.start(tokens, piece.len());
        match start & 0x80 {
            0 => http.request(&mut store, piece, &mut sink),
            _ => http.response(&mut store, piece, &mut sink),
        };
        tokens = store.work.end(started);
        // Decoded bytes may exceed the budget by one step. A body is searched in two buffers, and header fields in several.
        assert!(searched <= 2 * (PACKET_BUDGET as usize + 4096) + 4096, "{searched}");
    }
    http.close_request(&mut store, &mut |_: Slot<'_>, _| {});
    http.close_response(&mut store, &mut |_: Slot<'_>, _| {});
    http.release(&mut store);
    assert_eq!(capacity.messages as usize, store.messages.available());
    assert_eq!(capacity.inflaters as usize, store.inflaters.available());
    assert_eq!(pages, store.inflaters.pages());
}
