//! What the service of sites counts, each by its name.

use sluice_wire::named;

named! {
    /// What is counted.
    pub enum Count {
        FrameUnread "site-frame-unread" "A frame for this service that is neither a whole DHCP datagram nor ARP.";
        FrameSite "site-frame-unknown" "DHCP by an interface of sites whose tags, or address, are no site's.";
        FrameOther "site-frame-other" "DHCP or ARP by an interface where nobody asked for it.";
        ReplySource "site-reply-source" "An answer to the relay from an address that is not its server's.";
        FrameLost "site-frame-lost" "A frame that was not sent: the queue to the worker was full.";
        HostLost "site-host-lost" "A message that the server in the router's host did not get: its interface is down there.";
        TerminalOutside "terminal-outside" "A lease that names no site of its server, and of which nothing else is known.";
        TerminalNetwork "terminal-network" "A lease of an address that its site can't have.";
        TerminalFull "terminal-full" "A lease for which there was no room among the terminals.";
        TerminalMismatch "terminal-mismatch" "The lease file names another site than the answer that the terminal got.";
        MacInTwoSites "mac-in-two-sites" "A terminal's MAC that came to be in more than one site.";
        PublicRefused "public-refused" "A site that can't ask for a public address.";
        PublicTaken "public-taken" "A public address that another site has already.";
        PublicConflict "public-conflict" "Somebody else said that a site's public address is theirs: it was given up.";
        PublicClaim "public-claim" "The same again within ten seconds: nothing was done.";
        PublicAnnounced "public-announced" "A public address that was probed and announced upstream.";
        Panics "subscribers-panics" "Times that the service failed by a fault of the program, and began again.";
    }
}

/// How often each was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts([u64; Count::ALL.len()]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; Count::ALL.len()])
    }
}

impl Counts {
    /// Once more.
    pub fn add(&mut self, count: Count) {
        self.add_all(count, 1);
    }

    /// So many times more.
    pub fn add_all(&mut self, count: Count, times: u64) {
        if let Some(sum) = self.0.get_mut(count as usize) {
            *sum += times;
        }
    }

    /// All by name.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        Count::ALL.iter().map(|count| (count.name(), self.of(*count))).collect()
    }

    /// How often it was.
    pub fn of(&self, count: Count) -> u64 {
        self.0.get(count as usize).copied().unwrap_or(0)
    }
}
