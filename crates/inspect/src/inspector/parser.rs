//! Application-layer protocol of a flow, and its parser.

use crate::protocols::expectations::{DataEndpoints, Transfer};
use crate::protocols::ftp::{ControlHosts, Ftp};
use crate::protocols::http::Http;
use crate::protocols::{
    ClientHello, Dns, DnsStream, FtpData, Http2, MessageEvent, ParserPools, ProbeResult, ProtocolProbe, Quic, Slot,
    Smtp, TlsRecords, TlsServer,
};
use crate::signature::{Service, Toward};

/// Parser of a flow. The enum's tag comes first in memory, because most packets need no other field.
#[derive(Debug)]
#[repr(u8)]
pub(super) enum FlowParser {
    /// The protocol is not identified yet.
    Unknown(ProtocolProbe),
    Http(Http),
    /// TLS: parser of the client's hello, parser of the server's hello and certificate, and record state of each side.
    Tls(ClientHello, TlsServer, [TlsRecords; 2]),
    /// DNS over TCP in both directions. Only the questions are parsed.
    DnsStream(DnsStream),
    Dns(Dns),
    Ftp(Ftp),
    FtpData(FtpData),
    Smtp(Smtp),
    Http2(Http2),
    Quic(Quic),
    /// The protocol has no parser.
    None,
}

impl Default for FlowParser {
    fn default() -> Self {
        Self::Unknown(ProtocolProbe::default())
    }
}

/// An event in a flow.
pub(super) enum ParserEvent<'s> {
    /// An event that a parser reported, with its slot.
    Piece(Slot<'s>, MessageEvent),
    /// Bytes of a stream that the parsers do not read completely.
    Bytes(Toward, &'s [u8]),
}

/// Receives events with the application of the flow.
pub(super) trait Sink: FnMut(ParserEvent<'_>, Option<Service>) {}
impl<S: FnMut(ParserEvent<'_>, Option<Service>)> Sink for S {}

impl FlowParser {
    /// Whether the protocol may still be identified.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }

    /// Whether client and server send only encrypted data, which is detected for TLS only.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_, _, records) if records.iter().all(TlsRecords::are_encrypted))
    }

    /// Parser of a protocol over TCP.
    fn of_stream(service: Service) -> Self {
        match service {
            Service::Http => Self::Http(Http::default()),
            Service::Tls => Self::Tls(ClientHello::default(), TlsServer::default(), Default::default()),
            Service::Dns => Self::DnsStream(DnsStream::default()),
            Service::Http2 => Self::Http2(Http2::default()),
            Service::Smtp => Self::Smtp(Smtp::default()),
            Service::Ftp => Self::Ftp(Ftp::default()),
            _ => Self::None,
        }
    }

    /// FTP data connection that was negotiated for this server port, if there is one. Called for the first bytes of a
    /// stream.
    fn expected(&mut self, store: &mut ParserPools, hosts: &ControlHosts, port: u16) -> Option<Transfer> {
        let ends = DataEndpoints {
            listener: hosts.server,
            peer: hosts.client,
            port,
        };
        let starts = matches!(self, Self::Unknown(recognise) if recognise.is_empty());
        starts.then(|| store.expected.take(&ends, hosts.second)).flatten()
    }

    /// Parses the next bytes of a stream between these hosts to a port of the server.
    pub fn bytes(
        &mut self,
        (toward, hosts, port): (Toward, &ControlHosts, u16),
        bytes: &[u8],
        store: &mut ParserPools,
        service: &mut Option<Service>,
        sink: &mut impl Sink,
    ) {
        if self.is_unknown()
            && let Some(transfer) = self.expected(store, hosts, port)
        {
            (*self, *service) = (Self::FtpData(FtpData::new(transfer)), Some(Service::FtpData));
        }
        let Self::Unknown(recognise) = self else {
            return self.parse((toward, hosts, port), bytes, store, service, sink);
        };
        let (said, taken) = recognise.bytes(toward, bytes);
        let (parser, known) = match said {
            ProbeResult::NeedMore => return,
            ProbeResult::Identified(service) => (Self::of_stream(service), Some(service)),
            // A flow inside a tunnel keeps the application of the tunnel.
            ProbeResult::Unknown => (Self::None, *service),
        };
        let Self::Unknown(recognise) = std::mem::replace(self, parser) else {
            return;
        };
        *service = known;
        // The bytes buffered during identification are parsed now. The bytes of the other direction are parsed first.
        let other = match toward {
            Toward::Server => Toward::Client,
            Toward::Client => Toward::Server,
        };
        self.bytes((other, hosts, port), recognise.head(other), store, service, sink);
        self.bytes((toward, hosts, port), recognise.head(toward), store, service, sink);
        let rest = bytes.get(taken..).unwrap_or_default();
        if !rest.is_empty() {
            self.bytes((toward, hosts, port), rest, store, service, sink);
        }
    }

    fn parse(
        &mut self,
        (toward, hosts, port): (Toward, &ControlHosts, u16),
        bytes: &[u8],
        store: &mut ParserPools,
        service: &mut Option<Service>,
        sink: &mut impl Sink,
    ) {
        let known = *service;
        let mut found = |slot: Slot<'_>, piece: MessageEvent| sink(ParserEvent::Piece(slot, piece), known);
        match (&mut *self, toward) {
            (Self::Http(http), Toward::Server) => {
                http.request(store, bytes, &mut found);
            }
            (Self::Http(http), Toward::Client) => {
                let taken = http.response(store, bytes, &mut found);
                if http.is_tunnel() {
                    http.release(store);
                    *self = Self::default();
                    let rest = bytes.get(taken..).unwrap_or_default();
                    self.bytes((toward, hosts, port), rest, store, service, sink);
                    return;
                }
            }
            (Self::Tls(_, server, records), Toward::Client) => {
                records[Toward::Client as usize].bytes(bytes);
                server.bytes(store, bytes, &mut found);
                if server.is_done() {
                    server.release(store);
                }
            }
            (Self::Tls(tls, _, records), Toward::Server) => {
                records[Toward::Server as usize].bytes(bytes);
                tls.bytes(store, bytes, &mut found);
                if tls.is_done() {
                    tls.release(store);
                }
            }
            (Self::DnsStream(questions), Toward::Server) => questions.bytes(store, bytes, &mut found),
            (Self::FtpData(file), _) => file.bytes(store, toward, bytes, &mut found),
            (Self::Smtp(mail), _) => mail.bytes(store, toward, bytes, &mut found),
            (Self::Http2(http), _) => http.bytes(store, toward, bytes, &mut found),
            (Self::Ftp(ftp), _) => ftp.bytes(store, toward, bytes, hosts, &mut found),
            _ => {}
        }
        if matches!(self, Self::Tls(..) | Self::DnsStream(_)) {
            sink(ParserEvent::Bytes(toward, bytes), known);
        }
    }

    /// Handles the end of a direction's stream.
    pub fn close(&mut self, toward: Toward, store: &mut ParserPools, sink: &mut impl Sink) {
        let service = match self {
            Self::FtpData(_) => Service::FtpData,
            _ => Service::Http,
        };
        let mut sink = |slot: Slot<'_>, piece: MessageEvent| sink(ParserEvent::Piece(slot, piece), Some(service));
        match (self, toward) {
            (Self::FtpData(file), _) => file.close(store, toward, &mut sink),
            (Self::Http(http), Toward::Server) => http.close_request(store, &mut sink),
            (Self::Http(http), Toward::Client) => http.close_response(store, &mut sink),
            _ => {}
        }
    }

    /// Slot of the current message of a direction.
    #[inline(always)]
    pub fn slot<'s>(&self, toward: Toward, store: &'s ParserPools) -> Option<Slot<'s>> {
        match self {
            Self::Unknown(_) | Self::Dns(_) | Self::None => None,
            _ => self.slot_of_parser(toward, store),
        }
    }

    fn slot_of_parser<'s>(&self, toward: Toward, store: &'s ParserPools) -> Option<Slot<'s>> {
        match (self, toward) {
            (Self::Http(http), Toward::Server) => Some(http.request_slot(store)),
            (Self::Http(http), Toward::Client) => Some(http.response_slot(store)),
            (Self::FtpData(file), _) => Some(file.slot(store)),
            (Self::Smtp(mail), Toward::Server) => Some(mail.slot(store)),
            (Self::Http2(http), _) => Some(http.slot(store, toward)),
            (Self::Tls(tls, ..), Toward::Server) => Some(tls.slot(store)),
            (Self::Tls(_, server, _), Toward::Client) => Some(server.slot(store)),
            (Self::DnsStream(questions), Toward::Server) => Some(questions.slot(store)),
            _ => None,
        }
    }

    /// Parses a datagram.
    pub fn datagram(
        &mut self,
        (toward, ports): (Toward, [u16; 2]),
        bytes: &[u8],
        store: &mut ParserPools,
        service: &mut Option<Service>,
        sink: &mut impl Sink,
    ) {
        if let Self::Unknown(recognise) = self {
            match recognise.datagram(toward, ports, bytes) {
                ProbeResult::NeedMore => {}
                ProbeResult::Unknown => *self = Self::None,
                ProbeResult::Identified(known) => {
                    *service = Some(known);
                    *self = match known {
                        Service::Dns => Self::Dns(Dns::default()),
                        Service::Quic => Self::Quic(Quic::default()),
                        _ => Self::None,
                    };
                }
            }
        }
        if let (Self::Quic(quic), Toward::Server) = (&mut *self, toward) {
            quic.datagram(store, bytes, &mut |slot: Slot<'_>, piece: MessageEvent| {
                sink(ParserEvent::Piece(slot, piece), *service)
            });
        }
        if let Self::Dns(dns) = self {
            dns.message(store, bytes, &mut |slot: Slot<'_>, piece: MessageEvent| {
                sink(ParserEvent::Piece(slot, piece), *service)
            });
            dns.release(store);
        }
    }

    /// Releases the parser's resources when the flow ends.
    pub fn release(&mut self, store: &mut ParserPools) {
        match std::mem::replace(self, Self::None) {
            Self::Http(mut http) => http.release(store),
            Self::Tls(mut tls, mut server, _) => {
                tls.release(store);
                server.release(store);
            }
            Self::DnsStream(mut questions) => questions.release(store),
            Self::Dns(mut dns) => dns.release(store),
            Self::Quic(mut quic) => quic.release(store),
            Self::FtpData(mut file) => file.release(store),
            Self::Smtp(mut mail) => mail.release(store),
            Self::Http2(mut http) => http.release(store),
            Self::Ftp(_) | Self::Unknown(_) | Self::None => {}
        }
    }
}
