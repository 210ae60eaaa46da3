//! Events of the agent, and counters of faults.

use std::net::Ipv4Addr;

use super::Lease;
use crate::subscribers::Site;

/// Why a site lost its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The lease expired without being renewed.
    Expired,
    /// A server rejected the lease (DHCPNAK).
    Refused,
    /// Another site has the address.
    Declined,
    /// The site no longer needs the address.
    Released,
    /// Another host uses the address.
    Conflict,
}

impl Why {
    /// Name of the reason.
    pub fn word(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Refused => "nak",
            Self::Declined => "declined",
            Self::Released => "released",
            Self::Conflict => "conflict",
        }
    }
}

/// Response behaviour of the servers towards all sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Servers {
    /// Servers respond, or no request has been sent yet.
    #[default]
    Answering,
    /// No server responds: requests are sent at a reduced rate until one does.
    Silent,
    /// All requests are rejected: requests are sent at a reduced rate until one is acknowledged.
    Refusing,
}

impl Servers {
    /// Name of the behaviour.
    pub fn word(self) -> &'static str {
        match self {
            Self::Answering => "answering",
            Self::Silent => "silent",
            Self::Refusing => "refusing",
        }
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A site has an address: its first, or the same as before. The receiver checks for address conflicts (RFC 5227)
    /// and reports them by [`super::Agent::conflict`].
    Bound(Site, Lease),
    /// The lease of the present address was extended.
    Renewed(Site, Lease),
    /// A site has another address than before.
    Changed {
        /// The site.
        site: Site,
        /// The former address.
        was: Ipv4Addr,
        /// The new lease.
        lease: Lease,
    },
    /// A site must no longer use its address.
    Lost {
        /// The site.
        site: Site,
        /// The former address.
        address: Ipv4Addr,
        /// The reason.
        why: Why,
    },
    /// A server sent an invalid reply. All faults are counted; each kind is reported at most once per second, and those
    /// that can occur with correct servers are never reported.
    Fault {
        /// Kind of the fault.
        fault: Fault,
        /// The site that the reply was for, if known.
        site: Option<Site>,
        /// The other site, if two are involved.
        other: Option<Site>,
        /// Address in the reply.
        address: Option<Ipv4Addr>,
    },
    /// The behaviour of the servers towards all sites has changed.
    Servers(Servers),
}

macro_rules! faults {
    ($($name:ident = $word:literal, $help:literal;)*) => {
        /// Kinds of faults in replies. The reply is dropped unless the help states otherwise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $(#[doc = $help] $name,)*
        }

        impl Fault {
            /// All faults, in the order of their counters.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Name of the fault.
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word),* }
            }

            /// Explanation of the fault.
            pub fn help(self) -> &'static str {
                match self { $(Self::$name => $help),* }
            }
        }
    };
}
faults! {
    Malformed = "malformed", "Not a server's DHCP message, or a wrong one.";
    UnknownExchange = "unknown-exchange", "No site asked with this transaction number.";
    OtherHardware = "other-hardware", "Its hardware address is not that of the site that asked.";
    OtherDestination = "other-destination", "The frame was for somebody else.";
    OtherIdentifier = "other-identifier", "It repeats another client identifier (RFC 6842).";
    Untimely = "untimely", "The site did not ask for that, or has its answer.";
    ServerMissing = "server-missing", "It does not say which server it is from.";
    ServerNotAllowed = "server-not-allowed", "Its server is not among those configured.";
    OtherServer = "other-server", "From another server than the site asked.";
    MaskMissing = "mask-missing", "No usable subnet mask: the address counts as alone in its network, and is used.";
    Unusable = "unusable", "The address is none that a host can have.";
    OutsidePrefixes = "outside-prefixes", "The address is not in the configured prefixes.";
    OtherAddress = "other-address", "It acknowledges another address than the site asked for.";
    LeaseMissing = "lease-missing", "It does not say for how long.";
    LeaseTooShort = "lease-too-short", "The lease is shorter than configured.";
    OddTimes = "odd-times", "T1, T2 and the lease are not in order: the usual shares of the lease are used.";
    AddressTwice = "address-twice", "Another site has the address: this one declines it.";
}

/// Counters of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// DHCPDISCOVER messages sent.
    pub discovers: u64,
    /// DHCPREQUEST messages sent: for an offer, after a restart, to renew, to rebind.
    pub requests: [u64; 4],
    /// DHCPDECLINE messages sent.
    pub declines: u64,
    /// DHCPRELEASE messages sent.
    pub releases: u64,
    /// DHCPOFFER messages considered.
    pub offers: u64,
    /// DHCPACK messages that created or extended a lease.
    pub acknowledgements: u64,
    /// DHCPNAK messages that ended an exchange or a lease.
    pub refusals: u64,
    /// Leases that expired.
    pub expired: u64,
    /// Requests for an offer that failed without a reply.
    pub unanswered: u64,
    faults: [u64; Fault::ALL.len()],
}

impl Counters {
    /// Number of occurrences of a fault.
    pub fn fault(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    /// All counters by name, faults last.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let [requests, reboots, renewals, rebindings] = self.requests;
        let messages = [
            ("discovers", self.discovers),
            ("requests", requests),
            ("confirmations", reboots),
            ("renewals", renewals),
            ("rebindings", rebindings),
            ("declines", self.declines),
            ("releases", self.releases),
            ("offers", self.offers),
            ("acknowledgements", self.acknowledgements),
            ("refusals", self.refusals),
            ("leases-expired", self.expired),
            ("requests-unanswered", self.unanswered),
        ];
        let faults = Fault::ALL.iter().map(|fault| (fault.word(), self.fault(*fault)));
        messages.into_iter().chain(faults).collect()
    }

    pub(super) fn count(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }
}

/// Time of the last report of each fault.
#[derive(Debug, Default)]
pub(super) struct Told([Option<u64>; Fault::ALL.len()]);

impl Told {
    const PAUSE: u64 = 1_000_000_000;

    /// Whether the fault is to be reported now.
    pub(super) fn is_news(&mut self, fault: Fault, now: u64) -> bool {
        if matches!(fault, Fault::UnknownExchange | Fault::Untimely) {
            return false;
        }
        let last = &mut self.0[fault as usize];
        let news = last.is_none_or(|last| now.saturating_sub(last) >= Self::PAUSE);
        if news {
            *last = Some(now);
        }
        news
    }
}
