//! Options about connections: their state, flowbits, rates, and applications.

use super::draft::SignatureDraft;
use super::{Dialect, RuleError, range, services, syntax};
use crate::signature::{Condition, FlowBit, FlowBits, Rate, RateKind, Toward, Track};

/// `flow:to_server,established,only_stream`.
pub(super) fn state(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let flow = &mut draft.flow;
    for word in syntax::arguments(value)? {
        let agrees = match word {
            "to_server" | "from_client" => set_once(&mut flow.direction, Toward::Server),
            "to_client" | "from_server" => set_once(&mut flow.direction, Toward::Client),
            "established" => set_once(&mut flow.established, true),
            "not_established" => set_once(&mut flow.established, false),
            "only_stream" => set_once(&mut flow.stream, true),
            "no_stream" => set_once(&mut flow.stream, false),
            "stateless" => true,
            _ => return Err(RuleError::PartNotInspected(word.into())),
        };
        if !agrees {
            return Err(RuleError::Contradiction(word.into()));
        }
    }
    Ok(())
}

/// Sets a value. Returns false if a different value was set before.
fn set_once<T: PartialEq + Copy>(place: &mut Option<T>, value: T) -> bool {
    *place.get_or_insert(value) == value
}

/// `flowbits:set,name`, `isset,a|b`, `noalert`.
///
/// In Snort rules a group may follow the names. The group affects only commands without names, which are refused.
pub(super) fn bits(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let arguments = syntax::arguments(value)?;
    let command = match arguments[0] {
        "noalert" if arguments.len() == 1 => {
            draft.silent = true;
            return Ok(());
        }
        "set" => FlowBit::Set,
        "unset" => FlowBit::Unset,
        "toggle" => FlowBit::Toggle,
        "isset" => FlowBit::IsSet,
        "isnotset" => FlowBit::IsNotSet,
        other => return Err(RuleError::PartNotInspected(other.into())),
    };
    let names = match (&arguments[1..], draft.dialect) {
        ([], _) => return Err(RuleError::MissingPart("name")),
        ([names], _) | ([names, _], Dialect::Snort2 | Dialect::Snort3) => *names,
        ([_, rest, ..], _) => return Err(RuleError::Trailing((*rest).into())),
    };
    let any = names.contains('|');
    let is_question = matches!(command, FlowBit::IsSet | FlowBit::IsNotSet);
    let is_group = arguments.len() > 2 && matches!(names, "any" | "all");
    if is_group || (any && (names.contains('&') || !is_question)) {
        return Err(RuleError::PartNotInspected(names.into()));
    }
    let separator = if any { '|' } else { '&' };
    let split: Box<[Box<str>]> = names.split(separator).map(|name| name.trim().into()).collect();
    if split.iter().any(|name| name.is_empty()) {
        return Err(RuleError::MissingPart("name"));
    }
    draft.push(Condition::FlowBits(FlowBits {
        command,
        names: split,
        any,
    }));
    Ok(())
}

pub(super) fn noalert(draft: &mut SignatureDraft) -> Result<(), RuleError> {
    draft.silent = true;
    Ok(())
}

/// `detection_filter:track by_src,count 100,seconds 25`.
pub(super) fn detection_filter(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    rate(draft, value, Some(RateKind::After))
}

/// `threshold:type limit,track by_src,count 1,seconds 60`.
pub(super) fn threshold(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    rate(draft, value, None)
}

fn rate(draft: &mut SignatureDraft, value: &str, mut kind: Option<RateKind>) -> Result<(), RuleError> {
    let takes_type = kind.is_none();
    let (mut track, mut count, mut seconds) = (None, None, None);
    for part in syntax::arguments(value)? {
        let unknown = || RuleError::PartNotInspected(part.into());
        match syntax::word(part) {
            ("type", "limit") if takes_type => kind = Some(RateKind::Limit),
            ("type", "threshold") if takes_type => kind = Some(RateKind::Every),
            ("type", "both") if takes_type => kind = Some(RateKind::Once),
            ("track", "by_src") => track = Some(Track::Source),
            ("track", "by_dst") => track = Some(Track::Destination),
            ("track", "by_both") if draft.dialect == Dialect::Suricata => track = Some(Track::Both),
            ("track", "by_rule") if draft.dialect == Dialect::Suricata => track = Some(Track::Rule),
            ("count", number) => count = Some(range::number(number)?),
            ("seconds", number) => seconds = Some(range::number(number)?),
            _ => return Err(unknown()),
        }
    }
    let rate = Rate {
        kind: kind.ok_or(RuleError::MissingPart("type"))?,
        track: track.ok_or(RuleError::MissingPart("track"))?,
        count: count.ok_or(RuleError::MissingPart("count"))?,
        seconds: seconds.ok_or(RuleError::MissingPart("seconds"))?,
    };
    match draft.rate.replace(rate) {
        Some(_) => Err(RuleError::SecondRate),
        None => Ok(()),
    }
}

/// `app-layer-protocol:http`. Only the application selects the flows; the ports have no effect.
pub(super) fn application(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    draft
        .services
        .extend(services::identified_services(value, draft.dialect)?);
    Ok(())
}

/// `service:http,smtp`. Ports select the flows until the application is identified. For applications that can't be
/// identified, ports always select the flows.
pub(super) fn service(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    for name in syntax::arguments(value)? {
        draft.services.extend(services::services(name, draft.dialect)?);
    }
    Ok(())
}
