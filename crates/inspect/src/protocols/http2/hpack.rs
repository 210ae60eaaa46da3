//! HPACK (RFC 7541) without allocation. The dynamic table has memory of fixed size, and strings are decoded into memory
//! that all connections share. Existing crates for HPACK allocate each field, which is not allowed on the packet path.

use super::huffman;
use crate::work_budget::WorkBudget;

/// Size of the dynamic table in bytes as defined in RFC 7541, section 4.1: the default of SETTINGS_HEADER_TABLE_SIZE.
pub const TABLE: usize = 4096;
/// Maximum number of entries in a table of [`TABLE`] bytes, as each entry counts at least 32 bytes.
const ENTRIES: usize = TABLE / OVERHEAD;
const OVERHEAD: usize = 32;
/// Maximum number of retained bytes of a name or value.
pub const STRING: usize = 16 << 10;

/// Why a header block can't be decoded. The rest of the connection can't be decoded either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The block ends within a field, or refers to an entry that does not exist.
    Malformed,
    /// The decoded block is larger than allowed.
    TooLarge,
    /// Decoding the block is more work than the packet may cause.
    TooMuchWork,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Position of the name, counted in bytes since the first entry of the connection, modulo 2^16.
    at: u16,
    name: u16,
    value: u16,
    /// Whether the content of the entry is unknown, because it did not fit.
    unknown: bool,
}

/// A name and a value.
type Field<'a> = (&'a [u8], &'a [u8]);

/// The dynamic table of one direction.
#[derive(Debug)]
pub struct Table {
    /// Entries in contiguous memory, from the oldest at `start` to `end`.
    bytes: [u8; 2 * TABLE],
    start: usize,
    end: usize,
    /// Offset to add to [`Entry::at`] to get the position in `bytes`.
    moved: u16,
    entries: [Entry; ENTRIES],
    oldest: usize,
    count: usize,
    size: usize,
    /// Table size that the encoder has set, and the part of it for which this table has memory.
    said: usize,
    limit: usize,
    /// Whether the encoder uses a larger table than is supported, so that old entries are unknown.
    pub beyond: bool,
    /// Whether a field was omitted because its entry is unknown.
    pub missed: bool,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            bytes: [0; 2 * TABLE],
            start: 0,
            end: 0,
            moved: 0,
            entries: [Entry::default(); ENTRIES],
            oldest: 0,
            count: 0,
            size: 0,
            said: TABLE,
            limit: TABLE,
            beyond: false,
            missed: false,
        }
    }
}

impl Table {
    /// Resets the table to its state at the start of a connection.
    pub fn clear(&mut self) {
        (self.start, self.end, self.oldest, self.count, self.size) = (0, 0, 0, 0, 0);
        (self.said, self.limit, self.beyond, self.missed) = (TABLE, TABLE, false, false);
    }

    fn evict(&mut self, capacity: usize) {
        while self.count > 0 && self.size + capacity > self.limit {
            let entry = self.entries[self.oldest];
            let bytes = usize::from(entry.name) + usize::from(entry.value);
            self.start += bytes;
            self.size -= bytes + OVERHEAD;
            self.oldest = (self.oldest + 1) % ENTRIES;
            self.count -= 1;
        }
        if self.count == 0 {
            (self.start, self.end) = (0, 0);
        }
    }

    fn resize(&mut self, size: usize) {
        self.said = size;
        self.beyond |= size > TABLE;
        self.limit = size.min(TABLE);
        self.evict(0);
    }

    fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + OVERHEAD;
        let fits = size <= self.limit;
        // An entry that the encoder keeps occupies an index here, even if its content does not fit.
        if !fits && size > self.said {
            return self.evict(usize::MAX / 2);
        }
        let (name, value) = if fits { (name, value) } else { (&[][..], &[][..]) };
        let size = name.len() + value.len() + OVERHEAD;
        self.evict(size);
        if self.size + size > self.limit || self.count >= ENTRIES {
            return;
        }
        if self.end + name.len() + value.len() > self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            self.moved = self.moved.wrapping_add(self.start as u16);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let at = (self.end as u16).wrapping_add(self.moved);
        for part in [name, value] {
            self.bytes[self.end..self.end + part.len()].copy_from_slice(part);
            self.end += part.len();
        }
        self.entries[(self.oldest + self.count) % ENTRIES] = Entry {
            at,
            name: name.len() as u16,
            value: value.len() as u16,
            unknown: !fits,
        };
        (self.count, self.size) = (self.count + 1, self.size + size);
    }

    /// Returns the entry with an index (section 2.3.3). Returns `Ok(None)` if the content of the entry is unknown.
    fn entry(&self, index: usize) -> Result<Option<Field<'_>>, Error> {
        if let Some((name, value)) = index.checked_sub(1).and_then(|index| STATIC.get(index)) {
            return Ok(Some((name, value)));
        }
        let back = index.checked_sub(STATIC.len() + 1).ok_or(Error::Malformed)?;
        if back >= self.count {
            return if self.beyond { Ok(None) } else { Err(Error::Malformed) };
        }
        let entry = self.entries[(self.oldest + self.count - 1 - back) % ENTRIES];
        let start = usize::from(entry.at.wrapping_sub(self.moved));
        let middle = start + usize::from(entry.name);
        let end = middle + usize::from(entry.value);
        Ok((!entry.unknown).then(|| (&self.bytes[start..middle], &self.bytes[middle..end])))
    }
}

/// The first bytes of a decoded string.
#[derive(Debug, Default)]
pub struct Text {
    bytes: Box<[u8]>,
    length: usize,
}

impl Text {
    pub fn new() -> Self {
        Self {
            bytes: vec![0; STRING].into(),
            length: 0,
        }
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }

    fn set(&mut self, bytes: &[u8]) {
        let fits = bytes.len().min(self.bytes.len());
        self.bytes[..fits].copy_from_slice(&bytes[..fits]);
        self.length = fits;
    }

    fn get(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Decodes an integer (section 5.1) with a prefix of `prefix` bits.
fn integer(bytes: &[u8], prefix: u32) -> Result<(usize, &[u8]), Error> {
    let (&first, mut rest) = bytes.split_first().ok_or(Error::Malformed)?;
    let max = (1 << prefix) - 1;
    let mut value = usize::from(first) & max;
    if value < max {
        return Ok((value, rest));
    }
    for shift in [0, 7, 14, 21] {
        let (&byte, behind) = rest.split_first().ok_or(Error::Malformed)?;
        rest = behind;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok((value, rest));
        }
    }
    Err(Error::Malformed)
}

/// Decodes a string (section 5.2).
fn string<'b>(bytes: &'b [u8], into: &mut Text) -> Result<&'b [u8], Error> {
    let coded = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let (length, rest) = integer(bytes, 7)?;
    let (text, rest) = rest.split_at_checked(length).ok_or(Error::Malformed)?;
    if coded {
        into.length = 0;
        if !huffman::decode(text, &mut |byte| into.push(byte)) {
            return Err(Error::Malformed);
        }
    } else {
        into.set(text);
    }
    Ok(rest)
}

/// Decodes a complete header block. `budget` is the number of allowed field bytes. The decoded bytes are subtracted
/// from `budget`, and charged to the work budget of the packet.
pub fn decode(
    mut block: &[u8],
    table: &mut Table,
    [name, value]: [&mut Text; 2],
    (budget, work): (&mut usize, &WorkBudget),
    field: &mut impl FnMut(&[u8], &[u8]),
) -> Result<(), Error> {
    while let Some(&first) = block.first() {
        let (prefix, adds) = match first {
            0x80.. => (7, false),
            0x40.. => (6, true),
            0x20.. => {
                let (size, rest) = integer(block, 5)?;
                table.resize(size);
                block = rest;
                *budget = budget.checked_sub(1).ok_or(Error::TooLarge)?;
                continue;
            }
            _ => (4, false),
        };
        let (index, mut rest) = integer(block, prefix)?;
        let mut known = true;
        if first & 0x80 != 0 {
            match table.entry(index)? {
                Some((from_name, from_value)) => {
                    name.set(from_name);
                    value.set(from_value);
                }
                None => known = false,
            }
        } else {
            match index {
                0 => rest = string(rest, name)?,
                _ => match table.entry(index)? {
                    Some((from, _)) => name.set(from),
                    None => known = false,
                },
            }
            rest = string(rest, value)?;
        }
        let bytes = name.length + value.length + OVERHEAD;
        *budget = budget.checked_sub(bytes).ok_or(Error::TooLarge)?;
        if !work.charge(bytes as u32) {
            return Err(Error::TooMuchWork);
        }
        if adds {
            match known {
                true => table.insert(name.get(), value.get()),
                // An entry with an unknown name also occupies an index.
                false => table.insert(b"", b""),
            }
        }
        match known {
            true => field(name.get(), value.get()),
            false => table.missed = true,
        }
        block = rest;
    }
    Ok(())
}

/// The static table (appendix A).
const STATIC: [(&[u8], &[u8]); 61] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

#[cfg(test)]
mod tests {
    use super::*;

    struct Decoder {
        table: Table,
        texts: [Text; 2],
        budget: usize,
    }

    impl Decoder {
        fn new() -> Self {
            Self {
                table: Table::default(),
                texts: [Text::new(), Text::new()],
                budget: 1 << 20,
            }
        }

        fn decode(&mut self, block: &[u8]) -> Result<String, Error> {
            let mut text = String::new();
            let [name, value] = &mut self.texts;
            decode(
                block,
                &mut self.table,
                [name, value],
                (&mut self.budget, &WorkBudget::default()),
                &mut |name, value| {
                    text += &format!("{}={} ", name.escape_ascii(), value.escape_ascii());
                },
            )?;
            Ok(text)
        }
    }

    /// A literal field with incremental indexing.
    fn kept(name: &str, value: &str) -> Vec<u8> {
        let mut block = vec![0x40, name.len() as u8];
        block.extend(name.as_bytes());
        match value.len() {
            0..127 => block.push(value.len() as u8),
            length => block.extend([127, ((length - 127) & 0x7f) as u8 | 0x80, ((length - 127) >> 7) as u8]),
        }
        block.extend(value.as_bytes());
        block
    }

    #[test]
    fn requests_of_the_document_are_decoded() {
        // Examples from RFC 7541, appendices C.3 and C.4.
        let blocks: [[&[u8]; 3]; 2] = [
            [
                b"\x82\x86\x84\x41\x0fwww.example.com",
                b"\x82\x86\x84\xbe\x58\x08no-cache",
                b"\x82\x87\x85\xbf\x40\x0acustom-key\x0ccustom-value",
            ],
            [
                b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
                b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf",
                b"\x82\x87\x85\xbf\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf",
            ],
        ];
        for blocks in blocks {
            let mut decoder = Decoder::new();
            let said = blocks.map(|block| decoder.decode(block).unwrap());
            assert_eq!(
                [
                    ":method=GET :scheme=http :path=/ :authority=www.example.com ",
                    ":method=GET :scheme=http :path=/ :authority=www.example.com cache-control=no-cache ",
                    ":method=GET :scheme=https :path=/index.html :authority=www.example.com custom-key=custom-value ",
                ],
                said.each_ref().map(String::as_str)
            );
            assert_eq!((164, 3), (decoder.table.size, decoder.table.count));
        }
    }

    #[test]
    fn table_evicts_the_oldest_entries() {
        let mut decoder = Decoder::new();
        for number in 0..1000u32 {
            let value = format!("{number:0width$}", width = 1 + number as usize % 500);
            assert_eq!(format!("a={value} "), decoder.decode(&kept("a", &value)).unwrap());
            assert_eq!(format!("a={value} "), decoder.decode(b"\xbe").unwrap());
            assert!(decoder.table.size <= TABLE && decoder.table.count > 1 || number == 0);
        }
        assert_eq!(Ok(String::new()), decoder.decode(b"\x20"));
        assert_eq!(0, decoder.table.count);
        assert_eq!(Err(Error::Malformed), decoder.decode(b"\xbe"));
    }

    #[test]
    fn entries_of_a_table_that_is_larger_than_ours_are_left_out() {
        let mut decoder = Decoder::new();
        // The new table size is 65,536 bytes.
        decoder.decode(b"\x3f\xe1\xff\x03").unwrap();
        assert!(decoder.table.beyond);
        assert_eq!("a=b ", decoder.decode(b"\x40\x01a\x01b").unwrap());
        let long = kept("c", &"x".repeat(5000));
        assert_eq!(5003, decoder.decode(&long).unwrap().len());
        assert_eq!("d=e ", decoder.decode(b"\x40\x01d\x01e").unwrap());
        assert_eq!("d=e a=b ", decoder.decode(b"\xbe\xbf\xc0").unwrap());
        assert!(decoder.table.missed);
        assert_eq!("", decoder.decode(b"\xd0").unwrap());
    }

    #[test]
    fn block_that_expands_too_much_is_refused() {
        let mut decoder = Decoder::new();
        decoder.budget = 10_000;
        let long = kept("c", &"x".repeat(2500));
        assert_eq!(Ok(true), decoder.decode(&long).map(|text| text.len() > 2000));
        assert_eq!(Err(Error::TooLarge), decoder.decode(&[0xbe; 5]));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..2_000 {
            let mut decoder = Decoder::new();
            for _ in 0..20 {
                let block: Vec<u8> = (0..40)
                    .map(|_| {
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        state as u8
                    })
                    .collect();
                let _ = decoder.decode(&block);
                let table = &decoder.table;
                assert!(table.size <= table.limit && table.start <= table.end && table.end <= table.bytes.len());
            }
        }
    }
}
