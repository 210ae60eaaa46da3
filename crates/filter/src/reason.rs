//! Why the filter drops a packet.

use sluice_wire::named;

named! {
    /// Why the filter drops a packet: each is a counter of its own.
    #[derive(PartialOrd, Ord)]
    pub enum Reason {
        Denied "filter-drop" "a rule of the filter drops it: `show filter` counts by rule";
        Rejected "filter-reject" "a rule of the filter rejects it, and the sender was told where that is allowed";
        Default "filter-default" "no rule of the filter decided, and its default does not accept";
        Fragment "filter-fragment" "a later fragment of a datagram whose first one opened no session";
        Application "filter-application" "a rule of the filter about the application of its session drops or rejects it";
        Limited "filter-rate" "above the rate of a rule of the filter";
    }
}
