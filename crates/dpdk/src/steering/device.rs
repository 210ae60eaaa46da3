//! The RSS hash of a DPDK port, for the negotiation of steering.

use super::negotiation::{Hash, HashDevice, Refusal};
use super::{Capabilities, Functions, HashKey, KEY_BYTES};
use crate::eal::error_text;
use crate::sys;

/// RSS hash of the port with this number. The port must be configured and open during every use of this value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortHash(pub(crate) u16);

fn result(error: i32) -> Result<(), Refusal> {
    match error {
        0 => Ok(()),
        error => Err(Refusal(error_text(error))),
    }
}

impl HashDevice for PortHash {
    fn capabilities(&self) -> Result<Capabilities, Refusal> {
        let mut raw = sys::sluice_hash_capabilities {
            functions: 0,
            key_bytes: 0,
            table_entries: 0,
            queues: 0,
            delivers: 0,
        };
        // SAFETY: the call writes the result.
        result(unsafe { sys::sluice_hash_capabilities(self.0, &mut raw) })?;
        Ok(Capabilities {
            functions: Functions::from_bits(raw.functions),
            key_bytes: match raw.key_bytes {
                0 => KEY_BYTES,
                bytes => bytes.into(),
            },
            table_entries: raw.table_entries,
            queues: raw.queues,
            delivers_hash: raw.delivers != 0,
        })
    }

    fn set_hash(&self, functions: Functions, key: Option<&HashKey>) -> Result<(), Refusal> {
        let bytes = key.map_or(&[][..], HashKey::bytes);
        let start = if bytes.is_empty() {
            std::ptr::null()
        } else {
            bytes.as_ptr()
        };
        // The key has the device's key size, which fits into a byte. SAFETY: the array has the stated length, and is
        // read during the call.
        result(unsafe { sys::sluice_hash_set(self.0, functions.bits(), start, bytes.len() as u8) })
    }

    fn hash(&self, key_bytes: usize) -> Result<Hash, Refusal> {
        let mut raw = sys::sluice_hash {
            functions: 0,
            key: [0; sys::SLUICE_HASH_KEY as usize],
            key_bytes: 0,
            delivers: 0,
        };
        let key_bytes = u8::try_from(key_bytes).unwrap_or(u8::MAX);
        // SAFETY: the result has room for a key of any size up to 255 bytes.
        result(unsafe { sys::sluice_hash_get(self.0, key_bytes, &mut raw) })?;
        let key = &raw.key[..usize::from(raw.key_bytes)];
        Ok(Hash {
            functions: Functions::from_bits(raw.functions),
            key: (!key.is_empty()).then(|| HashKey(key.to_vec())),
            delivered: raw.delivers != 0,
        })
    }

    fn set_table(&self, table: &[u16]) -> Result<(), Refusal> {
        let entries = u16::try_from(table.len()).unwrap_or(u16::MAX);
        // SAFETY: the array has at least the stated number of entries, and is read during the call.
        result(unsafe { sys::sluice_hash_set_table(self.0, table.as_ptr(), entries) })
    }

    fn table(&self, entries: u16) -> Result<Vec<u16>, Refusal> {
        let mut table = vec![0; entries.into()];
        // SAFETY: the call writes the stated number of entries.
        result(unsafe { sys::sluice_hash_table(self.0, table.as_mut_ptr(), entries) })?;
        Ok(table)
    }
}
