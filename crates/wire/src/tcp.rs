//! TCP (RFC 9293).

use crate::checksum::Delta;
use crate::field::{Field, header};

header! {
    /// A TCP header and what follows it.
    Tcp 20
    "Source port." source_port: u16 = SOURCE_PORT @ 0, set_source_port;
    "Destination port." destination_port: u16 = DESTINATION_PORT @ 2, set_destination_port;
    "Sequence number." sequence: u32 = SEQUENCE @ 4, set_sequence;
    "Acknowledgment number." acknowledgment: u32 = ACKNOWLEDGMENT @ 8, set_acknowledgment;
    "Header length in words (4 bits), reserved (4)." data_offset: u8 = DATA_OFFSET @ 12, set_data_offset;
    "Control flags." flags: u8 = FLAGS @ 13, set_flags;
    "Window." window: u16 = WINDOW @ 14, set_window;
    "Checksum over pseudo-header, header and data." checksum: u16 = CHECKSUM @ 16, set_checksum;
    "Urgent pointer." urgent: u16 = URGENT @ 18, set_urgent;
}

/// Control flags.
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment number counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
}

/// Kinds of options.
pub mod option {
    /// End of the options.
    pub const END: u8 = 0;
    /// Padding of one byte.
    pub const NOTHING: u8 = 1;
    /// Maximum segment size.
    pub const MAXIMUM_SEGMENT_SIZE: u8 = 2;
}

impl<B: AsRef<[u8]>> Tcp<B> {
    /// Header length in bytes, as the header says: 0 to 60.
    #[inline(always)]
    pub fn header_length(&self) -> usize {
        ((self.data_offset() >> 4) as usize) << 2
    }

    /// The options; empty where the header length is wrong.
    pub fn options(&self) -> &[u8] {
        self.bytes().get(LENGTH..self.header_length()).unwrap_or_default()
    }

    /// Offset, from the header's first byte, of the number in the maximum-segment-size option.
    pub fn segment_size_offset(&self) -> Option<usize> {
        let options = self.options();
        let mut at = 0;
        loop {
            match *options.get(at)? {
                option::END => return None,
                option::NOTHING => at += 1,
                kind => {
                    let length = *options.get(at + 1)? as usize;
                    if length < 2 {
                        return None;
                    }
                    if kind == option::MAXIMUM_SEGMENT_SIZE {
                        return (length == 4 && at + 4 <= options.len()).then_some(LENGTH + at + 2);
                    }
                    at += length;
                }
            }
        }
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Tcp<B> {
    /// Lower the maximum segment size that a SYN offers to `most`, the checksum with it; a wrong one stays wrong. False,
    /// and nothing done, where it offers none or no more than that.
    pub fn clamp_segment_size(&mut self, most: u16) -> bool {
        let Some(at) = self.segment_size_offset() else {
            return false;
        };
        let size: Field<u16> = Field::at(at);
        let offered = size.read(self.bytes());
        if offered <= most {
            return false;
        }
        size.write(self.bytes_mut(), most);
        // Behind an odd number of bytes the number lies across two words of the sum, with its bytes exchanged.
        let delta = match at % 2 {
            0 => Delta::default().word(offered, most),
            _ => Delta::default().word(offered.swap_bytes(), most.swap_bytes()),
        };
        let checksum = delta.apply(self.checksum());
        self.set_checksum(checksum);
        true
    }
}
