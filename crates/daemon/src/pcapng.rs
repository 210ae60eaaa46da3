//! Captures in pcapng format, written incrementally: one section, named interfaces, and comments on dropped packets.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::{DataLink, PcapResult};

/// Writes pcapng blocks into memory.
pub struct Writer {
    blocks: Option<PcapNgWriter<Vec<u8>>>,
    taken: Vec<u8>,
}

impl Writer {
    /// Start a section with Ethernet interfaces that have the given names. Frames are truncated to `bytes` bytes.
    pub fn start(names: &[String], bytes: u16) -> Self {
        let mut blocks = PcapNgWriter::new(Vec::new()).ok();
        for name in names {
            let block = InterfaceDescriptionBlock {
                linktype: DataLink::ETHERNET,
                snaplen: bytes.into(),
                options: vec![
                    InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                    // Timestamps are in nanoseconds.
                    InterfaceDescriptionOption::IfTsResol(9),
                ],
            };
            write(&mut blocks, |blocks| blocks.write_pcapng_block(block).map(drop));
        }
        Self {
            blocks,
            taken: Vec::new(),
        }
    }

    /// Add a frame of `length` bytes. `frame` contains the first bytes of that frame.
    pub fn write(
        &mut self,
        at: SystemTime,
        interface: u16,
        sent: bool,
        frame: &[u8],
        length: u16,
        comment: Option<String>,
    ) {
        let mut options = Vec::new();
        // The two lowest bits are the direction: 1 is inbound, 2 is outbound.
        options.push(EnhancedPacketOption::Flags(if sent { 2 } else { 1 }));
        options.extend(comment.map(|comment| EnhancedPacketOption::Comment(Cow::Owned(comment))));
        let block = EnhancedPacketBlock {
            interface_id: interface.into(),
            timestamp: at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO),
            original_len: length.into(),
            data: Cow::Borrowed(frame),
            options,
        };
        write(&mut self.blocks, |blocks| blocks.write_pcapng_block(block).map(drop));
    }

    /// Return the bytes written since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        if let Some(blocks) = &mut self.blocks {
            std::mem::swap(blocks.get_mut(), &mut self.taken);
        }
        std::mem::take(&mut self.taken)
    }
}

/// Writing to memory can't fail. An invalid block would be a bug in this module.
fn write(blocks: &mut Option<PcapNgWriter<Vec<u8>>>, with: impl FnOnce(&mut PcapNgWriter<Vec<u8>>) -> PcapResult<()>) {
    if let Some(blocks) = blocks {
        let written = with(blocks);
        debug_assert!(written.is_ok(), "{written:?}");
    }
}
