//! Options that keep state from one match to the next: `flowint`, `xbits`, `tag`.

use super::draft::SignatureDraft;
use super::{Dialect, RuleError, range, syntax};
use crate::signature::{Condition, FlowBit, FlowInt, FlowIntCommand, Operand, Track, XBits};

/// `flowint:name,+,1`, `flowint:name,>,other`, `flowint:name,isset`.
pub(super) fn flow_int(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let arguments = syntax::arguments(value)?;
    let operand = |text: &str| match text.starts_with(|first: char| first.is_ascii_digit()) {
        true => range::number(text).map(Operand::Constant),
        false if text.is_empty() => Err(RuleError::MissingPart("value")),
        false => Ok(Operand::Name(text.into())),
    };
    let (name, command) = match arguments[..] {
        [name, "isset"] => (name, FlowIntCommand::IsSet),
        [name, "isnotset" | "notset"] => (name, FlowIntCommand::IsNotSet),
        [name, sign, value] => {
            let command = match sign {
                "=" => FlowIntCommand::Set,
                "+" => FlowIntCommand::Add,
                "-" => FlowIntCommand::Subtract,
                "<" => FlowIntCommand::Less,
                "<=" => FlowIntCommand::LessOrEqual,
                "==" => FlowIntCommand::Equal,
                "!=" => FlowIntCommand::NotEqual,
                ">=" => FlowIntCommand::GreaterOrEqual,
                ">" => FlowIntCommand::Greater,
                _ => {
                    return Err(RuleError::Unknown {
                        written: sign.into(),
                        hint: None,
                    });
                }
            };
            (name, command(operand(value)?))
        }
        _ => return Err(RuleError::MissingPart("name, operation, value")),
    };
    if name.is_empty() {
        return Err(RuleError::MissingPart("name"));
    }
    draft.push(Condition::FlowInt(FlowInt {
        name: name.into(),
        command,
    }));
    Ok(())
}

/// Default lifetime of an xbit in seconds.
const DEFAULT_EXPIRE: u32 = 30;
/// Longest lifetime that a rule may configure: a week.
const MAX_EXPIRE: u32 = 7 * 24 * 3_600;

/// `xbits:set,name,track ip_src[,expire 60]`.
pub(super) fn x_bits(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let arguments = syntax::arguments(value)?;
    let [command, name, ref rest @ ..] = arguments[..] else {
        return Err(RuleError::MissingPart("command, name, track"));
    };
    let command = match command {
        "set" => FlowBit::Set,
        "unset" => FlowBit::Unset,
        "toggle" => FlowBit::Toggle,
        "isset" => FlowBit::IsSet,
        "isnotset" => FlowBit::IsNotSet,
        other => return Err(RuleError::PartNotInspected(other.into())),
    };
    if name.is_empty() {
        return Err(RuleError::MissingPart("name"));
    }
    let (mut track, mut expire) = (None, None);
    for part in rest {
        let twice = match syntax::word(part) {
            ("track", "ip_src") => track.replace(Track::Source).is_some(),
            ("track", "ip_dst") => track.replace(Track::Destination).is_some(),
            ("track", "ip_pair") => track.replace(Track::Both).is_some(),
            ("expire", seconds) => expire.replace(range::number::<u32>(seconds)?).is_some(),
            _ => return Err(RuleError::PartNotInspected((*part).into())),
        };
        if twice {
            return Err(RuleError::Contradiction((*part).into()));
        }
    }
    if let Some(seconds @ (0 | MAX_EXPIRE..)) = expire {
        return Err(RuleError::OutOfRange(format!("expire {seconds}").into()));
    }
    draft.push(Condition::XBits(XBits {
        command,
        name: name.into(),
        track: track.ok_or(RuleError::MissingPart("track"))?,
        expire: expire.unwrap_or(DEFAULT_EXPIRE),
    }));
    Ok(())
}

/// `tag:session,10,packets`, `tag:host,60,seconds,src`; in Snort 3 `tag:host_src,seconds 60`. The option requests the
/// capture of packets after an alert and does not affect matching. Packets are not captured, but the flow record states
/// that a rule alerted.
pub(super) fn tag(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let arguments = syntax::arguments(value)?;
    let unknown = |part: &str| RuleError::PartNotInspected(part.into());
    let (scope, rest) = arguments.split_first().ok_or(RuleError::MissingValue)?;
    let metric = |text: &str| matches!(text, "packets" | "seconds" | "bytes");
    if draft.dialect == Dialect::Snort3 {
        if !matches!(*scope, "session" | "host_src" | "host_dst") {
            return Err(unknown(scope));
        }
        for part in rest {
            let (name, count) = syntax::word(part);
            if !metric(name) {
                return Err(unknown(part));
            }
            range::number::<u32>(count)?;
        }
        return Ok(());
    }
    let is_host = match *scope {
        "session" => false,
        "host" => true,
        other => return Err(unknown(other)),
    };
    match rest {
        [] => Ok(()),
        [count, name, direction @ ..] => {
            range::number::<u32>(count)?;
            if !metric(name) {
                return Err(unknown(name));
            }
            match (direction, is_host) {
                ([] | ["src" | "dst"], _) | (["exclusive"], false) => Ok(()),
                ([other, ..], _) => Err(unknown(other)),
            }
        }
        [_] => Err(RuleError::MissingPart("count, metric")),
    }
}
