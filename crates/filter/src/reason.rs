//! Drop reasons of the filter.

use sluice_wire::named;

named! {
    /// Why the filter drops a packet. Each reason has a separate counter.
    #[derive(PartialOrd, Ord)]
    pub enum Reason {
        Denied "filter-drop" "dropped by a filter rule: `sluice show filter` shows the counters of each rule";
        Rejected "filter-reject" "rejected by a filter rule; if allowed, the sender gets a reset or an ICMP error";
        Default "filter-default" "no filter rule matched, and the default action is to drop or reject";
        Fragment "filter-fragment" "a later fragment of a datagram whose first fragment created no session";
        Application "filter-application" "dropped or rejected by a filter rule for the application of the session";
        Limited "filter-rate" "above the rate of a filter rule";
    }
}
