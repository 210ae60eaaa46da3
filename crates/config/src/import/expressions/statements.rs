//! Converts verdicts, translations and simple values of `nft -j`.

use serde_json::Value;

use super::{list, only_key, unknown};
use crate::import::listing::{Action, Step, Target};
use crate::import::ranges::Ranges;
use crate::import::values;
use crate::schema::RejectWith;
use crate::value::PortRange;

/// Converts a statement to a step.
pub fn step(kind: &str, value: &Value, name: &mut Option<String>) -> Result<Step, String> {
    let target = || {
        value
            .get("target")
            .and_then(Value::as_str)
            .map(str::to_owned)
            .ok_or("a jump has no target")
    };
    let action = match kind {
        "accept" => Action::Accept,
        "drop" => Action::Drop,
        "notrack" => Action::Notrack,
        "return" => return Ok(Step::Return),
        "jump" => return Ok(Step::Jump(target()?)),
        "goto" => return Ok(Step::Goto(target()?)),
        "reject" => Action::Reject(reject(value)?),
        "log" => {
            if value.get("group").is_some() {
                return Err("logging of packets to a group has no counterpart".into());
            }
            let prefix = value.get("prefix").and_then(Value::as_str);
            *name = prefix.map(str::to_owned).or_else(|| name.take());
            Action::Log
        }
        "snat" => translated(value, Action::Snat)?,
        "dnat" => translated(value, Action::Dnat)?,
        "redirect" => Action::Redirect(value.get("port").map(port).transpose()?),
        "masquerade" => Action::Masquerade(value.get("port").map(port).transpose()?),
        _ => return Err(format!("statement `{kind}` has no counterpart")),
    };
    Ok(Step::Do(action))
}

fn reject(value: &Value) -> Result<RejectWith, String> {
    let of = |key| value.get(key).and_then(Value::as_str);
    match (of("type"), of("expr")) {
        (None, None) | (Some("icmp" | "icmpv6" | "icmpx"), Some("port-unreachable")) => Ok(RejectWith::PortUnreachable),
        (Some("tcp reset"), _) => Ok(RejectWith::Reset),
        (_, Some("admin-prohibited")) => Ok(RejectWith::Prohibited),
        (_, other) => Err(format!(
            "the reply `{}` to senders has no counterpart",
            other.unwrap_or("that")
        )),
    }
}

fn translated(value: &Value, action: fn(Target) -> Action) -> Result<Action, String> {
    if value.get("family").is_some_and(|family| family != "ip") {
        return Err("IPv6 is not translated".into());
    }
    let flags = value.get("flags").map(list).unwrap_or_default();
    let netmap = flags.iter().any(|flag| *flag == "netmap");
    let random = flags
        .iter()
        .any(|flag| flag.as_str().is_some_and(|flag| flag.contains("random")));
    let address = value.get("addr").ok_or("the target address is missing")?;
    if address.as_str().is_some_and(|text| text.contains(':')) {
        return Err("IPv6 is not translated".into());
    }
    let range = span(address, &mut |value| {
        let text = value.as_str().ok_or_else(|| unknown("address", value))?;
        values::networks(text, false)
    })?;
    let &[(first, last)] = range.list() else {
        return Err(unknown("address", address));
    };
    let addresses = (first as u32, last as u32);
    let ports = value.get("port").map(port).transpose()?;
    let action = action(Target { addresses, ports });
    match (netmap, action) {
        (true, _) if ports.is_none() => Ok(Action::Netmap(addresses.0, addresses.1)),
        (_, Action::Dnat(_)) if random => Err("the random choice of destinations has no counterpart".into()),
        (false, action) => Ok(action),
        _ => Err(unknown("translation", value)),
    }
}

fn port(value: &Value) -> Result<PortRange, String> {
    let ports = span(value, &mut |value| values::ports(&value.to_string(), '-'))?;
    let range = match ports.list() {
        &[(first, last)] => PortRange::new(first as u16, last as u16),
        _ => None,
    };
    range.ok_or_else(|| unknown("port", value))
}

/// Parse a value, a range or a prefix.
pub fn span(value: &Value, read: &mut dyn FnMut(&Value) -> Result<Ranges, String>) -> Result<Ranges, String> {
    match only_key(value) {
        None if value.is_object() => Err(unknown("value", value)),
        None => read(value),
        Some(("range", ends)) => match ends.as_array().map(Vec::as_slice) {
            Some([first, last]) => {
                let ends = (read(first)?, read(last)?);
                let first = ends.0.list().first().map(|range| range.0);
                first
                    .zip(ends.1.last())
                    .map(|(first, last)| Ranges::of(first, last))
                    .ok_or_else(|| unknown("range", value))
            }
            _ => Err(unknown("range", value)),
        },
        Some(("prefix", prefix)) => {
            let address = prefix.get("addr").and_then(Value::as_str);
            let length = prefix.get("len").and_then(Value::as_u64);
            let (address, length) = address.zip(length).ok_or_else(|| unknown("prefix", value))?;
            read(&Value::String(format!("{address}/{length}")))
        }
        Some(_) => Err(unknown("value", value)),
    }
}

/// Whether a comparison operator is negated.
pub fn inverted(op: &str) -> Result<bool, String> {
    match op {
        "==" | "in" => Ok(false),
        "!=" => Ok(true),
        other => Err(format!("the comparison operator `{other}` has no counterpart here")),
    }
}

/// The values that satisfy a comparison, and whether the comparison is inverted.
pub fn compared(op: &str, with: &Ranges, max: u128) -> Result<(Ranges, bool), String> {
    let one = match with.list() {
        &[(first, last)] if first == last => Some(first),
        _ => None,
    };
    match (op, one) {
        ("<", Some(0)) => Ok((Ranges::default(), false)),
        ("<", Some(one)) => Ok((Ranges::of(0, one - 1), false)),
        ("<=", Some(one)) => Ok((Ranges::of(0, one), false)),
        (">", Some(one)) if one < max => Ok((Ranges::of(one + 1, max), false)),
        (">", Some(_)) => Ok((Ranges::default(), false)),
        (">=", Some(one)) => Ok((Ranges::of(one, max), false)),
        _ => inverted(op).map(|inverted| (with.clone(), inverted)),
    }
}

/// ICMP messages of any type with this code.
pub fn code(text: &str) -> Result<Ranges, String> {
    let number = match text {
        "net-unreachable" | "no-route" => Some(0),
        "host-unreachable" | "admin-prohibited" => None,
        "prot-unreachable" => Some(2),
        "frag-needed" => Some(4),
        other => other.parse::<u8>().ok(),
    };
    let number = number.ok_or_else(|| format!("the ICMP code `{text}` has no counterpart"))?;
    let each = (0..256u128).map(|kind| kind << 8 | u128::from(number));
    Ok(Ranges::union(each.map(|message| (message, message))))
}

/// Parses bits of TCP flags: names, lists of names, or a number.
pub fn flag_bits(value: &Value) -> Result<u8, String> {
    if let Some(("|", parts)) = only_key(value) {
        return flag_bits(parts);
    }
    match value {
        Value::String(name) if !name.starts_with('@') => values::flag_names(name),
        Value::Array(parts) => parts.iter().map(flag_bits).try_fold(0, |bits, bit| Ok(bits | bit?)),
        Value::Number(number) => {
            let bits = number.as_u64().and_then(|bits| u8::try_from(bits).ok());
            bits.ok_or_else(|| unknown("flags", value))
        }
        _ => Err(unknown("flags", value)),
    }
}
