//! Exceptions from the size limits. The lists may only become shorter, and their numbers smaller.

/// Name, largest permitted number, and the reason for the exception.
pub type Exception = (&'static str, usize, &'static str);

/// Files over 500 lines.
#[rustfmt::skip]
pub const FILES: &[Exception] = &[
    ("config/problem.rs", 578, "A table: each problem with its text and its hint."),
    ("daemon/control.rs", 566, "The control server: requests of all kinds."),
    ("filter/filter/mod.rs", 576, "The compiled list and its lookup."),
    ("inspect/evaluate.rs", 801, "The evaluator of all keywords."),
    ("inspect/inspector.rs", 854, "Streams, datagrams and their verdicts in one type."),
    ("inspect/protocols/http/lines.rs", 511, "One state machine over lines."),
    ("inspect/protocols/http2.rs", 611, "Frames of a connection, RFC 9113, and its streams."),
    ("inspect/protocols/inflate.rs", 518, "One algorithm, RFC 1951."),
    ("inspect/protocols/slots.rs", 561, "The arena of parsers with its accounting."),
    ("inspect/signature.rs", 907, "The grammar of a signature and its compiled form."),
    ("inspect/stream/blocks.rs", 538, "The arena of stream data with its accounting."),
    ("sluice/arguments.rs", 624, "The grammar of the command line: each command with its help text."),
];

/// Functions over 80 lines.
#[rustfmt::skip]
pub const FUNCTIONS: &[Exception] = &[
    ("inspect/evaluate.rs: Evaluator::evaluate_steps", 81, "One decision with all its cases."),
    ("inspect/evaluate/transform.rs: apply", 87, "One decision with all its cases."),
    ("inspect/inspector.rs: Inspector::inspect_datagram", 125, "One decision with all its cases."),
    ("inspect/inspector.rs: Inspector::inspect_in_order", 215, "One decision with all its cases."),
    ("inspect/protocols/brotli/header.rs: Brotli::header", 119, "One state machine."),
    ("inspect/protocols/events.rs: Anomaly::event_names", 103, "A table: each anomaly with its names."),
    ("inspect/protocols/http2.rs: Connection::block", 93, "One state machine."),
    ("inspect/protocols/tls.rs: ClientHello::field", 110, "One state machine."),
    ("inspect/rule.rs: Rule::new", 110, "One decision with all its cases."),
];

/// Names that several public types of a crate share, with the number of these types.
#[rustfmt::skip]
pub const DUPLICATES: &[Exception] = &[
    ("config: Applications", 2, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: Bridge", 2, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: ByProtocol", 2, "As written (`value`), and answered (`api`)."),
    ("config: DestinationRule", 2, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: FilterRule", 2, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: Inspection", 2, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: Interface", 3, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: LeaseServer", 2, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: Mapping", 2, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: Nat", 2, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: Neighbour", 2, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: Numbers", 2, "A range of numbers (`value`), and the numbers that names have (`numbering`)."),
    ("config: Pool", 3, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: PublicClient", 2, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: Route", 3, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: Router", 3, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: RouterHost", 2, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: SiteGroup", 2, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: SourceRule", 2, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: Subscribers", 2, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: Timeouts", 2, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: Tunnel", 2, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("config: Uplink", 3, "As written (`schema`), validated (`config`), answered (`api`): the module says which."),
    ("inspect: Error", 4, "Each belongs to a protocol or stage, which its module names."),
    ("table: Address", 2, "Each belongs to an algorithm, which its module names."),
    ("table: Key", 2, "Each belongs to an algorithm, which its module names."),
];
