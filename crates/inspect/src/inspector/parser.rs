//! Which protocol a flow speaks, and its parser.

use crate::protocols::http::Http;
use crate::protocols::{Dns, DnsStream, Piece, Recognise, Recognised, Slot, Store, Tls};
use crate::signature::{Service, Toward};

/// Port of DNS over UDP.
const DNS: u16 = 53;
/// Port of multicast DNS.
const MULTICAST_DNS: u16 = 5353;

/// A flow's parser; which it is comes first, as that is all that most packets need of it.
#[derive(Debug)]
#[repr(u8)]
pub(super) enum Parser {
    /// Not yet known.
    Unknown(Recognise),
    Http(Http),
    /// Of both sides: the client's hello is all that is read.
    Tls(Tls),
    /// Of both sides: the questions are all that is read.
    DnsStream(DnsStream),
    Dns(Dns),
    /// Nothing that is parsed.
    None,
}

impl Default for Parser {
    fn default() -> Self {
        Self::Unknown(Recognise::default())
    }
}

/// What is learnt of a flow.
pub(super) enum Said<'s> {
    /// A parser found something.
    Piece(Slot<'s>, Piece),
    /// Bytes of a stream of which parsers do not read all.
    Bytes(Toward, &'s [u8]),
}

/// Who learns it, and of which application.
pub(super) trait Sink: FnMut(Said<'_>, Option<Service>) {}
impl<S: FnMut(Said<'_>, Option<Service>)> Sink for S {}

impl Parser {
    /// Whether the protocol may still become known.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }

    /// The next bytes of a stream.
    pub fn bytes(
        &mut self,
        toward: Toward,
        bytes: &[u8],
        store: &mut Store,
        service: &mut Option<Service>,
        sink: &mut impl Sink,
    ) {
        let Self::Unknown(recognise) = self else {
            return self.parse(toward, bytes, store, service, sink);
        };
        let (said, taken) = recognise.bytes(toward, bytes);
        let (parser, known) = match said {
            Recognised::More => return,
            Recognised::Http => (Self::Http(Http::default()), Some(Service::Http)),
            Recognised::Tls => (Self::Tls(Tls::default()), Some(Service::Tls)),
            Recognised::Dns => (Self::DnsStream(DnsStream::default()), Some(Service::Dns)),
            // Of what is within a tunnel that is all that is known.
            Recognised::Other => (Self::None, *service),
        };
        let Self::Unknown(recognise) = std::mem::replace(self, parser) else {
            return;
        };
        *service = known;
        // What was kept until it was known is parsed now, the other side's first bytes before this one's.
        let other = match toward {
            Toward::Server => Toward::Client,
            Toward::Client => Toward::Server,
        };
        self.bytes(other, recognise.head(other), store, service, sink);
        self.bytes(toward, recognise.head(toward), store, service, sink);
        let rest = bytes.get(taken..).unwrap_or_default();
        if !rest.is_empty() {
            self.bytes(toward, rest, store, service, sink);
        }
    }

    fn parse(
        &mut self,
        toward: Toward,
        bytes: &[u8],
        store: &mut Store,
        service: &mut Option<Service>,
        sink: &mut impl Sink,
    ) {
        let known = *service;
        let mut found = |slot: Slot<'_>, piece: Piece| sink(Said::Piece(slot, piece), known);
        match (&mut *self, toward) {
            (Self::Http(http), Toward::Server) => {
                http.request(store, bytes, &mut found);
            }
            (Self::Http(http), Toward::Client) => {
                let taken = http.response(store, bytes, &mut found);
                if http.is_tunnel() {
                    http.release(store);
                    *self = Self::default();
                    self.bytes(toward, bytes.get(taken..).unwrap_or_default(), store, service, sink);
                    return;
                }
            }
            (Self::Tls(tls), Toward::Server) => {
                tls.bytes(store, bytes, &mut found);
                if tls.is_done() {
                    tls.release(store);
                }
            }
            (Self::DnsStream(questions), Toward::Server) => questions.bytes(store, bytes, &mut found),
            _ => {}
        }
        if matches!(self, Self::Tls(_) | Self::DnsStream(_)) {
            sink(Said::Bytes(toward, bytes), known);
        }
    }

    /// A side sends no more.
    pub fn close(&mut self, toward: Toward, store: &mut Store, sink: &mut impl Sink) {
        let mut sink = |slot: Slot<'_>, piece: Piece| sink(Said::Piece(slot, piece), Some(Service::Http));
        match (self, toward) {
            (Self::Http(http), Toward::Server) => http.close_request(store, &mut sink),
            (Self::Http(http), Toward::Client) => http.close_response(store, &mut sink),
            _ => {}
        }
    }

    /// What is known of the message that a side sends.
    #[inline(always)]
    pub fn slot<'s>(&self, toward: Toward, store: &'s Store) -> Option<Slot<'s>> {
        match self {
            Self::Unknown(_) | Self::Dns(_) | Self::None => None,
            _ => self.slot_of_parser(toward, store),
        }
    }

    fn slot_of_parser<'s>(&self, toward: Toward, store: &'s Store) -> Option<Slot<'s>> {
        match (self, toward) {
            (Self::Http(http), Toward::Server) => Some(http.request_slot(store)),
            (Self::Http(http), Toward::Client) => Some(http.response_slot(store)),
            (Self::Tls(tls), Toward::Server) => Some(tls.slot(store)),
            (Self::DnsStream(questions), Toward::Server) => Some(questions.slot(store)),
            _ => None,
        }
    }

    /// A datagram.
    pub fn datagram(
        &mut self,
        ports: [u16; 2],
        bytes: &[u8],
        store: &mut Store,
        service: &mut Option<Service>,
        sink: &mut impl Sink,
    ) {
        if let Self::Unknown(_) = self {
            let dns = ports.iter().any(|port| matches!(*port, DNS | MULTICAST_DNS));
            *self = if dns { Self::Dns(Dns::default()) } else { Self::None };
            *service = dns.then_some(Service::Dns);
        }
        if let Self::Dns(dns) = self {
            dns.message(store, bytes, &mut |slot: Slot<'_>, piece: Piece| {
                sink(Said::Piece(slot, piece), *service)
            });
            dns.release(store);
        }
    }

    /// The flow ends.
    pub fn release(&mut self, store: &mut Store) {
        match std::mem::replace(self, Self::None) {
            Self::Http(mut http) => http.release(store),
            Self::Tls(mut tls) => tls.release(store),
            Self::DnsStream(mut questions) => questions.release(store),
            Self::Dns(mut dns) => dns.release(store),
            Self::Unknown(_) | Self::None => {}
        }
    }
}
