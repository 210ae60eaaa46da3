//! Operator's view of the packet filter: its size, its log, and the rule that determines the verdict on a packet.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use sluice_config::api::{FilterRequest, Packet};
use sluice_config::value::{GATEWAY, IpProtocol, Mac};
use sluice_config::{Config, Fault};
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::session::family::{V4, V6};
use sluice_engine::snapshot::forwarding::{ForwardingDecision, ForwardingState};
use sluice_filter::{Address, Field, Header, LogRecord, MacTable, NONE};

use crate::lowering::{self, LoweringError, Rules};

/// Size of a compiled filter.
#[derive(Clone, Debug)]
pub struct FilterOutlook {
    /// Number of rules.
    pub rules: usize,
    /// Number of rule combinations that have their own verdict, for IPv4 and for IPv6.
    pub combinations: [usize; 2],
    /// Memory of the matchers, in bytes.
    pub bytes: usize,
    /// Duration of the compilation.
    pub built: Duration,
}

impl FilterOutlook {
    /// Returns the size of a filter. `built` is the duration of its compilation.
    pub fn of(rules: &Rules, built: Duration) -> Self {
        let filters = rules.filters();
        Self {
            rules: rules.len(),
            combinations: [filters.v4.len(), filters.v6.len()],
            bytes: filters.bytes(),
            built,
        }
    }
}

impl fmt::Display for FilterOutlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rules,
            combinations: [v4, v6],
            bytes,
            built,
        } = self;
        let bytes = sluice_config::memory::Bytes(*bytes as u64);
        write!(
            f,
            "filter of {rules} rules: {v4} IPv4 and {v6} IPv6 combinations in {bytes}, built in {:.1} ms",
            built.as_secs_f64() * 1e3
        )
    }
}

/// Compile the filter of a configuration and return its size. `None` if the configuration has no filter.
///
/// # Errors
/// The matcher would exceed its memory limit.
pub fn filter_outlook(config: &Config) -> Result<Option<FilterOutlook>, Fault> {
    let start = Instant::now();
    let filters = lowering::filters(config, None).map_err(|error| {
        filter_fault(&error).unwrap_or_else(|| Fault {
            key: vec!["filter".into()],
            description: error.to_string(),
            hint: None,
        })
    })?;
    Ok(filters.map(|rules| FilterOutlook::of(&rules, start.elapsed())))
}

/// Convert an error of the matcher or of an application name to a fault of the configuration. Returns `None` for other
/// errors.
pub(crate) fn filter_fault(error: &LoweringError) -> Option<Fault> {
    match error {
        LoweringError::Filter(error) => Some(Fault {
            key: ["filter", "matcher"].map(str::to_owned).to_vec(),
            description: error.to_string(),
            hint: Some(
                "raise `trie-memory` in [filter], or remove `matcher`: the default, `best`, supports any \
                 rules"
                    .into(),
            ),
        }),
        LoweringError::UnknownApplication(unknown) => Some(Fault {
            key: vec![
                "filter".into(),
                "rules".into(),
                format!("[{}]", unknown.rule),
                "application".into(),
                format!("[{}]", unknown.place),
            ],
            description: format!("there is no application `{}`", unknown.name),
            hint: unknown
                .hint
                .clone()
                .or(Some("`ndpiReader -a 0` lists the applications".into())),
        }),
        _ => None,
    }
}

/// Write the log entries of rules.
pub(crate) fn write_log(config: &Config, rules: &Rules) {
    for record in rules.filters().counters.take_log() {
        tracing::info!("filter: {}", log_line(config, rules, &record));
    }
}

fn log_line(config: &Config, rules: &Rules, record: &LogRecord) -> String {
    let LogRecord {
        place,
        endpoints,
        protocol,
        interfaces,
        length,
    } = record;
    let rule = rules.at(*place).map_or("?", |listed| &listed.rule.name);
    let name = |number: u32| match number {
        NONE => GATEWAY,
        number => config
            .interfaces
            .get(number as usize)
            .map_or("?", |interface| &interface.name),
    };
    let [source, destination] = endpoints.map(|(address, port)| match port {
        NONE => address.to_string(),
        port => std::net::SocketAddr::new(address, port as u16).to_string(),
    });
    let [incoming, outgoing] = interfaces.map(name);
    let protocol = IpProtocol(*protocol);
    format!("rule {rule}: {protocol} {source} > {destination} in {incoming} out {outgoing}, {length} bytes")
}

/// Build the header with which the filter evaluates a queried packet. The packet counts as the first packet of its
/// flow.
pub(crate) fn header<A: sluice_filter::Address>(
    packet: &Packet,
    [source, destination]: [A; 2],
    (incoming, outgoing): (u16, u32),
    router: u16,
) -> Header<A> {
    let header = Header::new(source, destination)
        .with(Field::Protocol, packet.protocol.into())
        .with(Field::Incoming, incoming.into())
        .with(Field::Outgoing, outgoing)
        .with(Field::Context, router.into())
        .with(Field::Length, if packet.source.0.is_ipv4() { 40 } else { 60 });
    let header = match (packet.source.1, packet.destination.1) {
        (Some(from), Some(to)) => header
            .with(Field::SourcePort, from.into())
            .with(Field::DestinationPort, to.into()),
        _ => header,
    };
    match packet.protocol {
        6 => header.with(Field::Flags, sluice_wire::tcp::flag::SYN.into()),
        1 if packet.source.0.is_ipv4() => header.with(Field::Message, 8 << 8),
        58 if packet.source.0.is_ipv6() => header.with(Field::Message, 128 << 8),
        _ => header,
    }
}

/// Destination of a packet after routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Out {
    /// Output interface.
    Interface(u16),
    /// Local delivery.
    Gateway,
}

/// Look up where the routes of a router send a packet with source `from` and destination `to`.
pub(crate) fn leads_to(plane: &ControlPlane, router: u16, from: IpAddr, to: IpAddr) -> Option<Out> {
    let lookup = plane.snapshot().sources.lookup(router, from.into());
    let forwarding = ForwardingState {
        fib: plane.fib().reader(),
        next_hops: plane.next_hops().table(),
        neighbours: plane.neighbours().clone(),
    };
    let found = match to {
        IpAddr::V4(address) => forwarding.find::<V4>(lookup, address.to_bits(), || 0),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            forwarding.find::<V6>(lookup, [(bits >> 64) as u64, bits as u64], || 0)
        }
    };
    match found {
        ForwardingDecision::Hop(hop) => Some(Out::Interface(hop.interface() as u16)),
        ForwardingDecision::Unknown(wanted) => Some(Out::Interface(wanted.interface)),
        ForwardingDecision::Local => Some(Out::Gateway),
        ForwardingDecision::Refused(_) => None,
    }
}

/// Add the fields of a request, except addresses and ports, to a header.
pub(crate) fn with_request<A: Address>(header: Header<A>, request: &FilterRequest, stations: &MacTable) -> Header<A> {
    let macs = [request.from_mac, request.to_mac];
    let has_frame = macs.iter().any(Option::is_some);
    let number = |mac: Option<Mac>| stations.number(mac.map(|mac| mac.bytes()).unwrap_or_default());
    let mac = |mac| if has_frame { number(mac) } else { 0 };
    let fields = [
        (Field::SourceMac, Some(mac(macs[0]))),
        (Field::DestinationMac, Some(mac(macs[1]))),
    ];
    let mark = request.mark.map_or(0, |mark| mark.value);
    fields
        .into_iter()
        .chain(request.header_fields())
        .filter_map(|(field, value)| Some((field, value?)))
        .fold(header.with_mark(mark), |header, (field, value)| {
            header.with(field, value)
        })
}

#[cfg(test)]
mod tests {
    use sluice_filter::MacCondition;

    use super::*;

    #[test]
    fn header_of_a_request_has_what_that_says() {
        let known = MacCondition {
            not: false,
            of: vec![[2, 0, 0, 0, 0, 1]],
        };
        let stations = MacTable::new([&known].into_iter()).unwrap();
        let headers = |request: &FilterRequest| with_request(Header::<u32>::new(1, 2), request, &stations);
        let bare = headers(&FilterRequest::default());
        assert_eq!(Header::new(1, 2), bare);
        let whole = headers(&FilterRequest {
            from_mac: Some("02:00:00:00:00:01".parse().unwrap()),
            dscp: Some("ef".parse().unwrap()),
            ecn: Some("ect0".parse().unwrap()),
            mark: Some("0x10".parse().unwrap()),
            vlan: Some(7),
            length: Some(1_500),
            ttl: Some(1),
            ..FilterRequest::default()
        });
        let fields = [Field::Dscp, Field::Ecn, Field::Vlan, Field::Length, Field::Ttl].map(|field| whole.get(field));
        assert_eq!(([46, 2, 7, 1_500, 1], 0x10), (fields, whole.mark()));
        let own = stations.number([2, 0, 0, 0, 0, 1]);
        let other = stations.number([2, 0, 0, 0, 0, 9]);
        assert_eq!(
            (own, other),
            (whole.get(Field::SourceMac), whole.get(Field::DestinationMac))
        );
        assert!(own != other && other != 0);
    }
}
