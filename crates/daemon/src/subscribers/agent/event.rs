//! Events of the agent, and counters of invalid replies.

use std::net::Ipv4Addr;

use sluice_wire::{Mac, named};

use super::{Nanoseconds, PublicLease, SECOND};
use crate::subscribers::{Site, virtual_mac};

/// Why a site lost its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
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

impl LossReason {
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

/// How the servers respond to the requests of all sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Servers {
    /// Servers respond, or the agent has not sent a request yet.
    #[default]
    Answering,
    /// No server responds. The agent sends requests at a reduced rate until a server responds.
    Silent,
    /// Servers reject all requests. The agent sends requests at a reduced rate until a server acknowledges one.
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

/// Declares the events. A row is the variant, its name, its help text, which is also the documentation of the variant, and the
/// names of its fields in the order of the variant. Comments add to the documentation.
macro_rules! events {
    (
        $(#[$meta:meta])* $events:ident {
            $($(#[$about:meta])* $variant:ident $name:literal $help:literal [$($field:literal)*] $content:tt)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $events { $(#[doc = $help] $(#[$about])* $variant $content,)+ }

        impl $events {
            /// Names, help texts and fields of all events.
            pub const ALL: &'static [(&'static str, &'static str, &'static [&'static str])] =
                &[$(($name, $help, &[$($field),*]),)+];

            /// Name of the event.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant { .. } => $name,)+ }
            }
        }

        const _: () = assert!(sluice_wire::named::are_distinct(&[$($name),+]), "two events have one name");
    };
}

events! {
    /// An event.
    Event {
        /// The receiver of the event checks for address conflicts (RFC 5227) and reports them with [`super::Agent::conflict`].
        Bound "bound" "A site has an address, either its first address or its former address."
            ["site" "lease"] (Site, PublicLease)
        Renewed "renewed" "The lease of the current address was extended."
            ["site" "lease"] (Site, PublicLease)
        Changed "changed" "A site has a different address than before."
            ["site" "was" "lease"] {
            /// The site.
            site: Site,
            /// The former address.
            was: Ipv4Addr,
            /// The new lease.
            lease: PublicLease,
        }
        Lost "lost" "A site must no longer use its address."
            ["site" "address" "reason"] {
            /// The site.
            site: Site,
            /// The former address.
            address: Ipv4Addr,
            /// The reason.
            reason: LossReason,
        }
        /// All faults are counted. Each kind is reported at most once per second. Kinds that can occur with correct servers
        /// are never reported.
        Fault "fault" "A server sent an invalid reply."
            ["fault" "site" "other" "address"] {
            /// Kind of the fault.
            fault: Fault,
            /// The site to which the reply belongs, if known.
            site: Option<Site>,
            /// The other site, if the fault involves two sites.
            other: Option<Site>,
            /// Address in the reply.
            address: Option<Ipv4Addr>,
        }
        Servers "servers" "The behaviour of the servers has changed."
            ["servers"] (Servers)
    }
}

/// How the lease of a site changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    /// The site has the lease of another address than before, or of an address after having none.
    Gained(PublicLease),
    /// The lease of the current address was extended.
    Extended(PublicLease),
    /// The site has no lease of this address any more.
    Ended(Ipv4Addr),
}

impl Event {
    /// The change of a lease that this event reports.
    pub fn lease_change(&self) -> Option<(Site, LeaseChange)> {
        match *self {
            Self::Bound(site, lease) | Self::Changed { site, lease, .. } => Some((site, LeaseChange::Gained(lease))),
            Self::Renewed(site, lease) => Some((site, LeaseChange::Extended(lease))),
            Self::Lost { site, address, .. } => Some((site, LeaseChange::Ended(address))),
            Self::Fault { .. } | Self::Servers(_) => None,
        }
    }

    /// Log the event, with the names and MAC addresses of the sites.
    pub fn log(&self, now: Nanoseconds, name: impl Fn(Site) -> String, mac: impl Fn(Site) -> Mac) {
        let leased = |lease: &PublicLease| match lease.expires {
            u64::MAX => "for ever".to_owned(),
            expires => format!("for {} s", expires.saturating_sub(now) / SECOND),
        };
        let gained = |site: Site, lease: &PublicLease| {
            let (name, mac) = (name(site), virtual_mac::text(mac(site)));
            let (address, server, leased) = (lease.address, lease.server, leased(lease));
            format!("site {name} has the public address {address} with MAC {mac}, leased from {server} {leased}")
        };
        match self {
            Self::Bound(site, lease) => tracing::info!("{}", gained(*site, lease)),
            Self::Changed { site, was, lease } => {
                tracing::info!("{}; the previous address was {was}", gained(*site, lease));
            }
            Self::Renewed(site, lease) => {
                tracing::debug!("site {} keeps {} {}", name(*site), lease.address, leased(lease));
            }
            Self::Lost { site, address, reason } => tracing::info!(
                "site {} no longer has the public address {address}: {}",
                name(*site),
                reason.word()
            ),
            Self::Fault {
                fault,
                site,
                other,
                address,
            } => {
                let site = site.map_or(String::new(), |site| format!(", to site {}", name(site)));
                let other = other.map_or(String::new(), |site| format!(", which belongs to site {}", name(site)));
                let address = address.map_or(String::new(), |address| format!(", about {address}"));
                tracing::warn!("public DHCP: {}: {}{site}{address}{other}", fault.name(), fault.help());
            }
            Self::Servers(Servers::Answering) => tracing::info!("public DHCP: the servers answer"),
            Self::Servers(Servers::Silent) => tracing::warn!(
                "public DHCP: no server answers: sites send requests at a reduced rate until a server answers"
            ),
            Self::Servers(Servers::Refusing) => tracing::warn!(
                "public DHCP: servers refuse all requests: sites send requests at a reduced rate until a request succeeds"
            ),
        }
    }
}

named! {
    /// Faults of received messages. A faulty message is dropped, except if the help text of the fault states that it is
    /// used.
    pub enum Fault {
        Malformed "malformed" "The message is malformed, or not a DHCP message of a server.";
        UnknownExchange "unknown-exchange" "No site has an exchange with this transaction ID.";
        OtherHardware "other-hardware" "The hardware address in the message is not the MAC address of the site.";
        OtherDestination "other-destination" "The frame is addressed to another host.";
        OtherIdentifier "other-identifier" "The client identifier in the message is not the identifier of the site \
             (RFC 6842).";
        Untimely "untimely" "The site does not expect this message type in its present state.";
        ServerMissing "server-missing" "The server identifier is missing.";
        ServerNotAllowed "server-not-allowed" "The server is not among the configured servers.";
        OtherServer "other-server" "The message is from a server other than the selected server.";
        MaskMissing "mask-missing" "The message has no usable subnet mask, and the address is used with a prefix \
             length of 32.";
        Unusable "unusable" "The offered address can't be the address of a host.";
        OutsidePrefixes "outside-prefixes" "The offered address is not in the configured prefixes.";
        OtherAddress "other-address" "The acknowledged address differs from the address that the site requested.";
        LeaseMissing "lease-missing" "The lease time is missing.";
        LeaseTooShort "lease-too-short" "The lease time is below the configured minimum.";
        OddTimes "odd-times" "The values of T1, T2 and lease time do not increase, and the defaults of RFC 2131 are \
             used.";
        AddressTwice "address-twice" "Another site already has the offered address, and the site declines the address.";
    }
}

/// Counters of the agent's messages and leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// DHCPDISCOVER messages sent.
    pub discovers: u64,
    /// DHCPREQUEST messages sent: for an offer, after a restart, for renewal, for rebinding.
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
    /// Number of offers that were abandoned because no server answered the request for the offer.
    pub unanswered: u64,
    faults: [u64; Fault::ALL.len()],
}

impl Counters {
    /// Number of times that a fault occurred.
    pub fn fault(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    /// All counters by name. The faults are last.
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

/// Time of the last report of each fault.
#[derive(Debug, Default)]
pub(super) struct LastReports([Option<u64>; Fault::ALL.len()]);

impl LastReports {
    const PAUSE: u64 = 1_000_000_000;

    /// Whether the fault must be reported now.
    pub(super) fn should_report(&mut self, fault: Fault, now: u64) -> bool {
        if matches!(fault, Fault::UnknownExchange | Fault::Untimely) {
            return false;
        }
        let last = &mut self.0[fault as usize];
        let is_due = last.is_none_or(|last| now.saturating_sub(last) >= Self::PAUSE);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}
