//! What the agent knows of a site.

use std::net::Ipv4Addr;

use sluice_wire::Mac;

use super::schedule::Class;
use super::{NEVER, Nanoseconds};

/// Where a site is in RFC 2131's figure 5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Nobody wants an address for it.
    #[default]
    Idle,
    /// INIT, waiting before it tries again.
    Waiting,
    /// SELECTING: it asks who has an address.
    Selecting,
    /// REQUESTING: it asks for the one that was offered.
    Requesting,
    /// REBOOTING: it asks whether the lease of before a restart holds.
    Rebooting,
    /// BOUND.
    Bound,
    /// RENEWING: it asks its server for more time.
    Renewing,
    /// REBINDING: it asks any server.
    Rebinding,
    /// A DHCPDECLINE is to be sent.
    Declining,
    /// A DHCPRELEASE is to be sent.
    Releasing,
}

impl State {
    /// As it is shown.
    pub fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Waiting => "waiting",
            Self::Selecting => "selecting",
            Self::Requesting => "requesting",
            Self::Rebooting => "rebooting",
            Self::Bound => "bound",
            Self::Renewing => "renewing",
            Self::Rebinding => "rebinding",
            Self::Declining => "declining",
            Self::Releasing => "releasing",
        }
    }

    /// Whether there is a lease that runs.
    pub(super) fn has_lease(self) -> bool {
        matches!(self, Self::Rebooting | Self::Bound | Self::Renewing | Self::Rebinding)
    }

    /// Where what is to be sent in this state is queued.
    pub(super) fn class(self) -> Option<Class> {
        match self {
            Self::Idle | Self::Waiting | Self::Bound => None,
            Self::Selecting => Some(Class::Discover),
            Self::Requesting => Some(Class::Request),
            Self::Rebooting => Some(Class::Reboot),
            Self::Renewing => Some(Class::Renew),
            Self::Rebinding => Some(Class::Rebind),
            Self::Declining | Self::Releasing => Some(Class::Farewell),
        }
    }
}

/// A site's public address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address.
    pub address: Ipv4Addr,
    /// Bits of its network; 32 where the server says none.
    pub prefix_length: u8,
    /// The router there.
    pub router: Option<Ipv4Addr>,
    /// Who gave it.
    pub server: Ipv4Addr,
    /// When it is renewed; `u64::MAX`: never.
    pub renew: Nanoseconds,
    /// When other servers are asked.
    pub rebind: Nanoseconds,
    /// When it ends.
    pub expires: Nanoseconds,
}

/// A site. 100,000 of them are kept, so it is small.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// When something happens, whatever is queued; in the schedule unless never.
    pub due: Nanoseconds,
    /// Its place among those queued.
    pub order: Nanoseconds,
    pub renew: Nanoseconds,
    pub rebind: Nanoseconds,
    pub expires: Nanoseconds,
    /// When the hold of a released lease is over; never for a site that is wanted.
    pub release: Nanoseconds,
    /// When what a lease is counted from was sent.
    pub sent: Nanoseconds,
    /// When the exchange began.
    pub began: Nanoseconds,
    /// Zero where no answer is expected.
    pub xid: u32,
    /// Bound, asked for, or to be hoped for.
    pub address: Ipv4Addr,
    /// Unspecified where there is none.
    pub server: Ipv4Addr,
    pub router: Ipv4Addr,
    /// The address of the last lease that was told.
    pub was: Ipv4Addr,
    /// The offered lease in seconds.
    pub offered: u32,
    pub mac: Mac,
    /// What it is to be after the release; zero where nothing.
    pub next: Mac,
    pub exchange: u16,
    pub tries: u8,
    /// Of late, without a lease in between.
    pub failures: u8,
    pub prefix_length: u8,
    pub state: State,
    pub queued: Option<Class>,
    /// The lease was told.
    pub announced: bool,
    /// Nobody wants it any more, once its DHCPDECLINE is sent.
    pub leaving: bool,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            due: NEVER,
            order: 0,
            renew: NEVER,
            rebind: NEVER,
            expires: NEVER,
            release: NEVER,
            sent: 0,
            began: 0,
            xid: 0,
            address: Ipv4Addr::UNSPECIFIED,
            server: Ipv4Addr::UNSPECIFIED,
            router: Ipv4Addr::UNSPECIFIED,
            was: Ipv4Addr::UNSPECIFIED,
            offered: 0,
            mac: [0; 6],
            next: [0; 6],
            exchange: 0,
            tries: 0,
            failures: 0,
            prefix_length: 32,
            state: State::Idle,
            queued: None,
            announced: false,
            leaving: false,
        }
    }
}

/// None for the unspecified address.
pub(super) fn specified(address: Ipv4Addr) -> Option<Ipv4Addr> {
    (!address.is_unspecified()).then_some(address)
}

impl Entry {
    pub fn lease(&self) -> Lease {
        Lease {
            address: self.address,
            prefix_length: self.prefix_length,
            router: specified(self.router),
            server: self.server,
            renew: self.renew,
            rebind: self.rebind,
            expires: self.expires,
        }
    }
}
