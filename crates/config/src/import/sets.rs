//! Imports `ipset save`: sets to which iptables rules refer.

use indexmap::IndexMap;

use super::listing::{Line, LineIndex, Listing};
use super::packets::{End, Field, Packets, remains};
use super::ranges::Ranges;
use super::{ImportError, Wrong, iptables, values};
use crate::schema::{NamedSet, SetType};
use crate::value::{Period, SetElement};

/// Maximum number of elements with several parts to which a condition may expand.
const MAX_ELEMENTS: usize = 4096;
/// Maximum number of hyperrectangles for the complement of elements with several parts.
const MAX_HYPERRECTANGLES: usize = 128;
/// Maximum number of elements in a set of the filter.
const MAX_SET_ELEMENTS: u32 = 262_144;

/// A declared set.
#[derive(Clone, Debug)]
pub struct DeclaredSet {
    /// Line of the declaration.
    pub line: LineIndex,
    /// Representation of the set, or the reason for which rules can't refer to the set.
    pub form: Result<SetForm, String>,
    /// Whether the set is for IPv6.
    pub v6: bool,
}

/// How a set is represented.
#[derive(Clone, Debug)]
pub enum SetForm {
    /// A set of the filter.
    Named(NamedSet),
    /// Elements of several parts. The elements are expanded into rules.
    Tuples(Vec<Part>, Vec<Vec<Value>>),
}

/// Type of an element's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// An address or a network.
    Address,
    /// A port with its protocol.
    Port,
    /// A MAC address.
    Mac,
}

/// Values of a part. Values of a port are combined with the number of its protocol.
pub type Value = (Ranges, Option<u128>);

/// Whether a text looks like the output of `ipset save`.
pub fn detect(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| line.starts_with("create "))
}

/// Add the sets of a file to the listing.
///
/// # Errors
/// The first line that is invalid in the output of `ipset save`.
pub fn read(file: &str, text: &str, listing: &mut Listing) -> Result<(), ImportError> {
    let mut limited: IndexMap<String, usize> = IndexMap::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let words = iptables::words(line).ok_or_else(|| ImportError::at(file, at + 1, 1, Wrong::Quote))?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let place = Line {
            file: file.into(),
            line: Some(at + 1),
            place: None,
            text: line.into(),
        };
        match words.as_slice() {
            [] => {}
            [first, ..] if first.starts_with('#') => {}
            ["create", name, kind, options @ ..] => {
                let line = listing.line(place);
                let v6 = option(options, "family") == Some("inet6");
                let form = named(name).and_then(|()| created(kind, options));
                let known = DeclaredSet { line, form, v6 };
                if listing.sets.insert((*name).to_owned(), known).is_some() {
                    return Err(ImportError::at(file, at + 1, 1, Wrong::Twice((*name).to_owned())));
                }
            }
            ["add", name, element, options @ ..] => {
                let Some(known) = listing.sets.get_mut(*name) else {
                    return Err(ImportError::at(file, at + 1, 1, Wrong::UnknownSet((*name).to_owned())));
                };
                if options.contains(&"timeout") && option(options, "timeout") != Some("0") {
                    *limited.entry((*name).to_owned()).or_default() += 1;
                    continue;
                }
                let v6 = known.v6;
                let added = match &mut known.form {
                    Ok(_) if options.contains(&"nomatch") => {
                        known.form = Err(format!("set `{name}` has exceptions (nomatch)"));
                        continue;
                    }
                    Ok(form) => add(form, element, v6),
                    Err(_) => continue,
                };
                if let Err(why) = added {
                    let line = listing.line(place);
                    listing.leftovers.push((line, why));
                }
            }
            _ => {
                let wrong = Wrong::NotALine(iptables::shortened(line));
                return Err(ImportError::at(file, at + 1, 1, wrong));
            }
        }
    }
    for known in listing.sets.values_mut() {
        let Ok(SetForm::Named(set)) = &known.form else { continue };
        let count: usize = set.elements.iter().filter_map(|element| element.count(set.kind)).sum();
        if count > set.size as usize {
            known.form = Err(format!("the {count} elements exceed the size of the set, {}", set.size));
        }
    }
    for (name, count) in limited {
        if let Some(known) = listing.sets.get(&name) {
            let how = limited_elements(count);
            listing.notes.push((known.line, how));
        }
    }
    Ok(())
}

/// Note on elements that have a timeout.
pub fn limited_elements(count: usize) -> String {
    format!("{count} elements with a timeout are not part of the configuration: add them with `sluice set add`")
}

/// Check that the name is valid for a set of the filter.
pub fn named(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match name.bytes().all(plain) && (1..=32).contains(&name.len()) && !name.starts_with(['-', '.']) {
        true => Ok(()),
        false => Err(format!("`{name}` is not a valid name of a set")),
    }
}

fn option<'o>(options: &[&'o str], name: &str) -> Option<&'o str> {
    let at = options.iter().position(|option| *option == name)?;
    options.get(at + 1).copied()
}

fn created(kind: &str, options: &[&str]) -> Result<SetForm, String> {
    let none = || Err(format!("sets of type `{kind}` have no counterpart"));
    let timeout = option(options, "timeout").map(|text| text.parse::<u64>());
    let timeout = timeout
        .transpose()
        .map_err(|_| "the timeout of the set is not a number")?;
    let Some((_, parts)) = kind.split_once(':') else {
        return none();
    };
    let kind = match parts {
        "ip" if option(options, "netmask").is_some() => SetType::Networks,
        "ip" => SetType::Addresses,
        "net" => SetType::Networks,
        "port" => SetType::Ports,
        parts if parts.contains(',') && timeout.is_none() => {
            let part = |part| match part {
                "ip" | "net" => Some(Part::Address),
                "port" => Some(Part::Port),
                "mac" => Some(Part::Mac),
                _ => None,
            };
            let parts: Option<Vec<Part>> = parts.split(',').map(part).collect();
            return parts.map_or_else(none, |parts| Ok(SetForm::Tuples(parts, Vec::new())));
        }
        _ => return none(),
    };
    let max = if kind == SetType::Ports {
        65_536
    } else {
        MAX_SET_ELEMENTS
    };
    let size = option(options, "maxelem").map_or(Ok(65_536), str::parse);
    let size = size
        .map_err(|_| "the maxelem of the set is not a number")?
        .clamp(1, max);
    Ok(SetForm::Named(NamedSet {
        kind,
        size,
        timeout: timeout.filter(|&seconds| seconds != 0).map(Period::seconds),
        elements: Vec::new(),
    }))
}

fn add(form: &mut SetForm, text: &str, v6: bool) -> Result<(), String> {
    match form {
        SetForm::Named(set) => {
            let wrong = || format!("`{text}` is not a valid element of the set");
            let element: SetElement = match set.kind {
                SetType::Ports => text.rsplit(':').next().unwrap_or(text).parse().map_err(|_| wrong())?,
                _ => addresses(text, v6)?,
            };
            element.count(set.kind).ok_or_else(wrong)?;
            if set.elements.len() >= MAX_SET_ELEMENTS as usize {
                return Err(format!("a set has at most {MAX_SET_ELEMENTS} elements"));
            }
            set.elements.push(element);
        }
        SetForm::Tuples(parts, elements) => {
            let words: Vec<&str> = text.split(',').collect();
            if words.len() != parts.len() || elements.len() >= MAX_ELEMENTS {
                return Err(
                    "the number of parts differs from the type of the set, or the set has too many \
                     elements"
                        .into(),
                );
            }
            let values = parts.iter().zip(words).map(|(part, word)| value(*part, word, v6));
            elements.push(values.collect::<Result<_, _>>()?);
        }
    }
    Ok(())
}

fn addresses(text: &str, v6: bool) -> Result<SetElement, String> {
    let ranges = if text.contains('-') {
        values::address_range(text, v6)?
    } else {
        values::networks(text, v6)?
    };
    let &[(first, last)] = ranges.list() else {
        return Err(format!("`{text}` is not a network"));
    };
    Ok(SetElement::Addresses(
        values::address(v6, first),
        values::address(v6, last),
    ))
}

fn value(part: Part, text: &str, v6: bool) -> Result<Value, String> {
    Ok(match part {
        Part::Address => (values::networks(text, v6)?, None),
        Part::Mac => (values::mac(text)?, None),
        Part::Port => {
            let (protocol, ports) = text.split_once(':').unwrap_or(("tcp", text));
            let protocol = values::protocol(protocol)?.last();
            (values::ports(ports, '-')?, protocol)
        }
    })
}

/// Restricts hyperrectangles to packets that are in a set, or are not in it. `flags` select source or destination for
/// each part of the elements.
///
/// # Errors
/// Returns the reason for which the condition can't be converted.
pub fn narrowed(
    regions: &[Packets],
    (name, known): (&str, &DeclaredSet),
    flags: &str,
    negated: bool,
) -> Result<Vec<Packets>, String> {
    let ends: Vec<bool> = flags
        .split(',')
        .map(|flag| match flag {
            "src" => Ok(false),
            "dst" => Ok(true),
            other => Err(format!("`{other}` is neither src nor dst")),
        })
        .collect::<Result<_, _>>()?;
    let of = |part: usize, pair: [Field; 2]| ends.get(part).map(|&end| pair[usize::from(end)]);
    let (parts, elements) = match &known.form {
        Err(why) => return Err(why.clone()),
        Ok(SetForm::Named(set)) => {
            let end = match (set.kind, ends.first()) {
                (SetType::Ports, Some(false)) => End::SourcePort,
                (SetType::Ports, Some(true)) => End::DestinationPort,
                (_, Some(false)) => End::Source,
                (_, Some(true)) => End::Destination,
                (_, None) => return Err("src or dst is missing after the name of the set".into()),
            };
            return Ok(regions
                .iter()
                .filter_map(|packets| packets.member(name, end, !negated))
                .collect());
        }
        Ok(SetForm::Tuples(parts, elements)) => (parts, elements),
    };
    let mut inner = Vec::new();
    for element in elements {
        let mut packets = Packets::all(known.v6);
        for (at, (part, (ranges, protocol))) in parts.iter().zip(element).enumerate() {
            let pair = match part {
                Part::Address => [Field::Source, Field::Destination],
                Part::Port => [Field::SourcePort, Field::DestinationPort],
                Part::Mac => [Field::SourceMac, Field::DestinationMac],
            };
            let field = of(at, pair).ok_or("src or dst is missing for a part of the set's elements")?;
            if let Some(protocol) = protocol {
                packets = packets.only(Field::Protocol, &Ranges::of(*protocol, *protocol), false);
            }
            packets = packets.only(field, ranges, false);
        }
        inner.push(packets);
    }
    let too_many = || format!("set `{name}` has too many elements of several parts to write them into rules");
    match negated {
        true => remains(regions.to_vec(), &inner, MAX_HYPERRECTANGLES).ok_or_else(too_many),
        false => {
            let mut found: Vec<Packets> = Vec::new();
            for packets in inner {
                // Hyperrectangles must not overlap, so the hyperrectangles of previous elements are subtracted.
                let of = regions.iter().filter_map(|one| one.and(&packets)).collect();
                found.extend(remains(of, &found.clone(), MAX_HYPERRECTANGLES).ok_or_else(too_many)?);
                if found.len() > MAX_HYPERRECTANGLES {
                    return Err(too_many());
                }
            }
            Ok(found)
        }
    }
}
