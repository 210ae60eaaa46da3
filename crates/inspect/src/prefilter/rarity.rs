//! Estimates how rare byte sequences are. A rarer pattern yields fewer candidates.

/// Maximum score. Random data practically never contains a pattern of this many bits; a longer pattern only slows the
/// search down.
const MAX_BITS: u32 = 64;

/// Strings that occur in nearly every message. Parts of frequent strings are poor patterns, regardless of their length.
const COMMON: [&str; 16] = [
    "http://www.",
    "https://www.",
    " HTTP/1.0\r\n",
    " HTTP/1.1\r\n\r\n",
    "HTTP/1.1 200 OK\r\n",
    "\r\nHost: www.",
    "\r\nUser-Agent: Mozilla/5.0 (Windows NT ",
    "Mozilla/4.0 (compatible; MSIE ",
    "\r\nContent-Type: text/html\r\n",
    "\r\nContent-Length: ",
    "\r\nAccept-Encoding: gzip, deflate\r\n",
    "\r\nConnection: keep-alive\r\n\r\n",
    "\r\nCookie: ",
    "\r\nReferer: http://",
    "Content-Disposition: form-data; name=\"",
    "<script type=\"text/javascript\"></script>",
];

/// Approximately -log2 of the frequency of a byte in text protocols and binary formats. Letters, digits and separators
/// are common; zeros and filler bytes are the most common.
const fn bits(byte: u8) -> u32 {
    match byte {
        0 => 2,
        0x01 | 0xff | b' ' | b'e' | b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' => 4,
        b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'=' | b':' | b'"' | b'<' | b'>' | b'\r' | b'\n' => 5,
        b'A'..=b'Z' | b'\t' => 6,
        0x21..=0x7e => 7,
        _ => 8,
    }
}

static BITS: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = bits(byte as u8);
        byte += 1;
    }
    table
};

/// Rarity of a pattern in bits, at most [`MAX_BITS`].
pub fn of(pattern: &[u8], caseless: bool) -> u32 {
    let mut sum = 0;
    let mut before = None;
    for &byte in pattern {
        let byte = if caseless { byte.to_ascii_lowercase() } else { byte };
        sum += match BITS[usize::from(byte)] {
            // Runs of one byte are usually padding.
            _ if before == Some(byte) => 1,
            weight if caseless && byte.is_ascii_lowercase() => weight - 1,
            weight => weight,
        };
        before = Some(byte);
    }
    let held = |text: &str| {
        text.as_bytes()
            .windows(pattern.len())
            .any(|part| part.eq_ignore_ascii_case(pattern))
    };
    match pattern.len() {
        0 => 0,
        _ if COMMON.iter().any(|text| held(text)) => sum.min(BITS[usize::from(b'A')]),
        _ => sum.min(MAX_BITS),
    }
}
