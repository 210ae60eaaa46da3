//! The options of each dialect and their handlers.

use super::draft::SignatureDraft;
use super::error::nearest;
use super::syntax::{self, RuleOption};
use super::{
    Dialect, RuleError, bytes, content, events, expression, flow, lists, math, metadata, packet, state, transform,
};
use crate::signature::Buffer;

/// Handling of an option.
#[derive(Clone, Copy)]
enum OptionAction {
    /// Parse the option's value.
    Reads(fn(&mut SignatureDraft, &str) -> Result<(), RuleError>),
    /// Parse the option's value, if it has one.
    May(fn(&mut SignatureDraft, Option<&str>) -> Result<(), RuleError>),
    /// The option has no value.
    Is(fn(&mut SignatureDraft) -> Result<(), RuleError>),
    /// The following options inspect this buffer.
    SelectsBuffer(Buffer),
    /// The preceding content inspects this buffer.
    Moves(Buffer),
    /// The option only describes the rule and does not affect matching.
    Describes,
    /// The option affects matching but can't be expressed in a signature, so the rule is refused.
    Refuses,
}

use OptionAction::{Describes, Is, May, Moves, Reads, Refuses, SelectsBuffer};

const SURICATA: u8 = 1;
const SNORT2: u8 = 2;
const SNORT3: u8 = 4;
const SNORT: u8 = SNORT2 | SNORT3;
/// Dialects with the grammar of Snort 2, in which modifiers follow the content.
const CLASSIC: u8 = SURICATA | SNORT2;
const ALL: u8 = SURICATA | SNORT;

/// Options by name, with the dialects in which they exist.
const KEYWORDS: &[(&str, u8, OptionAction)] = &[
    // The following options describe the rule.
    ("msg", ALL, Reads(metadata::message)),
    ("sid", ALL, Describes),
    ("rev", ALL, Describes),
    ("gid", ALL, Describes),
    ("classtype", ALL, Reads(metadata::class)),
    ("priority", ALL, Reads(metadata::priority)),
    ("reference", ALL, Reads(metadata::reference)),
    ("metadata", ALL, Reads(metadata::metadata)),
    ("target", SURICATA, Describes),
    ("prefilter", SURICATA, Describes),
    ("rem", SNORT3, Describes),
    ("soid", SNORT3, Describes),
    // The following options are contents and their modifiers.
    ("content", ALL, Reads(content::read)),
    ("uricontent", CLASSIC, Reads(content::of_uri)),
    ("nocase", CLASSIC, Is(content::nocase)),
    ("rawbytes", CLASSIC, Is(content::rawbytes)),
    ("offset", CLASSIC, Reads(content::offset)),
    ("depth", CLASSIC, Reads(content::depth)),
    ("distance", CLASSIC, Reads(content::distance)),
    ("within", CLASSIC, Reads(content::within)),
    ("fast_pattern", CLASSIC, May(content::fast_pattern)),
    ("startswith", SURICATA, Is(content::startswith)),
    ("endswith", SURICATA, Is(content::endswith)),
    // The following options select the buffer of the preceding content.
    ("http_uri", CLASSIC, Moves(Buffer::HttpUri)),
    ("http_raw_uri", CLASSIC, Moves(Buffer::HttpRawUri)),
    ("http_method", CLASSIC, Moves(Buffer::HttpMethod)),
    ("http_header", CLASSIC, Moves(Buffer::HttpHeader)),
    ("http_raw_header", CLASSIC, Moves(Buffer::HttpRawHeader)),
    ("http_cookie", CLASSIC, Moves(Buffer::HttpCookie)),
    ("http_raw_cookie", SNORT2, Moves(Buffer::HttpCookie)),
    ("http_client_body", CLASSIC, Moves(Buffer::HttpClientBody)),
    ("http_stat_code", CLASSIC, Moves(Buffer::HttpStatusCode)),
    ("http_stat_msg", CLASSIC, Moves(Buffer::HttpStatusMessage)),
    ("http_host", SURICATA, Moves(Buffer::HttpHost)),
    ("http_raw_host", SURICATA, Moves(Buffer::HttpRawHost)),
    ("http_user_agent", SURICATA, Moves(Buffer::HttpUserAgent)),
    ("http_server_body", SURICATA, Is(server_body)),
    // The following options select the buffer of later contents.
    ("http_uri", SNORT3, SelectsBuffer(Buffer::HttpUri)),
    ("http_raw_uri", SNORT3, SelectsBuffer(Buffer::HttpRawUri)),
    ("http_method", SNORT3, SelectsBuffer(Buffer::HttpMethod)),
    ("http_header", SNORT3, May(header_field)),
    ("http_raw_header", SNORT3, SelectsBuffer(Buffer::HttpRawHeader)),
    ("http_cookie", SNORT3, SelectsBuffer(Buffer::HttpCookie)),
    ("http_raw_cookie", SNORT3, SelectsBuffer(Buffer::HttpCookie)),
    ("http_client_body", SNORT3, SelectsBuffer(Buffer::HttpClientBody)),
    ("http_stat_code", SNORT3, SelectsBuffer(Buffer::HttpStatusCode)),
    ("http_stat_msg", SNORT3, SelectsBuffer(Buffer::HttpStatusMessage)),
    ("pkt_data", ALL, SelectsBuffer(Buffer::Payload)),
    ("raw_data", SNORT3, SelectsBuffer(Buffer::Payload)),
    ("file_data", ALL, SelectsBuffer(Buffer::FileData)),
    ("base64_data", ALL, SelectsBuffer(Buffer::Base64)),
    ("http.uri", SURICATA, SelectsBuffer(Buffer::HttpUri)),
    ("http.uri.raw", SURICATA, SelectsBuffer(Buffer::HttpRawUri)),
    ("http.method", SURICATA, SelectsBuffer(Buffer::HttpMethod)),
    ("http.host", SURICATA, SelectsBuffer(Buffer::HttpHost)),
    ("http.host.raw", SURICATA, SelectsBuffer(Buffer::HttpRawHost)),
    ("http.header", SURICATA, SelectsBuffer(Buffer::HttpHeader)),
    ("http.header.raw", SURICATA, SelectsBuffer(Buffer::HttpRawHeader)),
    ("http.cookie", SURICATA, SelectsBuffer(Buffer::HttpCookie)),
    ("http.user_agent", SURICATA, SelectsBuffer(Buffer::HttpUserAgent)),
    ("http.request_body", SURICATA, SelectsBuffer(Buffer::HttpClientBody)),
    ("http.response_body", SURICATA, Is(response_body)),
    ("http.stat_code", SURICATA, SelectsBuffer(Buffer::HttpStatusCode)),
    ("http.stat_msg", SURICATA, SelectsBuffer(Buffer::HttpStatusMessage)),
    ("file.data", SURICATA, SelectsBuffer(Buffer::FileData)),
    ("dns.query", SURICATA, SelectsBuffer(Buffer::DnsQuery)),
    ("dns_query", SURICATA, SelectsBuffer(Buffer::DnsQuery)),
    ("tls.sni", SURICATA, SelectsBuffer(Buffer::TlsSni)),
    ("tls_sni", SURICATA, SelectsBuffer(Buffer::TlsSni)),
    ("quic.sni", SURICATA, SelectsBuffer(Buffer::TlsSni)),
    ("ja3.hash", SURICATA, SelectsBuffer(Buffer::Ja3Hash)),
    ("ja3_hash", SURICATA, SelectsBuffer(Buffer::Ja3Hash)),
    ("ip.src", SURICATA, Is(transform::source_address)),
    ("ip.dst", SURICATA, Is(transform::destination_address)),
    // The following options are transforms.
    ("to_lowercase", SURICATA, Is(transform::to_lowercase)),
    ("to_uppercase", SURICATA, Is(transform::to_uppercase)),
    ("strip_whitespace", SURICATA, Is(transform::strip_whitespace)),
    ("compress_whitespace", SURICATA, Is(transform::compress_whitespace)),
    ("to_md5", SURICATA, Is(transform::to_md5)),
    ("to_sha1", SURICATA, Is(transform::to_sha1)),
    ("to_sha256", SURICATA, Is(transform::to_sha256)),
    ("dotprefix", SURICATA, Is(transform::dot_prefix)),
    ("url_decode", SURICATA, Is(transform::url_decode)),
    ("urldecode", SURICATA, Is(transform::url_decode)),
    ("xor", SURICATA, Reads(transform::xor)),
    ("header_lowercase", SURICATA, Is(transform::header_lowercase)),
    ("strip_pseudo_headers", SURICATA, Is(transform::strip_pseudo_headers)),
    ("pcrexform", SURICATA, Reads(transform::expression)),
    ("smtp.helo", SURICATA, SelectsBuffer(Buffer::SmtpHelo)),
    ("smtp.mail_from", SURICATA, SelectsBuffer(Buffer::SmtpMailFrom)),
    ("smtp.rcpt_to", SURICATA, SelectsBuffer(Buffer::SmtpRecipient)),
    ("ftpdata_command", SURICATA, Reads(content::transfer)),
    ("ftp.command", SURICATA, SelectsBuffer(Buffer::FtpCommand)),
    ("ftp.command_data", SURICATA, SelectsBuffer(Buffer::FtpCommandData)),
    (
        "ftp.completion_code",
        SURICATA,
        SelectsBuffer(Buffer::FtpCompletionCode),
    ),
    ("ftp.reply", SURICATA, SelectsBuffer(Buffer::FtpReply)),
    ("ftp.mode", SURICATA, Reads(content::transfer_mode)),
    ("ftp.dynamic_port", SURICATA, Reads(bytes::dynamic_port)),
    ("ja3s.hash", SURICATA, SelectsBuffer(Buffer::Ja3sHash)),
    ("ja4.hash", SURICATA, SelectsBuffer(Buffer::Ja4Hash)),
    ("tls.alpn", SURICATA, SelectsBuffer(Buffer::TlsAlpn)),
    ("tls.cert_subject", SURICATA, SelectsBuffer(Buffer::TlsCertSubject)),
    ("tls_cert_subject", SURICATA, SelectsBuffer(Buffer::TlsCertSubject)),
    ("tls.cert_issuer", SURICATA, SelectsBuffer(Buffer::TlsCertIssuer)),
    ("tls_cert_issuer", SURICATA, SelectsBuffer(Buffer::TlsCertIssuer)),
    ("tls.cert_serial", SURICATA, SelectsBuffer(Buffer::TlsCertSerial)),
    ("tls_cert_serial", SURICATA, SelectsBuffer(Buffer::TlsCertSerial)),
    (
        "tls.cert_fingerprint",
        SURICATA,
        SelectsBuffer(Buffer::TlsCertFingerprint),
    ),
    (
        "tls_cert_fingerprint",
        SURICATA,
        SelectsBuffer(Buffer::TlsCertFingerprint),
    ),
    ("tls.version", SURICATA, Reads(content::tls_version)),
    // The following options are further conditions on data.
    ("pcre", ALL, Reads(expression::read)),
    ("byte_test", ALL, Reads(bytes::test)),
    ("byte_jump", ALL, Reads(bytes::jump)),
    ("byte_extract", ALL, Reads(bytes::extract)),
    ("byte_math", ALL, Reads(math::math)),
    ("filemd5", SURICATA, Reads(lists::file_md5)),
    ("filesha1", SURICATA, Reads(lists::file_sha1)),
    ("filesha256", SURICATA, Reads(lists::file_sha256)),
    ("dataset", SURICATA, Reads(lists::dataset)),
    ("isdataat", ALL, Reads(bytes::is_data_at)),
    ("bufferlen", SNORT3, Reads(bytes::buffer_length)),
    ("bsize", SURICATA, Reads(bytes::buffer_length)),
    ("urilen", CLASSIC, Reads(bytes::uri_length)),
    ("base64_decode", ALL, May(bytes::base64_decode)),
    // The following options are conditions on packet headers.
    ("dsize", ALL, Reads(packet::payload_size)),
    ("itype", ALL, Reads(packet::icmp_type)),
    ("icode", ALL, Reads(packet::icmp_code)),
    ("icmp_id", ALL, Reads(packet::icmp_identifier)),
    ("icmp_seq", ALL, Reads(packet::icmp_sequence)),
    ("ttl", ALL, Reads(packet::ttl)),
    ("tos", ALL, Reads(packet::type_of_service)),
    ("id", ALL, Reads(packet::identification)),
    ("ip_proto", ALL, Reads(packet::ip_protocol)),
    ("fragbits", ALL, Reads(packet::fragment_bits)),
    ("fragoffset", ALL, Reads(packet::fragment_offset)),
    ("flags", ALL, Reads(packet::flags)),
    ("tcp.flags", SURICATA, Reads(packet::flags)),
    ("seq", ALL, Reads(packet::sequence)),
    ("ack", ALL, Reads(packet::acknowledgement)),
    ("window", ALL, Reads(packet::window)),
    ("tcp.window", SURICATA, Reads(packet::window)),
    ("sameip", ALL, Is(packet::same_address)),
    ("stream_size", ALL, Reads(packet::stream_size)),
    // The following options are conditions on the connection.
    ("flow", ALL, Reads(flow::state)),
    ("flowbits", ALL, Reads(flow::bits)),
    ("flowint", SURICATA, Reads(state::flow_int)),
    ("xbits", SURICATA, Reads(state::x_bits)),
    ("app-layer-event", SURICATA, Reads(events::of_message)),
    ("stream-event", SURICATA, Reads(events::of_stream)),
    ("tag", ALL, Reads(state::tag)),
    ("noalert", SURICATA, Is(flow::noalert)),
    ("detection_filter", ALL, Reads(flow::detection_filter)),
    ("threshold", CLASSIC, Reads(flow::threshold)),
    ("service", SNORT3, Reads(flow::service)),
    ("app-layer-protocol", SURICATA, Reads(flow::application)),
];

/// Options that exist in a dialect but can't be expressed in a signature.
const REFUSED: &[(u8, &str)] = &[
    (
        ALL,
        "asn1 dce_iface dce_opnum dce_stub_data geoip ipopts replace rpc ssl_state ssl_version",
    ),
    (
        SNORT2,
        "activated_by activates appid cvs dnp3_data dnp3_func dnp3_ind dnp3_obj file_group file_type ftpbounce \
         gtp_info gtp_type gtp_version http_encode logto modbus_data modbus_func modbus_unit protected_content \
         react resp session sip_body sip_header sip_method sip_stat_code so stream_reassemble",
    ),
    (
        SNORT3,
        "appids ber_data ber_skip cip_attribute cip_class cip_conn_path_class cip_instance cip_req cip_rsp \
         cip_service cip_status cvs dnp3_data dnp3_func dnp3_ind dnp3_obj enip_command enip_req enip_rsp \
         file_meta file_type gtp_info gtp_type gtp_version http_header_test http_max_header_line \
         http_max_trailer_line http_num_cookies http_num_headers http_num_trailers http_param http_raw_body \
         http_raw_request http_raw_status http_raw_trailer http_trailer http_trailer_test http_true_ip \
         http_version http_version_match iec104_apci_type iec104_asdu_func js_data md5 mms_data mms_func \
         modbus_data modbus_func modbus_unit mss opcua_msg_service regex s7commplus_content s7commplus_func \
         s7commplus_opcode sd_pattern sha256 sha512 sip_body sip_header sip_method sip_stat_code so socks_command \
         stream_reassemble urg vba_data wscale",
    ),
    (
        SURICATA,
        "absent bypass config datarep decode-event dns.answer.name dns.opcode dns.query.name dns.rcode dns.rrtype \
         email.url engine-event entropy file.magic file.name fileext filemagic filename filesize filestore flow.age flowvar from_base64 ftp.reply_received ftpbounce hostbits http.accept http.accept_enc \
         http.accept_lang http.connection http.content_len http.content_type http.header_names http.location \
         http.protocol http.referer http.request_header http.request_line http.response_header http.response_line \
         http.server http.start http_accept http_accept_enc http_accept_lang http_connection http_content_len \
         http_content_type http_header_names http_protocol http_referer http_request_line http_response_line \
         http_start icmpv4.hdr icmpv6.hdr icmpv6.mtu ip_version iprep ipv4.hdr ipv6.hdr ja3.string ja3_string \
         ja3s.string krb5_cname krb5_err_code krb5_msg_type krb5_sname l3_proto lua luajit modbus mqtt.type \
         nfs_procedure nfs_version quic.cyu.hash quic.version rfb.name sip.method sip.protocol sip.request_line \
         sip.response_line sip.stat_code sip.stat_msg sip.uri smb.named_pipe smb.ntlmssp_domain smb.ntlmssp_user \
         smb.share snmp.community snmp.pdu_type snmp.version ssh.hassh ssh.hassh.server ssh.proto ssh.protoversion \
         ssh.software ssh.softwareversion ssh_proto ssh_software tcp.hdr tcp.mss tls.cert_chain_len tls.certs \
         tls.fingerprint tls.issuerdn tls.random tls.store tls.subject tls_cert_expired tls_cert_notafter \
         tls_cert_notbefore tls_cert_valid udp.hdr",
    ),
];

fn dialect_bit(dialect: Dialect) -> u8 {
    match dialect {
        Dialect::Suricata => SURICATA,
        Dialect::Snort2 => SNORT2,
        Dialect::Snort3 => SNORT3,
    }
}

fn find(name: &str, dialect: Dialect) -> Option<OptionAction> {
    let bit = dialect_bit(dialect);
    let known = KEYWORDS
        .iter()
        .find(|(known, dialects, _)| dialects & bit != 0 && *known == name);
    let refused = || {
        REFUSED
            .iter()
            .any(|(dialects, names)| dialects & bit != 0 && names.split(' ').any(|known| known == name))
    };
    known.map(|(_, _, does)| *does).or_else(|| refused().then_some(Refuses))
}

/// Parses an option of a rule.
pub(super) fn read<'a>(draft: &mut SignatureDraft<'a>, option: &RuleOption<'a>) -> Result<(), RuleError> {
    draft.option = option.name;
    let wanted = || option.value.ok_or(RuleError::MissingValue);
    let alone = || {
        option
            .value
            .map_or(Ok(()), |value| Err(RuleError::UnexpectedValue(value.into())))
    };
    match find(option.name, draft.dialect) {
        Some(Reads(read)) => read(draft, wanted()?),
        Some(May(read)) => read(draft, option.value),
        Some(Is(set)) => alone().and_then(|()| set(draft)),
        Some(SelectsBuffer(buffer)) => {
            if let Some(value) = option.value {
                return Err(RuleError::PartNotInspected(value.into()));
            }
            draft.select_buffer(buffer);
            Ok(())
        }
        Some(Moves(buffer)) => {
            alone()?;
            draft.content()?.buffer = buffer;
            Ok(())
        }
        Some(Describes) => Ok(()),
        Some(Refuses) => Err(RuleError::NotInspected),
        None => Err(RuleError::UnknownOption {
            hint: hint(option.name, draft.dialect),
        }),
    }
}

fn hint(name: &str, dialect: Dialect) -> Option<&'static str> {
    let bit = dialect_bit(dialect);
    let names = || {
        KEYWORDS
            .iter()
            .filter(|(_, dialects, _)| dialects & bit != 0)
            .map(|(known, ..)| *known)
    };
    let near = nearest(name, names())?;
    names().find(|known| *known == near)
}

fn server_body(draft: &mut SignatureDraft) -> Result<(), RuleError> {
    draft.needs_to_client = Some(draft.option);
    draft.content()?.buffer = Buffer::FileData;
    Ok(())
}

fn response_body(draft: &mut SignatureDraft) -> Result<(), RuleError> {
    draft.needs_to_client = Some(draft.option);
    draft.select_buffer(Buffer::FileData);
    Ok(())
}

/// `http_header:field user-agent` of Snort 3, for fields that have a buffer.
fn header_field(draft: &mut SignatureDraft, value: Option<&str>) -> Result<(), RuleError> {
    let buffer = match value.map(syntax::word) {
        None => Buffer::HttpHeader,
        Some(("field", name)) => match name.trim_matches('"').to_ascii_lowercase().as_str() {
            "user-agent" => Buffer::HttpUserAgent,
            "host" => Buffer::HttpRawHost,
            "cookie" | "set-cookie" => Buffer::HttpCookie,
            _ => return Err(RuleError::PartNotInspected(name.into())),
        },
        Some(_) => return Err(RuleError::PartNotInspected(value.unwrap_or_default().into())),
    };
    draft.select_buffer(buffer);
    Ok(())
}
