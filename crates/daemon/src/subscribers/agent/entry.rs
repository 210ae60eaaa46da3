//! State of a single site in the agent.

use std::net::Ipv4Addr;

use sluice_wire::Mac;

use super::schedule::Class;
use super::{NEVER, Nanoseconds};

/// State of a site in the client state machine (RFC 2131, figure 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// The site needs no address.
    #[default]
    Idle,
    /// INIT: waiting for the next attempt.
    Waiting,
    /// SELECTING: the agent has sent DHCPDISCOVER.
    Selecting,
    /// REQUESTING: the agent has requested the offered address.
    Requesting,
    /// REBOOTING: the agent has requested confirmation of a lease from before a restart.
    Rebooting,
    /// BOUND.
    Bound,
    /// RENEWING: the agent has requested an extension from the server of the lease.
    Renewing,
    /// REBINDING: the agent has requested an extension from any server.
    Rebinding,
    /// A DHCPDECLINE is queued.
    Declining,
    /// A DHCPRELEASE is queued.
    Releasing,
}

impl State {
    /// Name of the state.
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

    /// Whether the site has a valid lease in this state.
    pub(super) fn has_lease(self) -> bool {
        matches!(self, Self::Rebooting | Self::Bound | Self::Renewing | Self::Rebinding)
    }

    /// Send queue to which a message in this state belongs.
    pub(super) fn class(self) -> Option<Class> {
        match self {
            Self::Idle | Self::Waiting | Self::Bound => None,
            Self::Selecting => Some(Class::Discover),
            Self::Requesting => Some(Class::Request),
            Self::Rebooting => Some(Class::Reboot),
            Self::Renewing => Some(Class::Renew),
            Self::Rebinding => Some(Class::Rebind),
            Self::Declining | Self::Releasing => Some(Class::Release),
        }
    }
}

/// Lease of a site's public address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicLease {
    /// The address.
    pub address: Ipv4Addr,
    /// Prefix length of the address's network. 32 if the server sends no subnet mask.
    pub prefix_length: u8,
    /// Router of the network.
    pub router: Option<Ipv4Addr>,
    /// Server that granted the lease.
    pub server: Ipv4Addr,
    /// Renewal time T1. `u64::MAX` means never.
    pub renew: Nanoseconds,
    /// Rebinding time T2.
    pub rebind: Nanoseconds,
    /// End of the lease.
    pub expires: Nanoseconds,
}

/// State of a site. The state is kept small, because there may be 100,000 sites.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Time at which the site's timer expires. [`NEVER`] if the site is not in the schedule.
    pub due: Nanoseconds,
    /// Sort key in the send queue.
    pub order: Nanoseconds,
    pub renew: Nanoseconds,
    pub rebind: Nanoseconds,
    pub expires: Nanoseconds,
    /// End of the hold time of a released lease. The time is [`NEVER`] as long as the site needs an address.
    pub release: Nanoseconds,
    /// Time at which the request was sent. The lease time counts from this time.
    pub sent: Nanoseconds,
    /// Time at which the exchange started.
    pub started_at: Nanoseconds,
    /// Transaction ID. Zero if no reply is expected.
    pub xid: u32,
    /// Address that is bound, requested or preferred.
    pub address: Ipv4Addr,
    /// Address of the server. The unspecified address if no server is known.
    pub server: Ipv4Addr,
    pub router: Ipv4Addr,
    /// Address of the lease that was reported last.
    pub was: Ipv4Addr,
    /// Lease time of the offer in seconds.
    pub offered: u32,
    pub mac: Mac,
    /// MAC that the site gets after the release. Zero if the MAC does not change.
    pub next: Mac,
    pub exchange: u16,
    pub tries: u8,
    /// Number of consecutive failures since the last lease.
    pub failures: u8,
    pub prefix_length: u8,
    pub state: State,
    pub queued: Option<Class>,
    /// Whether the lease has been reported.
    pub announced: bool,
    /// Whether the site must be removed after its DHCPDECLINE is sent.
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
            started_at: 0,
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

/// Returns `None` for the unspecified address.
pub(super) fn specified(address: Ipv4Addr) -> Option<Ipv4Addr> {
    (!address.is_unspecified()).then_some(address)
}

impl Entry {
    pub fn lease(&self) -> PublicLease {
        PublicLease {
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
