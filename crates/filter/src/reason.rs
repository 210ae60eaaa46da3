//! Drop reasons of the filter.

use sluice_wire::named;

named! {
    /// Why the filter drops a packet. Each reason has a separate counter.
    #[derive(PartialOrd, Ord)]
    pub enum Reason {
        Denied "filter-drop" "a filter rule drops it: `sluice show filter` counts by rule";
        Rejected "filter-reject" "a filter rule rejects it; the sender gets a reset or an ICMP error where that is allowed";
        Default "filter-default" "no filter rule matched, and the default action does not accept";
        Fragment "filter-fragment" "a later fragment of a datagram whose first fragment created no session";
        Application "filter-application" "a filter rule for the application of its session drops or rejects it";
        Limited "filter-rate" "above the rate of a filter rule";
    }
}
