//! Anomalies of messages.

use sluice_wire::named;

use crate::reason::Tally;

named! {
    /// An anomaly of a message. Each anomaly has its own counter, which counts it once per message.
    #[derive(PartialOrd, Ord)]
    pub enum Anomaly {
        NoSlot "no-slot"
            "No slot was free for a message: it is followed, and its buffers stay empty.";
        TooLong "too-long"
            "A part of a message is longer than its buffer: the rest of it is not searched.";
        NotHttp "not-http"
            "What a client sent on an HTTP connection is no request: the direction is not parsed any further.";
        ResponseNotHttp "response-not-http"
            "What a server sent begins with no status line: all of it is taken as a body.";
        BadVersion "bad-version"
            "The version of a message is not two numbers: it is read as HTTP/1.1.";
        NoVersion "no-version"
            "A request without a version: it is read as HTTP/0.9.";
        SpaceInUri "space-in-uri"
            "A target with white space in it.";
        BadEscape "bad-escape"
            "A per cent sign in a target without hexadecimal digits behind it: it is left as it is.";
        WideEscape "wide-escape"
            "A `%u` escape in a target: only some servers decode it.";
        DoubleEscape "double-escape"
            "An escape of a per cent sign before two hexadecimal digits: it is decoded once, some servers decode it twice.";
        Nul "nul-in-header"
            "A zero byte in the lines of a message.";
        BareLineFeed "bare-line-feed"
            "A line that ends without a carriage return.";
        BareCarriageReturn "bare-carriage-return"
            "A carriage return that ends no line: some servers end the line there.";
        FoldedHeader "folded-header"
            "A header field that goes on in the next line (obsolete since RFC 7230).";
        HeaderWithoutColon "header-without-colon"
            "A header line without a colon.";
        SpaceBeforeHeader "space-before-header"
            "The first header line begins with white space.";
        SpaceBeforeColon "space-before-colon"
            "A field name with white space before its colon: servers disagree about whose field it is.";
        RepeatedHost "repeated-host"
            "A request with two Host fields.";
        BadContentLength "bad-content-length"
            "A Content-Length that is no number: the digits that it begins with are used.";
        RepeatedContentLength "repeated-content-length"
            "Content-Length is given twice with the same value.";
        ConflictingContentLength "conflicting-content-length"
            "Content-Length is given twice with different values (request smuggling): the first is used.";
        LengthAndChunked "length-and-chunked"
            "Both Content-Length and chunked coding (request smuggling): the chunks are followed.";
        OddTransferEncoding "odd-transfer-encoding"
            "A Transfer-Encoding other than chunked alone (request smuggling): chunks are followed if it is named.";
        BadChunk "bad-chunk"
            "A chunk without a size, or one that does not end where it should: the rest is taken as the body.";
        OddChunkSize "odd-chunk-size"
            "The size of a chunk with a sign, a prefix, or something else than an extension behind it: its digits are used.";
        OldChunked "old-chunked"
            "Chunked coding in a message before HTTP/1.1: the chunks are followed, which not every client does.";
        UnexpectedBody "unexpected-body"
            "A response that has no body by its status (1xx, 204), or a CONNECT, and a length or coding: what follows is no body.";
        RequestBody "request-body"
            "A GET, HEAD or TRACE with a body.";
        JunkBeforeStatus "junk-before-status"
            "Up to four bytes before a status line: they are skipped, as some clients do.";
        BadStatus "bad-status"
            "A status code that is not three digits.";
        UnaskedUpgrade "unasked-upgrade"
            "A response changes the protocol (101), and the request did not ask for it: what follows is taken as a body.";
        DeepPipeline "deep-pipeline"
            "More requests wait for responses than are remembered: their responses are read as to GET.";
        CutShort "cut-short"
            "The connection closed within a message.";
        UnknownEncoding "unknown-encoding"
            "A content encoding that is not decoded (zstd): the body is searched as sent.";
        SeveralEncodings "several-encodings"
            "A body that is encoded more than once: all are decoded, which not every client does.";
        TooManyEncodings "too-many-encodings"
            "A body that is encoded more than five times: it is searched as sent.";
        EncodedTransfer "encoded-transfer"
            "A Transfer-Encoding that compresses: it is decoded, which few clients do.";
        MislabelledEncoding "mislabelled-encoding"
            "A body of one encoding under the name of another: it is decoded as what it is.";
        TruncatedEncoding "truncated-encoding"
            "An encoded body that ends within its data: clients use what there is of it, or nothing.";
        NoInflater "no-inflater"
            "No decoder was free for an encoded body, or no memory for what brotli repeats: it is searched as sent.";
        BadEncoding "bad-encoding"
            "A body that is not encoded as it says: it is searched as sent from there.";
        BodyBomb "body-bomb"
            "A body decodes to more than is allowed: the rest of it is searched as sent.";
        WorkExceeded "work-exceeded"
            "A packet brings more to decode or to evaluate than it may: the rest of a body is searched as sent.";
        BadDns "bad-dns"
            "A DNS message whose questions run over its end.";
        DnsPointer "dns-pointer"
            "A compressed name that does not point backwards, or points too often.";
        BadHello "bad-hello"
            "A ClientHello whose lengths contradict each other, or something else in its place.";
        LongOffer "long-offer"
            "A ClientHello offers more groups or point formats than its fingerprint holds.";
        BadServerHello "bad-server-hello"
            "What a TLS server sends first is no hello, or has lengths that contradict each other.";
        BadCertificate "bad-certificate"
            "A server's certificate that can not be read: its fingerprint is all that is searched.";
        BadFrame "bad-frame"
            "A frame of HTTP/2 whose lengths contradict each other, or that stands within a header block: the direction is not parsed any further.";
        BadHeaderBlock "bad-header-block"
            "A header block of HTTP/2 that can not be decoded: the direction is not parsed any further.";
        HeaderFlood "header-flood"
            "A header block of HTTP/2 with more continuations, or more fields when decoded, than are allowed: the direction is not parsed any further.";
        LargeTable "large-table"
            "An encoder of HTTP/2 uses a dynamic table of more than 4,096 bytes.";
        UnknownEntry "unknown-entry"
            "A field of HTTP/2 stands in a part of a dynamic table that is not kept: it is left out.";
        ManyStreams "many-streams"
            "More streams of an HTTP/2 connection are open than are followed: the oldest is not parsed any further.";
        BadField "bad-field"
            "A field of HTTP/2 with bytes that it may not have: blanks, line ends, or what is no token.";
        BadInitial "bad-initial"
            "An Initial packet of QUIC that can not be decrypted with the keys of its connection ID.";
        LongFlight "long-flight"
            "A ClientHello in QUIC that is longer, or comes in more parts, than is put in order.";
        DeepMail "deep-mail"
            "A mail with parts within parts, deeper than is followed: the innermost are searched as sent.";
        ExpectationLost "expectation-lost"
            "More data connections of FTP were agreed on than are remembered: the oldest is not recognised as one.";
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

    /// Reports the counts since the last report. `tell` receives the number of the anomaly and its count.
    #[inline(always)]
    pub fn report(&mut self, tell: impl FnMut(usize, u64)) {
        self.tally.report(tell);
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
        let told = |counts: &mut AnomalyCounts| {
            let mut told = Vec::new();
            counts.report(|anomaly, count| told.push((Anomaly::ALL[anomaly], count)));
            told
        };
        assert_eq!(0, told(&mut counts).len());
        counts.add(Anomaly::Nul);
        counts.add(Anomaly::LongOffer);
        counts.add(Anomaly::Nul);
        assert_eq!(vec![(Anomaly::Nul, 2), (Anomaly::LongOffer, 1)], told(&mut counts));
        counts.add(Anomaly::Nul);
        assert_eq!(vec![(Anomaly::Nul, 1)], told(&mut counts));
        assert_eq!((3, 0), (counts.of(Anomaly::Nul), told(&mut counts).len()));
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
