//! What the agent tells: events, and counters of everything that went wrong.

use std::net::Ipv4Addr;

use sluice_wire::named;

use super::Lease;
use crate::subscribers::Site;

/// Why a site lost its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It ran out, and no server had renewed it.
    Expired,
    /// A server said that it does not hold (DHCPNAK).
    Refused,
    /// Another site has the address.
    Declined,
    /// Nobody wants it any more.
    Released,
    /// Somebody else uses the address.
    Conflict,
}

impl Why {
    /// As it is shown.
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

/// How servers behave towards all sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Servers {
    /// They answer, or nothing was asked yet.
    #[default]
    Answering,
    /// None answers: sites are tried slowly, until one does.
    Silent,
    /// Each request is refused: likewise.
    Refusing,
}

impl Servers {
    /// As it is shown.
    pub fn word(self) -> &'static str {
        match self {
            Self::Answering => "answering",
            Self::Silent => "silent",
            Self::Refusing => "refusing",
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A site has an address: its first, or the one that it had before. Who uses it looks first whether somebody else
    /// answers for it (RFC 5227), and tells [`super::Agent::conflict`].
    Bound(Site, Lease),
    /// The same address for longer.
    Renewed(Site, Lease),
    /// A site has an address, and had another before.
    Changed {
        /// The site.
        site: Site,
        /// The address that it had.
        was: Ipv4Addr,
        /// What it has now.
        lease: Lease,
    },
    /// A site must not use its address any more.
    Lost {
        /// The site.
        site: Site,
        /// The address that it had.
        address: Ipv4Addr,
        /// Why.
        why: Why,
    },
    /// Something is wrong with what servers say. Counted each time, told at most once a second of each kind; what may
    /// happen without a fault of theirs is counted only.
    Fault {
        /// What.
        fault: Fault,
        /// The site that it was said to, where that is known.
        site: Option<Site>,
        /// The other site, where two are concerned.
        other: Option<Site>,
        /// The address that it is about.
        address: Option<Ipv4Addr>,
    },
    /// Servers behave otherwise towards all.
    Servers(Servers),
}

named! {
    /// What can be wrong with an answer. Each is dropped, but where the help says otherwise.
    pub enum Fault {
        Malformed "malformed" "Not a DHCP message of a server, or malformed.";
        UnknownExchange "unknown-exchange" "No site has an exchange with this transaction ID.";
        OtherHardware "other-hardware" "The hardware address is not that of the site.";
        OtherDestination "other-destination" "The frame is addressed to another host.";
        OtherIdentifier "other-identifier" "The client identifier is not that of the site (RFC 6842).";
        Untimely "untimely" "The site expects no such message in its state.";
        ServerMissing "server-missing" "The server identifier is missing.";
        ServerNotAllowed "server-not-allowed" "The server is not among the configured ones.";
        OtherServer "other-server" "Sent by another server than the one that the site selected.";
        MaskMissing "mask-missing" "No usable subnet mask: the address is used as a host address.";
        Unusable "unusable" "The address can't be a host address.";
        OutsidePrefixes "outside-prefixes" "The address is not in the configured prefixes.";
        OtherAddress "other-address" "The acknowledged address is not the one that the site requested.";
        LeaseMissing "lease-missing" "The lease time is missing.";
        LeaseTooShort "lease-too-short" "The lease is shorter than configured.";
        OddTimes "odd-times" "T1, T2 and the lease time are not in order: the defaults of RFC 2131 are used.";
        AddressTwice "address-twice" "Another site has the address: the site declines it.";
    }
}

/// Counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// DHCPDISCOVER sent.
    pub discovers: u64,
    /// DHCPREQUEST sent: for an offer, after a restart, to renew, to rebind.
    pub requests: [u64; 4],
    /// DHCPDECLINE sent.
    pub declines: u64,
    /// DHCPRELEASE sent.
    pub releases: u64,
    /// DHCPOFFER that were looked at.
    pub offers: u64,
    /// DHCPACK that made or prolonged a lease.
    pub acknowledgements: u64,
    /// DHCPNAK that ended something.
    pub refusals: u64,
    /// Leases that ran out.
    pub expired: u64,
    /// Requests for an offer that nobody answered to the end.
    pub unanswered: u64,
    faults: [u64; Fault::ALL.len()],
}

impl Counters {
    /// How often a fault was.
    pub fn fault(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    /// All by name, faults last.
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
        let faults = Fault::ALL.iter().map(|fault| (fault.name(), self.fault(*fault)));
        messages.into_iter().chain(faults).collect()
    }

    pub(super) fn count(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }
}

/// Which faults were told lately.
#[derive(Debug, Default)]
pub(super) struct Told([Option<u64>; Fault::ALL.len()]);

impl Told {
    const PAUSE: u64 = 1_000_000_000;

    /// Whether to tell this one.
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
