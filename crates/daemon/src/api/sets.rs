//! `/v1/sets`: element sets that filter rules refer to and that can be changed without a commit.

use std::net::IpAddr;
use std::sync::Arc;

use sluice_config::api::{self, Set, SetAnswer, SetFilter, SetRequest, Sets, operation};
use sluice_config::schema::SetType;
use sluice_config::value::{Period, SetElement};
use sluice_engine::control::plane::ControlPlane;
use sluice_filter::{Action, Address, CompiledRule, Element, ElementKind, ElementSet, Range, Rule};

use super::{Refusal, Serve};
use crate::control::Control;
use crate::lowering::elements;

/// Maximum number of removed elements for which sessions are revalidated element by element. If more elements are
/// removed, all sessions are revalidated.
const ONE_BY_ONE: usize = 1_024;

impl Serve for operation::Sets {
    async fn serve(control: Arc<Control>, SetFilter { name }: SetFilter) -> Result<Self::Answer, Refusal> {
        let named = match &name {
            Some(name) => vec![(name.clone(), named(&control, name)?)],
            None => all(&control),
        };
        let now = control.nanoseconds();
        let element = |(element, expiry): (Element, Option<u64>)| api::Element {
            element: as_written(element),
            expires: expiry.map(|expiry| expiry.div_ceil(1_000_000_000)),
        };
        let set = |(of, set): (String, Arc<ElementSet>)| Set {
            name: of,
            kind: match set.kind() {
                ElementKind::Addresses => SetType::Addresses,
                ElementKind::Networks => SetType::Networks,
                ElementKind::Ports => SetType::Ports,
            },
            count: set.len() as u64,
            size: set.size() as u64,
            timeout: set.timeout().map(|timeout| Period::seconds(timeout.as_secs())),
            not_added: set.refused(),
            elements: match &name {
                Some(_) => set.elements(now).into_iter().map(element).collect(),
                None => Vec::new(),
            },
        };
        Ok(Sets {
            sets: named.into_iter().map(set).collect(),
        })
    }
}

impl Serve for operation::AddToSet {
    async fn serve(control: Arc<Control>, request: SetRequest) -> Result<Self::Answer, Refusal> {
        let set = named(&control, &request.name)?;
        let timeout = request.timeout.map(Period::duration).or(set.timeout());
        let now = control.nanoseconds();
        let requested = requested(&set, &request)?;
        let mut added = Ok(0);
        for &element in &requested {
            let Ok(before) = added else { break };
            added = set
                .add(element, timeout, now)
                .map(|new| before + new)
                .map_err(|full| (full, before));
        }
        follow(&mut control.plane(), &requested);
        match added {
            Ok(added) => Ok(answer(&set, added as u64)),
            Err((full, added)) => {
                let (name, size) = (&request.name, set.size());
                Err(Refusal::Wrong(format!(
                    "{full}: `{name}` has at most {size} elements; {added} new elements were added"
                )))
            }
        }
    }
}

impl Serve for operation::RemoveFromSet {
    async fn serve(control: Arc<Control>, request: SetRequest) -> Result<Self::Answer, Refusal> {
        let set = named(&control, &request.name)?;
        let requested = requested(&set, &request)?;
        let removed: usize = requested.iter().map(|&element| set.remove(element)).sum();
        follow(&mut control.plane(), &requested);
        Ok(answer(&set, removed as u64))
    }
}

impl Serve for operation::FlushSet {
    async fn serve(control: Arc<Control>, request: SetRequest) -> Result<Self::Answer, Refusal> {
        let set = named(&control, &request.name)?;
        let elements: Vec<_> = set.elements(0).into_iter().map(|(element, _)| element).collect();
        let removed = set.flush();
        follow(&mut control.plane(), &elements);
        Ok(answer(&set, removed as u64))
    }
}

/// Elements of a request, checked against the type of the set.
fn requested(set: &ElementSet, request: &SetRequest) -> Result<Vec<Element>, Refusal> {
    let mut found = Vec::new();
    for written in &request.elements {
        for element in elements(written) {
            if !set.accepts(element) {
                let has = match set.kind() {
                    ElementKind::Addresses => "single addresses",
                    ElementKind::Networks => "networks",
                    ElementKind::Ports => "ports",
                };
                return Err(Refusal::Wrong(format!(
                    "`{written}` is not valid in the set `{}`, which contains {has}: nothing was changed",
                    request.name
                )));
            }
            found.push(element);
        }
    }
    Ok(found)
}

/// Convert an element to the notation of the configuration.
fn as_written(element: Element) -> SetElement {
    match element {
        Element::Ports(first, last) => SetElement::Ports(first, last),
        Element::Network(address, length) => match ipnet::IpNet::new(address, length) {
            Ok(net) => net.into(),
            Err(_) => SetElement::Addresses(address, address),
        },
    }
}

fn answer(set: &ElementSet, changed: u64) -> SetAnswer {
    SetAnswer {
        changed,
        count: set.len() as u64,
    }
}

fn all(control: &Control) -> Vec<(String, Arc<ElementSet>)> {
    let rules = control.rules();
    let sets = rules.iter().flat_map(|rules| rules.list().sets());
    sets.map(|(name, set)| (name.clone(), set.clone())).collect()
}

fn named(control: &Control, name: &str) -> Result<Arc<ElementSet>, Refusal> {
    let mut sets = all(control).into_iter();
    let found = sets.find(|(of, _)| of == name).map(|(_, set)| set);
    found.ok_or_else(|| Refusal::Wrong(format!("there is no set `{name}`: `sluice set list` lists the sets")))
}

/// Revalidate the sessions that added or removed elements affect. Sessions can be found only by address, so elements
/// with ports cause a revalidation of all sessions.
fn follow(plane: &mut ControlPlane, elements: &[Element]) {
    let mut changed = CompiledRule {
        action: Action::Count,
        v4: Vec::new(),
        v6: Vec::new(),
        applications: Vec::new(),
        conditions: Default::default(),
    };
    let have_ports = elements.iter().any(|element| matches!(element, Element::Ports(..)));
    if have_ports || elements.len() > ONE_BY_ONE {
        (changed.v4, changed.v6) = (vec![Rule::any()], vec![Rule::any()]);
    } else {
        for element in elements {
            match as_written(*element) {
                SetElement::Addresses(IpAddr::V4(first), IpAddr::V4(last)) => {
                    changed.v4.extend(either(first.to_bits(), last.to_bits()));
                }
                SetElement::Addresses(IpAddr::V6(first), IpAddr::V6(last)) => {
                    changed.v6.extend(either(first.to_bits(), last.to_bits()));
                }
                _ => {}
            }
        }
    }
    plane.filter_changed(&changed);
}

/// Returns a rule for packets from a range of addresses, and a rule for packets to this range.
fn either<A: Address>(first: A, last: A) -> [Rule<A>; 2] {
    let (mut from, mut to) = (Rule::any(), Rule::any());
    let range = Range { first, last };
    (from.source, to.destination) = (range, range);
    [from, to]
}

/// Remove elements whose timeout has expired.
pub(crate) fn expire(control: &Control) {
    let now = control.nanoseconds();
    for (_, set) in all(control) {
        set.expire(now);
    }
}
