//! Builds protocol messages whose buffers have the given contents.

use std::collections::BTreeMap;

use sluice_inspect::signature::Buffer;

/// Content of each buffer.
pub type Buffers = BTreeMap<Buffer, Vec<u8>>;

/// Position of contents in a message, for contents with several possible positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Whether the bytes of the URI are in the query, which is not normalised.
    pub query: bool,
    /// Whether the bytes of the header buffer are in the value of a field.
    pub value: bool,
    /// Whether the bytes for the payload buffer are in a header field instead of the body.
    pub in_header: bool,
}

fn get(buffers: &Buffers, buffer: Buffer) -> &[u8] {
    buffers.get(&buffer).map_or(&[], |bytes| bytes)
}

/// Header lines, the empty line after them, and the body.
fn rest(buffers: &Buffers, manner: Manner, fields: [(&[u8], Buffer); 3], body: &mut Vec<u8>) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, buffer) in fields {
        if let Some(value) = buffers.get(&buffer) {
            head.extend_from_slice(name);
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        }
    }
    let mut lines = |bytes: &[u8], value: bool| {
        if !bytes.is_empty() {
            let broken = bytes.starts_with(b"\r") || bytes.starts_with(b"\n");
            head.extend_from_slice(match (value, broken) {
                (_, true) => b"X: 1",
                (true, false) => b"X: ",
                (false, false) => b"",
            });
            head.extend_from_slice(bytes);
            // White space at the end of a value is not part of the buffer, so a byte is added after white space.
            head.extend_from_slice(if bytes.ends_with(b" ") { b"0" } else { b"" });
            head.extend_from_slice(if bytes.ends_with(b"\r\n") { b"" } else { b"\r\n" });
        }
    };
    lines(get(buffers, Buffer::HttpHeader), manner.value);
    lines(get(buffers, Buffer::HttpRawHeader), manner.value);
    let payload = get(buffers, Buffer::Payload);
    match manner.in_header {
        true => lines(payload, true),
        false => body.extend_from_slice(payload),
    }
    let said = head.to_ascii_lowercase();
    let has = |name: &[u8]| said.windows(name.len()).any(|window| window == name);
    if !body.is_empty() && !has(b"\ncontent-length:") && !said.starts_with(b"content-length:") {
        head.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    if !head.ends_with(b"\r\n\r\n") {
        head.extend_from_slice(b"\r\n");
    }
    head
}

/// An HTTP request.
pub fn request(buffers: &Buffers, manner: Manner) -> Vec<u8> {
    let mut body = [Buffer::HttpClientBody, Buffer::FileData]
        .map(|buffer| get(buffers, buffer))
        .concat();
    let host = match buffers.contains_key(&Buffer::HttpHost) {
        true => Buffer::HttpHost,
        false => Buffer::HttpRawHost,
    };
    let fields = [
        (&b"Host"[..], host),
        (b"User-Agent", Buffer::HttpUserAgent),
        (b"Cookie", Buffer::HttpCookie),
    ];
    let head = rest(buffers, manner, fields, &mut body);
    let method = match buffers.get(&Buffer::HttpMethod) {
        Some(method) => method,
        None if body.is_empty() => &b"GET"[..],
        None => b"POST",
    };
    let mut message = method.to_vec();
    message.push(b' ');
    if manner.query {
        message.extend_from_slice(b"/?");
    }
    for &byte in get(buffers, Buffer::HttpUri) {
        match byte {
            0..=b' ' | b'%' | 0x7f.. => message.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            _ => message.push(byte),
        }
    }
    message.extend_from_slice(get(buffers, Buffer::HttpRawUri));
    if message.ends_with(b" ") {
        message.push(b'/');
    }
    message.extend_from_slice(b" HTTP/1.1\r\n");
    [message, head, body].concat()
}

/// An HTTP response.
pub fn response(buffers: &Buffers, manner: Manner) -> Vec<u8> {
    let mut body = get(buffers, Buffer::FileData).to_vec();
    let none = (&b""[..], Buffer::Base64);
    let fields = [(&b"Set-Cookie"[..], Buffer::HttpCookie), none, none];
    let head = rest(buffers, manner, fields, &mut body);
    let or = |buffer, other: &'static [u8]| buffers.get(&buffer).map_or(other, |bytes| bytes).to_vec();
    let code = or(Buffer::HttpStatusCode, b"200");
    let said = or(Buffer::HttpStatusMessage, b"OK");
    [b"HTTP/1.1 ", &code[..], b" ", &said, b"\r\n", &head, &body].concat()
}

/// A DNS query, as a datagram.
pub fn question(name: &[u8]) -> Vec<u8> {
    let mut message = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split(|&byte| byte == b'.') {
        message.push(label.len() as u8);
        message.extend_from_slice(label);
    }
    message.extend_from_slice(&[0, 0, 1, 0, 1]);
    message
}

/// A `ClientHello` in one record, with one cipher suite and a server name.
pub fn hello(name: &[u8]) -> Vec<u8> {
    let long = |length: usize| (length as u16).to_be_bytes();
    let mut names = [&[0][..], &long(name.len()), name].concat();
    names = [&long(names.len())[..], &names].concat();
    let extension = [&[0, 0][..], &long(names.len()), &names].concat();
    let mut body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 0x01, 1, 0]].concat();
    body.extend_from_slice(&long(extension.len()));
    body.extend_from_slice(&extension);
    let handshake = [&[1, 0][..], &long(body.len()), &body].concat();
    [&[22, 3, 1][..], &long(handshake.len()), &handshake].concat()
}
