//! The declaration of counters. Each counter is declared with its name, unit, help text, kind and label. Lists and
//! documents are derived from the declarations.

use sluice_wire::named;

use super::Reason;

/// Kind of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// A count since the process started.
    Total,
    /// A present value.
    Gauge,
}

impl CounterKind {
    /// Name of the kind in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Gauge => "gauge",
        }
    }
}

named! {
    /// Unit of a counter.
    pub enum Unit {
        Alerts "alerts" "Alerts of inspection.";
        Anomalies "anomalies" "Anomalies of messages.";
        Buffers "buffers" "Packet buffers.";
        Bursts "bursts" "Bursts of packets.";
        Bytes "bytes" "Bytes.";
        Copies "copies" "Copies of packets.";
        Cycles "cycles" "Clock cycles.";
        Events "events" "Translation events.";
        Flows "flows" "Inspected flows.";
        Matches "matches" "Matches of rules.";
        Packets "packets" "Packets, or frames.";
        Ports "ports" "Outside ports.";
        Records "records" "Log records.";
        Rounds "rounds" "Rounds of a worker's loop.";
        Runs "runs" "Runs of a node.";
        Sessions "sessions" "Sessions.";
        Shards "shards" "Shards.";
        Times "times" "Occurrences.";
        Tunnels "tunnels" "Tunnels.";
        Values "values" "Stored values.";
        Workers "workers" "Workers.";
    }
}

/// Values of a label, which divides a counter.
pub trait LabelValues {
    /// Number of values.
    const COUNT: usize;

    /// Name and help text of the value with this number. `None` if only the running configuration knows the names.
    fn describe(number: usize) -> Option<(&'static str, &'static str)>;
}

macro_rules! label_values {
    ($($values:ty)*) => {$(
        impl LabelValues for $values {
            const COUNT: usize = Self::ALL.len();

            fn describe(number: usize) -> Option<(&'static str, &'static str)> {
                Self::ALL.get(number).map(|value| (value.name(), value.help()))
            }
        }
    )*};
}

label_values! {
    super::CycleStage
    super::HandOffCause
    super::IdentificationOutcome
    sluice_inspect::Limit
    sluice_inspect::Reason
    sluice_inspect::Skipped
    sluice_inspect::protocols::Anomaly
}

impl LabelValues for Reason {
    const COUNT: usize = Self::COUNT;

    fn describe(number: usize) -> Option<(&'static str, &'static str)> {
        Self::numbered(number).map(|reason| (reason.name(), reason.help()))
    }
}

/// Label that divides a counter into several values, for example one for each reason, cause or stage.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// Name of the label.
    pub name: &'static str,
    /// Number of values of the label.
    pub count: usize,
    /// Name and help text of the value with a number.
    pub describe: fn(usize) -> Option<(&'static str, &'static str)>,
}

impl Label {
    /// The label with this name and these values.
    pub const fn new<V: LabelValues>(name: &'static str) -> Self {
        Self {
            name,
            count: V::COUNT,
            describe: V::describe,
        }
    }
}

/// A counter of workers, as shown in lists and documents.
#[derive(Debug)]
pub struct NamedCounter<C> {
    /// Name of the counter.
    pub name: &'static str,
    /// Kind of the counter.
    pub kind: CounterKind,
    /// Unit of the counter.
    pub unit: Unit,
    /// Description for an operator, in one line.
    pub help: &'static str,
    /// Label that divides the counter, if any.
    pub label: Option<Label>,
    /// Function that reads the value with a number. A counter without a label has only the value 0.
    pub read: fn(&C, usize) -> u64,
}

impl<C> NamedCounter<C> {
    /// Sum of the values with this number over several sources. The sum wraps, because the counter of a single worker
    /// may become negative: a worker may complete an operation that another worker has started.
    pub fn value<'c>(&self, sources: impl Iterator<Item = &'c C>, number: usize) -> u64
    where
        C: 'c,
    {
        sources.fold(0, |sum, source| sum.wrapping_add((self.read)(source, number)))
    }

    /// Names, help texts and values for the values of the label. Empty without a label.
    pub fn by_label<'c, S>(&self, sources: S) -> impl Iterator<Item = (&'static str, &'static str, u64)>
    where
        C: 'c,
        S: Iterator<Item = &'c C> + Clone,
    {
        let Self { label, read, .. } = *self;
        let count = label.map_or(0, |label| label.count);
        (0..count).filter_map(move |number| {
            let (name, help) = (label?.describe)(number)?;
            let sum = |sum: u64, source| sum.wrapping_add(read(source, number));
            Some((name, help, sources.clone().fold(0, sum)))
        })
    }

    /// Row for the counter in the tables of documents. The columns are name, kind, unit and label, and help text.
    pub fn document_row(&self) -> String {
        let unit = self.unit.name();
        let unit = self
            .label
            .map_or(unit.into(), |label| format!("{unit} by {}", label.name));
        format!("| `{}` | {} | {unit} | {} |", self.name, self.kind.name(), self.help)
    }
}

/// Declares a struct of counters and their list `NAMED`. A row is a kind, a unit, the field, the name and the help text. `by`
/// names the label that divides the counter, and the type of the label's values. A row with a function after its help text is
/// computed from other counters and has no field. Lists show the counters in the order of declaration.
///
/// `of` is the struct from which the list reads: the struct itself, or a struct that contains it in a field. `labels`
/// distinguish the instances of the struct. `names` declares a struct with the printed names, whose value is `NAMES`.
macro_rules! counters {
    (
        $(#[$meta:meta])*
        $name:ident of $source:ident$(.$path:ident)? labels [$($label:literal),*] names $names:ident { $($other:tt)* }
        $($rows:tt)*
    ) => {
        counters! {
            @row $source {$(.$path)?} [{$(#[$meta])*} $name $names {$($label)*}] {$($other)*} {} {} $($rows)*
        }
    };
    // A plain counter.
    (
        @row $source:ident {$($path:tt)*} $head:tt {$($fields:tt)*} {$($names:tt)*} {$($named:tt)*}
        $kind:ident $unit:ident $field:ident = $text:literal, $help:literal; $($rows:tt)*
    ) => {
        counters! {
            @row $source {$($path)*} $head
            {$($fields)* #[doc = $help] pub $field: $crate::packet::counters::Counter,}
            {$($names)* ($field $text)}
            {$($named)* (
                $kind $unit $text $help None
                (|counters: &$source, _| counters$($path)*.$field.get())
            )}
            $($rows)*
        }
    };
    // A counter with a label.
    (
        @row $source:ident {$($path:tt)*} $head:tt {$($fields:tt)*} {$($names:tt)*} {$($named:tt)*}
        $kind:ident $unit:ident $field:ident by $label:ident: $values:ty = $text:literal, $help:literal; $($rows:tt)*
    ) => {
        counters! {
            @row $source {$($path)*} $head
            {
                $($fields)*
                #[doc = $help]
                pub $field: $crate::packet::counters::CounterArray<{ <$values as LabelValues>::COUNT }>,
            }
            {$($names)* ($field $text)}
            {$($named)* (
                $kind $unit $text $help (Some(Label::new::<$values>(stringify!($label))))
                (|counters: &$source, number| counters$($path)*.$field.get(number))
            )}
            $($rows)*
        }
    };
    // A sum of other counters.
    (
        @row $source:ident $path:tt $head:tt $fields:tt {$($names:tt)*} {$($named:tt)*}
        $kind:ident $unit:ident $sum:ident = $text:literal, $help:literal, $read:expr; $($rows:tt)*
    ) => {
        counters! {
            @row $source $path $head $fields
            {$($names)* ($sum $text)}
            {$($named)* ($kind $unit $text $help None ({
                const SUM: fn(&$source) -> u64 = $read;
                |counters: &$source, _| SUM(counters)
            }))}
            $($rows)*
        }
    };
    // A sum of other counters for each value of a label.
    (
        @row $source:ident $path:tt $head:tt $fields:tt {$($names:tt)*} {$($named:tt)*}
        $kind:ident $unit:ident $sum:ident by $label:ident: $values:ty = $text:literal, $help:literal, $read:expr;
        $($rows:tt)*
    ) => {
        counters! {
            @row $source $path $head $fields
            {$($names)* ($sum $text)}
            {$($named)* ($kind $unit $text $help (Some(Label::new::<$values>(stringify!($label)))) ($read))}
            $($rows)*
        }
    };
    (
        @row $source:ident $path:tt [{$($meta:tt)*} $name:ident $names:ident {$($instances:literal)*}] {$($fields:tt)*}
        {$(($identifier:ident $printed:literal))*}
        {$(($kind:ident $unit:ident $text:literal $help:literal $label:tt $read:tt))*}
    ) => {
        $($meta)*
        #[derive(Debug, Default)]
        pub struct $name { $($fields)* }

        /// The printed names of the counters.
        #[derive(Clone, Copy, Debug)]
        pub struct $names { $(#[doc = $printed] pub $identifier: &'static str,)* }

        impl $name {
            /// The printed names of the counters.
            pub const NAMES: $names = $names { $($identifier: $printed,)* };

            /// The named counters, in the order in which lists show them.
            pub const NAMED: &[NamedCounter<$source>] = &[$(NamedCounter {
                name: $text,
                kind: CounterKind::$kind,
                unit: Unit::$unit,
                help: $help,
                label: $label,
                read: $read,
            },)*];

            /// Labels that distinguish the instances of these counters.
            pub const LABELS: &[&str] = &[$($instances),*];
        }
    };
}

pub(super) use counters;
