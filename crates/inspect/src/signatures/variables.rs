//! Variables in rule headers: named sets of addresses and of ports.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;

use super::error::nearest;
use super::{RuleError, range};
use crate::signature::{Addresses, Ports};

/// Values of `$HOME_NET` and other variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variables {
    addresses: HashMap<Box<str>, Box<str>>,
    ports: HashMap<Box<str>, Box<str>>,
}

/// Address variables that community rules expect to be defined. The home network consists of the private addresses of
/// RFC 1918 and RFC 4193.
const ADDRESSES: &[(&str, &str)] = &[
    ("HOME_NET", "[10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7]"),
    ("EXTERNAL_NET", "any"),
    ("AIM_SERVERS", "any"),
    ("DC_SERVERS", "$HOME_NET"),
    ("DNP3_CLIENT", "$HOME_NET"),
    ("DNP3_SERVER", "$HOME_NET"),
    ("DNS_SERVERS", "$HOME_NET"),
    ("ENIP_CLIENT", "$HOME_NET"),
    ("ENIP_SERVER", "$HOME_NET"),
    ("FTP_SERVERS", "$HOME_NET"),
    ("HTTP_SERVERS", "$HOME_NET"),
    ("MODBUS_CLIENT", "$HOME_NET"),
    ("MODBUS_SERVER", "$HOME_NET"),
    ("SIP_SERVERS", "$HOME_NET"),
    ("SMTP_SERVERS", "$HOME_NET"),
    ("SNMP_SERVERS", "$HOME_NET"),
    ("SQL_SERVERS", "$HOME_NET"),
    ("SSH_SERVERS", "$HOME_NET"),
    ("TELNET_SERVERS", "$HOME_NET"),
];

const PORTS: &[(&str, &str)] = &[
    (
        "HTTP_PORTS",
        "[80,81,311,591,593,631,901,1220,1414,1830,2301,2381,2809,3128,3702,4343,5250,7001,7777,7779,8000,\
      8008,8014,8028,8080,8085,8088,8090,8118,8123,8180:8181,8243,8280,8800,8888,8899,9080,9090:9091,9443,9999,11371,\
      34443:34444,41080,50002,55555]",
    ),
    ("SHELLCODE_PORTS", "!80"),
    ("ORACLE_PORTS", "1024:"),
    ("SSH_PORTS", "22"),
    ("FTP_PORTS", "[21,2100,3535]"),
    ("SIP_PORTS", "[5060,5061,5600]"),
    ("MAIL_PORTS", "[110,143]"),
    ("FILE_DATA_PORTS", "[$HTTP_PORTS,$MAIL_PORTS]"),
    ("GTP_PORTS", "[2123,2152,3386]"),
    ("DNP3_PORTS", "20000"),
    ("MODBUS_PORTS", "502"),
    ("GENEVE_PORTS", "6081"),
    ("VXLAN_PORTS", "4789"),
    ("TEREDO_PORTS", "3544"),
    ("IMAP_PORTS", "143"),
    ("POP_PORTS", "110"),
];

impl Default for Variables {
    /// The variables that community rules use, with the recommended values of the rules' authors.
    fn default() -> Variables {
        let owned = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(name, text)| ((*name).into(), (*text).into()))
                .collect()
        };
        Variables {
            addresses: owned(ADDRESSES),
            ports: owned(PORTS),
        }
    }
}

impl Variables {
    /// No variables.
    pub fn none() -> Variables {
        Variables {
            addresses: HashMap::new(),
            ports: HashMap::new(),
        }
    }

    /// Sets a variable of addresses, given its name without `$`: `[10.0.0.0/8,!10.1.0.0/16,$DMZ]`. Variables in the
    /// text must be set before; if the variables change later, the set changes, too.
    pub fn set_addresses(&mut self, name: &str, text: &str) -> Result<(), RuleError> {
        let mut changed = self.clone();
        changed.addresses.insert(variable(name)?.into(), text.into());
        changed.addresses(&format!("${name}"))?;
        *self = changed;
        Ok(())
    }

    /// Sets a variable of ports, given its name without `$`: `[80,8000:8080,!8001,$MORE]`. Variables in the text must
    /// be set before; if the variables change later, the set changes, too.
    pub fn set_ports(&mut self, name: &str, text: &str) -> Result<(), RuleError> {
        let mut changed = self.clone();
        changed.ports.insert(variable(name)?.into(), text.into());
        changed.ports(&format!("${name}"))?;
        *self = changed;
        Ok(())
    }

    /// Evaluates a set of addresses.
    pub fn addresses(&self, text: &str) -> Result<Addresses, RuleError> {
        let mut set = AddressSet::default();
        self.gather_addresses(text, &mut set, &mut Vec::new())?;
        if set.any {
            set.within.clear();
        } else if set.within.is_empty() && set.without.is_empty() {
            return Err(RuleError::EmptySet(text.into()));
        }
        if set.without.iter().any(|net| net.prefix_len() == 0) {
            return Err(RuleError::EmptySet(text.into()));
        }
        Ok(Addresses {
            within: set.within.into(),
            without: set.without.into(),
        })
    }

    fn gather_addresses<'t>(
        &'t self,
        text: &'t str,
        set: &mut AddressSet,
        path: &mut Vec<&'t str>,
    ) -> Result<(), RuleError> {
        let (text, negated) = stripped(text);
        if negated {
            let mut inner = AddressSet::default();
            deeper(path, "")?;
            self.gather_addresses(text, &mut inner, path)?;
            path.pop();
            return set.exclude(inner, text);
        }
        if let Some(parts) = list(text)? {
            deeper(path, "")?;
            parts
                .into_iter()
                .try_for_each(|part| self.gather_addresses(part, set, path))?;
            path.pop();
            return Ok(());
        }
        if let Some(name) = text.strip_prefix('$') {
            let value = lookup(&self.addresses, name, path)?;
            deeper(path, name)?;
            self.gather_addresses(value, set, path)?;
            path.pop();
            return Ok(());
        }
        if text.eq_ignore_ascii_case("any") {
            set.any = true;
            return Ok(());
        }
        let net = text
            .parse::<IpNet>()
            .ok()
            .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        set.within
            .push(net.ok_or_else(|| RuleError::NotAnAddress(text.into()))?.trunc());
        Ok(())
    }

    /// Evaluates a set of ports.
    pub fn ports(&self, text: &str) -> Result<Ports, RuleError> {
        let (mut within, mut without) = (Vec::new(), Vec::new());
        self.gather_ports(text, &mut within, &mut without, &mut Vec::new())?;
        if within.is_empty() {
            within.push(0..=u16::MAX);
        }
        let ranges = subtract(joined(within), &joined(without));
        match ranges.as_slice() {
            [] => Err(RuleError::EmptySet(text.into())),
            [all] if *all == (0..=u16::MAX) => Ok(Ports::default()),
            _ => Ok(Ports(ranges.into())),
        }
    }

    fn gather_ports<'t>(
        &'t self,
        text: &'t str,
        within: &mut Vec<RangeInclusive<u16>>,
        without: &mut Vec<RangeInclusive<u16>>,
        path: &mut Vec<&'t str>,
    ) -> Result<(), RuleError> {
        let (text, negated) = stripped(text);
        if negated {
            let mut inner = Vec::new();
            let mut spared = Vec::new();
            deeper(path, "")?;
            self.gather_ports(text, &mut inner, &mut spared, path)?;
            path.pop();
            if inner.is_empty() && !spared.is_empty() {
                within.append(&mut spared);
                return Ok(());
            }
            without.extend(subtract(joined(inner), &joined(spared)));
            return Ok(());
        }
        if let Some(parts) = list(text)? {
            deeper(path, "")?;
            parts
                .into_iter()
                .try_for_each(|part| self.gather_ports(part, within, without, path))?;
            path.pop();
            return Ok(());
        }
        if let Some(name) = text.strip_prefix('$') {
            let value = lookup(&self.ports, name, path)?;
            deeper(path, name)?;
            self.gather_ports(value, within, without, path)?;
            path.pop();
            return Ok(());
        }
        if text.eq_ignore_ascii_case("any") {
            within.push(0..=u16::MAX);
            return Ok(());
        }
        within.push(port_range(text).ok_or_else(|| RuleError::NotAPort(text.into()))?);
        Ok(())
    }
}

#[derive(Default)]
struct AddressSet {
    any: bool,
    within: Vec<IpNet>,
    without: Vec<IpNet>,
}

impl AddressSet {
    /// Excludes another set: its members are removed from this set. If the other set consists only of exclusions, its
    /// excluded members are added to this set instead.
    fn exclude(&mut self, other: AddressSet, text: &str) -> Result<(), RuleError> {
        match (other.any || other.within.is_empty(), other.without.is_empty()) {
            (false, true) => self.without.extend(other.within),
            (true, false) => self.within.extend(other.without),
            (true, true) => return Err(RuleError::EmptySet(text.into())),
            (false, false) => return Err(RuleError::NestedNegation(text.into())),
        }
        Ok(())
    }
}

/// Maximum nesting depth of lists, variables and negations.
const MAX_DEPTH: usize = 32;

/// Adds a level to the nesting path: the name of a variable, or a blank for a list or a negation.
fn deeper<'t>(path: &mut Vec<&'t str>, name: &'t str) -> Result<(), RuleError> {
    path.push(name);
    if path.len() > MAX_DEPTH {
        Err(RuleError::TooDeep)
    } else {
        Ok(())
    }
}

fn stripped(text: &str) -> (&str, bool) {
    let text = text.trim();
    text.strip_prefix('!').map_or((text, false), |rest| (rest, true))
}

fn lookup<'v>(variables: &'v HashMap<Box<str>, Box<str>>, name: &str, path: &[&str]) -> Result<&'v str, RuleError> {
    if path.contains(&name) {
        return Err(RuleError::CircularVariable(name.into()));
    }
    variables
        .get(name)
        .map(|text| &**text)
        .ok_or_else(|| RuleError::UndefinedVariable {
            name: name.into(),
            hint: nearest(name, variables.keys().map(|known| &**known)).map(Into::into),
        })
}

fn variable(name: &str) -> Result<&str, RuleError> {
    let is_one = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_one {
        Ok(name)
    } else {
        Err(RuleError::NotAVariable(name.into()))
    }
}

/// The parts of `[a,b,[c,d]]`; `None` if the text is not a list.
fn list(text: &str) -> Result<Option<Vec<&str>>, RuleError> {
    let Some(inner) = text.strip_prefix('[') else {
        return Ok(None);
    };
    let inner = inner.strip_suffix(']').ok_or(RuleError::UnclosedList)?;
    let (mut depth, mut start, mut parts) = (0_i32, 0, Vec::new());
    for (place, byte) in inner.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&inner[start..place]);
                start = place + 1;
            }
            _ => {}
        }
        if depth < 0 {
            return Err(RuleError::UnclosedList);
        }
    }
    parts.push(&inner[start..]);
    if depth == 0 {
        Ok(Some(parts))
    } else {
        Err(RuleError::UnclosedList)
    }
}

/// `80`, `1024:`, `:1024` and `20:21`.
fn port_range(text: &str) -> Option<RangeInclusive<u16>> {
    let port = |text: &str, open: u16| {
        let text = text.trim();
        if text.is_empty() {
            Some(open)
        } else {
            range::unsigned(text).ok()?.try_into().ok()
        }
    };
    let (first, last) = match text.split_once(':') {
        Some((first, last)) if !(first.trim().is_empty() && last.trim().is_empty()) => {
            (port(first, 0)?, port(last, u16::MAX)?)
        }
        Some(_) => return None,
        None if text.is_empty() => return None,
        None => (port(text, 0)?, port(text, 0)?),
    };
    (first <= last).then_some(first..=last)
}

/// Sorts and merges ranges so that none is adjacent to the next.
fn joined(mut ranges: Vec<RangeInclusive<u16>>) -> Vec<RangeInclusive<u16>> {
    ranges.sort_by_key(|range| *range.start());
    let mut joined: Vec<RangeInclusive<u16>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if u32::from(*range.start()) <= u32::from(*last.end()) + 1 => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => joined.push(range),
        }
    }
    joined
}

fn subtract(from: Vec<RangeInclusive<u16>>, holes: &[RangeInclusive<u16>]) -> Vec<RangeInclusive<u16>> {
    let mut remaining = Vec::new();
    for range in from {
        let (mut first, last) = (u32::from(*range.start()), u32::from(*range.end()));
        for hole in holes {
            let (start, end) = (u32::from(*hole.start()), u32::from(*hole.end()));
            if end < first || start > last {
                continue;
            }
            if start > first {
                remaining.push(first as u16..=(start - 1) as u16);
            }
            first = end + 1;
        }
        if first <= last {
            remaining.push(first as u16..=last as u16);
        }
    }
    remaining
}
