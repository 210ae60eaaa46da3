//! Classic capture files. A classic capture file has one link type and timestamps in micro- or nanoseconds, in the byte
//! order of the capturing machine (draft-ietf-opsawg-pcap).

use std::io::{Error, ErrorKind, Read};
use std::time::Duration;

/// Length in bytes of the file header, and of a packet header.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
/// Maximum length of a packet in bytes: four times libpcap's maximum.
const LONGEST: u32 = 1 << 20;

/// Why a packet can't be read.
#[derive(Debug)]
pub enum Fault {
    /// The file ends within the packet.
    CutOff,
    /// The file can't be read.
    File(Error),
    /// The packet exceeds the maximum length.
    Length(u32),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof => Self::CutOff,
            _ => Self::File(error),
        }
    }
}

/// A packet of the file.
#[derive(Debug, PartialEq, Eq)]
pub struct Packet {
    /// Time since the Unix epoch.
    pub at: Duration,
    /// Captured bytes.
    pub bytes: Vec<u8>,
    /// Length on the wire.
    pub length: u32,
}

/// Reader of a capture file.
pub struct Reader<R> {
    file: R,
    is_big_endian: bool,
    /// Number of nanoseconds in one unit of the sub-second part of timestamps.
    unit: u32,
    link: u32,
}

impl<R: Read> Reader<R> {
    /// Read the file header. `None` if the file has a different format.
    ///
    /// # Errors
    /// Returns the errors of the file.
    pub fn new(mut file: R) -> std::io::Result<Option<Self>> {
        let mut header = [0; FILE_HEADER];
        match file.read_exact(&mut header) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let (is_big_endian, unit) = match header[..4] {
            [0xa1, 0xb2, 0xc3, 0xd4] => (true, 1_000),
            [0xd4, 0xc3, 0xb2, 0xa1] => (false, 1_000),
            [0xa1, 0xb2, 0x3c, 0x4d] => (true, 1),
            [0x4d, 0x3c, 0xb2, 0xa1] => (false, 1),
            _ => return Ok(None),
        };
        let mut reader = Self {
            file,
            is_big_endian,
            unit,
            link: 0,
        };
        // The upper 16 bits state the length of the frame check sequence after each frame. This length is ignored,
        // because the engine treats a frame check sequence as padding.
        reader.link = reader.word(&header, 20) & 0xffff;
        Ok(Some(reader))
    }

    /// Number of the link type.
    pub fn link(&self) -> u32 {
        self.link
    }

    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = bytes.get(at..).and_then(|rest| rest.first_chunk()).copied();
        let word = word.unwrap_or_default();
        match self.is_big_endian {
            true => u32::from_be_bytes(word),
            false => u32::from_le_bytes(word),
        }
    }

    /// The next packet; `None` at the end of the file.
    ///
    /// # Errors
    /// See [`Fault`].
    pub fn next(&mut self) -> Result<Option<Packet>, Fault> {
        let mut header = [0; PACKET_HEADER];
        let read_bytes = loop {
            match self.file.read(&mut header) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if read_bytes == 0 {
            return Ok(None);
        }
        self.file.read_exact(&mut header[read_bytes..])?;
        let [seconds, fraction, captured, length] = [0, 4, 8, 12].map(|at| self.word(&header, at));
        if captured > LONGEST {
            return Err(Fault::Length(captured));
        }
        let mut bytes = vec![0; captured as usize];
        self.file.read_exact(&mut bytes)?;
        Ok(Some(Packet {
            at: Duration::from_secs(seconds.into()) + Duration::from_nanos(u64::from(fraction) * u64::from(self.unit)),
            bytes,
            // Some writers set the original length to zero.
            length: length.max(captured),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(is_big_endian: bool, magic: u32, snap: u32, packets: &[(u32, u32, &[u8], u32)]) -> Vec<u8> {
        let word = |value: u32| match is_big_endian {
            true => value.to_be_bytes(),
            false => value.to_le_bytes(),
        };
        // Version 2.4. The major and the minor version are also in the byte order of the file.
        let version = if is_big_endian { 0x0002_0004 } else { 0x0004_0002 };
        let mut file: Vec<u8> = [magic, version, 0, 0, snap, 1].into_iter().flat_map(word).collect();
        for &(seconds, fraction, bytes, length) in packets {
            let header = [seconds, fraction, bytes.len() as u32, length];
            file.extend(header.into_iter().flat_map(word));
            file.extend_from_slice(bytes);
        }
        file
    }

    #[test]
    fn both_orders_and_units_are_read() {
        for (is_big_endian, magic, at) in [
            (true, 0xa1b2_c3d4, Duration::new(7, 5_000)),
            (false, 0xa1b2_c3d4, Duration::new(7, 5_000)),
            (true, 0xa1b2_3c4d, Duration::new(7, 5)),
            (false, 0xa1b2_3c4d, Duration::new(7, 5)),
        ] {
            let bytes = file(is_big_endian, magic, 65_535, &[(7, 5, &[1, 2, 3], 3)]);
            let mut reader = Reader::new(bytes.as_slice()).unwrap().unwrap();
            assert_eq!(1, reader.link());
            let expected = Packet {
                at,
                bytes: vec![1, 2, 3],
                length: 3,
            };
            assert_eq!(Some(expected), reader.next().unwrap());
            assert_eq!(None, reader.next().unwrap());
        }
    }

    #[test]
    fn packets_that_were_cut_and_lengths_that_contradict_the_header_are_taken() {
        // The second packet exceeds the snap length of the file header. The third packet has a wire length of 0.
        let packets: [(u32, u32, &[u8], u32); 3] = [(1, 0, &[1; 64], 1_500), (1, 0, &[2; 90], 90), (1, 0, &[3; 10], 0)];
        let bytes = file(false, 0xa1b2_c3d4, 64, &packets);
        let mut reader = Reader::new(bytes.as_slice()).unwrap().unwrap();
        let mut lengths = Vec::new();
        while let Some(packet) = reader.next().unwrap() {
            lengths.push((packet.bytes.len(), packet.length));
        }
        assert_eq!(vec![(64, 1_500), (90, 90), (10, 10)], lengths);
    }

    #[test]
    fn file_that_ends_within_a_packet_or_has_an_impossible_one_is_told_from_its_end() {
        let whole = file(false, 0xa1b2_c3d4, 64, &[(1, 0, &[1; 64], 64)]);
        for length in [FILE_HEADER + 1, FILE_HEADER + PACKET_HEADER, whole.len() - 1] {
            let mut reader = Reader::new(&whole[..length]).unwrap().unwrap();
            assert!(matches!(reader.next(), Err(Fault::CutOff)), "{length}");
        }
        let mut broken = whole;
        broken[FILE_HEADER + 8..FILE_HEADER + 12].copy_from_slice(&[0xff; 4]);
        let mut reader = Reader::new(broken.as_slice()).unwrap().unwrap();
        assert!(matches!(reader.next(), Err(Fault::Length(u32::MAX))));
        assert!(Reader::new([7; 100].as_slice()).unwrap().is_none());
        assert!(Reader::new([0xa1].as_slice()).unwrap().is_none());
    }
}
