//! Any bytes as a conversation of HTTP: what the fuzz target and the tests that replay its corpus do.

use super::{Capacity, Http, Limits, Piece, Slot, Store};
use crate::work::{Credit, PACKET};

/// Plays pieces of a connection, cut where bytes say so: a byte that begins a piece has the side that sends it in its highest
/// bit, and its length in the others. Every packet has its share of work, and everything goes back in the end.
///
/// # Panics
/// Where a packet brings more to search than its work allows, or a slot or a decoder is not given back.
pub fn http(mut bytes: &[u8]) {
    let limits = Limits {
        uri: 64,
        header: 256,
        body: 64,
        ..Limits::default()
    };
    let capacity = Capacity {
        messages: 2,
        names: 0,
        inflaters: 6,
        limits,
        ..Capacity::default()
    };
    let mut store = Store::new(&capacity);
    let (mut http, mut credit) = (Http::default(), Credit::default());
    while let Some((&begin, rest)) = bytes.split_first() {
        let (piece, rest) = rest.split_at(rest.len().min(usize::from(begin & 0x7f)));
        bytes = rest;
        let mut searched = 0;
        let mut sink = |_: Slot<'_>, piece: Piece| {
            if let Piece::Grew { fresh, .. } = piece {
                searched += fresh.len();
            }
        };
        let begun = store.work.begin(credit, piece.len());
        match begin & 0x80 {
            0 => http.request(&mut store, piece, &mut sink),
            _ => http.response(&mut store, piece, &mut sink),
        };
        credit = store.work.end(begun);
        // Bytes that are decoded, the last of which may be a step more; a body is in two buffers, a header in several.
        assert!(searched <= 2 * (PACKET as usize + 4096) + 4096, "{searched}");
    }
    http.close_request(&mut store, &mut |_: Slot<'_>, _| {});
    http.close_response(&mut store, &mut |_: Slot<'_>, _| {});
    http.release(&mut store);
    assert_eq!(capacity.messages as usize, store.messages.available());
    assert_eq!(capacity.inflaters as usize, store.inflaters.available());
}
