//! A signature: what every dialect says, in one form.
//!
//! Numbers are as their rule writes them; ranges are inclusive. Conditions stand in the order of the rule (of Suricata
//! those of one buffer stand together), because positions are relative to the match before ([`Content::distance`] and
//! its like).
//!
//! What is relative follows a match in its own buffer, with none in another buffer between the two: where the rule has
//! no such match, its readers count from the begin of the buffer instead. Matches are those of a content or an
//! expression that is not negated (nor [`Fast::Only`]), and the places where a jump or an extraction ends.

use std::ops::RangeInclusive;
use std::sync::Arc;

use ipnet::IpNet;

use crate::datasets::Dataset;
use crate::protocols::Anomaly;
use crate::stream::StreamEvent;

/// One rule of a signature file, every option of it understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// Its number.
    pub id: Id,
    /// Line of its file, counted from 1.
    pub line: u32,
    /// What it says when it fires.
    pub message: Box<str>,
    /// Its class (`trojan-activity`, …).
    pub class: Option<Box<str>>,
    /// 1 is the most urgent; from the rule, else from its class, else 3.
    pub priority: u8,
    /// Where to read about it: (`url`, `example.org/…`), (`cve`, `2021-44228`), …
    pub references: Box<[(Box<str>, Box<str>)]>,
    /// What is to be done.
    pub action: Action,
    /// Which packets and streams it is about.
    pub header: Header,
    /// Which side and state of a connection it is about.
    pub flow: FlowState,
    /// What must be found, in order.
    pub conditions: Box<[Condition]>,
    /// Buffers that are changed before conditions look in them: those of [`Buffer::TRANSFORMED`], in their order.
    pub transformed: Box<[Transformed]>,
    /// How often it must match before it fires, and how often it may.
    pub rate: Option<Rate>,
    /// It fires in silence (`noalert`): only what it sets counts.
    pub noalert: bool,
}

impl Signature {
    /// Hashes of files that it asks for.
    pub fn file_hashes(&self) -> impl Iterator<Item = Buffer> {
        self.conditions.iter().filter_map(|condition| match condition {
            Condition::Dataset(DatasetTest {
                value: DatasetValue::Buffer(buffer),
                ..
            }) if buffer.is_file_hash() => Some(*buffer),
            _ => None,
        })
    }

    /// Where it stands among rules of its action: those that take notes of a flow before those that ask for them.
    pub fn flow_var_rank(&self) -> u8 {
        let (mut takes, mut asks) = (false, false);
        for condition in &self.conditions {
            let is_question = match condition {
                Condition::FlowBits(bits) => bits.command.is_test(),
                Condition::XBits(bits) => bits.command.is_test(),
                Condition::FlowInt(number) => number.command.is_test(),
                _ => continue,
            };
            (takes, asks) = (takes || !is_question, asks || is_question);
        }
        match (takes, asks) {
            (true, false) => 0,
            (true, true) => 1,
            (false, true) => 2,
            (false, false) => 3,
        }
    }
}

/// The number of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// Who gave it out: 1 where the rule does not say.
    pub generator: u32,
    /// `sid`
    pub signature: u32,
    /// `rev`
    pub revision: u32,
}

/// What is done about a match, the most decisive first: a rule that passes is asked before one that drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// Nothing, and no other rule is asked about this flow.
    Pass,
    /// The packet and the rest of its flow are dropped.
    Drop,
    /// As drop; both ends are told.
    Reject,
    /// It is reported.
    Alert,
}

/// Which packets and streams a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Protocol.
    pub protocol: Protocol,
    /// Whom the packets come from.
    pub source: Side,
    /// Whom they go to.
    pub destination: Side,
    /// `<>`: either way round.
    pub both_ways: bool,
    /// Applications whose flows it is about (`service:http`, `metadata: service http`, or the protocol of the header).
    /// Ports decide until the application is known; then the application does. Empty: ports alone.
    pub services: Box<[Service]>,
}

/// The protocol of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Any over IP.
    Ip,
    /// TCP, whatever is in it.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
    /// Another one by number.
    Number(u8),
    /// What the application identification calls by this name, over TCP or UDP; also in [`Header::services`].
    Application,
}

/// An application that rules name.
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
    /// Any other, by the name of the file: matched by the name that the application identification gives.
    Other(&'static str),
}

/// Addresses and ports of one side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Addresses.
    pub addresses: Addresses,
    /// Ports.
    pub ports: Ports,
}

/// A set of addresses: in one of `within` (empty: any), and in none of `without`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Prefixes that hold it.
    pub within: Arc<[IpNet]>,
    /// Prefixes that do not.
    pub without: Arc<[IpNet]>,
}

/// A set of ports: sorted ranges that do not touch; empty: any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports(pub Arc<[RangeInclusive<u16>]>);

/// Which side and state of a connection a rule is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowState {
    /// What the client sends (`to_server`, `from_client`), what the server sends, or both.
    pub direction: Option<Toward>,
    /// `established`: true; `not_established`: false.
    pub established: Option<bool>,
    /// `only_stream`: true; `no_stream`: false.
    pub stream: Option<bool>,
}

/// Whom a packet goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Toward {
    /// The one that was called.
    Server,
    /// The one that called.
    Client,
}

/// Where a condition looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Buffer {
    /// Of TCP the message (what one side sends until the other answers), else the payload of the packet.
    #[default]
    Payload,
    /// Path and query of a request, normalised.
    HttpUri,
    /// The same, as sent.
    HttpRawUri,
    /// `GET`, …
    HttpMethod,
    /// Header lines, normalised, without the cookie, and the empty line behind them.
    HttpHeader,
    /// The same, as sent, with the cookie.
    HttpRawHeader,
    /// Host of the request, in lower case.
    HttpHost,
    /// The same, as sent.
    HttpRawHost,
    /// Value of `Cookie` or `Set-Cookie`.
    HttpCookie,
    /// Value of `User-Agent`.
    HttpUserAgent,
    /// Body of a request.
    HttpClientBody,
    /// `200`, …
    HttpStatusCode,
    /// `OK`, …
    HttpStatusMessage,
    /// Content of a file: the body of a response or a request, chunks joined.
    FileData,
    /// Name asked for, dots between labels.
    DnsQuery,
    /// Server name of a `ClientHello`.
    TlsSni,
    /// MD5 of what a `ClientHello` offers, in lower-case hexadecimal digits.
    Ja3Hash,
    /// The same of what a `ServerHello` chooses.
    Ja3sHash,
    /// JA4 of a `ClientHello`.
    Ja4Hash,
    /// Subject of the server's certificate: `C=US, O=Example, CN=example.org`.
    TlsCertSubject,
    /// Its issuer.
    TlsCertIssuer,
    /// Its serial number: pairs of upper-case hexadecimal digits with colons between.
    TlsCertSerial,
    /// Its SHA-1: pairs of lower-case hexadecimal digits with colons between.
    TlsCertFingerprint,
    /// The version that the server chose, two bytes.
    TlsVersion,
    /// A protocol that the client offers, or the one that the server chose.
    TlsAlpn,
    /// What a mail client calls itself.
    SmtpHelo,
    /// Sender of a mail, as sent: `<a@example.org>`.
    SmtpMailFrom,
    /// One recipient of it, as sent.
    SmtpRecipient,
    /// What a data connection of FTP is for: `RETR` or `STOR`.
    FtpDataCommand,
    /// Name of a command of FTP, in capitals.
    FtpCommand,
    /// Its argument, without the blanks around it.
    FtpCommandData,
    /// Completion code of an FTP reply: `230`. Every line of a multi-line reply has it.
    FtpCompletionCode,
    /// Text of a line of a reply of FTP, without its code.
    FtpReply,
    /// What a command or a reply of FTP agrees on for the data connection: `active` or `passive`.
    FtpMode,
    /// The port that it agrees on, two bytes.
    FtpDynamicPort,
    /// MD5 of a file, 16 bytes, once the file is complete and nothing of it was missed.
    FileMd5,
    /// Its SHA-1, 20 bytes.
    FileSha1,
    /// Its SHA-256, 32 bytes.
    FileSha256,
    /// What [`Condition::Base64Decode`] made.
    Base64,
    /// The first of [`Signature::transformed`].
    Transformed1,
    /// The second.
    Transformed2,
    /// The third.
    Transformed3,
    /// The fourth.
    Transformed4,
}

impl Buffer {
    /// Buffers that a rule has changed for itself.
    pub const TRANSFORMED: [Buffer; 4] = [
        Buffer::Transformed1,
        Buffer::Transformed2,
        Buffer::Transformed3,
        Buffer::Transformed4,
    ];

    /// Whether it is a hash of a file.
    pub fn is_file_hash(self) -> bool {
        matches!(self, Buffer::FileMd5 | Buffer::FileSha1 | Buffer::FileSha256)
    }

    /// Which of [`Signature::transformed`] it is.
    pub fn transformed(self) -> Option<usize> {
        let place = (self as usize).checked_sub(Buffer::Transformed1 as usize);
        place.filter(|place| *place < Self::TRANSFORMED.len())
    }
}

/// A buffer that is changed before conditions look in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transformed {
    /// Which.
    pub buffer: Buffer,
    /// How, in this order.
    pub steps: Box<[Transform]>,
}

/// A change of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transform {
    /// ASCII letters become small ones.
    ToLowercase,
    /// ASCII letters become capitals.
    ToUppercase,
    /// White space goes.
    StripWhitespace,
    /// White space becomes one blank.
    CompressWhitespace,
    /// The MD5 of it, 16 bytes.
    ToMd5,
    /// The SHA-1 of it, 20 bytes.
    ToSha1,
    /// The SHA-256 of it, 32 bytes.
    ToSha256,
    /// A dot is put before it.
    DotPrefix,
    /// `%20` and `+` are decoded.
    UrlDecode,
    /// It is combined with these bytes, again and again, by exclusive or.
    Xor(Box<[u8]>),
    /// Names of header fields become small ones.
    HeaderLowercase,
    /// Header lines that begin with a colon go.
    StripPseudoHeaders,
    /// The first group of an expression, without its slashes; nothing where it does not match.
    Expression(Box<str>),
}

/// What must be true.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// Bytes are there, or are not.
    Content(Content),
    /// An expression matches, or does not.
    Expression(Expression),
    /// A number compares.
    ByteTest(ByteTest),
    /// A number says where to go on.
    ByteJump(ByteJump),
    /// A number is kept under a name.
    ByteExtract(ByteExtract),
    /// A number is calculated with, and kept under a name.
    ByteMath(ByteMath),
    /// There is data at a place, or is not.
    IsDataAt(IsDataAt),
    /// Encoded bytes are decoded into [`Buffer::Base64`].
    Base64Decode(Base64Decode),
    /// Bytes of a buffer.
    BufferLength(Buffer, RangeInclusive<u32>),
    /// Bytes of the packet's payload (`dsize`).
    PayloadSize(RangeInclusive<u32>),
    /// TCP flags.
    Flags(Flags),
    /// Type of ICMP.
    IcmpType(RangeInclusive<u8>),
    /// Code of ICMP.
    IcmpCode(RangeInclusive<u8>),
    /// Identifier of an ICMP query.
    IcmpIdentifier(u16),
    /// Number of an ICMP query.
    IcmpSequence(u16),
    /// TTL or hop limit.
    Ttl(RangeInclusive<u8>),
    /// Type of service.
    TypeOfService {
        /// The whole byte.
        value: u8,
        /// It must differ.
        negated: bool,
    },
    /// Identification of the IPv4 datagram.
    IpIdentification(u16),
    /// Protocol over IP.
    IpProtocol {
        /// Numbers.
        numbers: RangeInclusive<u8>,
        /// It must be none of them.
        negated: bool,
    },
    /// Bits of the fragment field: reserved 4, don't fragment 2, more fragments 1.
    FragmentBits {
        /// How.
        mode: Bits,
        /// Which.
        bits: u8,
    },
    /// Offset of the fragment, in units of 8 bytes.
    FragmentOffset(RangeInclusive<u16>),
    /// Both addresses are the same.
    SameAddress,
    /// TCP sequence number.
    Sequence(u32),
    /// TCP acknowledgement number.
    Acknowledgement(u32),
    /// TCP window.
    Window {
        /// Values.
        values: RangeInclusive<u16>,
        /// It must be none of them.
        negated: bool,
    },
    /// Bytes that were sent so far in a direction of the stream; rules count the SYN too, this does not.
    StreamSize {
        /// By whom: the client, the server, either, or (`None`) both.
        by: Sender,
        /// How many.
        bytes: RangeInclusive<u32>,
    },
    /// Notes of earlier matches in the same flow.
    FlowBits(FlowBits),
    /// Numbers of earlier matches in the same flow.
    FlowInt(FlowInt),
    /// Notes of earlier matches between the same hosts.
    XBits(XBits),
    /// A value is in a list.
    Dataset(DatasetTest),
    /// Something odd was met: one of these.
    Event(Box<[Event]>),
}

/// Something odd that rules ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// In a message; of which side, where that matters.
    Anomaly(Anomaly, Option<Toward>),
    /// In a TCP connection.
    Stream(StreamEvent),
}

/// Whose bytes [`Condition::StreamSize`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The client.
    Client,
    /// The server.
    Server,
    /// At least one of both.
    Either,
    /// Each of both.
    Both,
}

/// A number, or the name of one that was extracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// As written.
    Constant(i64),
    /// What the nth [`Condition::ByteExtract`] or [`Condition::ByteMath`] of the rule found, counted from 0.
    Extracted(u8),
}

/// Bytes are there, or are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Where.
    pub buffer: Buffer,
    /// What.
    pub bytes: Box<[u8]>,
    /// ASCII letters match in either case.
    pub nocase: bool,
    /// It must not be there.
    pub negated: bool,
    /// First byte where it may begin, from the begin of the buffer.
    pub offset: Option<Value>,
    /// It lies whole within so many bytes from `offset`.
    pub depth: Option<Value>,
    /// It begins so many bytes behind the end of the match before; may be negative. Given with `within` or alone, it
    /// makes the search relative.
    pub distance: Option<Value>,
    /// It lies whole within so many bytes from the end of the match before (plus `distance`).
    pub within: Option<Value>,
    /// Nothing follows it in the buffer.
    pub ends: bool,
    /// What the rule says about the search by which candidates are found.
    pub fast: FastPattern,
}

/// What a rule says about the search by which candidates are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FastPattern {
    /// Nothing.
    #[default]
    Unspecified,
    /// Search for this one.
    Chosen,
    /// Search for this one, and don't look again (`fast_pattern:only`): it has no position, and none is relative to it.
    Only,
    /// Search for these of its bytes: first, and how many.
    Part(u16, u16),
}

/// A regular expression, in the grammar of PCRE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expression {
    /// Where.
    pub buffer: Buffer,
    /// The expression between its slashes.
    pub pattern: Box<str>,
    /// It must not match.
    pub negated: bool,
    /// It begins behind the end of the match before (`R`).
    pub relative: bool,
    /// `i`
    pub caseless: bool,
    /// `s`
    pub dot_all: bool,
    /// `m`
    pub multi_line: bool,
    /// `x`
    pub extended: bool,
    /// `A`: it begins where the search begins.
    pub anchored: bool,
    /// `E`: `$` is the end alone.
    pub dollar_end_only: bool,
    /// `G`: quantifiers are lazy.
    pub ungreedy: bool,
}

/// How a number is read from bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberField {
    /// Where.
    pub buffer: Buffer,
    /// How many bytes: 1 to 10 as text (23 for Suricata), 1 to 4 (8 for Suricata) as binary. Of a jump also 0: no byte
    /// is read, and the number is 0.
    pub count: u8,
    /// Where it begins.
    pub offset: Value,
    /// From the end of the match before, and not from the begin of the buffer.
    pub relative: bool,
    /// How it is written.
    pub form: NumberFormat,
    /// It is combined with this by AND, then shifted right by the mask's trailing zeros.
    pub mask: Option<u32>,
}

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberFormat {
    /// Most significant byte first.
    Big,
    /// Least significant byte first.
    Little,
    /// Text to the base 8, 10 or 16.
    Text(u32),
}

/// A number compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteTest {
    /// Which.
    pub number: NumberField,
    /// How.
    pub comparison: Comparison,
    /// With what.
    pub value: Value,
    /// It must not.
    pub negated: bool,
}

/// How numbers compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Comparison {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
    /// Some bits of the value are set (`&`).
    And,
    /// The two differ (`^`: their exclusive or is not 0).
    Xor,
}

/// A number says where to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteJump {
    /// Which.
    pub number: NumberField,
    /// It is multiplied by this.
    pub multiplier: u32,
    /// It is rounded up to a multiple of 4.
    pub align: bool,
    /// Where the jump begins.
    pub from: JumpFrom,
    /// Added afterwards; may be negative.
    pub post_offset: Value,
}

/// Where a jump begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JumpFrom {
    /// Behind the number.
    Number,
    /// At the begin of the buffer.
    Begin,
    /// At its end.
    End,
}

/// A number is kept under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteExtract {
    /// Which.
    pub number: NumberField,
    /// It is multiplied by this.
    pub multiplier: u32,
    /// It is rounded up to a multiple of this: 1, 2 or 4.
    pub align: u8,
    /// Its place among the numbers of the rule.
    pub into: u8,
}

/// A number is calculated with, and kept under a name. Where the result is less than 0 or above 2^63 - 1, or there is none,
/// the condition does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteMath {
    /// Which.
    pub number: NumberField,
    /// How.
    pub operator: Operator,
    /// With what.
    pub value: Value,
    /// Its place among the numbers of the rule.
    pub into: u8,
}

/// How numbers are calculated with.
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

/// There is data at a place, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsDataAt {
    /// Where.
    pub buffer: Buffer,
    /// At which byte.
    pub at: Value,
    /// From the end of the match before.
    pub relative: bool,
    /// There must be none.
    pub negated: bool,
}

/// Encoded bytes are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base64Decode {
    /// Where they are.
    pub buffer: Buffer,
    /// How many are read at most.
    pub bytes: Option<u32>,
    /// Where they begin.
    pub offset: u32,
    /// From the end of the match before.
    pub relative: bool,
}

/// How bits compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// These and no others.
    Exactly,
    /// These and perhaps others (`+`).
    All,
    /// One of these (`*`).
    Any,
    /// None of these (`!`).
    None,
}

/// TCP flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    /// How.
    pub mode: Bits,
    /// Which: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
    pub flags: u8,
    /// Which are not looked at.
    pub ignored: u8,
}

/// Notes of earlier matches in the same flow. They are changed once the whole rule has matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowBits {
    /// What is done.
    pub command: FlowBit,
    /// Names.
    pub names: Box<[Box<str>]>,
    /// One of them is enough (`|`); else all of them (`&`).
    pub any: bool,
}

/// What is done to notes.
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
    /// Whether it asks, and changes nothing.
    pub fn is_test(self) -> bool {
        matches!(self, Self::IsSet | Self::IsNotSet)
    }
}

/// A number of a flow. It is changed once the whole rule has matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowInt {
    /// Its name.
    pub name: Box<str>,
    /// What is done.
    pub command: FlowIntCommand,
}

/// What is done to a number of a flow, or asked about it. One that was never set counts as 0 where it is added to or
/// subtracted from, and compares with nothing.
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
    /// What the number is changed by or compared with.
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

    /// Whether it asks, and changes nothing.
    pub fn is_test(&self) -> bool {
        !matches!(self, Self::Set(_) | Self::Add(_) | Self::Subtract(_))
    }
}

/// What a number of a flow is changed by or compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// As written.
    Constant(u32),
    /// Another number of the flow.
    Name(Box<str>),
}

/// A note of hosts. It is changed once the whole rule has matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XBits {
    /// What is done.
    pub command: FlowBit,
    /// Its name.
    pub name: Box<str>,
    /// Whose it is: the source's, the destination's, or the pair's, whichever of the two sends.
    pub track: Track,
    /// Seconds until it is forgotten.
    pub expire: u32,
}

/// A value is in a list, or is not.
#[derive(Clone, Debug, PartialEq)]
pub struct DatasetTest {
    /// The list.
    pub set: Arc<Dataset>,
    /// Which value.
    pub value: DatasetValue,
    /// What is done.
    pub command: DatasetCommand,
}

/// Which value is looked for in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetValue {
    /// All of a buffer.
    Buffer(Buffer),
    /// The address of the source or of the destination.
    Address(Track),
}

/// What is done with a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetCommand {
    /// The value is in it.
    IsSet,
    /// It is not.
    IsNotSet,
    /// It is added, and was not in it.
    Set,
    /// It is removed, and was in it.
    Unset,
}

/// How often a rule must match before it fires, and how often it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// What is counted and what follows.
    pub kind: RateKind,
    /// Of whom matches are counted together.
    pub track: Track,
    /// Matches.
    pub count: u32,
    /// In so many seconds.
    pub seconds: u32,
}

/// What is counted and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateKind {
    /// It fires at every match after the first `count` (`detection_filter`).
    After,
    /// It is reported at most `count` times (`limit`).
    Limit,
    /// It is reported at every `count`th match (`threshold`).
    Every,
    /// It is reported once, at the `count`th match (`both`).
    Once,
}

/// Of whom matches are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Track {
    Source,
    Destination,
    Both,
    Rule,
}
