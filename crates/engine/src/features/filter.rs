//! The packet filter, which is evaluated between routing and source translation. A query contains the fields of a
//! packet that rules match; a result says how the packet is processed.
//!
//! A stateful filter is evaluated for the first packet of each flow during session creation. A stateless filter is evaluated for
//! every packet by `forward`, and during session creation for the first packet of each translated flow.

use arrayvec::ArrayVec;
use sluice_filter::{
    Address, DecidedBy, Field, Filter, FilterResult, Filters, Header, Range, Reason as Denied, RejectKind, Rule,
    SessionApplication, SessionMarking, Verdict,
};
use sluice_nat::Tuple;
use sluice_nat::rule::{Changed, Prefix};
use sluice_nat::sites::outer;
use sluice_wire::ipv4::protocol::{ICMP, ICMPV6, TCP, UDP};
use sluice_wire::layers::{Flags, Fragment, Layers};
use sluice_wire::tcp::flag::SYN;
use sluice_wire::{Direction, ethernet};

use crate::features::context::{NodeContext, OutputContext};
use crate::features::input_filter;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Meta, put};
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::{BURST_BUFFERS, WorkerIndex};
use crate::packet::reason::Reason;
use crate::session::family::{Family, Session};
use crate::session::identification::Identification;
use crate::snapshot::Snapshot;
use crate::snapshot::forwarding::ForwardingState;
use crate::snapshot::tunnels::TunnelKind;

/// A rejection: the ICMP error for the sender, if any, and the reason.
pub type Rejection = (Option<IcmpError>, Reason);

/// A filter result that creates no session: accepted without tracking, or rejected.
#[derive(Clone, Copy)]
pub enum Exception {
    /// The packet is accepted without a session.
    Untracked,
    /// The packet is rejected.
    Refused(Rejection),
}

/// The queries of a batch, each with the position of its packet in a list.
pub struct FilterQueries<F: Family> {
    headers: ArrayVec<Header<F::Number>, BURST_BUFFERS>,
    places: ArrayVec<u8, BURST_BUFFERS>,
}

impl<F: Family> Default for FilterQueries<F> {
    fn default() -> Self {
        Self {
            headers: ArrayVec::new(),
            places: ArrayVec::new(),
        }
    }
}

impl<F: Family> FilterQueries<F> {
    /// Adds the query of the packet at a position.
    #[inline(always)]
    pub fn push(&mut self, place: usize, header: Header<F::Number>) {
        put(&mut self.headers, header);
        put(&mut self.places, place as u8);
    }

    /// Evaluates the queries. Returns the positions of packets that are rejected or accepted without a session. `marked` is
    /// called for packets for which rules set a mark or class.
    pub fn exceptions(
        &self,
        filters: &Filters,
        ctx: &NodeContext<'_, '_>,
        mut marked: impl FnMut(usize, SessionMarking),
    ) -> ArrayVec<(usize, Exception), BURST_BUFFERS> {
        let mut results = [FilterResult::PASS; BURST_BUFFERS];
        let results = &mut results[..self.headers.len()];
        let query_context = (ctx.own as usize, ctx.now.nanoseconds);
        F::filter(filters).decide_marking(
            &self.headers,
            results,
            &filters.counters,
            query_context,
            |number, marking| {
                self.places
                    .get(number)
                    .into_iter()
                    .for_each(|&place| marked(place.into(), marking));
            },
        );
        let results = self.places.iter().zip(&self.headers).zip(results);
        results
            .filter_map(|((&place, header), result)| {
                let exception = match result.verdict {
                    Verdict::AcceptUntracked => Exception::Untracked,
                    _ => Exception::Refused(rejection_of(header, *result)?),
                };
                Some((place.into(), exception))
            })
            .collect()
    }
}

/// Evaluates the filter for a single packet. A packet that waits for a neighbour is filtered and counted when it is
/// unparked. The packet is parked only if it would pass the filter.
pub fn query<F: Family>(
    exit: &OutputContext<'_>,
    header: &Header<F::Number>,
    waits: bool,
    now: u64,
) -> Result<(), Rejection> {
    let context = header.get(Field::Context);
    let Some(filters) = exit.snapshot.filter_of(context) else {
        return Ok(());
    };
    let filter = F::filter(filters);
    if waits && would_pass::<F>(filter, header) {
        return Ok(());
    }
    query_filter::<F>((filters, filter), header, exit.own, now)
}

/// Evaluates one rule list of a filter for a single packet.
pub fn query_filter<F: Family>(
    (filters, filter): (&Filters, &Filter<F::Number>),
    header: &Header<F::Number>,
    worker: WorkerIndex,
    now: u64,
) -> Result<(), Rejection> {
    let mut results = [FilterResult::PASS];
    let headers = core::slice::from_ref(header);
    filter.decide(headers, &mut results, &filters.counters, worker as usize, now);
    rejection_of(header, results[0]).map_or(Ok(()), Err)
}

/// The rejection that a filter result contains; `None` if the packet passes.
#[inline]
fn rejection_of<A: Address>(header: &Header<A>, result: FilterResult) -> Option<Rejection> {
    let reason = match (result.verdict, result.by) {
        (Verdict::Accept | Verdict::AcceptUntracked, _) => return None,
        (_, DecidedBy::Application(_)) => Denied::Application,
        (_, DecidedBy::Limit(_)) => Denied::Limited,
        (_, DecidedBy::Default) => Denied::Default,
        (Verdict::Reject(_), _) => Denied::Rejected,
        (Verdict::Drop, _) => Denied::Denied,
    };
    // A later fragment has no TCP header, so no reset can be made from it.
    let is_segment =
        header.get(Field::Protocol) == u32::from(TCP) && header.get(Field::Fragment) != Fragment::Later as u32;
    let icmp_error = match result.verdict {
        Verdict::Reject(with) => Some(error_of(with, is_segment)),
        Verdict::Accept | Verdict::AcceptUntracked | Verdict::Drop => None,
    };
    Some((icmp_error, reason.into()))
}

/// The error to the sender of a rejected packet. A TCP reset is possible only for a TCP segment.
fn error_of(with: RejectKind, is_segment: bool) -> IcmpError {
    match with {
        RejectKind::Reset if is_segment => IcmpError::Reset,
        RejectKind::Reset | RejectKind::PortUnreachable => IcmpError::PortUnreachable,
        RejectKind::Prohibited => IcmpError::Prohibited,
    }
}

/// The rejection of a packet because a rule denies the application of the packet's session.
pub fn denied(with: Option<RejectKind>, layers: &Layers) -> Rejection {
    let is_segment = layers.protocol == TCP && layers.fragment != Fragment::Later;
    // No ICMP error is sent in response to an ICMP error (RFC 1122, 3.2.2).
    let with = with.filter(|_| !layers.flags.has(Flags::ICMP_ERROR));
    (with.map(|with| error_of(with, is_segment)), Denied::Application.into())
}

/// The application of a session, in the form that rules match.
pub fn known_application<F: Family>(session: &F::Session, recognition: &Identification) -> Option<SessionApplication> {
    let application = session.application();
    let pair = recognition.known(application)?;
    Some(SessionApplication {
        master: pair.master,
        application: pair.application,
        is_all: !application.is_open(),
    })
}

/// The rejection of a session, if a rule with an application condition rejects this application. A hairpinned session
/// is filtered in its first pass; bridged sessions are not filtered. If `counting` contains a time (in nanoseconds),
/// the evaluation increments hit counters, and `marked` is called with the marking that rules set.
pub fn rejects_application<F: Family>(
    snapshot: &Snapshot,
    forwarding: &ForwardingState,
    (session, mark): (&F::Session, u32),
    known: Option<SessionApplication>,
    counting: Option<u64>,
    marked: impl FnOnce(SessionMarking),
) -> Option<Option<RejectKind>> {
    let filters = snapshot.filter_of(session.forward().context());
    let filters = filters.filter(|filters| filters.applications)?;
    let (known, hop) = (known?, session.adjacency(Direction::Forward));
    if hop.is_bridge() || hop == AdjacencyIndex::HAIRPIN {
        return None;
    }
    let (filter, header) = (
        F::filter(filters),
        session_header::<F>(snapshot, forwarding, (session, mark)),
    );
    let refused = |result: FilterResult| match (result.verdict, result.by) {
        (Verdict::Drop, DecidedBy::Application(_) | DecidedBy::Limit(_)) => Some(None),
        (Verdict::Reject(with), DecidedBy::Application(_)) => Some(Some(with)),
        _ => None,
    };
    let would = refused(filter.evaluate_as(&header, Some(known)));
    match counting {
        // While the identification is incomplete, hit counters are not incremented; a later evaluation does that.
        Some(now) if known.is_all || would.is_some() => {
            let (result, marking) = filter.decide_as(&header, known, &filters.counters, now);
            marked(marking);
            refused(result)
        }
        _ => would,
    }
}

/// Whether the first packet of a flow would pass the present filter. The evaluation does not increment hit counters.
pub fn would_pass<F: Family>(filter: &Filter<F::Number>, header: &Header<F::Number>) -> bool {
    filter.evaluate(header).verdict.passes()
}

/// Whether the first packet of a session that has this mark would pass the present filter. Rules with an application
/// condition can't reject the packet.
#[inline]
pub fn passes<F: Family>(
    snapshot: &Snapshot,
    forwarding: &ForwardingState,
    filters: &Filters,
    session: (&F::Session, u32),
    known: Option<SessionApplication>,
) -> bool {
    let header = session_header::<F>(snapshot, forwarding, session);
    match session.0.adjacency(Direction::Forward) {
        AdjacencyIndex::LOCAL => query_gateway::<F>(filters, header).verdict.passes(),
        _ => may_start(F::filter(filters).evaluate_as(&header, known)),
    }
}

/// Whether the present filter would create a session for the flow of an existing session. The evaluation assumes that
/// the session has no mark and that its application is unknown.
pub fn is_tracked<F: Family>(
    snapshot: &Snapshot,
    forwarding: &ForwardingState,
    filters: &Filters,
    session: &F::Session,
) -> bool {
    let result = F::filter(filters).evaluate(&session_header::<F>(snapshot, forwarding, (session, 0)));
    may_start(result) && result.verdict != Verdict::AcceptUntracked
}

/// Whether a flow with this filter result may start. A rejection that depends on the application does not count.
pub fn may_start(result: FilterResult) -> bool {
    result.verdict.passes() || matches!(result.by, DecidedBy::Application(_))
}

/// Evaluates the input filter for a flow to the gateway itself.
pub fn query_gateway<F: Family>(filters: &Filters, header: Header<F::Number>) -> FilterResult {
    F::gateway_filter(filters).map_or(FilterResult::PASS, |filter| {
        filter.evaluate(&input_filter::header(header))
    })
}

/// The filter query for the first packet of a session.
fn session_header<F: Family>(
    snapshot: &Snapshot,
    forwarding: &ForwardingState,
    (session, mark): (&F::Session, u32),
) -> Header<F::Number> {
    let first = Meta {
        interface: session.interface(),
        ..Meta::default()
    };
    let outgoing = session.adjacency(Direction::Forward).interface() as u16;
    let header = first_header::<F>(
        snapshot,
        &first,
        session.protocol(),
        &translated::<F>(session),
        outgoing,
    );
    let back = session.adjacency(Direction::Reverse);
    with_macs(snapshot, header.with_mark(mark), || {
        macs_from(snapshot, forwarding, session.interface(), back)
    })
}

/// Adds the numbers of the MAC addresses to a query. If no rule matches MAC addresses, the MAC addresses are not looked
/// up.
#[inline(always)]
pub fn with_macs<A: Address>(
    snapshot: &Snapshot,
    header: Header<A>,
    macs: impl FnOnce() -> Option<[[u8; 6]; 2]>,
) -> Header<A> {
    let stations = snapshot.filter.as_deref().map(|filters| &filters.stations);
    match stations.filter(|stations| !stations.is_empty()) {
        Some(stations) => match macs() {
            Some([source, destination]) => header
                .with(Field::SourceMac, stations.number(source))
                .with(Field::DestinationMac, stations.number(destination)),
            None => header,
        },
        None => header,
    }
}

/// Source and destination MAC of a frame; `None` if the packet has no Ethernet header because a tunnel carried the datagram.
pub fn macs_of(frame: &[u8], layers: &Layers) -> Option<[[u8; 6]; 2]> {
    let has_frame = usize::from(layers.l3) >= ethernet::LENGTH;
    let macs = [ethernet::SOURCE.read(frame), ethernet::DESTINATION.read(frame)];
    (has_frame && macs[0] != [0; 6]).then_some(macs)
}

/// Source and destination MAC of the frame that carries a session's first packet. They are derived from the session's
/// adjacencies: the source is the MAC of the reverse direction's neighbour, and the destination is the MAC of the
/// interface.
pub fn macs_from(
    snapshot: &Snapshot,
    forwarding: &ForwardingState,
    interface: u16,
    back: AdjacencyIndex,
) -> Option<[[u8; 6]; 2]> {
    let interface = snapshot.interface(interface)?;
    let is_bare = interface
        .tunnel
        .is_some_and(|tunnel| !matches!(tunnel.kind, TunnelKind::Vxlan(_)));
    let neighbour = back.has_neighbour().then(|| forwarding.mac(back)).flatten();
    (!is_bare).then_some([neighbour.unwrap_or_default(), interface.mac])
}

/// The tuple of a session's first packet, after translation of the destination.
#[inline(always)]
fn translated<F: Family>(session: &F::Session) -> F::Tuple {
    let (forward, reverse) = (&session.forward(), &session.reverse());
    F::Tuple::new(
        forward.source(),
        reverse.source(),
        forward.source_port(),
        reverse.source_port(),
        forward.context(),
    )
}

/// The changes of individual filter rules in the last `generations` generations. The outer `None` means that there is
/// no filter. The inner `None` means that some of these changes are no longer recorded.
#[inline(always)]
pub fn changed<F: Family>(snapshot: &Snapshot, generations: u32) -> Option<Option<&Changed>> {
    let changes = &snapshot.filter_changes[usize::from(F::IS_V6)];
    snapshot.filter.is_some().then(|| changes.since(generations))
}

/// Whether changes of individual filter rules may affect a session. The result `false` is exact; `true` may be a false positive.
#[inline(always)]
pub fn may_affect<F: Family>(changed: Option<&Changed>, session: &F::Session) -> bool {
    changed.is_none_or(|changed| changed.may_affect(session.forward().source(), session.reverse().source()))
}

/// Records a changed rule by its source or destination prefix, whichever is more specific.
pub fn mark<F: Family>(changed: &mut Changed, rule: &Rule<F::Number>) {
    let bits = <F::Address as sluice_nat::Address>::BITS;
    let prefix = |range: &Range<F::Number>| {
        let (first, last): (u128, u128) = (range.first.into(), range.last.into());
        let differ = 128 - (first ^ last).leading_zeros();
        let address = first.checked_shr(differ).unwrap_or(0).checked_shl(differ).unwrap_or(0);
        Prefix {
            address: sluice_nat::Address::from_number(address),
            length: bits - differ as u8,
        }
    };
    let (source, destination): (Prefix<F::Address>, Prefix<F::Address>) =
        (prefix(&rule.source), prefix(&rule.destination));
    if source.length >= destination.length {
        changed.source(source);
    } else {
        changed.destination(destination);
    }
}

/// The filter query for a packet that leaves through an interface. `tuple` contains the translated destination.
#[inline]
pub fn header<F: Family>(
    snapshot: &Snapshot,
    meta: &Meta,
    frame: &[u8],
    tuple: &F::Tuple,
    outgoing: u16,
) -> Header<F::Number> {
    let layers = &meta.layers;
    let header = start::<F>(snapshot, meta, tuple, layers.protocol, outgoing)
        .with(Field::Fragment, layers.fragment as u32)
        .with(Field::Length, layers.end.saturating_sub(layers.l3).into());
    let ip = frame
        .get(layers.l3 as usize..)
        .and_then(|datagram| datagram.first_chunk());
    let header = ip.map_or(header, |ip| header.with_ip(F::IS_V6, ip));
    let mut header = with_macs(snapshot, header, || macs_of(frame, layers));
    // Later fragments have no ports, unless virtual reassembly has set them.
    let later = layers.fragment == Fragment::Later;
    match layers.protocol {
        TCP | UDP if !later || (tuple.source_port(), tuple.destination_port()) != (0, 0) => {
            header = header
                .with(Field::SourcePort, tuple.source_port().into())
                .with(Field::DestinationPort, tuple.destination_port().into());
            if layers.protocol == TCP && !later {
                header = header.with(Field::Flags, layers.tcp_flags.into());
            }
        }
        protocol if protocol == icmp::<F>() && !later => {
            let message = frame
                .get(layers.l4 as usize..)
                .and_then(|message| message.first_chunk());
            if let Some(&[kind, code]) = message {
                header = header.with(Field::Message, u16::from_be_bytes([kind, code]).into());
            }
        }
        _ => {}
    }
    header
}

/// The filter query for the first packet of a flow, made from the flow's tuple. The packet is assumed to be
/// unfragmented, a SYN for TCP, and an echo request for ICMP.
pub fn first_header<F: Family>(
    snapshot: &Snapshot,
    meta: &Meta,
    protocol: u8,
    tuple: &F::Tuple,
    outgoing: u16,
) -> Header<F::Number> {
    let header =
        start::<F>(snapshot, meta, tuple, protocol, outgoing).with(Field::Length, if F::IS_V6 { 60 } else { 40 });
    match protocol {
        TCP | UDP => {
            let header = header
                .with(Field::SourcePort, tuple.source_port().into())
                .with(Field::DestinationPort, tuple.destination_port().into());
            if protocol == TCP {
                header.with(Field::Flags, SYN.into())
            } else {
                header
            }
        }
        ICMP if !F::IS_V6 => header.with(Field::Message, 8 << 8),
        ICMPV6 if F::IS_V6 => header.with(Field::Message, 128 << 8),
        _ => header,
    }
}

/// The ICMP protocol of the address family.
const fn icmp<F: Family>() -> u8 {
    if F::IS_V6 { ICMPV6 } else { ICMP }
}

/// A query with the fields that don't depend on the packet's contents.
#[inline(always)]
fn start<F: Family>(
    snapshot: &Snapshot,
    meta: &Meta,
    tuple: &F::Tuple,
    protocol: u8,
    outgoing: u16,
) -> Header<F::Number> {
    let header = Header::new(F::number(tuple.source()), F::number(tuple.destination()))
        .with(Field::Protocol, protocol.into())
        .with(Field::Incoming, meta.interface.into())
        .with(Field::Outgoing, outgoing.into())
        .with(Field::Context, outer(tuple.context()));
    let tag = snapshot
        .interface(meta.interface)
        .and_then(|interface| interface.tags.first());
    tag.map_or(header, |tag| header.with(Field::Vlan, tag.id().into()))
}
