//! Anomalies as events that rules test (`app-layer-event`). The events have Suricata's names, or names defined here
//! where Suricata has no name.

use super::Anomaly;
use crate::signature::Toward;
use crate::stream::Exception;

impl Anomaly {
    /// Event names of an anomaly, for a direction. The list is never empty.
    pub fn event_names(self, toward: Toward) -> &'static [&'static str] {
        use Anomaly::*;
        let by_side = |request: &'static [&'static str], response: &'static [&'static str]| match toward {
            Toward::Server => request,
            Toward::Client => response,
        };
        match self {
            NoSlot => &["http.no_message"],
            TooLong => by_side(&["http.request_field_too_long"], &["http.response_field_too_long"]),
            NotHttp => by_side(
                &["http.request_line_invalid", "http.request_line_incomplete"],
                &["http.failed_protocol_change"],
            ),
            ResponseNotHttp => &["http.response_invalid_protocol"],
            BadVersion => by_side(&["http.request_protocol_invalid"], &["http.response_invalid_protocol"]),
            NoVersion => &["http.request_line_missing_protocol"],
            SpaceInUri => &["http.uri_delim_non_compliant"],
            BadEscape => &["http.bad_escape"],
            WideEscape => &["http.wide_escape"],
            DoubleEscape => &["http.double_encoded_uri"],
            Nul => by_side(&["http.request_header_invalid"], &["http.response_header_invalid"]),
            BareLineFeed => &["http.bare_line_feed"],
            BareCarriageReturn => &["http.bare_carriage_return"],
            FoldedHeader => by_side(
                &["http.invalid_request_field_folding"],
                &["http.invalid_response_field_folding"],
            ),
            HeaderWithoutColon => by_side(
                &["http.request_field_missing_colon"],
                &["http.response_field_missing_colon"],
            ),
            SpaceBeforeHeader => by_side(
                &["http.invalid_request_field_folding", "http.request_header_invalid"],
                &["http.invalid_response_field_folding", "http.response_header_invalid"],
            ),
            SpaceBeforeColon => by_side(&["http.request_header_invalid"], &["http.response_header_invalid"]),
            RepeatedHost => &["http.host_header_ambiguous"],
            BadContentLength => by_side(
                &["http.invalid_content_length_field_in_request"],
                &["http.invalid_content_length_field_in_response"],
            ),
            RepeatedContentLength => by_side(
                &["http.duplicate_content_length_field_in_request"],
                &["http.duplicate_content_length_field_in_response"],
            ),
            ConflictingContentLength => by_side(
                &[
                    "http.duplicate_content_length_field_in_request",
                    "http.invalid_content_length_field_in_request",
                ],
                &[
                    "http.duplicate_content_length_field_in_response",
                    "http.invalid_content_length_field_in_response",
                ],
            ),
            LengthAndChunked => &["http.length_and_chunked"],
            OddTransferEncoding | EncodedTransfer => by_side(
                &["http.invalid_transfer_encoding_value_in_request"],
                &[
                    "http.invalid_transfer_encoding_value_in_response",
                    "http.response_abnormal_transfer_encoding",
                ],
            ),
            BadChunk | OddChunkSize => by_side(
                &["http.invalid_request_chunk_len"],
                &["http.invalid_response_chunk_len"],
            ),
            OldChunked => by_side(
                &["http.request_chunked_old_proto"],
                &["http.response_chunked_old_proto"],
            ),
            UnexpectedBody => by_side(&["http.request_body_unexpected"], &["http.response_body_unexpected"]),
            RequestBody => &["http.request_body_unexpected"],
            JunkBeforeStatus => &["http.response_invalid_protocol"],
            BadStatus => &["http.response_invalid_status"],
            UnaskedUpgrade => &["http.failed_protocol_change"],
            DeepPipeline => &["http.unable_to_match_response_to_request"],
            CutShort => by_side(&["http.request_cut_short"], &["http.response_cut_short"]),
            UnknownEncoding => &["http.abnormal_ce_header"],
            SeveralEncodings => &["http.several_encodings"],
            TooManyEncodings => &["http.too_many_encoding_layers"],
            MislabelledEncoding => &["http.abnormal_ce_header"],
            BadEncoding | TruncatedEncoding => &["http.gzip_decompression_failed"],
            NoInflater => &["http.no_decoder"],
            BodyBomb | WorkExceeded => &["http.compression_bomb"],
            BadDns => &["dns.malformed_data"],
            DnsPointer => &["dns.bad_pointer"],
            BadHello => &["tls.invalid_handshake_message"],
            LongOffer => &["tls.long_offer"],
            BadServerHello => &["tls.invalid_handshake_message"],
            BadCertificate => &["tls.invalid_certificate"],
            BadFrame => &["http2.invalid_frame_data"],
            BadHeaderBlock | BadField => &["http2.invalid_header"],
            HeaderFlood => &["http2.reassembly_limit_reached"],
            LargeTable => &["http2.large_table"],
            UnknownEntry => &["http2.unknown_entry"],
            ManyStreams => &["http2.too_many_streams"],
            BadInitial => &["quic.failed_decrypt"],
            LongFlight => &["quic.long_flight"],
            DeepMail => &["smtp.deep_mail"],
            ExpectationLost => &["ftp.expectation_lost"],
        }
    }

    /// Anomalies and directions of an event name. The result is empty if no parser reports the event.
    pub fn of_event(name: &str) -> impl Iterator<Item = (Anomaly, Toward)> {
        let both = |&anomaly: &Anomaly| [Toward::Server, Toward::Client].map(|toward| (anomaly, toward));
        let all = Anomaly::ALL.iter().flat_map(both);
        all.filter(move |(anomaly, toward)| anomaly.event_names(*toward).contains(&name))
    }

    /// Exception that a message with this anomaly raises, if any.
    pub fn exception(self) -> Option<Exception> {
        use Anomaly::*;
        match self {
            NoSlot | NoInflater => Some(Exception::ParserFull),
            TooLong | HeaderFlood | LargeTable | UnknownEntry | ManyStreams | LongFlight | DeepMail
            | ExpectationLost => Some(Exception::TooLong),
            _ => self.hosts_differ().then_some(Exception::DecodeAnomaly),
        }
    }

    /// Whether hosts interpret a message with this anomaly differently, so that a receiver may read data that differs from the
    /// searched data.
    pub fn hosts_differ(self) -> bool {
        use Anomaly::*;
        match self {
            ResponseNotHttp
            | BadVersion
            | SpaceInUri
            | WideEscape
            | Nul
            | BareCarriageReturn
            | FoldedHeader
            | HeaderWithoutColon
            | SpaceBeforeHeader
            | SpaceBeforeColon
            | RepeatedHost
            | BadContentLength
            | ConflictingContentLength
            | LengthAndChunked
            | OddTransferEncoding
            | BadChunk
            | OddChunkSize
            | OldChunked
            | UnexpectedBody
            | JunkBeforeStatus
            | BadStatus
            | UnaskedUpgrade
            | SeveralEncodings
            | TooManyEncodings
            | EncodedTransfer
            | MislabelledEncoding
            | TruncatedEncoding
            | BadEncoding
            | BodyBomb
            | BadFrame
            | BadHeaderBlock
            | BadField => true,
            // These anomalies raise no exception: all hosts interpret the messages equally, or the cause is local (lack
            // of memory, the limit of a buffer, an unsupported encoding). DNS and TLS messages have no decoded content.
            NoSlot
            | TooLong
            | NotHttp
            | NoVersion
            | BadEscape
            | DoubleEscape
            | BareLineFeed
            | RepeatedContentLength
            | RequestBody
            | DeepPipeline
            | CutShort
            | UnknownEncoding
            | NoInflater
            | WorkExceeded
            | BadDns
            | DnsPointer
            | BadHello
            | LongOffer
            | BadServerHello
            | BadCertificate
            | HeaderFlood
            | UnknownEntry
            | ManyStreams
            | LargeTable
            | BadInitial
            | LongFlight
            | DeepMail
            | ExpectationLost => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Names of events for which Suricata has no name.
    const OWN: [&str; 20] = [
        "dns.bad_pointer",
        "http.bad_escape",
        "http.bare_carriage_return",
        "http.bare_line_feed",
        "http.length_and_chunked",
        "http.no_decoder",
        "http.no_message",
        "http.request_chunked_old_proto",
        "http.request_cut_short",
        "http.request_protocol_invalid",
        "http.response_body_unexpected",
        "http.response_cut_short",
        "http.several_encodings",
        "http.wide_escape",
        "tls.long_offer",
        "http2.large_table",
        "http2.unknown_entry",
        "quic.long_flight",
        "smtp.deep_mail",
        "ftp.expectation_lost",
    ];
    /// Names of events that Suricata's rules use.
    const SURICATA: [&str; 41] = [
        "dns.malformed_data",
        "http.abnormal_ce_header",
        "http.compression_bomb",
        "http.double_encoded_uri",
        "http.duplicate_content_length_field_in_request",
        "http.duplicate_content_length_field_in_response",
        "http.failed_protocol_change",
        "http.gzip_decompression_failed",
        "http.host_header_ambiguous",
        "http.invalid_content_length_field_in_request",
        "http.invalid_content_length_field_in_response",
        "http.invalid_request_chunk_len",
        "http.invalid_request_field_folding",
        "http.invalid_response_chunk_len",
        "http.invalid_response_field_folding",
        "http.invalid_transfer_encoding_value_in_request",
        "http.invalid_transfer_encoding_value_in_response",
        "http.request_body_unexpected",
        "http.request_field_missing_colon",
        "http.request_field_too_long",
        "http.request_header_invalid",
        "http.request_line_incomplete",
        "http.request_line_invalid",
        "http.request_line_missing_protocol",
        "http.response_abnormal_transfer_encoding",
        "http.response_chunked_old_proto",
        "http.response_field_missing_colon",
        "http.response_field_too_long",
        "http.response_header_invalid",
        "http.response_invalid_protocol",
        "http.response_invalid_status",
        "http.too_many_encoding_layers",
        "http.unable_to_match_response_to_request",
        "http.uri_delim_non_compliant",
        "tls.invalid_handshake_message",
        "tls.invalid_certificate",
        "http2.invalid_frame_data",
        "http2.invalid_header",
        "http2.reassembly_limit_reached",
        "http2.too_many_streams",
        "quic.failed_decrypt",
    ];
    #[test]
    fn every_anomaly_is_an_event_of_a_known_name_in_both_directions() {
        let mut all = BTreeSet::new();
        for &anomaly in Anomaly::ALL {
            for toward in [Toward::Server, Toward::Client] {
                let names = anomaly.event_names(toward);
                assert!(!names.is_empty(), "{}", anomaly.name());
                all.extend(names);
            }
        }
        let known = OWN.iter().chain(&SURICATA);
        assert_eq!(known.copied().collect::<BTreeSet<_>>(), all);
    }

    #[test]
    fn event_stands_for_the_anomalies_that_have_its_name() {
        for &anomaly in Anomaly::ALL {
            for toward in [Toward::Server, Toward::Client] {
                for name in anomaly.event_names(toward) {
                    assert!(
                        Anomaly::of_event(name).any(|found| found == (anomaly, toward)),
                        "{name}"
                    );
                }
            }
        }
        let found: Vec<_> = Anomaly::of_event("http.invalid_response_chunk_len").collect();
        let expected = [
            (Anomaly::BadChunk, Toward::Client),
            (Anomaly::OddChunkSize, Toward::Client),
        ];
        assert_eq!(expected, found.as_slice());
        assert_eq!(0, Anomaly::of_event("http.no_such_event").count());
    }
}
