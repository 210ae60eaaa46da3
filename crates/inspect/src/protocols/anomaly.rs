//! What is odd about a message.

use crate::signature::Toward;

macro_rules! anomalies {
    ($($name:ident $text:literal $help:literal;)*) => {
        /// What is odd about a message: each is a counter of its own, counted once per message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Anomaly {
            $(#[doc = $help] $name,)*
        }

        impl Anomaly {
            /// Every anomaly, in the order of their numbers.
            pub const ALL: &[Anomaly] = &[$(Anomaly::$name),*];

            /// The counter's name.
            pub fn name(self) -> &'static str {
                match self { $(Anomaly::$name => $text,)* }
            }

            /// What it means, in a sentence for the operator.
            pub fn help(self) -> &'static str {
                match self { $(Anomaly::$name => $help,)* }
            }
        }
    };
}

anomalies! {
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
    BadStatus "bad-status"
        "A status code that is not three digits.";
    DeepPipeline "deep-pipeline"
        "More requests wait for responses than are remembered: their responses are read as to GET.";
    CutShort "cut-short"
        "The connection closed within a message.";
    UnknownEncoding "unknown-encoding"
        "A content encoding that is not decoded (br, zstd, several at once): the body is searched as sent.";
    NoInflater "no-inflater"
        "No decoder was free for an encoded body: it is searched as sent.";
    BadEncoding "bad-encoding"
        "A body that is not encoded as it says: it is searched as sent from there.";
    BodyBomb "body-bomb"
        "A body decodes to more than is allowed: the rest of it is searched as sent.";
    BadDns "bad-dns"
        "A DNS message whose questions run over its end.";
    DnsPointer "dns-pointer"
        "A compressed name that does not point backwards, or points too often.";
    BadHello "bad-hello"
        "A ClientHello whose lengths contradict each other, or something else in its place.";
    LongOffer "long-offer"
        "A ClientHello offers more groups or point formats than its fingerprint holds.";
}

/// What rules call it (`app-layer-event`), the side that it is of where the name says one, and the anomalies that are such
/// an event.
const EVENTS: &[(&str, Option<Toward>, &[Anomaly])] = &[
    ("http.gzip_decompression_failed", None, &[Anomaly::BadEncoding]),
    ("http.compression_bomb", None, &[Anomaly::BodyBomb]),
    (
        "http.request_field_missing_colon",
        SERVER,
        &[Anomaly::HeaderWithoutColon],
    ),
    (
        "http.response_field_missing_colon",
        CLIENT,
        &[Anomaly::HeaderWithoutColon],
    ),
    ("http.invalid_request_chunk_len", SERVER, &[Anomaly::BadChunk]),
    ("http.invalid_response_chunk_len", CLIENT, &[Anomaly::BadChunk]),
    (
        "http.invalid_transfer_encoding_value_in_request",
        SERVER,
        &[Anomaly::OddTransferEncoding],
    ),
    (
        "http.invalid_transfer_encoding_value_in_response",
        CLIENT,
        &[Anomaly::OddTransferEncoding],
    ),
    (
        "http.response_abnormal_transfer_encoding",
        CLIENT,
        &[Anomaly::OddTransferEncoding],
    ),
    (
        "http.invalid_content_length_field_in_request",
        SERVER,
        &[Anomaly::BadContentLength, Anomaly::ConflictingContentLength],
    ),
    (
        "http.invalid_content_length_field_in_response",
        CLIENT,
        &[Anomaly::BadContentLength, Anomaly::ConflictingContentLength],
    ),
    (
        "http.duplicate_content_length_field_in_request",
        SERVER,
        &[Anomaly::RepeatedContentLength, Anomaly::ConflictingContentLength],
    ),
    (
        "http.duplicate_content_length_field_in_response",
        CLIENT,
        &[Anomaly::RepeatedContentLength, Anomaly::ConflictingContentLength],
    ),
    ("http.invalid_request_field_folding", SERVER, &[Anomaly::FoldedHeader]),
    ("http.invalid_response_field_folding", CLIENT, &[Anomaly::FoldedHeader]),
    ("http.request_field_too_long", SERVER, &[Anomaly::TooLong]),
    ("http.response_field_too_long", CLIENT, &[Anomaly::TooLong]),
    (
        "http.request_header_invalid",
        SERVER,
        &[Anomaly::SpaceBeforeColon, Anomaly::SpaceBeforeHeader, Anomaly::Nul],
    ),
    (
        "http.response_header_invalid",
        CLIENT,
        &[Anomaly::SpaceBeforeColon, Anomaly::SpaceBeforeHeader, Anomaly::Nul],
    ),
    ("http.request_line_missing_protocol", SERVER, &[Anomaly::NoVersion]),
    ("http.request_line_invalid", SERVER, &[Anomaly::NotHttp]),
    ("http.uri_delim_non_compliant", SERVER, &[Anomaly::SpaceInUri]),
    ("http.abnormal_ce_header", None, &[Anomaly::UnknownEncoding]),
    ("http.response_invalid_status", CLIENT, &[Anomaly::BadStatus]),
    (
        "http.response_invalid_protocol",
        CLIENT,
        &[Anomaly::BadVersion, Anomaly::ResponseNotHttp],
    ),
    ("dns.malformed_data", None, &[Anomaly::BadDns, Anomaly::DnsPointer]),
    ("tls.invalid_handshake_message", None, &[Anomaly::BadHello]),
];

const SERVER: Option<Toward> = Some(Toward::Server);
const CLIENT: Option<Toward> = Some(Toward::Client);

impl Anomaly {
    /// The anomalies that rules mean by an event's name, and towards whom their message goes; none where nothing is such an
    /// event.
    pub fn of_event(name: &str) -> Option<(&'static [Anomaly], Option<Toward>)> {
        let event = EVENTS.iter().find(|(known, ..)| *known == name);
        event.map(|(_, toward, anomalies)| (*anomalies, *toward))
    }
}

/// How often each anomaly was met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts([u64; Anomaly::ALL.len()]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; Anomaly::ALL.len()])
    }
}

impl Counts {
    /// One more.
    pub fn add(&mut self, anomaly: Anomaly) {
        self.0[anomaly as usize] += 1;
    }

    /// How often.
    pub fn of(&self, anomaly: Anomaly) -> u64 {
        self.0[anomaly as usize]
    }
}

/// The anomalies of one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen(u64);

const _: () = assert!(Anomaly::ALL.len() <= 64);

impl Seen {
    /// True the first time.
    pub fn insert(&mut self, anomaly: Anomaly) -> bool {
        let bit = 1 << anomaly as u64;
        let new = self.0 & bit == 0;
        self.0 |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn event_has_one_name_and_some_anomaly() {
        let names: BTreeSet<_> = EVENTS.iter().map(|(name, ..)| name).collect();
        assert_eq!(EVENTS.len(), names.len());
        assert!(EVENTS.iter().all(|(.., anomalies)| !anomalies.is_empty()));
        assert_eq!(None, Anomaly::of_event("http.too_many_warnings"));
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
