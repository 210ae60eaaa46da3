//! Drop reasons of the filter.

macro_rules! reasons {
    ($($name:ident $text:literal $help:literal;)*) => {
        /// Why the filter drops a packet. Each reason has a counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Reason {
            $(#[doc = $help] $name,)*
        }

        impl Reason {
            /// Every reason, in the order of their numbers.
            pub const ALL: &[Reason] = &[$(Reason::$name),*];

            /// Name of the counter.
            pub fn name(self) -> &'static str {
                match self { $(Reason::$name => $text,)* }
            }

            /// Description of the reason for the operator.
            pub fn help(self) -> &'static str {
                match self { $(Reason::$name => $help,)* }
            }
        }
    };
}

reasons! {
    Denied "filter-drop" "a rule of the filter drops it: `show filter` counts by rule";
    Rejected "filter-reject" "a rule of the filter rejects it, and the sender was told where that is allowed";
    Default "filter-default" "no rule of the filter decided, and its default does not accept";
    Fragment "filter-fragment" "a later fragment of a datagram whose first one opened no session";
    Application "filter-application" "a rule of the filter about the application of its session drops or rejects it";
    Limited "filter-rate" "above the rate of a rule of the filter";
}
