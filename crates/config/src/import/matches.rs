//! Import of one rule of `iptables-save`: its conditions and its target.

use super::fields;
use super::listing::{Action, Listing, Meaning, Step, Table};
use super::packets::{Field, OF_THE_FIRST, Packets};
use super::ranges::Ranges;
use super::sets::{self, SetForm};
use super::values::{self, Port};
use crate::schema::{RejectWith, SetType};
use crate::value::Period;

/// Context in which a rule is read.
pub struct Context<'t> {
    /// Whether the rule is for IPv6.
    pub v6: bool,
    /// The table with the chains and rules that precede the rule in the listing.
    pub table: &'t Table,
}

/// Modules whose options are supported or have no effect.
const MODULES: [&str; 18] = [
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "icmpv6",
    "multiport",
    "iprange",
    "state",
    "conntrack",
    "mac",
    "comment",
    "set",
    "udplite",
    "ipv6icmp",
    "ipv6-icmp",
    "standard",
    "ip",
    "all",
];

/// Conditions of the rule that have been read so far.
struct Reading {
    when: Vec<Packets>,
    name: Option<String>,
    negated: bool,
}

impl Reading {
    fn only(&mut self, field: Field, values: &Ranges) {
        let negated = std::mem::take(&mut self.negated);
        self.when = self
            .when
            .iter()
            .map(|packets| packets.only(field, values, negated))
            .collect();
    }

    /// Add the condition that the source or the destination port has one of the values.
    fn either_port(&mut self, values: &Ranges) {
        let negated = std::mem::take(&mut self.negated);
        let (one, other) = (Field::SourcePort, Field::DestinationPort);
        let both = |packets: &Packets| match negated {
            true => vec![packets.only(one, values, true).only(other, values, true)],
            false => vec![
                packets.only(one, values, false),
                packets.only(one, values, true).only(other, values, false),
            ],
        };
        self.when = self.when.iter().flat_map(both).collect();
    }
}

/// The meaning of a rule, given the words that follow the name of the chain.
///
/// # Errors
/// Returns the reason for which the rule can't be converted.
pub fn meaning(words: &[String], context: &Context<'_>, listing: &mut Listing) -> Result<Meaning, String> {
    let mut reading = Reading {
        when: vec![Packets::all(context.v6)],
        name: None,
        negated: false,
    };
    let mut words = words.iter().map(String::as_str);
    let mut then = Step::Do(Action::Count);
    while let Some(word) = words.next() {
        let target = match word {
            "-j" | "--jump" => Some(false),
            "-g" | "--goto" => Some(true),
            _ => None,
        };
        if let Some(goto) = target {
            let name = words.next().ok_or("the target after `-j` or `-g` is missing")?;
            let options: Vec<&str> = words.collect();
            then = match name {
                "SET" => Step::Do(added(&options, listing)?),
                name => step(name, goto, &options, context, &mut reading)?,
            };
            break;
        }
        condition(word, &mut words, context, &mut reading, listing)?;
    }
    if reading.negated {
        return Err("nothing follows `!`".into());
    }
    let when: Vec<_> = reading.when.into_iter().filter(|packets| !packets.is_empty()).collect();
    let of_ports = |packets: &Packets| {
        OF_THE_FIRST.iter().any(|&field| packets.get(field).is_some())
            || packets.members().any(|(end, ..)| OF_THE_FIRST.contains(&end.field()))
    };
    if when
        .iter()
        .any(|packets| of_ports(packets) && packets.get(Field::Protocol).is_none())
    {
        return Err("the line names ports or ICMP types, but no protocol".into());
    }
    Ok(Meaning {
        when,
        then: vec![then],
        name: reading.name,
    })
}

fn condition<'w>(
    word: &str,
    words: &mut impl Iterator<Item = &'w str>,
    context: &Context<'_>,
    reading: &mut Reading,
    listing: &mut Listing,
) -> Result<(), String> {
    let v6 = context.v6;
    match word {
        "!" => {
            reading.negated = true;
            return Ok(());
        }
        "-f" | "--fragment" => {
            reading.only(Field::Fragment, &Ranges::of(2, 2));
            return Ok(());
        }
        "--syn" => {
            reading.only(Field::Flags, &values::flags(0x17, 0x02));
            return Ok(());
        }
        _ => {}
    }
    let mut value = || {
        words
            .next()
            .ok_or_else(|| format!("the value after `{word}` is missing"))
    };
    let text = value()?;
    match word {
        "-s" | "--source" | "--src" => reading.only(Field::Source, &values::networks(text, v6)?),
        "-d" | "--destination" | "--dst" => reading.only(Field::Destination, &values::networks(text, v6)?),
        "--src-range" => reading.only(Field::Source, &values::address_range(text, v6)?),
        "--dst-range" => reading.only(Field::Destination, &values::address_range(text, v6)?),
        "-i" | "--in-interface" => interface(Field::In, text, reading, listing)?,
        "-o" | "--out-interface" => interface(Field::Out, text, reading, listing)?,
        "-p" | "--protocol" => match text {
            "all" | "0" if !reading.negated => {}
            _ => reading.only(Field::Protocol, &values::protocol(text)?),
        },
        "--sport" | "--source-port" | "--sports" | "--source-ports" => {
            reading.only(Field::SourcePort, &values::ports(text, ':')?);
        }
        "--dport" | "--destination-port" | "--dports" | "--destination-ports" => {
            reading.only(Field::DestinationPort, &values::ports(text, ':')?);
        }
        "--ports" => reading.either_port(&values::ports(text, ':')?),
        "--icmp-type" | "--icmpv6-type" if text == "any" && !reading.negated => {}
        "--icmp-type" | "--icmpv6-type" => reading.only(Field::Message, &values::message(text, v6)?),
        "--tcp-flags" => {
            let (of, set) = (values::flag_names(text)?, values::flag_names(value()?)?);
            reading.only(Field::Flags, &values::flags(of, set));
        }
        "--state" | "--ctstate" => reading.only(Field::State, &values::states(text)?),
        "--match-set" => {
            let (flags, negated) = (value()?, std::mem::take(&mut reading.negated));
            let unlisted = || format!("set `{text}` is not listed: add the output of `ipset save` as a further file");
            let known = listing.sets.get(text).ok_or_else(unlisted)?;
            reading.when = sets::narrowed(&reading.when, (text, known), flags, negated)?;
        }
        "--mac-source" => reading.only(Field::SourceMac, &values::mac(text)?),
        "--comment" => reading.name = reading.name.take().or_else(|| Some(text.into())),
        "-m" | "--match" if MODULES.contains(&text) || fields::MODULES.contains(&text) => {}
        "-m" | "--match" => return Err(format!("match `{text}` has no counterpart")),
        // Initial values of counters are ignored.
        "-c" | "--set-counters" => drop(value()?),
        _ => {
            let known = fields::OPTIONS.iter().find(|(option, ..)| *option == word);
            let (_, field, read) = known.ok_or_else(|| format!("option `{word}` has no counterpart"))?;
            reading.only(*field, &read(text)?);
        }
    }
    match word {
        "--comment" | "-m" | "--match" | "-c" if std::mem::take(&mut reading.negated) => {
            Err("`!` is not valid here".into())
        }
        _ => Ok(()),
    }
}

fn interface(field: Field, name: &str, reading: &mut Reading, listing: &mut Listing) -> Result<(), String> {
    if name == "+" && !reading.negated {
        return Ok(());
    }
    if name.ends_with('+') {
        return Err(format!(
            "the interface pattern `{name}` has no counterpart: each interface must be named"
        ));
    }
    let number = listing.interface(values::interface_name(name)?)?;
    reading.only(field, &Ranges::of(number, number));
    Ok(())
}

fn step(
    name: &str,
    goto: bool,
    options: &[&str],
    context: &Context<'_>,
    reading: &mut Reading,
) -> Result<Step, String> {
    if context.table.chains.contains_key(name) {
        return Ok(match goto {
            true => Step::Goto(name.into()),
            false => Step::Jump(name.into()),
        });
    }
    if goto {
        return Err(format!("there is no chain `{name}`"));
    }
    let action = match name {
        "ACCEPT" => Action::Accept,
        "DROP" => Action::Drop,
        "RETURN" => return Ok(Step::Return),
        "NOTRACK" => Action::Notrack,
        "CT" if *options == ["--notrack"] => return Ok(Step::Do(Action::Notrack)),
        "REJECT" => Action::Reject(reject(options)?),
        "LOG" => {
            let prefix = option(options, "--log-prefix");
            reading.name = prefix.map(Into::into).or_else(|| reading.name.take());
            return Ok(Step::Do(Action::Log));
        }
        "SNAT" => {
            let to = option(options, "--to-source").ok_or("the target address is missing")?;
            known(options, &["--to-source", "--random", "--random-fully", "--persistent"])?;
            return Ok(Step::Do(Action::Snat(values::target(to)?)));
        }
        "DNAT" => {
            let to = option(options, "--to-destination").ok_or("the target address is missing")?;
            known(options, &["--to-destination", "--persistent"])?;
            return Ok(Step::Do(Action::Dnat(values::target(to)?)));
        }
        "REDIRECT" => {
            known(options, &["--to-ports"])?;
            let ports = option(options, "--to-ports").map(|text| text.parse::<Port>());
            let ports = ports.transpose().map_err(|wrong| wrong.to_string())?;
            return Ok(Step::Do(Action::Redirect(ports)));
        }
        "MASQUERADE" => {
            known(options, &["--to-ports", "--random", "--random-fully"])?;
            let ports = option(options, "--to-ports").map(|text| text.parse::<Port>());
            let ports = ports.transpose().map_err(|wrong| wrong.to_string())?;
            return Ok(Step::Do(Action::Masquerade(ports)));
        }
        "NETMAP" => {
            let to = option(options, "--to").ok_or("the target address is missing")?;
            let net = values::network4(to)?;
            return Ok(Step::Do(Action::Netmap(net.0, net.1)));
        }
        _ => return Err(format!("target `{name}` has no counterpart")),
    };
    known(options, &["--reject-with"])?;
    Ok(Step::Do(action))
}

/// Converts a target that adds the source address to a set.
fn added(options: &[&str], listing: &Listing) -> Result<Action, String> {
    known(options, &["--add-set", "--exist", "--timeout"])?;
    let at = options.iter().position(|option| *option == "--add-set");
    let (name, flags) = at
        .and_then(|at| Some((*options.get(at + 1)?, *options.get(at + 2)?)))
        .ok_or("the name of the set is missing")?;
    let set = listing.sets.get(name).map(|set| &set.form);
    let Some(Ok(SetForm::Named(set))) = set else {
        return Err(format!("set `{name}` is not listed, or has no counterpart"));
    };
    let seconds = |period: Period| period.duration().as_secs().to_string();
    let own = set.timeout.map(seconds);
    if flags != "src" || set.kind == SetType::Ports {
        return Err("`add-to-set` can add only source addresses".into());
    }
    match option(options, "--timeout") {
        Some(timeout) if Some(timeout) != own.as_deref() => Err("an element can't have a different timeout than its \
             set"
        .into()),
        _ => Ok(Action::AddToSet(name.to_owned())),
    }
}

/// Value of an option.
fn option<'o>(options: &[&'o str], name: &str) -> Option<&'o str> {
    let at = options.iter().position(|option| *option == name)?;
    options.get(at + 1).copied()
}

fn known(options: &[&str], names: &[&str]) -> Result<(), String> {
    let other = options
        .iter()
        .find(|option| option.starts_with('-') && !names.contains(option));
    other.map_or(Ok(()), |other| Err(format!("option `{other}` has no counterpart")))
}

fn reject(options: &[&str]) -> Result<RejectWith, String> {
    match option(options, "--reject-with") {
        None | Some("icmp-port-unreachable" | "icmp6-port-unreachable" | "port-unreach") => {
            Ok(RejectWith::PortUnreachable)
        }
        Some("tcp-reset" | "tcp-rst") => Ok(RejectWith::Reset),
        Some("icmp-admin-prohibited" | "icmp6-adm-prohibited" | "adm-prohibited" | "admin-prohib") => {
            Ok(RejectWith::Prohibited)
        }
        Some(other) => Err(format!("the reply `{other}` to senders has no counterpart")),
    }
}
