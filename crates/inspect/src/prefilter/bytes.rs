//! Serialises pattern sets and databases. Numbers are little-endian, and a length precedes variable data.

use crate::signature::Protocol;

/// The bytes are truncated or contain invalid values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the compiled data can't be decoded")]
pub struct Truncated;

pub(super) struct Writer(pub Vec<u8>);

impl Writer {
    pub fn number(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    pub fn list(&mut self, list: &[u32]) {
        self.number(list.len() as u32);
        list.iter().for_each(|&number| self.number(number));
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend((bytes.len() as u64).to_le_bytes());
        self.0.extend(bytes);
    }

    pub fn protocol(&mut self, protocol: Protocol) {
        self.0.extend(match protocol {
            Protocol::Ip => [0, 0],
            Protocol::Tcp => [1, 0],
            Protocol::Udp => [2, 0],
            Protocol::Icmp => [3, 0],
            Protocol::Application => [4, 0],
            Protocol::Number(number) => [5, number],
        });
    }
}

pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Truncated> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("so many bytes were taken"))
    }

    pub fn number(&mut self) -> Result<u32, Truncated> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn long(&mut self) -> Result<u64, Truncated> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn list(&mut self) -> Result<Box<[u32]>, Truncated> {
        let count = self.number()? as usize;
        let bytes = self.take(count.checked_mul(4).ok_or(Truncated)?)?;
        let numbers = bytes.as_chunks::<4>().0.iter();
        Ok(numbers.map(|&bytes| u32::from_le_bytes(bytes)).collect())
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Truncated> {
        let count = usize::try_from(self.long()?).map_err(|_| Truncated)?;
        self.take(count)
    }

    pub fn protocol(&mut self) -> Result<Protocol, Truncated> {
        Ok(match self.array()? {
            [0, 0] => Protocol::Ip,
            [1, 0] => Protocol::Tcp,
            [2, 0] => Protocol::Udp,
            [3, 0] => Protocol::Icmp,
            [4, 0] => Protocol::Application,
            [5, number] => Protocol::Number(number),
            _ => return Err(Truncated),
        })
    }
}
