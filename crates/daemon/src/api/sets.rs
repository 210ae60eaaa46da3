//! `/v1/sets`: sets of addresses that rules of the filter name, and that change without a commit.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Query, State};
use sluice_config::api::{Element, Set, SetAnswer, SetFilter, SetRequest, Sets};
use sluice_config::value::Period;
use sluice_engine::plane::Plane;
use sluice_filter::{Action, Address, AddressSet, Range, Rule, Written};

use super::json::Json;
use super::{Refusal, Shared};
use crate::control::Control;

/// Elements that sessions are asked about one by one when a set is flushed; where there are more, all are asked.
const ONE_BY_ONE: usize = 1_024;

/// `GET /v1/sets`
pub(super) async fn show(
    State(control): Shared,
    Query(SetFilter { name }): Query<SetFilter>,
) -> Result<Json<Sets>, Refusal> {
    let named = match &name {
        Some(name) => vec![(name.clone(), named(&control, name)?)],
        None => all(&control),
    };
    let now = control.nanoseconds();
    let element = |(address, left): (IpAddr, Option<u64>)| Element {
        address,
        expires: left.map(|left| left.div_ceil(1_000_000_000)),
    };
    let set = |(of, set): (String, Arc<AddressSet>)| Set {
        name: of,
        count: set.len() as u64,
        size: set.size() as u64,
        timeout: set.timeout().map(|timeout| Period::seconds(timeout.as_secs())),
        not_added: set.refused(),
        elements: match &name {
            Some(_) => set.elements(now).into_iter().map(element).collect(),
            None => Vec::new(),
        },
    };
    Ok(Json(Sets {
        sets: named.into_iter().map(set).collect(),
    }))
}

/// `POST /v1/sets/add`
pub(super) async fn add(State(control): Shared, Json(request): Json<SetRequest>) -> Result<Json<SetAnswer>, Refusal> {
    let set = named(&control, &request.name)?;
    let timeout = request.timeout.map(Period::duration).or(set.timeout());
    let now = control.nanoseconds();
    let mut changed = 0;
    for &address in &request.elements {
        let is_new = set.add(address, timeout, now).map_err(|full| {
            let (name, size) = (&request.name, set.size());
            Refusal::Wrong(format!("{full}: `{name}` has {size} elements; {changed} were added"))
        })?;
        changed += u64::from(is_new);
    }
    follow(&mut control.plane(), &request.elements);
    Ok(answer(&set, changed))
}

/// `POST /v1/sets/remove`
pub(super) async fn remove(
    State(control): Shared,
    Json(request): Json<SetRequest>,
) -> Result<Json<SetAnswer>, Refusal> {
    let set = named(&control, &request.name)?;
    let removed = request.elements.iter().filter(|&&address| set.remove(address)).count();
    follow(&mut control.plane(), &request.elements);
    Ok(answer(&set, removed as u64))
}

/// `POST /v1/sets/flush`
pub(super) async fn flush(State(control): Shared, Json(request): Json<SetRequest>) -> Result<Json<SetAnswer>, Refusal> {
    let set = named(&control, &request.name)?;
    let elements: Vec<_> = set.elements(0).into_iter().map(|(address, _)| address).collect();
    let removed = set.flush();
    follow(&mut control.plane(), &elements);
    Ok(answer(&set, removed as u64))
}

fn answer(set: &AddressSet, changed: u64) -> Json<SetAnswer> {
    Json(SetAnswer {
        changed,
        count: set.len() as u64,
    })
}

fn all(control: &Control) -> Vec<(String, Arc<AddressSet>)> {
    let rules = control.rules();
    let sets = rules.iter().flat_map(|rules| rules.list().sets());
    sets.map(|(name, set)| (name.clone(), set.clone())).collect()
}

fn named(control: &Control, name: &str) -> Result<Arc<AddressSet>, Refusal> {
    let mut sets = all(control).into_iter();
    let found = sets.find(|(of, _)| of == name).map(|(_, set)| set);
    found.ok_or_else(|| Refusal::Wrong(format!("there is no set `{name}`: `sluice set list` lists them")))
}

/// Let sessions of addresses that came or went be asked about again.
fn follow(plane: &mut Plane, addresses: &[IpAddr]) {
    let mut changed = Written {
        action: Action::Count,
        four: Vec::new(),
        six: Vec::new(),
        applications: Vec::new(),
        conditions: Default::default(),
    };
    if addresses.len() > ONE_BY_ONE {
        (changed.four, changed.six) = (vec![Rule::any()], vec![Rule::any()]);
    } else {
        for address in addresses {
            match address {
                IpAddr::V4(address) => changed.four.extend(either(address.to_bits())),
                IpAddr::V6(address) => changed.six.extend(either(address.to_bits())),
            }
        }
    }
    plane.filter_changed(&changed);
}

/// Packets from an address, and those to it.
fn either<A: Address>(address: A) -> [Rule<A>; 2] {
    let (mut from, mut to) = (Rule::any(), Rule::any());
    let one = Range {
        first: address,
        last: address,
    };
    (from.source, to.destination) = (one, one);
    [from, to]
}

/// Remove elements whose time is over.
pub(crate) fn expire(control: &Control) {
    let now = control.nanoseconds();
    for (_, set) in all(control) {
        set.expire(now);
    }
}
