//! Any bytes as what parsers read: what the fuzz target and the test that replays its corpus do.

use std::collections::BTreeMap;

use super::recognise::{Recognise, recognise_datagram};
use super::{Capacity, Http2, Piece, Quic, Slot, Smtp, Store, Tls, TlsServer};
use crate::signature::{Buffer, Toward};

/// What was told: the bytes of each buffer, how often each ended, and the anomalies.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    buffers: BTreeMap<Buffer, Vec<u8>>,
    ends: BTreeMap<Buffer, usize>,
    anomalies: Vec<super::Anomaly>,
}

fn store() -> Store {
    Store::new(&Capacity {
        messages: 8,
        names: 16,
        inflaters: 1,
        ..Capacity::default()
    })
}

/// Parses bytes of one side by one parser, in pieces of so many.
fn told(parser: u8, toward: Toward, bytes: &[u8], step: usize) -> Told {
    let (mut store, mut told) = (store(), Told::default());
    let mut sink = |slot: Slot<'_>, piece: Piece| match piece {
        Piece::Grew {
            buffer,
            fresh,
            complete,
        } => {
            let bytes = slot.buffer(buffer).bytes.get(fresh).unwrap_or_default();
            told.buffers.entry(buffer).or_default().extend_from_slice(bytes);
            *told.ends.entry(buffer).or_default() += usize::from(complete);
        }
        Piece::Anomaly(anomaly) => told.anomalies.push(anomaly),
        Piece::End => {}
    };
    let (mut client, mut server) = (Tls::default(), TlsServer::default());
    let (mut http2, mut mail) = (Http2::default(), Smtp::default());
    for part in bytes.chunks(step.max(1)) {
        match parser % 4 {
            0 => client.bytes(&mut store, part, &mut sink),
            1 => server.bytes(&mut store, part, &mut sink),
            2 => http2.bytes(&mut store, toward, part, &mut sink),
            _ => mail.bytes(&mut store, toward, part, &mut sink),
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
        store.mails.available(),
    ];
    assert_eq!([8, 16, 4, 1, 1], free, "everything came back");
    // How often a buffer was told to end depends on no cut where it has an end at all.
    told.ends.retain(|_, count| *count > 0);
    told.buffers.retain(|_, bytes| !bytes.is_empty());
    told
}

/// Parses bytes: the first names the parser, the second the pieces.
///
/// # Panics
/// Where a parser does, where it keeps memory, or where what it tells depends on how a stream is cut.
pub fn stream(bytes: &[u8]) {
    let &[parser, step, ref rest @ ..] = bytes else { return };
    let toward = if parser & 0x80 == 0 {
        Toward::Server
    } else {
        Toward::Client
    };
    let whole = told(parser, toward, rest, usize::MAX);
    let cut = told(parser, toward, rest, usize::from(step) + 1);
    assert_eq!(whole, cut, "pieces of {}", usize::from(step) + 1);

    let mut recognise = Recognise::default();
    let (first, _) = recognise.bytes(toward, rest);
    let mut again = Recognise::default();
    for part in rest.chunks(usize::from(step) + 1) {
        let (said, _) = again.bytes(toward, part);
        if said != super::Recognised::More {
            assert_eq!(first, said);
            break;
        }
    }

    let (mut store, mut quic) = (store(), Quic::default());
    recognise_datagram(toward, [1024, 1025], rest);
    quic.datagram(&mut store, rest, &mut |_: Slot<'_>, _: Piece| {});
    quic.release(&mut store);
    assert_eq!((16, 1), (store.names.available(), store.flights.available()));
}
