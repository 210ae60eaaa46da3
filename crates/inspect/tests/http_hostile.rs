//! Tests HTTP with any segmentation, mutated HTTP, and random data. The buffers do not depend on the segmentation, and
//! no parser panics or leaks memory.

use crate::gathered::{Outcome, converse, small};
use proptest::prelude::*;
use sluice_inspect::protocols::hostile;
use sluice_inspect::signature::Toward::{self, Client, Server};

const REQUESTS: &[u8] = b"GET /a/..//b%2f%u0041?x=%20%zz HTTP/1.1\r\nHost: User@Example.org:80\r\nCookie: a=1;  b\r\n\
    X-Long: 0123456789012345678901234567890123456789\r\n folded \r\n\t\r\nUser-Agent : me\r\nno colon here\r\n\
    Cookie: c\r\n\r\n\
    HEAD http://Host.example/x HTTP/1.0\nHost: other\n\n\
    POST /a b\tc HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n\
    4;ext=1\r\nabcd\r\n50\r\n0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\r\n\
    0\r\nTrailer: x\r\n\r\n\
    PUT /p HTTP/1.1\r\nContent-Length: 10\r\nContent-Encoding: deflate\r\n\r\n0123456789\
    CONNECT h.example:443 HTTP/1.1\r\n\r\nafter";

const RESPONSES: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\nabc\
    HTTP/1.1 200  Fine \r\nContent-Length: 99\r\n\r\n\
    HTTP/1.1 100 Continue\r\n\r\n\
    HTTP/1.1 500 \r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n\
    a\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\r\n9\r\n\xcbH\xcd\xc9\xc9W(\xcf/\r\n\
    0f\r\n\xcaI\x01\x00\x85\x11J\r\x0b\x00\x00\x00xyz\r\n0\r\n\r\n\
    HTTP/1.0 200 OK\r\n\r\nto the end";

fn talk(requests: &[u8], responses: &[u8], cut: impl FnMut(usize) -> Vec<usize>) -> Outcome {
    converse(&small(), &[(Server, requests), (Client, responses)], cut)
}

#[test]
fn conversation_cut_at_every_byte_gives_the_same() {
    let whole = talk(REQUESTS, RESPONSES, |_| Vec::new());
    // A request may follow CONNECT without waiting for the response.
    assert_eq!((6, 5), (whole.requests.len(), whole.responses.len()));
    assert_eq!(
        "hello worldxyz",
        whole.responses[3].text(sluice_inspect::signature::Buffer::FileData)
    );
    assert_eq!(whole, talk(REQUESTS, RESPONSES, |length| (1..length).collect()));
    for at in 0..REQUESTS.len().max(RESPONSES.len()) {
        assert_eq!(
            whole,
            talk(REQUESTS, RESPONSES, |length| vec![at.min(length)]),
            "cut at {at}"
        );
    }
}

/// Bytes that an HTTP parser treats specially, more frequent than in random data.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        4 => prop::sample::select(vec![
            &b"\r\n"[..], b"\n", b"\r", b"\r\n\r\n", b" ", b"\t", b":", b"HTTP/1.1", b"HTTP/", b"GET /", b"CONNECT ", b"HEAD /",
            b" HTTP/1.1\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 101 \r\n", b"Content-Length: ", b"Content-Encoding: gzip\r\n",
            b"Content-Encoding: deflate\r\n", b"Content-Encoding: br\r\n", b"\x0b\x02\x80data\x03", b"Transfer-Encoding: chunked\r\n", b"Cookie: ", b"Host: ", b"5", b"0", b"fff",
            b";", b"%", b"%u", b"/../", b"//", b"?", b"http://", b"@", b"\x1f\x8b\x08", b"\x00",
        ]).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop::collection::vec(part, 0..60).prop_map(|parts| parts.concat())
}

fn mutated(text: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    let change = (
        0..text.len(),
        prop_oneof![any::<u8>(), prop::sample::select(b"\r\n :;/%0\0".to_vec())],
        0..3u8,
    );
    prop::collection::vec(change, 0..8).prop_map(|changes| {
        let mut bytes = text.to_vec();
        for (at, byte, how) in changes {
            let at = at % bytes.len();
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => _ = bytes.remove(at),
            }
        }
        bytes
    })
}

fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..40)
}

fn same_however_cut(requests: &[u8], responses: &[u8], cuts: &[prop::sample::Index]) -> Result<(), TestCaseError> {
    let whole = talk(requests, responses, |_| Vec::new());
    let cut = talk(requests, responses, |length| {
        cuts.iter().map(|cut| cut.index(length + 1)).collect()
    });
    prop_assert_eq!(&whole, &cut);
    prop_assert_eq!(&whole, &talk(requests, responses, |length| (1..length).collect()));
    Ok(())
}

/// The corpus of the fuzz target.
fn corpus() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/http");
    let files = std::fs::read_dir(folder).unwrap();
    files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn corpus_is_parsed() {
    let corpus = corpus();
    assert!(corpus.len() >= 11);
    corpus.iter().for_each(|bytes| hostile::http(bytes));
}

proptest! {
    #[test]
    fn changed_corpus_is_parsed_within_its_work(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = which.get(&corpus()).clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        hostile::http(&bytes);
    }

    #[test]
    fn mutated_conversation_is_the_same_however_it_is_cut(
        requests in mutated(REQUESTS), responses in mutated(RESPONSES), cuts in cuts(),
    ) {
        same_however_cut(&requests, &responses, &cuts)?;
    }

    #[test]
    fn noise_is_the_same_however_it_is_cut(requests in noise(), responses in noise(), cuts in cuts()) {
        same_however_cut(&requests, &responses, &cuts)?;
        same_however_cut(&[b"GET / HTTP/1.1\r\n", &requests[..]].concat(), &[b"HTTP/1.1 200 OK\r\n", &responses[..]].concat(), &cuts)?;
    }

    #[test]
    fn directions_in_any_order_leave_nothing_behind(
        parts in prop::collection::vec((any::<bool>(), noise()), 0..8),
    ) {
        let side = |client| if client { Server } else { Client };
        let parts: Vec<(Toward, &[u8])> = parts.iter().map(|(client, bytes)| (side(*client), &bytes[..])).collect();
        converse(&small(), &parts, |length| (1..length).step_by(3).collect());
    }
}
