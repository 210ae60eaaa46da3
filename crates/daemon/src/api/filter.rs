//! `GET /v1/filter`: what rules have counted, and which one decides about a packet.

use std::net::IpAddr;

use axum::Json;
use axum::extract::{Query, State};
use sluice_config::Config;
use sluice_config::api::{Decision, FilterRequest, FilterRule, Hits, Packet, PacketFilter};
use sluice_config::schema::Verdict;
use sluice_filter::{By, Counter, Fate, Filters, Place};

use super::{Refusal, Shared};
use crate::control::Control;
use crate::filter::{header, leads_to};

/// `GET /v1/filter`
pub(super) async fn show(
    State(control): Shared,
    Query(request): Query<FilterRequest>,
) -> Result<Json<PacketFilter>, Refusal> {
    let config = control.config();
    let filters = control.plane().policy().filter.clone();
    let (Some(settings), Some(filters)) = (&config.document.filter, filters) else {
        return Err(Refusal::Wrong("there is no [filter]: all packets pass".into()));
    };
    let rule = |place: Place| rule(&control, &config, &filters, place);
    let most = config.filter.len().min(request.rules as usize);
    Ok(Json(PacketFilter {
        default: settings.default,
        by_default: hits(&control, filters.counters.of_default()),
        sessions: settings.sessions,
        matcher: settings.matcher,
        bytes: (filters.four.bytes() + filters.six.bytes()) as u64,
        rules_in_all: config.filter.len() as u64,
        combinations: [filters.four.len() as u64, filters.six.len() as u64],
        log_lost: filters.counters.lost(),
        rules: (0..most as Place).filter_map(rule).collect(),
        decision: request
            .packet
            .as_ref()
            .map(|packet| decision(&control, &config, &filters, packet, &request))
            .transpose()?,
    }))
}

fn hits(control: &Control, counter: &Counter) -> Hits {
    let now = control.began.elapsed().as_nanos() as u64;
    Hits {
        packets: counter.packets(),
        bytes: counter.bytes(),
        last: counter.last().map(|last| now.saturating_sub(last) as f64 / 1e9),
    }
}

fn rule(control: &Control, config: &Config, filters: &Filters, place: Place) -> Option<FilterRule> {
    let written = config.document.filter.as_ref()?.rules.get(place as usize)?;
    Some(FilterRule {
        number: u64::from(place) + 1,
        name: config.filter.get(place as usize)?.name.clone(),
        action: written.action,
        matches: written.matches(),
        hits: hits(control, filters.counters.of(place)?),
    })
}

fn decision(
    control: &Control,
    config: &Config,
    filters: &Filters,
    packet: &str,
    request: &FilterRequest,
) -> Result<Decision, Refusal> {
    let packet: Packet = packet.parse().map_err(Refusal::Wrong)?;
    let place = |name: &Option<String>, address: IpAddr| match name {
        Some(name) => {
            let found = config.interface(name).map(|(index, _)| index);
            found
                .map(Some)
                .ok_or_else(|| Refusal::Wrong(format!("there is no interface `{name}`")))
        }
        None => Ok(leads_to(&control.plane(), address)),
    };
    let incoming = place(&request.incoming, packet.source.0)?;
    let outgoing = place(&request.out, packet.destination.0)?;
    let interfaces = [incoming, outgoing].map(|index| index.unwrap_or(u16::MAX));
    let (before, fate) = match (packet.source.0, packet.destination.0) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ends = [source.to_bits(), destination.to_bits()];
            filters.four.explain(&header(&packet, ends, interfaces))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ends = [source.to_bits(), destination.to_bits()];
            filters.six.explain(&header(&packet, ends, interfaces))
        }
        _ => {
            return Err(Refusal::Wrong(
                "source and destination are of different families".into(),
            ));
        }
    };
    let Fate { verdict, by } = fate;
    let rule = |place: Place| rule(control, config, filters, place);
    let name = |index: Option<u16>| Some(config.interfaces.get(usize::from(index?))?.name.clone());
    Ok(Decision {
        verdict: match verdict {
            sluice_filter::Verdict::Accept => Verdict::Accept,
            sluice_filter::Verdict::Drop => Verdict::Drop,
            sluice_filter::Verdict::Reject(_) => Verdict::Reject,
        },
        rule: match by {
            By::Rule(place) | By::Limit(place) => rule(place),
            By::Default => None,
        },
        before: before.into_iter().filter_map(rule).collect(),
        interfaces: [incoming, outgoing].map(name),
    })
}
