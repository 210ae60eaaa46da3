//! Imports `nft -j list ruleset`: tables, chains, sets and rules.

use std::collections::HashMap;

use indexmap::IndexMap;
use serde_json::{Map, Value};

use super::expressions;
use super::listing::{Chain, Hook, Line, Listing, Rule, Table};
use super::sets::{DeclaredSet, SetForm, limited_elements, named};
use super::{ImportError, Wrong, values};
use crate::schema::{NamedSet, SetType, Verdict};
use crate::value::{Period, SetElement};

/// Chains with this priority are evaluated before connection tracking.
const RAW: i64 = -300;

/// Sets and maps of a table by name.
#[derive(Debug, Default)]
pub struct Sets {
    /// Elements of constant sets. The error states why a set can't be used.
    pub elements: HashMap<String, Result<Vec<Value>, String>>,
    /// Changeable sets, each with its name in [`Listing::sets`].
    pub changing: HashMap<String, String>,
}

/// One object of the `nftables` list.
struct Object<'v> {
    kind: &'v str,
    fields: &'v Map<String, Value>,
    number: usize,
}

impl<'v> Object<'v> {
    fn text(&self, key: &'static str) -> Result<&'v str, Wrong> {
        let text = self.fields.get(key).and_then(Value::as_str);
        text.ok_or(Wrong::Object(self.number, key))
    }

    /// Family and name of the object's table.
    fn table(&self) -> Result<(String, String), Wrong> {
        Ok((self.text("family")?.into(), self.text("table")?.into()))
    }

    /// Identification of the object in messages: family, table, chain, name and handle.
    fn place(&self) -> String {
        let of = ["family", "table", "chain", "name"].map(|key| self.fields.get(key).and_then(Value::as_str));
        let mut words: Vec<String> = of.into_iter().flatten().map(Into::into).collect();
        if let Some(handle) = self.fields.get("handle").and_then(Value::as_u64) {
            words.push(format!("handle {handle}"));
        }
        words.join(" ")
    }
}

/// Add the tables of a file to the listing.
///
/// # Errors
/// The file is not the JSON of a ruleset.
pub fn read(file: &str, text: &str, listing: &mut Listing) -> Result<(), ImportError> {
    let json: Value = serde_json::from_str(text).map_err(|wrong| {
        let (line, column) = (wrong.line().max(1), wrong.column().max(1));
        ImportError::at(file, line, column, Wrong::Json(wrong.to_string()))
    })?;
    let objects = json.get("nftables").and_then(Value::as_array);
    let objects = objects.ok_or_else(|| ImportError::at(file, 1, 1, Wrong::NotNft))?;
    let mut ruleset = Ruleset {
        file,
        listing,
        tables: IndexMap::new(),
        sets: HashMap::new(),
    };
    let objects: Vec<_> = objects
        .iter()
        .enumerate()
        .filter_map(|(at, object)| {
            let (kind, fields) = object.as_object()?.iter().next()?;
            Some(Object {
                kind,
                fields: fields.as_object()?,
                number: at + 1,
            })
        })
        .collect();
    // Chains and sets are read before rules, because the list may contain a rule before the chains and sets that it
    // refers to.
    for kinds in [["table", "", ""], ["chain", "set", "map"], ["rule", "", ""]] {
        for object in objects.iter().filter(|object| kinds.contains(&object.kind)) {
            ruleset
                .add(object)
                .map_err(|wrong| ImportError::at(file, 1, 1, wrong))?;
        }
    }
    for object in objects
        .iter()
        .filter(|object| ["flowtable", "element"].contains(&object.kind))
    {
        let line = ruleset.line(object, &Value::Object(object.fields.clone()));
        let why = format!("a {} has no counterpart", object.kind);
        ruleset.listing.leftovers.push((line, why));
    }
    let tables = ruleset.tables.into_values();
    listing.tables.extend(tables);
    listing.complete = [true; 2];
    Ok(())
}

struct Ruleset<'l> {
    file: &'l str,
    listing: &'l mut Listing,
    tables: IndexMap<(String, String), Table>,
    sets: HashMap<(String, String), Sets>,
}

impl Ruleset<'_> {
    fn line(&mut self, object: &Object<'_>, text: &Value) -> usize {
        self.listing.line(Line {
            file: self.file.into(),
            line: None,
            place: Some(object.place()),
            text: text.to_string(),
        })
    }

    fn add(&mut self, object: &Object<'_>) -> Result<(), Wrong> {
        match object.kind {
            "table" => {
                let (family, name) = (object.text("family")?, object.text("name")?);
                let families = match family {
                    "ip" => vec![false],
                    "ip6" => vec![true],
                    "inet" => vec![false, true],
                    _ => Vec::new(),
                };
                let table = Table {
                    name: format!("{family} {name}"),
                    families,
                    chains: IndexMap::new(),
                };
                if self.tables.insert((family.into(), name.into()), table).is_some() {
                    return Err(Wrong::Twice(format!("{family} {name}")));
                }
                Ok(())
            }
            "chain" => self.chain(object),
            "rule" => self.rule(object),
            _ => {
                let name = object.text("name")?;
                let found = elements(object);
                let changing = found.is_err().then(|| changing(object)).flatten();
                if let Some((form, v6)) = changing {
                    let line = self.line(object, &Value::Object(object.fields.clone()));
                    let free = (2..=99_999).map(|number| format!("{name}-{number}"));
                    let mut free = std::iter::once(name.to_owned()).chain(free);
                    let unlike = free
                        .find(|name| !self.listing.sets.contains_key(name))
                        .unwrap_or_default();
                    let form = named(&unlike).and(form).map(|(set, limited)| {
                        if limited > 0 {
                            self.listing.notes.push((line, limited_elements(limited)));
                        }
                        SetForm::Named(set)
                    });
                    self.listing.sets.insert(unlike.clone(), DeclaredSet { line, form, v6 });
                    let sets = self.sets.entry(object.table()?).or_default();
                    sets.changing.insert(name.into(), unlike);
                }
                let sets = self.sets.entry(object.table()?).or_default();
                sets.elements.insert(name.into(), found);
                Ok(())
            }
        }
    }

    fn chain(&mut self, object: &Object<'_>) -> Result<(), Wrong> {
        let line = self.line(object, &Value::Object(object.fields.clone()));
        let name = object.text("name")?.to_owned();
        let of = |key| object.fields.get(key).and_then(Value::as_str);
        let table = self
            .tables
            .get_mut(&object.table()?)
            .ok_or(Wrong::Object(object.number, "table"))?;
        let routed = !table.families.is_empty();
        let is_raw = object.fields.get("prio").and_then(Value::as_i64) == Some(RAW);
        let hook = of("hook").map(|hook| match (of("type"), hook) {
            (Some("filter"), "prerouting") if routed && is_raw => Hook::Raw,
            (Some("filter"), "forward") if routed => Hook::Forward,
            (Some("filter"), "input") if routed => Hook::Input,
            (Some("nat"), "prerouting") if routed => Hook::Prerouting,
            (Some("nat"), "postrouting") if routed => Hook::Postrouting,
            _ => Hook::Other,
        });
        let chain = Chain {
            line,
            hook,
            priority: object.fields.get("prio").and_then(Value::as_i64).unwrap_or(0),
            policy: match of("policy") {
                Some("drop") => Verdict::Drop,
                _ => Verdict::Accept,
            },
            rules: Vec::new(),
        };
        table.chains.insert(name, chain);
        Ok(())
    }

    fn rule(&mut self, object: &Object<'_>) -> Result<(), Wrong> {
        let statements = object.fields.get("expr").and_then(Value::as_array);
        let statements = statements.ok_or(Wrong::Object(object.number, "expr"))?;
        let line = self.line(object, &Value::Array(statements.clone()));
        let of = object.table()?;
        let none = Sets::default();
        let sets = self.sets.get(&of).unwrap_or(&none);
        let table = self.tables.get_mut(&of).ok_or(Wrong::Object(object.number, "table"))?;
        let comment = object.fields.get("comment").and_then(Value::as_str);
        let meanings = expressions::meanings(statements, comment, (table, sets), self.listing);
        let chain = object.text("chain")?;
        let chain = table
            .chains
            .get_mut(chain)
            .ok_or_else(|| Wrong::UnknownChain(chain.into()))?;
        match meanings {
            Ok(meanings) => chain.rules.extend(meanings.into_iter().map(|meaning| Rule {
                line,
                meaning: Ok(meaning),
            })),
            Err(why) => chain.rules.push(Rule {
                line,
                meaning: Err(why),
            }),
        }
        Ok(())
    }
}

/// Convert a changeable set to a set of the filter. Returns the set, the number of its elements with a timeout, and
/// whether the set is for IPv6. `None` if the set is constant.
#[expect(clippy::type_complexity, reason = "said once")]
fn changing(object: &Object<'_>) -> Option<(Result<(NamedSet, usize), String>, bool)> {
    let of = |key| object.fields.get(key);
    let flags = of("flags").map(expressions::list).unwrap_or_default();
    let is_interval = flags.iter().any(|flag| flag.as_str() == Some("interval"));
    let kind = match (object.kind, of("type")?.as_str()?) {
        ("set", "inet_service") => SetType::Ports,
        ("set", "ipv4_addr" | "ipv6_addr") if is_interval => SetType::Networks,
        ("set", "ipv4_addr" | "ipv6_addr") => SetType::Addresses,
        _ => return None,
    };
    let v6 = of("type")?.as_str() == Some("ipv6_addr");
    let max = if kind == SetType::Ports { 65_536 } else { 262_144 };
    let size = of("size").and_then(Value::as_u64).unwrap_or(65_536).clamp(1, max);
    let mut set = NamedSet {
        kind,
        size: size as u32,
        timeout: of("timeout").and_then(Value::as_u64).map(Period::seconds),
        elements: Vec::new(),
    };
    let (mut count, mut limited) = (0, 0);
    for member in of("elem").map(expressions::list).unwrap_or_default() {
        if expressions::is_limited(member) {
            limited += 1;
            continue;
        }
        let ranges = match expressions::element(member, kind == SetType::Ports, v6) {
            Ok(ranges) => ranges,
            Err(why) => return Some((Err(why), v6)),
        };
        for &(first, last) in ranges.list() {
            let element = match kind {
                SetType::Ports => SetElement::Ports(first as u16, last as u16),
                _ => SetElement::Addresses(values::address(v6, first), values::address(v6, last)),
            };
            count += element.count(kind).unwrap_or(usize::MAX / 2);
            set.elements.push(element);
        }
        if count > size as usize {
            return Some((Err(format!("the elements exceed the size of the set, {size}")), v6));
        }
    }
    Some((Ok((set, limited)), v6))
}

/// Elements of a constant set.
fn elements(object: &Object<'_>) -> Result<Vec<Value>, String> {
    let changing = ["timeout", "dynamic", "evaluate"];
    let flags = object.fields.get("flags");
    let flags = flags.map(expressions::list).unwrap_or_default();
    let changes = flags
        .iter()
        .filter_map(|flag| flag.as_str())
        .any(|flag| changing.contains(&flag));
    if changes || object.fields.contains_key("timeout") {
        let name = object.fields.get("name").and_then(Value::as_str).unwrap_or_default();
        return Err(format!("set `{name}` can change at run time"));
    }
    let elements = object.fields.get("elem").and_then(Value::as_array);
    Ok(elements.cloned().unwrap_or_default())
}
