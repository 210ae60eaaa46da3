//! Counters of the subscriber service, each with a name.

use sluice_wire::named;

named! {
    /// Counted events.
    pub enum Count {
        FrameUnread "site-frame-unread" "The frame is neither a complete DHCP datagram nor ARP.";
        FrameSite "site-frame-unknown" "A DHCP message arrived on an interface of sites, but its VLAN tags or its \
             address belong to no site.";
        FrameOther "site-frame-other" "A DHCP or ARP message arrived on an interface that has neither sites nor \
             public addresses.";
        ReplySource "site-reply-source" "A reply to the relay came from an address other than the server's.";
        FrameLost "site-frame-lost" "A frame was not sent, because the queue to the worker was full.";
        HostLost "site-host-lost" "A message to the server in the router's host was not delivered, because the \
             interface is down.";
        TerminalOutside "terminal-outside" "A lease in the lease file belongs to no site that uses this server.";
        TerminalNetwork "terminal-network" "The address of a lease is outside the networks of its site.";
        TerminalFull "terminal-full" "A lease was ignored, because the maximum number of terminals was reached.";
        TerminalMismatch "terminal-mismatch" "The lease file and the DHCP reply name different sites.";
        MacInTwoSites "mac-in-two-sites" "The same MAC address of a terminal appeared in several sites.";
        PublicRefused "public-refused" "A site can't request a public address.";
        PublicTaken "public-taken" "A public address is already assigned to another site.";
        PublicConflict "public-conflict" "Another host claimed a site's public address, and the site released the \
             address (RFC 5227).";
        PublicClaim "public-claim" "Another host claimed a public address again within ten seconds, and the claim was \
             ignored.";
        PublicAnnounced "public-announced" "A public address was probed and announced upstream.";
        Panics "subscribers-panics" "The subscriber service was restarted after a bug.";
    }
}

/// Number of occurrences of each kind of event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts([u64; Count::ALL.len()]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; Count::ALL.len()])
    }
}

impl Counts {
    /// Count one event.
    pub fn add(&mut self, count: Count) {
        self.add_all(count, 1);
    }

    /// Count several events.
    pub fn add_all(&mut self, count: Count, times: u64) {
        if let Some(sum) = self.0.get_mut(count as usize) {
            *sum += times;
        }
    }

    /// All counters by name.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        Count::ALL.iter().map(|count| (count.name(), self.of(*count))).collect()
    }

    /// Number of occurrences of an event.
    pub fn of(&self, count: Count) -> u64 {
        self.0.get(count as usize).copied().unwrap_or(0)
    }
}
