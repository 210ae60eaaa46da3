//! Counters of the subscriber service, each with a name.

use sluice_wire::named;

named! {
    /// Counted events.
    pub enum Count {
        FrameUnread "site-frame-unread" "A frame that is neither a complete DHCP datagram nor ARP.";
        FrameSite "site-frame-unknown" "A DHCP message on an interface of sites. No site has the tags or the address of the message.";
        FrameOther "site-frame-other" "DHCP or ARP on an interface that expects neither.";
        ReplySource "site-reply-source" "A reply to the relay from an address that is not its server's.";
        FrameLost "site-frame-lost" "A frame that was not sent: the queue to the worker was full.";
        HostLost "site-host-lost" "A message to the server in the router's host that was not delivered: the interface is down.";
        TerminalOutside "terminal-outside" "A lease that names no site of its server.";
        TerminalNetwork "terminal-network" "A lease of an address outside the networks of its site.";
        TerminalFull "terminal-full" "A lease above the maximum number of terminals.";
        TerminalMismatch "terminal-mismatch" "The lease file and the DHCP reply name different sites.";
        MacInTwoSites "mac-in-two-sites" "A terminal's MAC address that appeared in several sites.";
        PublicRefused "public-refused" "A site that can't request a public address.";
        PublicTaken "public-taken" "A public address that another site already has.";
        PublicConflict "public-conflict" "Another host claimed a site's public address: the site released it (RFC 5227).";
        PublicClaim "public-claim" "Another host claimed a public address again within ten seconds: ignored.";
        PublicAnnounced "public-announced" "A public address that was probed and announced upstream.";
        Panics "subscribers-panics" "Restarts of the service after a fault of the program.";
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
