//! Import of one rule of `nft -j`: its expressions and its verdicts.

mod statements;

use serde_json::Value;

use super::fields;
use super::listing::{Action, Listing, Meaning, Step, Table};
use super::nft::Sets;
use super::packets::{End, Field, Packets};
use super::ranges::Ranges;
use super::sets::{DeclaredSet, SetForm};
use super::values;
use crate::schema::SetType;

/// Maximum number of elements in a condition.
const MAX_HYPERRECTANGLES: usize = 4096;

type Regions = Vec<Packets>;

/// The values of a list, or a single value.
pub fn list(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(values) => values.iter().collect(),
        one => vec![one],
    }
}

/// The only key of an object, and its value.
fn only_key(value: &Value) -> Option<(&str, &Value)> {
    let object = value.as_object()?;
    let (key, value) = object.iter().next()?;
    (object.len() == 1).then_some((key, value))
}

fn unknown(form: &str, value: &Value) -> String {
    let mut text = value.to_string();
    if let Some((end, _)) = text.char_indices().nth(80) {
        text.truncate(end);
        text.push('…');
    }
    format!("{form} `{text}` has no counterpart")
}

/// The meanings of a rule. A rule with a verdict map has several meanings.
///
/// # Errors
/// Returns the reason for which the rule can't be converted.
pub fn meanings(
    statements: &[Value],
    comment: Option<&str>,
    (table, sets): (&Table, &Sets),
    listing: &mut Listing,
) -> Result<Vec<Meaning>, String> {
    let mut reader = Reader { sets, listing };
    let mut regions: Regions = table.families.iter().map(|&v6| Packets::all(v6)).collect();
    let mut name = comment.map(str::to_owned);
    let mut then = Vec::new();
    let mut chosen = Vec::new();
    for statement in statements {
        let (kind, value) = only_key(statement).ok_or_else(|| unknown("statement", statement))?;
        if !chosen.is_empty() {
            return Err("another statement follows the verdict map".into());
        }
        match kind {
            "match" if !then.is_empty() => return Err("a condition follows an action in the same rule".into()),
            "match" => regions = reader.condition(regions, value)?,
            "vmap" => chosen = reader.choices(&regions, value)?,
            // These statements need no conversion. Every rule of the filter has counters.
            "counter" | "comment" | "continue" => {}
            "set" => {
                let (action, family) = reader.added(value)?;
                regions = reader.implied(regions, family);
                then.push(Step::Do(action));
            }
            _ => then.push(statements::step(kind, value, &mut name)?),
        }
        if regions.len() > MAX_HYPERRECTANGLES {
            return Err("the rule has too many combinations of values".into());
        }
    }
    let to = then.iter().find_map(Step::target);
    if let Some(to) = to.filter(|to| !table.chains.contains_key(*to)) {
        return Err(format!("there is no chain `{to}`"));
    }
    let mut found = Vec::new();
    if !then.is_empty() || chosen.is_empty() {
        if then.is_empty() {
            then.push(Step::Do(Action::Count));
        }
        let (when, name) = (regions, name.clone());
        found.push(Meaning { when, then, name });
    }
    found.extend(chosen.into_iter().map(|(when, step)| Meaning {
        when,
        then: vec![step],
        name: name.clone(),
    }));
    Ok(found)
}

struct Reader<'r> {
    sets: &'r Sets,
    listing: &'r mut Listing,
}

impl Reader<'_> {
    /// Keys of a verdict map with their verdicts.
    fn choices(&mut self, regions: &Regions, vmap: &Value) -> Result<Vec<(Regions, Step)>, String> {
        let key = vmap.get("key").ok_or("a map has no key")?;
        let data = vmap.get("data").ok_or("a map has no data")?;
        let mut found = Vec::new();
        for entry in self.members(data)? {
            let Some([value, verdict]) = entry.as_array().map(Vec::as_slice) else {
                return Err(unknown("entry", &entry));
            };
            let matching = self.apply(regions.clone(), key, "==", value)?;
            let (kind, to) = only_key(verdict).ok_or_else(|| unknown("verdict", verdict))?;
            if kind != "continue" {
                found.push((matching, statements::step(kind, to, &mut None)?));
            }
        }
        Ok(found)
    }

    /// Converts a statement that adds the source address to a set. Returns the action, and the header that contains the
    /// address.
    fn added(&self, statement: &Value) -> Result<(Action, &'static str), String> {
        let of = |key| statement.get(key);
        let set = of("set")
            .and_then(Value::as_str)
            .and_then(|text| text.strip_prefix('@'));
        let name = set.and_then(|set| self.sets.changing.get(set));
        let known = name.and_then(|name| Some((name, self.listing.sets.get(name)?)));
        let Some((
            name,
            DeclaredSet {
                form: Ok(SetForm::Named(set)),
                ..
            },
        )) = known
        else {
            return Err(format!("set `{}` has no counterpart", set.unwrap_or_default()));
        };
        let element = of("elem").ok_or("the element that is added to the set is missing")?;
        let timeout = only_key(element).and_then(|(_, element)| element.get("timeout")?.as_u64());
        let source = ["ip", "ip6"]
            .into_iter()
            .find(|family| *plain(element) == serde_json::json!({"payload": {"protocol": family, "field": "saddr"}}));
        let other = "`add-to-set` can add only source addresses";
        let family = source.ok_or(other)?;
        if set.kind == SetType::Ports || of("stmt").is_some() {
            return Err(other.into());
        }
        let own = set.timeout.map(|period| period.duration().as_secs());
        match of("op").and_then(Value::as_str) {
            _ if timeout.is_some() && timeout != own => Err("an element can't have a different timeout than its \
                 set"
            .into()),
            Some("add") if own.is_some() => Err(
                "`add-to-set` renews the timeout of elements that are already in the set, which `update` does, \
                     but not `add`"
                    .into(),
            ),
            Some("add" | "update") => Ok((Action::AddToSet(name.clone()), family)),
            _ => Err("packets can't remove elements from sets".into()),
        }
    }

    fn condition(&mut self, regions: Regions, condition: &Value) -> Result<Regions, String> {
        let op = condition.get("op").and_then(Value::as_str).unwrap_or("==");
        let (left, right) = condition
            .get("left")
            .zip(condition.get("right"))
            .ok_or("a condition has only one operand")?;
        self.apply(regions, left, op, right)
    }

    /// Values of an anonymous set or a named set.
    fn members(&self, value: &Value) -> Result<Vec<Value>, String> {
        if let Some(name) = value.as_str().and_then(|text| text.strip_prefix('@')) {
            return self
                .sets
                .elements
                .get(name)
                .cloned()
                .unwrap_or_else(|| Err(format!("there is no set `{name}`")));
        }
        match only_key(value) {
            Some(("set", values)) => Ok(list(values).into_iter().cloned().collect()),
            _ => Ok(list(value).into_iter().cloned().collect()),
        }
    }

    fn apply(&mut self, regions: Regions, left: &Value, op: &str, right: &Value) -> Result<Regions, String> {
        if let Some(("concat", parts)) = only_key(left) {
            return self.together(regions, list(parts).as_slice(), op, right);
        }
        let (left, mask) = match only_key(left) {
            Some(("&", sides)) => match sides.as_array().map(Vec::as_slice) {
                Some([left, mask]) => (left, Some(mask)),
                _ => return Err(unknown("expression", left)),
            },
            _ => (left, None),
        };
        let (kind, field) = only_key(left).ok_or_else(|| unknown("expression", left))?;
        let key = |name: &str| field.get(name).and_then(Value::as_str).unwrap_or_default();
        let key = match kind {
            "payload" => (key("protocol"), key("field")),
            "meta" | "ct" if field.get("dir").is_none() => (kind, key("key")),
            _ => return Err(unknown("expression", left)),
        };
        let regions = self.implied(regions, key.0);
        let name = right.as_str().and_then(|text| text.strip_prefix('@'));
        if let (Some(set), None) = (name.and_then(|name| self.sets.changing.get(name)), mask) {
            let end = match key {
                ("ip" | "ip6", "saddr") => End::Source,
                ("ip" | "ip6", "daddr") => End::Destination,
                ("tcp" | "udp" | "th", "sport") => End::SourcePort,
                ("tcp" | "udp" | "th", "dport") => End::DestinationPort,
                _ => return Err(unknown("set of", left)),
            };
            if let Some(Err(why)) = self.listing.sets.get(set).map(|known| &known.form) {
                return Err(why.clone());
            }
            let is_in = !statements::inverted(op)?;
            return Ok(regions
                .iter()
                .filter_map(|packets| packets.member(set, end, is_in))
                .collect());
        }
        match (key, mask) {
            (("tcp", "flags"), mask) => self.flags(regions, op, mask, right),
            (("ip", "frag-off"), Some(mask)) if mask.as_u64() == Some(0x1fff) && right.as_u64() == Some(0) => {
                Ok(regions
                    .iter()
                    .map(|packets| packets.only(Field::Fragment, &Ranges::of(2, 2), op == "=="))
                    .collect())
            }
            (_, Some(_)) => Err(unknown("mask of", left)),
            (("meta", "nfproto" | "protocol"), None) => self.of_family(regions, op, right),
            (("ct", "state"), None) => {
                let state = |value: &Value| {
                    value
                        .as_str()
                        .map(values::states)
                        .ok_or_else(|| unknown("state", value))?
                };
                self.narrowed(regions, Field::State, op, right, &mut |_, value| state(value))
            }
            (key, None) => self
                .field(regions, key, op, right)
                .ok_or_else(|| unknown("expression", left))?,
        }
    }

    /// Adds the conditions that a match on a header implies.
    fn implied(&self, regions: Regions, header: &str) -> Regions {
        let (v6, protocol) = match header {
            "ip" => (Some(false), None),
            "ip6" => (Some(true), None),
            "icmp" => (Some(false), Some(1)),
            "icmpv6" => (Some(true), Some(58)),
            "tcp" => (None, Some(6)),
            "udp" => (None, Some(17)),
            _ => (None, None),
        };
        let family = regions
            .into_iter()
            .filter(|packets| v6.is_none_or(|v6| packets.v6 == v6));
        let of = |packets: Packets| match protocol {
            Some(number) => packets.only(Field::Protocol, &Ranges::of(number, number), false),
            None => packets,
        };
        family.map(of).filter(|packets| !packets.is_empty()).collect()
    }

    /// Adds a condition on a numeric field. `None` if the field has no equivalent.
    fn field(
        &mut self,
        regions: Regions,
        key: (&str, &str),
        op: &str,
        right: &Value,
    ) -> Option<Result<Regions, String>> {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let port = |_: &Packets, value: &Value| values::ports(&text(value), '-');
        let protocol = |_: &Packets, value: &Value| values::protocol(&text(value));
        let address = |packets: &Packets, value: &Value| values::networks(&text(value), packets.v6);
        let kind = |packets: &Packets, value: &Value| values::message(&text(value), packets.v6);
        let code = |_: &Packets, value: &Value| statements::code(&text(value));
        let mac = |_: &Packets, value: &Value| values::mac(&text(value));
        Some(match key {
            ("ip" | "ip6", "saddr") => self.narrowed(regions, Field::Source, op, right, &mut { address }),
            ("ip" | "ip6", "daddr") => self.narrowed(regions, Field::Destination, op, right, &mut { address }),
            ("ip", "protocol") | ("ip6", "nexthdr") | ("meta", "l4proto") => {
                self.narrowed(regions, Field::Protocol, op, right, &mut { protocol })
            }
            ("tcp" | "udp" | "th", "sport") => self.narrowed(regions, Field::SourcePort, op, right, &mut { port }),
            ("tcp" | "udp" | "th", "dport") => self.narrowed(regions, Field::DestinationPort, op, right, &mut { port }),
            ("icmp" | "icmpv6", "type") => self.narrowed(regions, Field::Message, op, right, &mut { kind }),
            ("icmp" | "icmpv6", "code") => self.narrowed(regions, Field::Message, op, right, &mut { code }),
            ("ether", "saddr") => self.narrowed(regions, Field::SourceMac, op, right, &mut { mac }),
            ("ether", "daddr") => self.narrowed(regions, Field::DestinationMac, op, right, &mut { mac }),
            ("meta", "iifname" | "iif") => self.named(regions, Field::In, op, right),
            ("meta", "oifname" | "oif") => self.named(regions, Field::Out, op, right),
            (header, name) => {
                let (field, read) = fields::of_nft(header, name)?;
                self.narrowed(regions, field, op, right, &mut |_, value| read(&text(value)))
            }
        })
    }

    fn named(&mut self, regions: Regions, field: Field, op: &str, right: &Value) -> Result<Regions, String> {
        let mut numbers = Vec::new();
        for member in self.members(right)? {
            let member = plain(&member);
            let name = member.as_str().ok_or_else(|| unknown("interface", member))?;
            if name.ends_with('*') {
                return Err(format!(
                    "the interface pattern `{name}` has no counterpart: each interface must be named"
                ));
            }
            let number = self.listing.interface(values::interface_name(name)?)?;
            numbers.push((number, number));
        }
        let inverted = statements::inverted(op)?;
        let values = Ranges::union(numbers);
        Ok(regions
            .iter()
            .map(|packets| packets.only(field, &values, inverted))
            .collect())
    }

    /// Restricts hyperrectangles to the values on the right-hand side. `read` parses one value.
    fn narrowed(
        &mut self,
        regions: Regions,
        field: Field,
        op: &str,
        right: &Value,
        read: &mut dyn FnMut(&Packets, &Value) -> Result<Ranges, String>,
    ) -> Result<Regions, String> {
        let members = self.members(right)?;
        let mut found = Vec::new();
        for packets in regions {
            let mut all = Vec::new();
            for member in &members {
                all.extend(statements::span(plain(member), &mut |value| read(&packets, value))?.list());
            }
            let max = packets.max(field);
            let (values, inverted) = statements::compared(op, &Ranges::union(all), max)?;
            found.push(packets.only(field, &values, inverted));
        }
        found.retain(|packets| !packets.is_empty());
        Ok(found)
    }

    fn of_family(&mut self, regions: Regions, op: &str, right: &Value) -> Result<Regions, String> {
        let mut families = Vec::new();
        for member in self.members(right)? {
            match member.as_str() {
                Some("ipv4" | "ip") => families.push(false),
                Some("ipv6" | "ip6") => families.push(true),
                _ => return Err(unknown("family", &member)),
            }
        }
        let inverted = statements::inverted(op)?;
        Ok(regions
            .into_iter()
            .filter(|packets| families.contains(&packets.v6) != inverted)
            .collect())
    }

    fn flags(&mut self, regions: Regions, op: &str, mask: Option<&Value>, right: &Value) -> Result<Regions, String> {
        let of = mask.map(statements::flag_bits).transpose()?;
        // The members of a set are alternatives. The members of a list are bits that are combined.
        let members = match only_key(right) {
            Some(("set", values)) => list(values),
            _ => vec![right],
        };
        let sets: Vec<u8> = members
            .into_iter()
            .map(statements::flag_bits)
            .collect::<Result<_, _>>()?;
        let (values, inverted) = match (op, of, sets.as_slice()) {
            ("in", None, &[set]) => (values::flags(set, 0), true),
            ("==" | "!=", of, sets) => {
                let each = sets.iter().map(|&set| values::flags(of.unwrap_or(255), set));
                let all: Vec<_> = each.flat_map(|flags| flags.list().to_vec()).collect();
                (Ranges::union(all), op == "!=")
            }
            _ => return Err(unknown("comparison of", right)),
        };
        Ok(regions
            .iter()
            .map(|packets| packets.only(Field::Flags, &values, inverted))
            .collect())
    }

    /// Adds a condition on a concatenation of fields.
    fn together(&mut self, regions: Regions, parts: &[&Value], op: &str, right: &Value) -> Result<Regions, String> {
        if op != "==" && op != "in" {
            return Err("concatenated fields can be compared only with `==`".into());
        }
        let mut found = Vec::new();
        for member in self.members(right)? {
            let Some(("concat", values)) = only_key(plain(&member)) else {
                return Err(unknown("element", &member));
            };
            let values = list(values);
            if values.len() != parts.len() || found.len() > MAX_HYPERRECTANGLES {
                return Err(
                    "the number of concatenated fields differs from the number of values, or is too \
                     high"
                        .into(),
                );
            }
            let mut matching = regions.clone();
            for (part, value) in parts.iter().zip(values) {
                matching = self.apply(matching, part, "==", value)?;
            }
            found.extend(matching);
        }
        Ok(found)
    }
}

/// Whether an element has a timeout.
pub fn is_limited(member: &Value) -> bool {
    only_key(member).is_some_and(|(kind, element)| {
        kind == "elem" && ["timeout", "expires"].iter().any(|key| element.get(key).is_some())
    })
}

/// Addresses or ports of an element.
///
/// # Errors
/// The element has values of a different type.
pub fn element(member: &Value, is_port: bool, v6: bool) -> Result<Ranges, String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    statements::span(plain(member), &mut |value| match is_port {
        true => values::ports(&text(value), '-'),
        false => values::networks(&text(value), v6),
    })
}

/// The element without its comment and counters.
fn plain(member: &Value) -> &Value {
    match only_key(member) {
        Some(("elem", element)) => element.get("val").unwrap_or(member),
        _ => member,
    }
}
