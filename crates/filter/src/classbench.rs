//! Parser for ClassBench rule sets: `@source/length destination/length first : last first : last protocol/mask flags/mask`.

use thiserror::Error;

use crate::{Field, Range, Rule};

/// An invalid line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {what}")]
pub struct ParseError {
    /// Line number, counted from 1.
    pub line: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// Parses the five fields of each rule. Further fields of a line are ignored, as in the literature on ClassBench.
pub fn parse_classbench(text: &str) -> Result<Vec<Rule<u32>>, ParseError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| rule(line).map_err(|what| ParseError { line: number + 1, what }))
        .collect()
}

fn rule(line: &str) -> Result<Rule<u32>, &'static str> {
    let line = line.trim().strip_prefix('@').ok_or("a rule begins with @")?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let [
        source,
        destination,
        from,
        ":",
        to,
        other_from,
        ":",
        other_to,
        protocol,
        ..,
    ] = words[..]
    else {
        return Err("a rule has two prefixes, two ranges of ports and a protocol");
    };
    let ports = |first: &str, last: &str| Some((first.parse::<u16>().ok()?, last.parse::<u16>().ok()?));
    let (source, destination) = prefix(source).zip(prefix(destination)).ok_or("no prefix")?;
    let sources = ports(from, to).ok_or("no range of ports")?;
    let destinations = ports(other_from, other_to).ok_or("no range of ports")?;
    let mut rule = Rule::any().between(source, destination).map_err(|_| "no prefix")?;
    for (field, (first, last)) in [(Field::SourcePort, sources), (Field::DestinationPort, destinations)] {
        if (first, last) != (0, u16::MAX) {
            rule = rule
                .with(field, first.into(), last.into())
                .map_err(|_| "a range of ports ends before it begins")?;
        }
    }
    let hex = |text: &str| u8::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    match protocol
        .split_once('/')
        .and_then(|(value, mask)| hex(value).zip(hex(mask)))
    {
        Some((_, 0)) => Ok(rule),
        Some((value, 0xff)) => rule
            .with(Field::Protocol, value.into(), value.into())
            .map_err(|_| "no protocol"),
        _ => Err("no protocol"),
    }
}

fn prefix(text: &str) -> Option<Range<u32>> {
    let (address, length) = text.split_once('/')?;
    let address: std::net::Ipv4Addr = address.parse().ok()?;
    let length: u32 = length.parse().ok().filter(|&length| length <= 32)?;
    let hosts = u32::MAX.checked_shr(length).unwrap_or(0);
    Some(Range {
        first: address.to_bits() & !hosts,
        last: address.to_bits() | hosts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classbench_line_is_a_rule() {
        let text = "@10.1.0.0/16\t192.0.2.1/32\t0 : 65535\t80 : 443\t0x06/0xFF\t0x1000/0x1000\n";
        let expected = Rule::any()
            .between(
                Range {
                    first: 0x0a01_0000,
                    last: 0x0a01_ffff,
                },
                Range {
                    first: 0xc000_0201,
                    last: 0xc000_0201,
                },
            )
            .and_then(|rule| rule.with(Field::DestinationPort, 80, 443))
            .and_then(|rule| rule.with(Field::Protocol, 6, 6));
        assert_eq!(Ok(vec![expected.unwrap()]), parse_classbench(text));
    }

    #[test]
    fn classbench_garbage_is_refused_with_its_line() {
        let good = "@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00 0x0000/0x0000\n";
        for bad in [
            "rubbish",
            "@1.2.3.4/33 0.0.0.0/0 0 : 1 0 : 1 0x06/0xFF",
            "@0.0.0.0/0 0.0.0.0/0 9 : 1 0 : 1 0x06/0xFF",
        ] {
            let refused = parse_classbench(&format!("{good}\n{bad}\n")).unwrap_err();
            assert_eq!(3, refused.line, "{refused}");
        }
    }
}
