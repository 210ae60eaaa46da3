//! A signature is the common form of the rules of all dialects.
//!
//! Numbers are stored as written in the rule; ranges are inclusive. Conditions are in the order of the rule, because
//! some positions are relative to the preceding match ([`Content::distance`] and similar options). Conditions of a
//! Suricata rule are grouped by buffer.
//!
//! A relative condition refers to the preceding match if that match is in the same buffer; otherwise it refers to the
//! start of the buffer. A preceding match is a match of a content or an expression that is not negated (and not
//! [`FastPattern::Only`]), or the end position of a jump or an extraction.

use std::ops::RangeInclusive;
use std::sync::Arc;

use ipnet::IpNet;

use crate::datasets::Dataset;
use crate::protocols::Anomaly;
use crate::stream::StreamEvent;

/// One rule of a signature file with all of its options.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// Identifier of the rule.
    pub id: Id,
    /// Line in the file, counted from 1.
    pub line: u32,
    /// Message of the alert (`msg`).
    pub message: Box<str>,
    /// Class (`trojan-activity`, …).
    pub class: Option<Box<str>>,
    /// Priority; 1 is the most urgent. The default is the priority of the rule's class, or 3 without a class.
    pub priority: u8,
    /// References: (`url`, `example.org/…`), (`cve`, `2021-44228`), …
    pub references: Box<[(Box<str>, Box<str>)]>,
    /// Action of the rule.
    pub action: Action,
    /// Packets and streams to which the rule applies.
    pub header: Header,
    /// Direction and state of a connection that the rule applies to.
    pub flow: FlowState,
    /// Conditions, in order.
    pub conditions: Box<[Condition]>,
    /// Buffers that are transformed before conditions inspect them, in the order of [`Buffer::TRANSFORMED`].
    pub transformed: Box<[Transformed]>,
    /// Rate of matches at which the rule fires, and at which it is reported.
    pub rate: Option<Rate>,
    /// Whether matches are not reported (`noalert`), so that the rule only sets variables.
    pub noalert: bool,
}

impl Signature {
    /// File hashes that the rule tests.
    pub fn file_hashes(&self) -> impl Iterator<Item = Buffer> {
        self.conditions.iter().filter_map(|condition| match condition {
            Condition::Dataset(DatasetTest {
                value: DatasetValue::Buffer(buffer),
                ..
            }) if buffer.is_file_hash() => Some(*buffer),
            _ => None,
        })
    }

    /// Rank within an action in evaluation order: rules that set flow variables precede rules that test them.
    pub fn flow_var_rank(&self) -> u8 {
        let (mut takes, mut requires) = (false, false);
        for condition in &self.conditions {
            let is_question = match condition {
                Condition::FlowBits(bits) => bits.command.is_test(),
                Condition::XBits(bits) => bits.command.is_test(),
                Condition::FlowInt(number) => number.command.is_test(),
                _ => continue,
            };
            (takes, requires) = (takes || !is_question, requires || is_question);
        }
        match (takes, requires) {
            (true, false) => 0,
            (true, true) => 1,
            (false, true) => 2,
            (false, false) => 3,
        }
    }
}

/// Identifier of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// Generator (`gid`); 1 if the rule names no generator.
    pub generator: u32,
    /// `sid`
    pub signature: u32,
    /// `rev`
    pub revision: u32,
}

/// Action of a rule, in the order of precedence: pass rules are evaluated before drop rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// Forward the flow without evaluating other rules.
    Pass,
    /// Drop the packet and all later packets of its flow.
    Drop,
    /// Drop the packet and all later packets of its flow, and notify client and server.
    Reject,
    /// Alert only.
    Alert,
}

/// Packets and streams to which a rule applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Protocol.
    pub protocol: Protocol,
    /// Source of the packets.
    pub source: Side,
    /// Destination of the packets.
    pub destination: Side,
    /// Whether the rule matches in both directions (`<>`).
    pub bidirectional: bool,
    /// Applications to which the rule applies (`service:http`, `metadata: service http`, or the protocol of the
    /// header). Ports select the flows until the application is identified; afterwards the application selects them. If
    /// the list is empty, only ports select rules.
    pub services: Box<[Service]>,
}

/// Protocol of a rule header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Any IP protocol.
    Ip,
    /// TCP with any payload.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
    /// Another IP protocol, by its number.
    Number(u8),
    /// An identified application over TCP or UDP; it is also in [`Header::services`].
    Application,
}

/// An application that rules can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Service {
    /// HTTP/1.
    Http,
    Http2,
    Tls,
    Dns,
    Ftp,
    FtpData,
    Smtp,
    Imap,
    Pop3,
    Ssh,
    Smb,
    Telnet,
    Sip,
    Rdp,
    Nfs,
    Ntp,
    Snmp,
    Tftp,
    Dhcp,
    Krb5,
    Quic,
    Irc,
    Rpc,
    Dcerpc,
    MySql,
    Postgres,
    Ldap,
    Mqtt,
    /// Any other application: the name in the rule file is compared with the name that nDPI reports.
    Other(&'static str),
}

/// Addresses and ports of the source or the destination of a rule header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Addresses.
    pub addresses: Addresses,
    /// Ports.
    pub ports: Ports,
}

/// Addresses that are in a prefix of `within` and in no prefix of `without`. An empty `within` means all addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Included prefixes.
    pub within: Arc<[IpNet]>,
    /// Excluded prefixes.
    pub without: Arc<[IpNet]>,
}

/// A set of ports, as sorted ranges that are not adjacent. An empty set means any port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports(pub Arc<[RangeInclusive<u16>]>);

/// Direction and state of the connections to which a rule applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowState {
    /// Direction of the packets: to the server (`to_server`, `from_client`), to the client, or both if `None`.
    pub direction: Option<Toward>,
    /// True for `established`, and false for `not_established`.
    pub established: Option<bool>,
    /// True for `only_stream`, and false for `no_stream`.
    pub stream: Option<bool>,
}

/// Receiver of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Toward {
    /// The server.
    Server,
    /// The client.
    Client,
}

/// Buffer that a condition inspects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Buffer {
    /// For TCP, the bytes that a host sends before the other host answers. Otherwise the payload of the packet.
    #[default]
    Payload,
    /// Path and query of a request, normalised.
    HttpUri,
    /// Path and query of a request, as sent.
    HttpRawUri,
    /// Method of a request, for example `GET`.
    HttpMethod,
    /// Header lines, normalised, without cookies, and the empty line after them.
    HttpHeader,
    /// Header lines as sent, with cookies.
    HttpRawHeader,
    /// Host of the request, in lower case.
    HttpHost,
    /// Host of the request, as sent.
    HttpRawHost,
    /// Value of `Cookie` or `Set-Cookie`.
    HttpCookie,
    /// Value of `User-Agent`.
    HttpUserAgent,
    /// Body of a request.
    HttpClientBody,
    /// Status code of a response, for example `200`.
    HttpStatusCode,
    /// Status message of a response, for example `OK`.
    HttpStatusMessage,
    /// Content of a file: the body of a response or a request, with its chunks joined.
    FileData,
    /// Queried DNS name, with dots between labels.
    DnsQuery,
    /// Server name of a `ClientHello`.
    TlsSni,
    /// MD5 fingerprint (JA3) of a `ClientHello`, in lower-case hexadecimal digits.
    Ja3Hash,
    /// MD5 fingerprint (JA3S) of a `ServerHello`, in lower-case hexadecimal digits.
    Ja3sHash,
    /// JA4 fingerprint of a `ClientHello`.
    Ja4Hash,
    /// Subject of the server's certificate: `C=US, O=Example, CN=example.org`.
    TlsCertSubject,
    /// Issuer of the server's certificate.
    TlsCertIssuer,
    /// Serial number of the server's certificate: pairs of upper-case hexadecimal digits separated by colons.
    TlsCertSerial,
    /// SHA-1 of the server's certificate: pairs of lower-case hexadecimal digits separated by colons.
    TlsCertFingerprint,
    /// TLS version that the server selected, two bytes.
    TlsVersion,
    /// A protocol that the client offers in ALPN, or the protocol that the server selected.
    TlsAlpn,
    /// Argument of `HELO` or `EHLO`.
    SmtpHelo,
    /// Sender of a mail, as sent: `<a@example.org>`.
    SmtpMailFrom,
    /// One recipient of a mail, as sent.
    SmtpRecipient,
    /// Command of an FTP data connection: `RETR` or `STOR`.
    FtpDataCommand,
    /// Name of an FTP command, in upper case.
    FtpCommand,
    /// Argument of an FTP command, without surrounding blanks.
    FtpCommandData,
    /// Completion code of an FTP reply: `230`. Every line of a multi-line reply has the same code.
    FtpCompletionCode,
    /// Text of a line of an FTP reply, without its code.
    FtpReply,
    /// Mode of the data connection that an FTP command or reply negotiates: `active` or `passive`.
    FtpMode,
    /// Port of the FTP data connection, two bytes.
    FtpDynamicPort,
    /// MD5 of a file, 16 bytes. The buffer exists if the file was received completely.
    FileMd5,
    /// SHA-1 of a file, 20 bytes.
    FileSha1,
    /// SHA-256 of a file, 32 bytes.
    FileSha256,
    /// Output of [`Condition::Base64Decode`].
    Base64,
    /// Output of the first transform list in [`Signature::transformed`].
    Transformed1,
    /// Output of the second transform list in [`Signature::transformed`].
    Transformed2,
    /// Output of the third transform list in [`Signature::transformed`].
    Transformed3,
    /// Output of the fourth transform list in [`Signature::transformed`].
    Transformed4,
}

impl Buffer {
    /// Buffers for the output of a rule's transforms.
    pub const TRANSFORMED: [Buffer; 4] = [
        Buffer::Transformed1,
        Buffer::Transformed2,
        Buffer::Transformed3,
        Buffer::Transformed4,
    ];

    /// Whether the buffer is a file hash.
    pub fn is_file_hash(self) -> bool {
        matches!(self, Buffer::FileMd5 | Buffer::FileSha1 | Buffer::FileSha256)
    }

    /// Index in [`Signature::transformed`].
    pub fn transformed(self) -> Option<usize> {
        let place = (self as usize).checked_sub(Buffer::Transformed1 as usize);
        place.filter(|place| *place < Self::TRANSFORMED.len())
    }
}

/// A buffer that is transformed before conditions inspect it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transformed {
    /// The buffer to transform.
    pub buffer: Buffer,
    /// Transforms, in order of application.
    pub steps: Box<[Transform]>,
}

/// A transform of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transform {
    /// Convert ASCII letters to lower case.
    ToLowercase,
    /// Convert ASCII letters to upper case.
    ToUppercase,
    /// Remove white space.
    StripWhitespace,
    /// Replace each run of white space by one blank.
    CompressWhitespace,
    /// MD5 of the buffer, 16 bytes.
    ToMd5,
    /// SHA-1 of the buffer, 20 bytes.
    ToSha1,
    /// SHA-256 of the buffer, 32 bytes.
    ToSha256,
    /// Prepend a dot.
    DotPrefix,
    /// Decode `%20` and `+`.
    UrlDecode,
    /// Combine the buffer with these bytes by exclusive or. The bytes are repeated.
    Xor(Box<[u8]>),
    /// Convert the names of header fields to lower case.
    HeaderLowercase,
    /// Remove header lines that begin with a colon.
    StripPseudoHeaders,
    /// Extract the first group of this expression. The output is empty if the expression does not match.
    Expression(Box<str>),
}

/// A condition of a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// Bytes that must be present, or absent.
    Content(Content),
    /// A regular expression that must match or must not match.
    Expression(Expression),
    /// Compare a number in the data.
    ByteTest(ByteTest),
    /// Move the position by a number in the data.
    ByteJump(ByteJump),
    /// Extract a number from the data into a variable.
    ByteExtract(ByteExtract),
    /// Calculate with a number in the data and store the result in a variable.
    ByteMath(ByteMath),
    /// Require that data exists, or does not exist, at a position.
    IsDataAt(IsDataAt),
    /// Decode Base64 data into [`Buffer::Base64`].
    Base64Decode(Base64Decode),
    /// Length of a buffer in bytes.
    BufferLength(Buffer, RangeInclusive<u32>),
    /// Length of the packet's payload in bytes (`dsize`).
    PayloadSize(RangeInclusive<u32>),
    /// TCP flags.
    Flags(Flags),
    /// ICMP type.
    IcmpType(RangeInclusive<u8>),
    /// ICMP code.
    IcmpCode(RangeInclusive<u8>),
    /// Identifier of an ICMP query.
    IcmpIdentifier(u16),
    /// Sequence number of an ICMP query.
    IcmpSequence(u16),
    /// TTL or hop limit.
    Ttl(RangeInclusive<u8>),
    /// Type of service.
    TypeOfService {
        /// The whole byte.
        value: u8,
        /// Whether the byte must differ from the value.
        negated: bool,
    },
    /// Identification of the IPv4 datagram.
    IpIdentification(u16),
    /// IP protocol.
    IpProtocol {
        /// Protocol numbers.
        numbers: RangeInclusive<u8>,
        /// Whether the range excludes protocols instead of selecting them.
        negated: bool,
    },
    /// Flags of the fragment field: reserved 4, don't fragment 2, more fragments 1.
    FragmentBits {
        /// How the flags are compared.
        mode: Bits,
        /// Flags.
        bits: u8,
    },
    /// Fragment offset, in units of 8 bytes.
    FragmentOffset(RangeInclusive<u16>),
    /// Source and destination address are equal.
    SameAddress,
    /// TCP sequence number.
    Sequence(u32),
    /// TCP acknowledgement number.
    Acknowledgement(u32),
    /// TCP window.
    Window {
        /// Values.
        values: RangeInclusive<u16>,
        /// Whether the range excludes windows instead of selecting them.
        negated: bool,
    },
    /// Number of bytes sent so far in a direction of the stream. This value excludes the SYN, which the numbers in
    /// rules include.
    StreamSize {
        /// Senders of the counted bytes.
        by: Sender,
        /// Number of bytes.
        bytes: RangeInclusive<u32>,
    },
    /// Flowbits: flags set by earlier matches in the same flow.
    FlowBits(FlowBits),
    /// Flowints: numbers set by earlier matches in the same flow.
    FlowInt(FlowInt),
    /// xbits: flags set by earlier matches between the same hosts.
    XBits(XBits),
    /// A value is in a dataset.
    Dataset(DatasetTest),
    /// One of the given events has occurred.
    Event(Box<[Event]>),
}

/// An event that rules can test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An anomaly in a message. If a direction is given, only messages of this direction count.
    Anomaly(Anomaly, Option<Toward>),
    /// An event in a TCP connection.
    Stream(StreamEvent),
}

/// Senders whose bytes [`Condition::StreamSize`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The client.
    Client,
    /// The server.
    Server,
    /// The client or the server.
    Either,
    /// The client and the server, each separately.
    Both,
}

/// A constant, or a value extracted earlier in the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A constant.
    Constant(i64),
    /// Result of the nth [`Condition::ByteExtract`] or [`Condition::ByteMath`] of the rule, counted from 0.
    Extracted(u8),
}

/// Bytes that must be present, or absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Buffer to search.
    pub buffer: Buffer,
    /// Bytes to search for.
    pub bytes: Box<[u8]>,
    /// Whether ASCII letters match in either case.
    pub nocase: bool,
    /// Whether the bytes must be absent.
    pub negated: bool,
    /// Lowest offset at which the match may begin, from the start of the buffer.
    pub offset: Option<Value>,
    /// Number of bytes, counted from `offset`, within which the match must lie.
    pub depth: Option<Value>,
    /// Minimum distance from the end of the preceding match to the start of the match, possibly negative. The presence
    /// of `distance` makes the search relative.
    pub distance: Option<Value>,
    /// Number of bytes, counted from the end of the preceding match plus `distance`, within which the match must lie.
    pub within: Option<Value>,
    /// Whether the match must end at the end of the buffer.
    pub ends: bool,
    /// Use of this content as the rule's fast pattern.
    pub fast: FastPattern,
}

/// Use of a content as the rule's fast pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FastPattern {
    /// The rule does not specify the use.
    #[default]
    Unspecified,
    /// The prefilter searches for this content.
    Chosen,
    /// The prefilter searches for this content, and its position is not verified (`fast_pattern:only`).
    Only,
    /// The prefilter searches for a part of this content with this offset and length.
    Part(u16, u16),
}

/// A regular expression in PCRE syntax.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expression {
    /// Buffer to search.
    pub buffer: Buffer,
    /// The expression without its slashes.
    pub pattern: Box<str>,
    /// Whether the expression must not match.
    pub negated: bool,
    /// Flag `R`: the search starts at the end of the preceding match.
    pub relative: bool,
    /// `i`
    pub caseless: bool,
    /// `s`
    pub dot_all: bool,
    /// `m`
    pub multi_line: bool,
    /// `x`
    pub extended: bool,
    /// Flag `A`: the match must start at the position at which the search starts.
    pub anchored: bool,
    /// Flag `E`: `$` matches only at the end of the data.
    pub dollar_end_only: bool,
    /// Flag `G`: quantifiers are lazy.
    pub ungreedy: bool,
}

/// Location and format of a number in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberField {
    /// Buffer that contains the number.
    pub buffer: Buffer,
    /// Number of bytes: 1 to 10 as text (23 for Suricata), 1 to 4 (8 for Suricata) as binary. For a jump, 0 bytes are
    /// also allowed; the number is then 0.
    pub count: u8,
    /// Offset of the number.
    pub offset: Value,
    /// Whether the offset is relative to the end of the preceding match instead of the start of the buffer.
    pub relative: bool,
    /// Format of the number.
    pub form: NumberFormat,
    /// Mask for a bitwise AND with the number. The result is shifted right by the number of trailing zeros of the mask.
    pub mask: Option<u32>,
}

/// Format of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberFormat {
    /// Most significant byte first.
    Big,
    /// Least significant byte first.
    Little,
    /// Text in base 8, 10 or 16.
    Text(u32),
}

/// Comparison of a number in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteTest {
    /// Number to compare.
    pub number: NumberField,
    /// Comparison operator.
    pub comparison: Comparison,
    /// Value to compare with.
    pub value: Value,
    /// Whether the comparison must fail.
    pub negated: bool,
}

/// Comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Comparison {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
    /// At least one bit is set in both values (`&`).
    And,
    /// The two numbers differ (`^`: their exclusive or is not 0).
    Xor,
}

/// Moves the position by a number in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteJump {
    /// Number to read.
    pub number: NumberField,
    /// Factor that the number is multiplied by.
    pub multiplier: u32,
    /// Whether to round the number up to a multiple of 4.
    pub align: bool,
    /// Position from which the jump is counted.
    pub from: JumpFrom,
    /// Offset added after the jump, possibly negative.
    pub post_offset: Value,
}

/// Position from which a jump is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JumpFrom {
    /// End of the number.
    Number,
    /// Start of the buffer.
    Begin,
    /// End of the buffer.
    End,
}

/// Extracts a number from the data into a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteExtract {
    /// Number to extract.
    pub number: NumberField,
    /// Factor that the number is multiplied by.
    pub multiplier: u32,
    /// The number is rounded up to a multiple of this value, which is 1, 2 or 4.
    pub align: u8,
    /// Index of the variable in the rule.
    pub into: u8,
}

/// Calculates with a number in the data and stores the result in a variable. If the result is negative, above 2^63 - 1 or
/// undefined, the condition fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteMath {
    /// Number to calculate with.
    pub number: NumberField,
    /// Operator.
    pub operator: Operator,
    /// Second operand.
    pub value: Value,
    /// Index of the variable in the rule.
    pub into: u8,
}

/// Operator of [`ByteMath`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    ShiftLeft,
    ShiftRight,
}

/// Requires that data exists, or does not exist, at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsDataAt {
    /// Buffer to test.
    pub buffer: Buffer,
    /// Offset of the byte.
    pub at: Value,
    /// The offset is relative to the end of the preceding match.
    pub relative: bool,
    /// Whether data must not exist at the offset.
    pub negated: bool,
}

/// Decodes Base64 data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base64Decode {
    /// Buffer with the encoded data.
    pub buffer: Buffer,
    /// Maximum number of encoded bytes to read.
    pub bytes: Option<u32>,
    /// Offset of the encoded data.
    pub offset: u32,
    /// The offset is relative to the end of the preceding match.
    pub relative: bool,
}

/// How bits are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// The given bits are set, and all other bits are clear.
    Exactly,
    /// At least the given bits are set (`+`).
    All,
    /// At least one of the given bits is set (`*`).
    Any,
    /// None of these bits is set (`!`).
    None,
}

/// Condition on TCP flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    /// How the flags are compared.
    pub mode: Bits,
    /// Flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
    pub flags: u8,
    /// Flags that are ignored.
    pub ignored: u8,
}

/// Operation on flowbits: flags set by earlier matches in the same flow. Flowbits change after the whole rule has matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowBits {
    /// Operation.
    pub command: FlowBit,
    /// Names.
    pub names: Box<[Box<str>]>,
    /// Whether one of the flowbits is sufficient (`|`). Otherwise all flowbits are required (`&`).
    pub any: bool,
}

/// Operation on flowbits and xbits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FlowBit {
    Set,
    Unset,
    Toggle,
    IsSet,
    IsNotSet,
}

impl FlowBit {
    /// Whether the operation only tests and changes nothing.
    pub fn is_test(self) -> bool {
        matches!(self, Self::IsSet | Self::IsNotSet)
    }
}

/// Operation on a flowint: a number of a flow. The number changes after the whole rule has matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowInt {
    /// Name.
    pub name: Box<str>,
    /// Operation.
    pub command: FlowIntCommand,
}

/// Operation on a flowint. Addition and subtraction treat an unset flowint as 0; a comparison with an unset flowint
/// fails.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FlowIntCommand {
    Set(Operand),
    Add(Operand),
    Subtract(Operand),
    Less(Operand),
    LessOrEqual(Operand),
    Equal(Operand),
    NotEqual(Operand),
    GreaterOrEqual(Operand),
    Greater(Operand),
    IsSet,
    IsNotSet,
}

impl FlowIntCommand {
    /// Operand of the comparison or the change.
    pub fn operand(&self) -> Option<&Operand> {
        match self {
            Self::IsSet | Self::IsNotSet => None,
            Self::Set(operand)
            | Self::Add(operand)
            | Self::Subtract(operand)
            | Self::Less(operand)
            | Self::LessOrEqual(operand)
            | Self::Equal(operand)
            | Self::NotEqual(operand)
            | Self::GreaterOrEqual(operand)
            | Self::Greater(operand) => Some(operand),
        }
    }

    /// Whether the operation only tests and changes nothing.
    pub fn is_test(&self) -> bool {
        !matches!(self, Self::Set(_) | Self::Add(_) | Self::Subtract(_))
    }
}

/// Operand of an operation on a flowint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A constant.
    Constant(u32),
    /// Another flowint.
    Name(Box<str>),
}

/// Operation on an xbit: a flag of a host or a pair of hosts. The flag changes after the whole rule has matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XBits {
    /// Operation.
    pub command: FlowBit,
    /// Name.
    pub name: Box<str>,
    /// Host to which the bit belongs: the source, the destination, or the pair of source and destination in either
    /// direction.
    pub track: Track,
    /// Seconds until the bit expires.
    pub expire: u32,
}

/// Condition on a dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct DatasetTest {
    /// The list.
    pub set: Arc<Dataset>,
    /// Value to look up.
    pub value: DatasetValue,
    /// Operation.
    pub command: DatasetCommand,
}

/// Value that is looked up in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetValue {
    /// The whole content of a buffer.
    Buffer(Buffer),
    /// The source address or the destination address.
    Address(Track),
}

/// Operation on a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetCommand {
    /// The value is in the list.
    IsSet,
    /// The value is not in the list.
    IsNotSet,
    /// Add the value. The condition holds if the value was not in the list before.
    Set,
    /// Remove the value. The condition holds if the value was in the list before.
    Unset,
}

/// Rate of matches at which a rule fires, and at which it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Effect of the rate.
    pub kind: RateKind,
    /// Hosts whose matches are counted together.
    pub track: Track,
    /// Number of matches.
    pub count: u32,
    /// Length of the window in seconds.
    pub seconds: u32,
}

/// Effect of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateKind {
    /// The rule fires at every match after the first `count` (`detection_filter`).
    After,
    /// The rule is reported at most `count` times (`limit`).
    Limit,
    /// The rule is reported at every `count`th match (`threshold`).
    Every,
    /// The rule is reported once, at the `count`th match (`both`).
    Once,
}

/// Hosts whose matches are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Track {
    Source,
    Destination,
    Both,
    Rule,
}
