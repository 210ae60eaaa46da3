//! Traits of the two address families.

use core::fmt::Debug;
use core::hash::Hash;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_wire::checksum::Delta;
use sluice_wire::{Context, Tuple4, Tuple6};

use crate::rule::Stored;

/// An IPv4 or IPv6 address, in the form in which session keys store it.
pub trait Address: Stored + bytemuck::Pod + Ord + Hash + Debug + Send + Sync + 'static {
    /// Length of an address in bits: 32 or 128.
    const BITS: u8;

    /// The address as a number. An IPv4 address is in the low 32 bits.
    fn number(self) -> u128;

    /// The address with this number. Bits above [`Address::BITS`] are ignored.
    fn from_number(number: u128) -> Self;

    /// The address as two words.
    fn words(self) -> [u64; 2];

    /// Adds the effect of replacing this address by `new` to a checksum change.
    fn exchange(self, new: Self, delta: Delta) -> Delta;

    /// The address as an [`IpAddr`], for output.
    fn display(self) -> IpAddr;
}

impl Address for u32 {
    const BITS: u8 = 32;

    #[inline(always)]
    fn number(self) -> u128 {
        u128::from(self)
    }

    #[inline(always)]
    fn from_number(number: u128) -> Self {
        number as u32
    }

    #[inline(always)]
    fn words(self) -> [u64; 2] {
        [0, u64::from(self)]
    }

    #[inline(always)]
    fn exchange(self, new: Self, delta: Delta) -> Delta {
        delta.double(self, new)
    }

    fn display(self) -> IpAddr {
        Ipv4Addr::from_bits(self).into()
    }
}

impl Address for [u64; 2] {
    const BITS: u8 = 128;

    #[inline(always)]
    fn number(self) -> u128 {
        (u128::from(self[0]) << 64) | u128::from(self[1])
    }

    #[inline(always)]
    fn from_number(number: u128) -> Self {
        [(number >> 64) as u64, number as u64]
    }

    #[inline(always)]
    fn words(self) -> [u64; 2] {
        self
    }

    #[inline(always)]
    fn exchange(self, new: Self, delta: Delta) -> Delta {
        delta.quad(self[0], new[0]).quad(self[1], new[1])
    }

    fn display(self) -> IpAddr {
        Ipv6Addr::from_bits(self.number()).into()
    }
}

/// Addresses, ports and context of one direction of a flow in one address family.
pub trait Tuple: Copy + Eq + Debug + Send + Sync + 'static {
    /// Type of the family's addresses.
    type Address: Address;

    /// Creates a tuple from addresses, ports and context.
    fn new(
        source: Self::Address,
        destination: Self::Address,
        source_port: u16,
        destination_port: u16,
        context: Context,
    ) -> Self;

    /// Source address.
    fn source(&self) -> Self::Address;

    /// Destination address.
    fn destination(&self) -> Self::Address;

    /// Source port, or ICMP identifier.
    fn source_port(&self) -> u16;

    /// Destination port, or ICMP identifier.
    fn destination_port(&self) -> u16;

    /// Context of the tuple.
    fn context(&self) -> Context;
}

macro_rules! family {
    ($tuple:ident, $address:ty) => {
        impl Tuple for $tuple {
            type Address = $address;

            #[inline(always)]
            fn new(
                source: $address,
                destination: $address,
                source_port: u16,
                destination_port: u16,
                context: Context,
            ) -> Self {
                Self {
                    source,
                    destination,
                    source_port,
                    destination_port,
                    context,
                }
            }

            #[inline(always)]
            fn source(&self) -> $address {
                self.source
            }

            #[inline(always)]
            fn destination(&self) -> $address {
                self.destination
            }

            #[inline(always)]
            fn source_port(&self) -> u16 {
                self.source_port
            }

            #[inline(always)]
            fn destination_port(&self) -> u16 {
                self.destination_port
            }

            #[inline(always)]
            fn context(&self) -> Context {
                self.context
            }
        }
    };
}
family!(Tuple4, u32);
family!(Tuple6, [u64; 2]);
