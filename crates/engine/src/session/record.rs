//! The session record: composed here, and only here.
//!
//! Two lines for IPv4, three for IPv6. The first holds the keys of both directions, which already are the
//! translated tuples, and every decision; the slow path writes it. The last holds what packets change.

use bytemuck::{Pod, Zeroable};
use sluice_nat::{Decision, Tracking};
use sluice_table::flow::{Links, Record};
use sluice_wire::{Direction, FlowKey4, FlowKey6, Tuple4, Tuple6};

use crate::packet::batch::AdjacencyIndex;
use crate::session::bound_interfaces::BoundInterfaces;

/// What packets change.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Track {
    /// Packets by direction.
    pub packets: [u64; 2],
    /// Bytes of L3 datagrams by direction.
    pub bytes: [u64; 2],
    /// Connection state.
    pub tracking: Tracking,
    /// Tick of the last packet that refreshes.
    pub last_seen: u32,
    /// Place in the timer wheel.
    pub links: Links,
}

macro_rules! session {
    ($(#[$meta:meta])* $name:ident, $tuple:ident, $key:ident, $pad:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Pod, Zeroable)]
        #[repr(C, align(64))]
        pub struct $name {
            /// Key of the packets that go as the first one.
            pub forward: $tuple,
            /// Key of the packets that answer.
            pub reverse: $tuple,
            /// What translation decided.
            pub nat: Decision,
            /// Next hops by direction.
            pub hops: [u32; 2],
            /// Generation of the snapshot that decided.
            pub generation: u32,
            /// What is known of its [`Application`](crate::features::applications::Application), but of ICMP.
            pub(crate) application: u32,
            /// What inspection decided.
            pub inspect: u32,
            /// Protocol, and where packets come in.
            pub arrivals: BoundInterfaces,
            pub(crate) spare: [u8; $pad],
            /// What packets change.
            pub track: Track,
        }

        impl Default for $name {
            fn default() -> Self {
                Self::zeroed()
            }
        }

        impl $name {
            /// The hop of a direction.
            #[inline(always)]
            pub fn hop(&self, direction: Direction) -> AdjacencyIndex {
                AdjacencyIndex(self.hops[direction as usize])
            }
        }

        impl Record for $name {
            type Key = $key;
            #[inline(always)]
            fn key(&self, direction: Direction) -> $key {
                let tuple = match direction {
                    Direction::Forward => self.forward,
                    Direction::Reverse => self.reverse,
                };
                $key { tuple, protocol: self.arrivals.protocol() }
            }
            #[inline(always)]
            fn matches(&self, key: &$key, direction: Direction) -> bool {
                let tuple = match direction {
                    Direction::Forward => &self.forward,
                    Direction::Reverse => &self.reverse,
                };
                *tuple == key.tuple && self.arrivals.protocol() == key.protocol
            }
            #[inline(always)]
            fn links(&self) -> &Links {
                &self.track.links
            }
            #[inline(always)]
            fn links_mut(&mut self) -> &mut Links {
                &mut self.track.links
            }
        }
    };
}

session!(
    /// An IPv4 session: 128 bytes.
    Session4, Tuple4, FlowKey4, 0
);
session!(
    /// An IPv6 session: 192 bytes.
    Session6, Tuple6, FlowKey6, 16
);

const _: () = assert!(size_of::<Session4>() == 128 && size_of::<Session6>() == 192);
