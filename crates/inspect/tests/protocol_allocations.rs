//! Tests that parsers don't allocate memory after their construction.

use std::io::Write;

use allocation_counter::measure;
use flate2::Compression;
use flate2::write::GzEncoder;
use sluice_inspect::protocols::probe::PREFACE;
use sluice_inspect::protocols::{
    ClientHello, Dns, DnsStream, Http, Http2, MessageEvent, ParserCapacity, ParserPools, ProtocolProbe, Slot,
};
use sluice_inspect::signature::Toward;

#[test]
fn parsers_allocate_nothing() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&b"a body of some length, ".repeat(5000)).unwrap();
    let body = encoder.finish().unwrap();
    let mut other = Vec::new();
    let mut encoder = brotli::CompressorWriter::new(&mut other, 4096, 9, 22);
    encoder.write_all(&b"a body of some length, ".repeat(5000)).unwrap();
    drop(encoder);
    let response = [("gzip", &body), ("br", &other)].map(|(encoding, body)| {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    });
    let response = response.concat();
    let request = b"GET /a/../b?c=%20 HTTP/1.1\r\nHost: example.org\r\nCookie: a\r\n\r\n";
    let query = b"\x00\x1d\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03org\x00\x00\x01\x00\x01";
    let second = [
        PREFACE,
        b"\0\0\x11\x01\x05\0\0\0\x01\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
    ]
    .concat();
    let mut store = ParserPools::new(&ParserCapacity {
        messages: 8,
        names: 8,
        inflaters: 2,
        ..ParserCapacity::default()
    });
    let mut pieces = 0u64;
    let allocations = measure(|| {
        let sink = &mut |_: Slot<'_>, _: MessageEvent| pieces += 1;
        let mut recognise = ProtocolProbe::default();
        recognise.bytes(Toward::Server, request);
        let mut http = Http::default();
        for part in request.chunks(7).chain(request.chunks(100)) {
            http.request(&mut store, part, sink);
        }
        for part in response.chunks(100).chain(response.chunks(1460)) {
            http.response(&mut store, part, sink);
        }
        http.close_request(&mut store, sink);
        http.close_response(&mut store, sink);
        http.release(&mut store);
        let (mut dns, mut stream, mut tls) = (Dns::default(), DnsStream::default(), ClientHello::default());
        dns.message(&mut store, &query[2..], sink);
        stream.bytes(&mut store, query, sink);
        tls.bytes(&mut store, b"\x16\x03\x01\x00\x40\x01\x00\x00\x3c\x03\x03", sink);
        let mut http2 = Http2::default();
        for part in second.chunks(11) {
            http2.bytes(&mut store, Toward::Server, part, sink);
        }
        http2.release(&mut store);
        dns.release(&mut store);
        stream.release(&mut store);
        tls.release(&mut store);
    });
    assert_eq!(0, allocations.count_total);
    assert!(pieces > 50, "{pieces}");
    println!(
        "a message takes {} bytes, a name {}",
        store.messages.bytes_per_slot(),
        store.names.bytes_per_slot()
    );
    let sizes = [
        size_of::<Http>(),
        size_of::<ClientHello>(),
        size_of::<Dns>(),
        size_of::<DnsStream>(),
        size_of::<ProtocolProbe>(),
    ];
    println!("a flow of HTTP, TLS, DNS, DNS over TCP, not recognised yet: {sizes:?} bytes");
}
