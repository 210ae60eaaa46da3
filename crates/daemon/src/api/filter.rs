//! `/v1/filter`: rule counters, lookup of the rule that matches a given packet, and insertion and removal of single
//! rules.

use std::net::IpAddr;
use std::sync::Arc;

use sluice_config::api::{
    Decision, EditAnswer, FilterRequest, FilterRule, Hits, InsertRequest, Packet, PacketFilter, RemoveRequest,
    operation,
};
use sluice_config::schema::Verdict;
use sluice_config::value::GATEWAY;
use sluice_config::{Config, check_rules};
use sluice_engine::control::plane::ControlPlane;
use sluice_filter::{Address, Counter, DecidedBy, Filter, FilterResult, Filters, MacTable, NONE, RulePosition};

use super::sessions::router;
use super::{Refusal, Serve};
use crate::control::Control;
use crate::filter::{Out, header, leads_to, with_request, write_log};
use crate::lowering::{Listed, Rules};
use crate::rules::{EditError, Edited, RunningRules};

impl Serve for operation::Filter {
    async fn serve(control: Arc<Control>, request: FilterRequest) -> Result<Self::Answer, Refusal> {
        let config = control.config();
        let rules = control.rules();
        let (Some(settings), Some(rules)) = (config.filter_settings(), &*rules) else {
            return Err(no_filter());
        };
        let (list, filters) = (rules.list(), rules.list().filters());
        let limit = list.len().min(request.rules as usize);
        Ok(PacketFilter {
            default: settings.default,
            by_default: hits(&control, filters.counters.of_default()),
            sessions: settings.sessions,
            matcher: settings.matcher,
            bytes: filters.bytes() as u64,
            rules_in_all: list.len() as u64,
            combinations: [filters.v4.len() as u64, filters.v6.len() as u64],
            log_lost: filters.counters.lost(),
            rules: (0..limit).filter_map(|index| rule(&control, list, index)).collect(),
            decision: request
                .packet
                .as_ref()
                .map(|packet| decision(&control, &config, list, packet, &request))
                .transpose()?,
        })
    }
}

fn no_filter() -> Refusal {
    Refusal::Wrong("the configuration has no [filter], so all packets pass".into())
}

impl Serve for operation::InsertRules {
    async fn serve(control: Arc<Control>, request: InsertRequest) -> Result<Self::Answer, Refusal> {
        let _no_commit = control.committing.lock().await;
        let inserted = match check_rules(
            &request.name,
            &request.text,
            request.router.as_deref(),
            &control.config(),
        ) {
            Ok(inserted) => inserted,
            Err(diagnosis) => {
                let findings = diagnosis.findings();
                return Ok(EditAnswer::Refused { findings });
            }
        };
        edit(&control, "inserted", |rules, plane| {
            rules.insert(inserted, &request.place, plane)
        })
    }
}

impl Serve for operation::RemoveRules {
    async fn serve(control: Arc<Control>, request: RemoveRequest) -> Result<Self::Answer, Refusal> {
        let _no_commit = control.committing.lock().await;
        edit(&control, "removed", |rules, plane| rules.remove(&request.names, plane))
    }
}

fn edit(
    control: &Control,
    change: &str,
    edit: impl FnOnce(&mut RunningRules, &mut ControlPlane) -> Result<Edited, EditError>,
) -> Result<EditAnswer, Refusal> {
    let mut rules = control.rules();
    let rules = rules.as_mut().ok_or_else(no_filter)?;
    // Write the pending log entries before the positions of the rules change.
    write_log(&control.config(), rules.list());
    let edited = edit(rules, &mut control.plane()).map_err(|error| Refusal::Wrong(error.to_string()))?;
    let rules_in_all = rules.list().len() as u64;
    tracing::info!("filter: {} rules {change}, {rules_in_all} rules in total", edited.count);
    Ok(EditAnswer::Done {
        count: edited.count,
        rules_in_all,
        built_anew: edited.is_rebuilt,
    })
}

fn hits(control: &Control, counter: &Counter) -> Hits {
    let now = control.started_at.elapsed().as_nanos() as u64;
    Hits {
        packets: counter.packets(),
        bytes: counter.bytes(),
        last: counter.last().map(|last| now.saturating_sub(last) as f64 / 1e9),
    }
}

fn rule(control: &Control, rules: &Rules, index: usize) -> Option<FilterRule> {
    let place = rules.place(index)?;
    let Listed { text, rule, inserted } = rules.at(place)?;
    Some(FilterRule {
        number: index as u64 + 1,
        name: rule.name.clone(),
        action: rule.action,
        matches: text.matches(),
        inserted: *inserted,
        hits: hits(control, rules.filters().counters.of(place)?),
    })
}

/// The result for a packet, and the positions of the matching rules before the deciding rule. `to_gateway` states that
/// the packet is addressed to the gateway itself.
fn explain(
    filters: &Filters,
    packet: &Packet,
    place: ((u16, u32), u16),
    to_gateway: bool,
    request: &FilterRequest,
) -> Result<(Vec<RulePosition>, FilterResult), Refusal> {
    let own = filters.gateway.as_ref();
    match (packet.source.0, packet.destination.0) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let filter = if to_gateway {
                own.map(|own| &own.v4)
            } else {
                Some(&filters.v4)
            };
            let ends = [source.to_bits(), destination.to_bits()];
            Ok(explain_by(filter, ends, packet, place, request, &filters.stations))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let filter = if to_gateway {
                own.map(|own| &own.v6)
            } else {
                Some(&filters.v6)
            };
            let ends = [source.to_bits(), destination.to_bits()];
            Ok(explain_by(filter, ends, packet, place, request, &filters.stations))
        }
        _ => Err(Refusal::Wrong(
            "source and destination belong to different address families".into(),
        )),
    }
}

/// The result of one filter for a packet with these addresses. Without a filter, the packet passes.
fn explain_by<A: Address>(
    filter: Option<&Filter<A>>,
    ends: [A; 2],
    packet: &Packet,
    (interfaces, router): ((u16, u32), u16),
    request: &FilterRequest,
    stations: &MacTable,
) -> (Vec<RulePosition>, FilterResult) {
    let header = with_request(header(packet, ends, interfaces, router), request, stations);
    filter.map_or((Vec::new(), FilterResult::PASS), |filter| filter.explain(&header))
}

fn decision(
    control: &Control,
    config: &Config,
    rules: &Rules,
    packet: &str,
    request: &FilterRequest,
) -> Result<Decision, Refusal> {
    let packet: Packet = packet.parse().map_err(Refusal::Wrong)?;
    let named = router(control.plane().snapshot(), request.router.as_deref())?;
    let incoming_interface = request.incoming.as_ref().and_then(|name| config.interface(name));
    let router = named
        .or(incoming_interface.map(|(_, interface)| interface.router))
        .unwrap_or_default();
    let (from, to) = (packet.source.0, packet.destination.0);
    let place = |name: &Option<String>, from: IpAddr, to: IpAddr| match name {
        Some(name) => {
            let found = config.interface(name).map(|(index, _)| Out::Interface(index));
            found
                .or((name == GATEWAY).then_some(Out::Gateway))
                .map(Some)
                .ok_or_else(|| Refusal::Wrong(format!("there is no interface `{name}`")))
        }
        None => Ok(leads_to(&control.plane(), router, from, to)),
    };
    let incoming = place(&request.incoming, to, from)?;
    let outgoing = place(&request.out, from, to)?;
    let number = |out: Option<Out>| match out {
        Some(Out::Interface(index)) => index,
        Some(Out::Gateway) | None => u16::MAX,
    };
    let to_gateway = outgoing == Some(Out::Gateway);
    let interfaces = match to_gateway {
        true => (number(incoming), NONE),
        false => (number(incoming), number(outgoing).into()),
    };
    if request.mark.is_some_and(|mark| mark.mask != u32::MAX) {
        return Err(Refusal::Wrong(
            "the mark of a packet has no mask: write a mark such as `0x10`".into(),
        ));
    }
    let (before, FilterResult { verdict, by }) =
        explain(rules.filters(), &packet, (interfaces, router), to_gateway, request)?;
    let rule = |place: RulePosition| rule(control, rules, rules.index_of(place)?);
    let name = |out: Option<Out>| match out? {
        Out::Interface(index) => Some(config.interfaces.get(usize::from(index))?.name.clone()),
        Out::Gateway => Some(GATEWAY.to_owned()),
    };
    Ok(Decision {
        verdict: match verdict {
            sluice_filter::Verdict::Accept | sluice_filter::Verdict::AcceptUntracked => Verdict::Accept,
            sluice_filter::Verdict::Drop => Verdict::Drop,
            sluice_filter::Verdict::Reject(_) => Verdict::Reject,
        },
        rule: match by {
            DecidedBy::Rule(place) | DecidedBy::Application(place) | DecidedBy::Limit(place) => rule(place),
            DecidedBy::Default => None,
        },
        before: before.into_iter().filter_map(rule).collect(),
        interfaces: [incoming, outgoing].map(name),
    })
}
