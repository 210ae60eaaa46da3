//! Capture files. Captures are read frame by frame as Ethernet, and written with nanosecond timestamps.

use std::fs::File;
use std::io::{BufReader, BufWriter, Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::{Block, PcapNgParser, PcapNgReader};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

use super::links::{Link, READ};
use super::pcap::{self, Fault};
use crate::files;

/// Why a capture file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file can't be opened or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        error: std::io::Error,
    },
    /// The file is not in a capture format.
    #[error("{} is not a capture file in pcap or pcapng format", .0.display())]
    NoCapture(PathBuf),
    /// The file ends within a frame.
    #[error("{} is truncated after frame {frames}", path.display())]
    CutOff {
        /// Path of the file.
        path: PathBuf,
        /// Number of complete frames.
        frames: u64,
    },
    /// A block or header is invalid.
    #[error("{} is damaged after frame {frames}: {description}", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Number of frames before the error.
        frames: u64,
        /// Description of the error.
        description: String,
    },
    /// The link type is not supported.
    #[error("{}, {at}: the link type {link} is not supported: {READ}; capture again with one of these link types",
         path.display())]
    ForeignLink {
        /// Path of the file.
        path: PathBuf,
        /// Place of the packet in the file.
        at: String,
        /// Name of the link type.
        link: String,
    },
}

/// A captured frame with its time.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    /// Time since the Unix epoch. The time is never earlier than the time of the previous frame.
    pub at: Duration,
    /// Captured bytes.
    pub bytes: Vec<u8>,
    /// Length on the wire.
    pub length: u32,
}

/// Buffered input of a capture.
type Bytes = BufReader<Box<dyn Read + Send>>;

enum Reader {
    Pcap(pcap::Reader<Bytes>, Link),
    PcapNg(Box<PcapNgReader<Bytes>>),
}

/// An input capture. Packets of link types other than Ethernet get a generated Ethernet header: see [`Link::framed`].
pub struct Input {
    path: PathBuf,
    reader: Reader,
    next: Option<Captured>,
    frames: u64,
    last: Duration,
}

/// Path that stands for standard input.
const STANDARD_INPUT: &str = "-";

impl Input {
    /// Open a capture and read its first frame. The path `-` means standard input.
    ///
    /// # Errors
    /// The file is not a capture, or can't be replayed.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let wrong = |error| CaptureError::File {
            path: path.to_owned(),
            error,
        };
        let mut file: Box<dyn Read + Send> = match path.to_str() {
            Some(STANDARD_INPUT) => Box::new(std::io::stdin()),
            _ => Box::new(File::open(path).map_err(wrong)?),
        };
        let mut magic = Vec::new();
        file.by_ref().take(4).read_to_end(&mut magic).map_err(wrong)?;
        let is_pcapng = magic == [0x0a, 0x0d, 0x0d, 0x0a];
        let file: Bytes = BufReader::with_capacity(1 << 18, Box::new(Cursor::new(magic).chain(file)));
        let none = || CaptureError::NoCapture(path.to_owned());
        let reader = if is_pcapng {
            Reader::PcapNg(Box::new(PcapNgReader::new(file).map_err(|_| none())?))
        } else {
            let reader = pcap::Reader::new(file).map_err(wrong)?.ok_or_else(none)?;
            let link = Link::of(reader.link()).ok_or_else(|| foreign(path, "in its header".into(), reader.link()))?;
            Reader::Pcap(reader, link)
        };
        let mut input = Self {
            path: path.to_owned(),
            reader,
            next: None,
            frames: 0,
            last: Duration::ZERO,
        };
        input.next = input.read()?;
        Ok(input)
    }

    /// Time of the next frame. `None` at the end of the capture.
    pub fn next_time(&self) -> Option<Duration> {
        self.next.as_ref().map(|frame| frame.at)
    }

    /// Return the next frame. `None` at the end of the capture.
    ///
    /// # Errors
    /// Each call reads one frame in advance. On an error, this frame can't be read, and the frame that the call should
    /// have returned stays buffered for the next call.
    pub fn take(&mut self) -> Result<Option<Captured>, CaptureError> {
        let next = self.read()?;
        Ok(std::mem::replace(&mut self.next, next))
    }

    fn read(&mut self) -> Result<Option<Captured>, CaptureError> {
        let frame = match &mut self.reader {
            Reader::Pcap(reader, link) => match reader.next() {
                Ok(Some(packet)) => Some(captured(*link, packet.at, packet.bytes, packet.length)),
                Ok(None) => None,
                Err(fault) => return Err(self.faulty(fault)),
            },
            Reader::PcapNg(reader) => match next_of_blocks(reader) {
                Ok(Some((number, interface, frame))) => {
                    let Some(link) = Link::of(interface) else {
                        let at = format!("packet {}, of its interface {number}", self.frames + 1);
                        return Err(foreign(&self.path, at, interface));
                    };
                    Some(captured(link, frame.at, frame.bytes, frame.length))
                }
                Ok(None) => None,
                Err(error) => return Err(self.damaged(error)),
            },
        };
        Ok(frame.map(|mut frame| {
            self.frames += 1;
            frame.at = frame.at.max(self.last);
            self.last = frame.at;
            frame
        }))
    }

    fn faulty(&self, fault: Fault) -> CaptureError {
        let (path, frames) = (self.path.clone(), self.frames);
        match fault {
            Fault::CutOff => CaptureError::CutOff { path, frames },
            Fault::File(error) => CaptureError::File { path, error },
            Fault::Length(length) => CaptureError::Damaged {
                path,
                frames,
                description: format!("a packet of {length} bytes"),
            },
        }
    }

    fn damaged(&self, error: PcapError) -> CaptureError {
        let (path, frames) = (self.path.clone(), self.frames);
        match error {
            PcapError::IncompleteBuffer => CaptureError::CutOff { path, frames },
            PcapError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                CaptureError::CutOff { path, frames }
            }
            PcapError::IoError(error) => CaptureError::File { path, error },
            error => CaptureError::Damaged {
                path,
                frames,
                description: error.to_string(),
            },
        }
    }
}

fn captured(link: Link, at: Duration, bytes: Vec<u8>, length: u32) -> Captured {
    let (bytes, length) = link.framed(bytes, length);
    Captured { at, bytes, length }
}

fn foreign(path: &Path, at: String, link: u32) -> CaptureError {
    CaptureError::ForeignLink {
        path: path.to_owned(),
        at,
        link: match DataLink::from(link) {
            DataLink::Unknown(number) => number.to_string(),
            known => format!("{known:?} ({link})"),
        },
    }
}

/// The next packet of a pcapng file, together with the number and the link type of the interface that captured the
/// packet.
fn next_of_blocks(reader: &mut PcapNgReader<Bytes>) -> Result<Option<(u32, u32, Captured)>, PcapError> {
    loop {
        let found = match reader.next_block() {
            None => return Ok(None),
            Some(block) => raw(block?),
        };
        if let Some(raw) = found {
            let number = raw.interface;
            let (interface, frame) = raw.of(reader.interfaces())?;
            return Ok(Some((number, interface.linktype.into(), frame)));
        }
    }
}

/// An undecoded packet of a pcapng file.
struct Raw {
    interface: u32,
    timestamp: u128,
    length: u32,
    bytes: Vec<u8>,
    /// Whether the block is a simple packet block. A simple packet block does not state the captured length, so its
    /// bytes end with padding.
    is_simple: bool,
}

fn raw(block: Block<'_>) -> Option<Raw> {
    let mut is_simple = false;
    let (interface, timestamp, length, bytes) = match block {
        // The library interprets the raw timestamp as nanoseconds, whatever the resolution of the interface is.
        Block::EnhancedPacket(packet) => {
            let raw = packet.timestamp.as_nanos();
            (packet.interface_id, raw, packet.original_len, packet.data.into_owned())
        }
        Block::Packet(packet) => {
            let interface = u32::from(packet.interface_id);
            let raw = u128::from(packet.timestamp);
            (interface, raw, packet.original_len, packet.data.into_owned())
        }
        Block::SimplePacket(packet) => {
            is_simple = true;
            (0, 0, packet.original_len, packet.data.into_owned())
        }
        _ => return None,
    };
    Some(Raw {
        interface,
        timestamp,
        length,
        bytes,
        is_simple,
    })
}

impl Raw {
    /// Determine the interface of the packet, and convert the packet to a frame.
    fn of<'i>(
        self,
        interfaces: &'i [InterfaceDescriptionBlock<'static>],
    ) -> Result<(&'i InterfaceDescriptionBlock<'static>, Captured), PcapError> {
        let interface = interfaces.get(self.interface as usize).ok_or(PcapError::InvalidField(
            "a packet of an interface that was not described",
        ))?;
        let mut bytes = self.bytes;
        if self.is_simple {
            let snap = if interface.snaplen == 0 {
                u32::MAX
            } else {
                interface.snaplen
            };
            bytes.truncate(self.length.min(snap) as usize);
        }
        let frame = Captured {
            at: time(interface, self.timestamp),
            // Some writers set the original length to zero.
            length: self.length.max(bytes.len() as u32),
            bytes,
        };
        Ok((interface, frame))
    }
}

/// Maximum length of a block in a stream.
const LONGEST_BLOCK: usize = 1 << 20;

/// A pcapng stream that arrives in chunks, split at any byte.
#[derive(Default)]
pub struct Stream {
    parser: Option<PcapNgParser>,
    rest: Vec<u8>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("rest", &self.rest.len())
            .finish_non_exhaustive()
    }
}

impl Stream {
    /// Add the next chunk. Each complete frame is passed to `each`, with the name of its interface.
    ///
    /// # Errors
    /// The stream is not in pcapng format.
    pub fn take(&mut self, piece: &[u8], each: &mut dyn FnMut(&str, Captured)) -> Result<(), PcapError> {
        self.rest.extend_from_slice(piece);
        let mut remaining = &self.rest[..];
        let done = loop {
            let Some(parser) = &mut self.parser else {
                match PcapNgParser::new(remaining) {
                    Ok((behind, parser)) => {
                        remaining = behind;
                        self.parser = Some(parser);
                        continue;
                    }
                    Err(error) => break error,
                }
            };
            match parser.next_block(remaining) {
                Ok((behind, block)) => {
                    remaining = behind;
                    if let Some(raw) = raw(block) {
                        let (interface, frame) = raw.of(parser.interfaces())?;
                        each(name(interface), frame);
                    }
                }
                Err(error) => break error,
            }
        };
        let used = self.rest.len() - remaining.len();
        self.rest.drain(..used);
        match done {
            PcapError::IncompleteBuffer if self.rest.len() <= LONGEST_BLOCK => Ok(()),
            PcapError::IncompleteBuffer => Err(PcapError::InvalidField("a block that is too long")),
            error => Err(error),
        }
    }
}

fn name<'i>(interface: &'i InterfaceDescriptionBlock<'static>) -> &'i str {
    let names = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfName(name) => Some(name.as_ref()),
        _ => None,
    });
    names.unwrap_or("")
}

/// Convert a timestamp from the resolution of the interface. The default resolution is microseconds.
fn time(interface: &InterfaceDescriptionBlock<'_>, raw: u128) -> Duration {
    let resolution = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    // The offset is in whole seconds and may be negative.
    let offset = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsOffset(seconds) => Some(i128::from(*seconds as i64)),
        _ => None,
    });
    let nanoseconds = match resolution.unwrap_or(6) {
        binary if binary & 0x80 != 0 => (raw * 1_000_000_000) >> (binary & 0x7f).min(90),
        decimal if decimal <= 9 => raw * 10u128.pow(u32::from(9 - decimal)),
        decimal => raw / 10u128.pow(u32::from(decimal - 9).min(30)),
    };
    let most = i128::from(u64::MAX);
    let nanoseconds = i128::try_from(nanoseconds).unwrap_or(most).min(most);
    let nanoseconds = nanoseconds + offset.unwrap_or_default() * 1_000_000_000;
    Duration::from_nanos(nanoseconds.clamp(0, most) as u64)
}

/// An output capture.
pub struct Output {
    path: PathBuf,
    writer: PcapWriter<BufWriter<File>>,
}

impl Output {
    /// Create a capture file.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn create(path: &Path) -> Result<Self, CaptureError> {
        let wrong = |error| CaptureError::File {
            path: path.to_owned(),
            error,
        };
        let header = PcapHeader {
            datalink: DataLink::ETHERNET,
            ts_resolution: TsResolution::NanoSecond,
            endianness: Endianness::Little,
            ..PcapHeader::default()
        };
        let file = BufWriter::new(files::output(path).map_err(wrong)?);
        let writer = PcapWriter::with_header(file, header).map_err(|error| wrong(io(error)))?;
        Ok(Self {
            path: path.to_owned(),
            writer,
        })
    }

    /// Add a frame.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&mut self, at: Duration, frame: &[u8]) -> Result<(), CaptureError> {
        let packet = PcapPacket::new(at, frame.len() as u32, frame);
        let written = self.writer.write_packet(&packet);
        written.map(drop).map_err(|error| CaptureError::File {
            path: self.path.clone(),
            error: io(error),
        })
    }

    /// Flush the file.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn finish(self) -> Result<(), CaptureError> {
        let path = self.path;
        let flushed = self.writer.into_writer().flush();
        flushed.map_err(|error| CaptureError::File { path, error })
    }
}

fn io(error: PcapError) -> std::io::Error {
    match error {
        PcapError::IoError(error) => error,
        error => std::io::Error::other(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::pcapng::Writer;

    #[test]
    fn stream_cut_anywhere_has_the_frames_and_their_interfaces() {
        let mut writer = Writer::start(&["inside".into(), "outside".into()], 100);
        let at = UNIX_EPOCH + Duration::new(7, 8);
        writer.write(at, 1, false, &[1; 60], 60, None);
        writer.write(at, 0, false, &[2; 61], 99, None);
        let bytes = writer.take();
        for size in [1, 7, 64, bytes.len()] {
            let mut found = Vec::new();
            let mut stream = Stream::default();
            for piece in bytes.chunks(size) {
                let mut each = |name: &str, frame: Captured| found.push((name.to_owned(), frame));
                stream.take(piece, &mut each).unwrap();
            }
            let found: Vec<_> = found
                .iter()
                .map(|(name, frame)| (name.as_str(), frame.at, frame.bytes.len(), frame.length))
                .collect();
            let at = Duration::new(7, 8);
            assert_eq!(vec![("outside", at, 60, 60), ("inside", at, 61, 99)], found);
        }
    }

    #[test]
    fn stream_of_something_else_is_refused() {
        let mut stream = Stream::default();
        assert!(stream.take(&[7; 100], &mut |_, _| {}).is_err());
    }
}
