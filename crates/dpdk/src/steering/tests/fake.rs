//! A fake card. The test sets the capabilities and deviations of the card. The card distributes packets according to
//! its accepted settings.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;

use sluice_table::toeplitz;

use super::super::negotiation::{Hash, HashDevice, Refusal};
use super::super::{Attempt, Capabilities, Flow, Functions, HashKey, Steered, SteeringRequest, configure, steer};

/// Deviations of the fake card from the correct behaviour.
#[derive(Clone, Copy, Default)]
pub(super) struct Deviations {
    pub(super) refuses_key: bool,
    /// The card accepts every key, but hashes with its own key.
    pub(super) ignores_key: bool,
    /// The card ignores the key at configuration, but accepts the functions.
    pub(super) key_only_when_running: bool,
    /// The card rejects changes after configuration.
    pub(super) fixed_when_running: bool,
    /// The card rejects restrictions to some fields, although it reports support for them.
    pub(super) refuses_subsets: bool,
    /// The card accepts restrictions to some fields, but hashes all fields.
    pub(super) drops_subsets: bool,
    pub(super) hides_everything: bool,
    pub(super) hides_key: bool,
    pub(super) hides_table: bool,
    pub(super) refuses_table: bool,
    /// The card stores only even queues in its table.
    pub(super) rounds_table: bool,
}

pub(super) struct Fake {
    pub(super) capabilities: Capabilities,
    pub(super) deviations: Deviations,
    functions: Cell<Functions>,
    key: RefCell<HashKey>,
    table: RefCell<Vec<u16>>,
    /// How often the hash was set, and how often the table was set, while the card was running.
    pub(super) set: Cell<(u32, u32)>,
}

pub(super) fn every_function() -> Functions {
    use Functions as F;
    let v4 = F::IPV4 | F::IPV4_FRAGMENT | F::IPV4_TCP | F::IPV4_UDP | F::IPV4_OTHER;
    let v6 = F::IPV6 | F::IPV6_FRAGMENT | F::IPV6_TCP | F::IPV6_UDP | F::IPV6_OTHER;
    v4 | v6 | subsets()
}

fn subsets() -> Functions {
    Functions::L3_SOURCE_ONLY
        | Functions::L3_DESTINATION_ONLY
        | Functions::L4_SOURCE_ONLY
        | Functions::L4_DESTINATION_ONLY
}

pub(super) fn without(functions: Functions, others: Functions) -> Functions {
    Functions::from_bits(functions.bits() & !others.bits())
}

/// Default key of a card.
pub(super) fn own_key(bytes: usize) -> HashKey {
    HashKey::from(&toeplitz::Key::new([0x5a; toeplitz::KEY_BYTES])).resized(bytes)
}

impl Fake {
    /// A card that supports every function, with a hash key of 40 bytes and a table of 128 entries.
    pub(super) fn new() -> Self {
        Self::offering(every_function())
    }

    pub(super) fn offering(functions: Functions) -> Self {
        Self::with(Capabilities {
            functions,
            key_bytes: 40,
            table_entries: 128,
            queues: 128,
            delivers_hash: true,
        })
    }

    pub(super) fn with(capabilities: Capabilities) -> Self {
        Self {
            capabilities,
            deviations: Deviations::default(),
            functions: Cell::default(),
            key: RefCell::new(own_key(capabilities.key_bytes)),
            table: RefCell::new(vec![0; capabilities.table_entries.into()]),
            set: Cell::default(),
        }
    }

    pub(super) fn deviating(deviations: Deviations) -> Self {
        Self {
            deviations,
            ..Self::new()
        }
    }

    fn take(&self, functions: Functions, key: Option<&HashKey>) -> Result<(), Refusal> {
        let subset = without(functions, subsets()) != functions;
        let wrong_size = key.is_some_and(|key| key.bytes().len() != self.capabilities.key_bytes);
        if !self.capabilities.functions.contains(functions) || self.deviations.refuses_subsets && subset || wrong_size {
            return Err(Refusal("Invalid argument".into()));
        }
        if self.deviations.refuses_key && key.is_some() {
            return Err(Refusal("Operation not supported".into()));
        }
        self.functions.set(if self.deviations.drops_subsets {
            without(functions, subsets())
        } else {
            functions
        });
        if let Some(key) = key.filter(|_| !self.deviations.ignores_key) {
            *self.key.borrow_mut() = key.clone();
        }
        Ok(())
    }

    fn configure(&self, attempt: &Attempt) -> Result<(), Refusal> {
        let key = attempt.key.as_ref().filter(|_| !self.deviations.key_only_when_running);
        self.take(attempt.functions, key)
    }

    /// Apply a steering request in the same way as when a port is opened.
    pub(super) fn open(&self, steering_request: &SteeringRequest) -> Steered {
        let capabilities = self.capabilities().expect("it tells");
        let configured = configure(
            steering_request,
            &capabilities,
            |attempt| self.configure(attempt),
            |Refusal(reason)| Some(reason.clone()),
        );
        steer(
            self,
            steering_request,
            &capabilities,
            configured.expect("nothing can be had always"),
        )
    }

    /// Hash of a packet. `None` if the card hashes no field of the packet.
    pub(super) fn hash_of(&self, packet: &Packet) -> Option<u32> {
        use Functions as F;
        let on = |function| self.functions.get().contains(function);
        let (addresses, ports) = match packet.flow() {
            Flow::Tcp4 => (on(F::IPV4), on(F::IPV4_TCP)),
            Flow::Udp4 => (on(F::IPV4), on(F::IPV4_UDP)),
            Flow::Other4 => (on(F::IPV4) || on(F::IPV4_OTHER), false),
            Flow::Tcp6 => (on(F::IPV6), on(F::IPV6_TCP)),
            Flow::Udp6 => (on(F::IPV6), on(F::IPV6_UDP)),
            Flow::Other6 => (on(F::IPV6) || on(F::IPV6_OTHER), false),
        };
        if !addresses && !ports {
            return None;
        }
        let octets = |address| match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let mut input = Vec::new();
        if !on(F::L3_DESTINATION_ONLY) {
            input.extend(octets(packet.source));
        }
        if !on(F::L3_SOURCE_ONLY) {
            input.extend(octets(packet.destination));
        }
        if ports && !on(F::L4_DESTINATION_ONLY) {
            input.extend(packet.ports.0.to_be_bytes());
        }
        if ports && !on(F::L4_SOURCE_ONLY) {
            input.extend(packet.ports.1.to_be_bytes());
        }
        let mut key = [0; toeplitz::KEY_BYTES];
        let own = self.key.borrow();
        key[..own.bytes().len()].copy_from_slice(own.bytes());
        Some(toeplitz::Key::new(key).hash(&input))
    }

    /// Queue at which a packet arrives.
    pub(super) fn queue_of(&self, packet: &Packet) -> u16 {
        let table = self.table.borrow();
        self.hash_of(packet)
            .map_or(0, |hash| table[hash as usize & (table.len() - 1)])
    }
}

impl HashDevice for Fake {
    fn capabilities(&self) -> Result<Capabilities, Refusal> {
        Ok(self.capabilities)
    }

    fn set_hash(&self, functions: Functions, key: Option<&HashKey>) -> Result<(), Refusal> {
        let (hashes, tables) = self.set.get();
        self.set.set((hashes + 1, tables));
        if self.deviations.fixed_when_running {
            return Err(Refusal("Operation not supported".into()));
        }
        self.take(functions, key)
    }

    fn hash(&self, _key_bytes: usize) -> Result<Hash, Refusal> {
        if self.deviations.hides_everything {
            return Err(Refusal("Operation not supported".into()));
        }
        Ok(Hash {
            functions: self.functions.get(),
            key: (!self.deviations.hides_key).then(|| self.key.borrow().clone()),
            delivered: self.capabilities.delivers_hash && !self.functions.get().is_empty(),
        })
    }

    fn set_table(&self, table: &[u16]) -> Result<(), Refusal> {
        let (hashes, tables) = self.set.get();
        self.set.set((hashes, tables + 1));
        if self.deviations.refuses_table || table.len() != self.table.borrow().len() {
            return Err(Refusal("Invalid argument".into()));
        }
        let rounded = |queue: &u16| {
            if self.deviations.rounds_table {
                queue & !1
            } else {
                *queue
            }
        };
        *self.table.borrow_mut() = table.iter().map(rounded).collect();
        Ok(())
    }

    fn table(&self, _entries: u16) -> Result<Vec<u16>, Refusal> {
        if self.deviations.hides_table {
            return Err(Refusal("Operation not supported".into()));
        }
        Ok(self.table.borrow().clone())
    }
}

/// Packet fields that a card reads. Source and destination address belong to one family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) protocol: u8,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) ports: (u16, u16),
}

impl Packet {
    fn flow(&self) -> Flow {
        match (self.source.is_ipv4(), self.protocol) {
            (true, 6) => Flow::Tcp4,
            (true, 17) => Flow::Udp4,
            (true, _) => Flow::Other4,
            (false, 6) => Flow::Tcp6,
            (false, 17) => Flow::Udp6,
            (false, _) => Flow::Other6,
        }
    }
}
