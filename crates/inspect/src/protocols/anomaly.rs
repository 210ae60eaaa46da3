//! Anomalies of messages.

use sluice_wire::named;

use crate::reason::Tally;

named! {
    /// An anomaly of a message. Each anomaly has its own counter, which counts it once per message.
    #[derive(PartialOrd, Ord)]
    pub enum Anomaly {
        NoSlot "no-slot"
            "No slot was free for a message: the message is parsed, but its buffers stay empty.";
        TooLong "too-long"
            "A field of a message is longer than its buffer: only the beginning of the field is searched.";
        NotHttp "not-http"
            "The data of a client on an HTTP connection is not a request: this direction is no longer parsed.";
        ResponseNotHttp "response-not-http"
            "The data of a server does not begin with a status line: all data is treated as a body.";
        BadVersion "bad-version"
            "The version of a message does not consist of two numbers: the message is parsed as HTTP/1.1.";
        NoVersion "no-version"
            "A request has no version: the request is parsed as HTTP/0.9.";
        SpaceInUri "space-in-uri"
            "The target of a request contains white space.";
        BadEscape "bad-escape"
            "In a target, no hexadecimal digits follow a per cent sign: the per cent sign stays unchanged.";
        WideEscape "wide-escape"
            "A target contains a `%u` escape, which only some servers decode.";
        DoubleEscape "double-escape"
            "An escaped per cent sign precedes two hexadecimal digits: the escape is decoded once, but some servers \
             decode twice.";
        Nul "nul-in-header"
            "The header lines of a message contain a zero byte.";
        BareLineFeed "bare-line-feed"
            "A line that ends without a carriage return.";
        BareCarriageReturn "bare-carriage-return"
            "A carriage return occurs within a line: some servers end the line at this byte.";
        FoldedHeader "folded-header"
            "A header field continues in the next line (obsolete since RFC 7230).";
        HeaderWithoutColon "header-without-colon"
            "A header line without a colon.";
        SpaceBeforeHeader "space-before-header"
            "The first header line begins with white space.";
        SpaceBeforeColon "space-before-colon"
            "White space precedes the colon of a field name: servers interpret such a field differently.";
        RepeatedHost "repeated-host"
            "A request with two Host fields.";
        BadContentLength "bad-content-length"
            "The Content-Length is not a number: its leading digits are used.";
        RepeatedContentLength "repeated-content-length"
            "Content-Length is given twice with the same value.";
        ConflictingContentLength "conflicting-content-length"
            "Content-Length is given twice with different values (request smuggling): the first value is used.";
        LengthAndChunked "length-and-chunked"
            "A message has both Content-Length and chunked coding (request smuggling): the chunked coding is used.";
        OddTransferEncoding "odd-transfer-encoding"
            "A Transfer-Encoding is not only `chunked` (request smuggling): chunked coding is used if the field \
             contains `chunked`.";
        BadChunk "bad-chunk"
            "A chunk has no size, or does not end at its size: the remaining data is treated as the body.";
        OddChunkSize "odd-chunk-size"
            "The size of a chunk has a sign or a prefix, or is followed by something other than an extension: its \
             digits are used.";
        OldChunked "old-chunked"
            "A message with a version before HTTP/1.1 has chunked coding: the chunked coding is used, but some \
             clients ignore it.";
        UnexpectedBody "unexpected-body"
            "A response has a length or coding although its status (1xx, 204) or a CONNECT request excludes a body: \
             the following data is not a body.";
        RequestBody "request-body"
            "A GET, HEAD or TRACE request has a body.";
        JunkBeforeStatus "junk-before-status"
            "Up to four bytes precede a status line: these bytes are skipped, as by some clients.";
        BadStatus "bad-status"
            "A status code does not consist of three digits.";
        UnaskedUpgrade "unasked-upgrade"
            "A response changes the protocol (101) although the request contains no upgrade: the following data is \
             treated as a body.";
        DeepPipeline "deep-pipeline"
            "More requests wait for responses than can be stored: the responses to further requests are parsed as \
             responses to GET.";
        CutShort "cut-short"
            "The connection closed within a message.";
        UnknownEncoding "unknown-encoding"
            "The content encoding (zstd) is not supported: the encoded body is searched.";
        SeveralEncodings "several-encodings"
            "A body has several encodings: all encodings are decoded, but not by every client.";
        TooManyEncodings "too-many-encodings"
            "A body has more than five encodings: the encoded body is searched.";
        EncodedTransfer "encoded-transfer"
            "A Transfer-Encoding compresses the body: the body is decoded, but few clients decode it.";
        MislabelledEncoding "mislabelled-encoding"
            "A body has a different encoding than its header states: the actual encoding is decoded.";
        TruncatedEncoding "truncated-encoding"
            "An encoded body is truncated: some clients use the decoded beginning, other clients use nothing.";
        NoInflater "no-inflater"
            "No decoder, or no memory for the brotli window, was free for an encoded body: the encoded body is \
             searched.";
        BadEncoding "bad-encoding"
            "The encoding of a body is invalid: from the error on, the encoded body is searched.";
        BodyBomb "body-bomb"
            "A body decodes to more bytes than allowed: the remaining encoded body is searched.";
        WorkExceeded "work-exceeded"
            "A packet exceeds its budget of decoding or evaluation: the remaining encoded body is searched.";
        BadDns "bad-dns"
            "The questions of a DNS message extend beyond the end of the message.";
        DnsPointer "dns-pointer"
            "The compression of a DNS name does not point backwards, or has too many pointers.";
        BadHello "bad-hello"
            "The first message of a TLS client is not a ClientHello, or its lengths are inconsistent.";
        LongOffer "long-offer"
            "A ClientHello offers more groups or point formats than its fingerprint can contain.";
        BadServerHello "bad-server-hello"
            "The first message of a TLS server is not a ServerHello, or its lengths are inconsistent.";
        BadCertificate "bad-certificate"
            "The certificate of a server can't be parsed: only its fingerprint is searched.";
        BadFrame "bad-frame"
            "An HTTP/2 frame has inconsistent lengths, or occurs within a header block: this direction is no longer \
             parsed.";
        BadHeaderBlock "bad-header-block"
            "An HTTP/2 header block can't be decoded: this direction is no longer parsed.";
        HeaderFlood "header-flood"
            "An HTTP/2 header block has more continuations, or more decoded fields, than allowed: this direction is \
             no longer parsed.";
        LargeTable "large-table"
            "An HTTP/2 encoder uses a dynamic table of more than 4,096 bytes.";
        UnknownEntry "unknown-entry"
            "An HTTP/2 field refers to a part of the dynamic table that is not stored: the field is omitted.";
        ManyStreams "many-streams"
            "An HTTP/2 connection has more open streams than can be parsed: the oldest stream is no longer parsed.";
        BadField "bad-field"
            "An HTTP/2 field contains bytes that are not allowed: blanks, line ends, or non-token characters.";
        BadInitial "bad-initial"
            "A QUIC Initial packet can't be decrypted with the keys of its connection ID.";
        LongFlight "long-flight"
            "A ClientHello in QUIC is too long, or has too many fragments, to be reassembled.";
        DeepMail "deep-mail"
            "The parts of a mail are nested too deeply: the innermost parts are searched undecoded.";
        ExpectationLost "expectation-lost"
            "More FTP data connections were negotiated than can be stored: the oldest connection is not recognised as \
             FTP data.";
    }
}

impl Anomaly {
    /// Whether the searched content of a message is incomplete, or differs from what its receiver reads.
    pub(super) fn is_missed_content(self) -> bool {
        use Anomaly::*;
        let encoding = matches!(
            self,
            UnknownEncoding | TooManyEncodings | TruncatedEncoding | NoInflater | BadEncoding | BodyBomb | WorkExceeded
        );
        encoding || matches!(self, CutShort | BadChunk)
    }
}

/// Counts of anomalies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnomalyCounts {
    tally: Tally<{ Anomaly::ALL.len() }>,
    met: AnomalySet,
}

impl AnomalyCounts {
    /// Counts an anomaly.
    pub fn add(&mut self, anomaly: Anomaly) {
        self.tally.add(anomaly as usize);
        self.met.insert(anomaly);
    }

    /// The count of an anomaly.
    pub fn of(&self, anomaly: Anomaly) -> u64 {
        self.tally.count(anomaly as usize)
    }

    /// Reports the counts since the last report. `report` receives the number of the anomaly and its count.
    #[inline(always)]
    pub fn report(&mut self, report: impl FnMut(usize, u64)) {
        self.tally.report(report);
    }

    /// Returns the anomalies since the last call, without repetitions; `None` for most packets.
    #[inline(always)]
    pub fn take_recent(&mut self) -> Option<impl Iterator<Item = Anomaly> + use<>> {
        (self.met != AnomalySet::default()).then(|| std::mem::take(&mut self.met).iter())
    }
}

/// The anomalies of one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AnomalySet(u128);

const _: () = assert!(Anomaly::ALL.len() <= u128::BITS as usize);

impl AnomalySet {
    /// Whether the set contains an anomaly.
    pub fn has(self, anomaly: Anomaly) -> bool {
        self.0 & 1 << anomaly as u64 != 0
    }

    /// Adds an anomaly. Returns true if the anomaly was not in the set.
    pub fn insert(&mut self, anomaly: Anomaly) -> bool {
        let bit = 1 << anomaly as u32;
        let new = self.0 & bit == 0;
        self.0 |= bit;
        new
    }

    /// The anomalies in the set.
    pub fn iter(self) -> impl Iterator<Item = Anomaly> {
        let all = Anomaly::ALL.iter().copied();
        all.filter(move |&anomaly| self.0 & 1 << anomaly as u32 != 0)
            .take(self.0.count_ones() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn counts_are_told_once() {
        let mut counts = AnomalyCounts::default();
        let reported = |counts: &mut AnomalyCounts| {
            let mut reported = Vec::new();
            counts.report(|anomaly, count| reported.push((Anomaly::ALL[anomaly], count)));
            reported
        };
        assert_eq!(0, reported(&mut counts).len());
        counts.add(Anomaly::Nul);
        counts.add(Anomaly::LongOffer);
        counts.add(Anomaly::Nul);
        assert_eq!(vec![(Anomaly::Nul, 2), (Anomaly::LongOffer, 1)], reported(&mut counts));
        counts.add(Anomaly::Nul);
        assert_eq!(vec![(Anomaly::Nul, 1)], reported(&mut counts));
        assert_eq!((3, 0), (counts.of(Anomaly::Nul), reported(&mut counts).len()));
    }

    #[test]
    fn anomaly_name_is_unique_and_its_help_a_sentence() {
        let names: BTreeSet<_> = Anomaly::ALL.iter().map(|anomaly| anomaly.name()).collect();
        assert_eq!(Anomaly::ALL.len(), names.len());
        for anomaly in Anomaly::ALL {
            assert!(anomaly.help().ends_with('.'));
            assert!(anomaly.name().chars().all(|c| c.is_ascii_lowercase() || c == '-'));
        }
    }
}
