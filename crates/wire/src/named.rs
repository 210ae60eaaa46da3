//! Enums of reasons, faults and causes. Each variant is declared once, with a counter name and a help text.

/// Declares an enum. Each variant has a name for counters, traces and documents. Each variant also has a help text for
/// operators, which is its documentation. The enum derives `Clone`, `Copy`, `Debug`, `PartialEq`, `Eq` and `Hash`.
/// Attributes can derive further traits.
///
/// Variants are numbered in the order of their declaration. Two variants with the same name do not compile.
///
/// ```
/// sluice_wire::named! {
///     /// Why a packet is refused.
///     pub enum Reason {
///         TooShort "too-short" "The packet ends before its header does.";
///         TooLong "too-long" "The packet is longer than the MTU.";
///     }
/// }
/// assert_eq!("too-long", Reason::TooLong.name());
/// assert_eq!([Reason::TooShort, Reason::TooLong], Reason::ALL);
/// ```
///
/// ```compile_fail
/// sluice_wire::named! {
///     /// Why a packet is refused.
///     pub enum Reason {
///         TooShort "length" "The packet ends before its header does.";
///         TooLong "length" "The packet is longer than the MTU.";
///     }
/// }
/// ```
#[macro_export]
macro_rules! named {
    ($(#[$meta:meta])* $visibility:vis enum $enum:ident { $($variant:ident $name:literal $help:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        $visibility enum $enum {
            $(#[doc = $help] $variant,)+
        }

        impl $enum {
            /// All variants in the order of their numbers: `ALL[k] as usize == k`.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Name of the variant in counters, lists and documents.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Help text of the variant for operators.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)+ }
            }
        }

        const _: () = assert!($crate::named::are_distinct(&[$($name),+]), "two variants have one name");
    };
}

/// Declares an enum of events with [`named!`](crate::named!). Each row also lists the fields of the event, which are values of
/// another named enum. Lists, sets of kinds and exporters derive from the rows.
///
/// ```
/// sluice_wire::named! {
///     /// A field.
///     pub enum Field {
///         Time "time" "Time of the event.";
///         Port "port" "Port of the link.";
///     }
/// }
/// sluice_wire::events! {
///     /// Kind of an event.
///     pub enum Kind of Field {
///         LinkUp "link-up" "A link came up." [Time Port];
///         Full "full" "The table was full." [Time];
///     }
/// }
/// assert_eq!("link-up", Kind::LinkUp.name());
/// assert_eq!([Field::Time, Field::Port], Kind::LinkUp.fields());
/// ```
#[macro_export]
macro_rules! events {
    (
        $(#[$meta:meta])* $visibility:vis enum $enum:ident of $fields:ident {
            $($variant:ident $name:literal $help:literal [$($field:ident)*];)+
        }
    ) => {
        $crate::named! { $(#[$meta])* $visibility enum $enum { $($variant $name $help;)+ } }

        impl $enum {
            /// Fields of the event, in the order in which records contain them.
            pub const fn fields(self) -> &'static [$fields] {
                match self { $(Self::$variant => &[$($fields::$field),*],)+ }
            }
        }
    };
}

/// Whether all names are distinct. [`named!`](crate::named!) checks this at compile time.
pub const fn are_distinct(names: &[&str]) -> bool {
    let mut second = 1;
    while second < names.len() {
        let mut first = 0;
        while first < second {
            if are_equal(names[first].as_bytes(), names[second].as_bytes()) {
                return false;
            }
            first += 1;
        }
        second += 1;
    }
    true
}

const fn are_equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    named! {
        /// Example enum of the tests.
        #[derive(PartialOrd, Ord)]
        enum Colour {
            Green "green" "As a leaf is.";
            Amber "amber-coloured" "Between the others.";
            Red "red" "As a rose is.";
        }
    }

    #[test]
    fn variants_are_numbered_in_their_order_with_name_and_help() {
        let declared: Vec<_> = Colour::ALL
            .iter()
            .map(|&colour| (colour as usize, colour.name(), colour.help()))
            .collect();
        assert_eq!(
            vec![
                (0, "green", "As a leaf is."),
                (1, "amber-coloured", "Between the others."),
                (2, "red", "As a rose is."),
            ],
            declared
        );
        assert!(Colour::Green < Colour::Red);
    }

    #[test]
    fn names_that_only_share_a_prefix_or_a_length_are_distinct() {
        assert!(are_distinct(&["port", "ports", "sort", ""]));
        assert!(!are_distinct(&["port", "ports", "sort", "ports"]));
        assert!(are_distinct(&[]));
    }
}
