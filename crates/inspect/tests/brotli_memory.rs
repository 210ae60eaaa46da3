//! Tests the memory of Brotli windows, and the part of it that one source leaves to other sources.

use sluice_inspect::protocols::{Anomaly, Http, MessageEvent, ParserCapacity, ParserPools, Slot};
use sluice_inspect::signature::Buffer::FileData;
use sluice_inspect::source_quota::Source;

/// Size in bytes of a page.
const PAGE: usize = 64 << 10;

/// Starts a body with a window of 16 MiB, and sends uncompressed meta-blocks that each contain a page of zeros. Returns
/// the number of decoded bytes, and whether memory was exhausted.
fn send(store: &mut ParserPools, http: &mut Http, blocks: usize) -> (usize, bool) {
    let (mut decoded, mut lacking) = (0, false);
    let mut sink = |_: Slot<'_>, piece: MessageEvent| match piece {
        MessageEvent::Grew {
            buffer: FileData,
            fresh,
            ..
        } => decoded += fresh.len(),
        MessageEvent::Anomaly(anomaly) => {
            assert_eq!(Anomaly::NoInflater, anomaly);
            lacking = true;
        }
        _ => {}
    };
    http.response(store, b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n\r\n", &mut sink);
    // Meta-block header: not the last, a length of four digits, uncompressed. In the first meta-block, the window size
    // precedes the header.
    let mut header = &(0b1111u32 | 0xffff << 7 | 1 << 23).to_le_bytes()[..3];
    let following = (0xffff_u32 << 3 | 1 << 19).to_le_bytes();
    for _ in 0..blocks {
        http.response(store, header, &mut sink);
        http.response(store, &[0; PAGE], &mut sink);
        header = &following[..3];
    }
    (decoded, lacking)
}

#[test]
fn source_that_fills_the_memory_for_windows_leaves_a_part_to_others() {
    let mut store = ParserPools::new(&ParserCapacity {
        messages: 64,
        inflaters: 16,
        decoded_bytes: u64::MAX,
        ..ParserCapacity::default()
    });
    let all = store.inflaters.pages();
    assert_eq!((10 << 20) / PAGE + 2 * 16, all);
    let mut open = Vec::new();
    for number in 0.. {
        store.set_source(Source(1));
        let mut http = Http::default();
        let (decoded, lacking) = send(&mut store, &mut http, 20);
        open.push(http);
        if lacking {
            assert!(number >= 6, "{number}");
            // Data that is not decoded is searched as sent, except for the remaining bytes of the current stride.
            assert!(decoded <= 20 * (PAGE + 3), "{decoded}");
            break;
        }
        assert_eq!(20 * PAGE, decoded);
    }
    let remaining = store.inflaters.pages();
    assert!(remaining >= all / 5, "{remaining} of {all}");
    store.set_source(Source(2));
    let mut other = Http::default();
    assert_eq!((8 * PAGE, false), send(&mut store, &mut other, 8));
    assert_eq!(remaining - 8, store.inflaters.pages());
    for mut http in open.into_iter().chain([other]) {
        http.release(&mut store);
    }
    assert_eq!(all, store.inflaters.pages(), "all of it comes back");
}

#[test]
fn longest_body_that_is_decoded_fits_in_what_one_source_may_have() {
    let mut store = ParserPools::new(&ParserCapacity {
        messages: 2,
        inflaters: 1,
        ..ParserCapacity::default()
    });
    let mut http = Http::default();
    let blocks = (ParserCapacity::default().decoded_bytes / PAGE as u64) as usize;
    assert_eq!((blocks * PAGE, false), send(&mut store, &mut http, blocks));
    http.release(&mut store);
}
