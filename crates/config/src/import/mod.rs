//! Conversion of iptables and nftables listings to an equivalent configuration.
//!
//! ```text
//! iptables-save ──► iptables, matches ──┐                ┌─► sessions, interfaces, rules ─► [filter], of chain INPUT by input
//!                                       ├─► Listing ─► chains
//! nft -j ─────────► nft, expressions ───┘                └─► nat ────────────────────────► [nat]
//! ```
//!
//! Everything that has no equivalent is reported as a [`Leftover`].

mod chains;
mod expressions;
mod fields;
mod filter;
mod input;
mod interfaces;
mod iptables;
mod listing;
mod matches;
mod nat;
mod nft;
mod packets;
mod print;
mod ranges;
mod rules;
mod sessions;
mod sets;
mod untracked;
mod values;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use indexmap::{IndexMap, IndexSet};
use serde::Serialize;

use crate::schema::{self, Document, Filter, Interface, Nat, Verdict};
use crate::value::{GATEWAY, InterfaceAddress, Target};
use listing::{Hook, LineIndex, Listing, Step, Table};

/// Format of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Output of `iptables-save`.
    Iptables,
    /// Output of `ip6tables-save`.
    Ip6tables,
    /// JSON output of `nft -j list ruleset`.
    Nft,
    /// Output of `ipset save`.
    Ipset,
}

/// A file to import.
#[derive(Clone, Copy, Debug)]
pub struct Source<'t> {
    /// Name of the file in messages.
    pub name: &'t str,
    /// Content of the file.
    pub text: &'t str,
}

/// IPv4 address of an interface. Listings do not contain the addresses of interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// The address.
    pub address: Ipv4Addr,
    /// Address with the prefix length of its link. `None` if the prefix length is unknown.
    pub on_link: Option<InterfaceAddress>,
}

impl FromStr for OwnAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let on_link: Option<InterfaceAddress> = text.parse().ok();
        let address = on_link.map(|on_link| on_link.address()).or_else(|| text.parse().ok());
        match address {
            Some(IpAddr::V4(address)) => Ok(Self { address, on_link }),
            _ => Err("write an IPv4 address, optionally with a prefix length"),
        }
    }
}

/// A part of a listing that is reported to the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// Name of the file.
    pub file: String,
    /// Line number, counted from 1. `None` for a rule in JSON.
    pub line: Option<usize>,
    /// Identification in JSON: family, table, chain and handle.
    pub place: Option<String>,
    /// Text of the line, or JSON of the rule.
    pub text: String,
    /// Why the part is not converted, or to which form it is converted.
    pub reason: String,
}

/// Result of an import.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The configuration: `[interfaces]`, `[nat]` and `[filter]`.
    pub document: Document,
    /// Parts that are not converted.
    pub leftovers: Vec<Leftover>,
    /// Parts that were converted to a different form.
    pub notes: Vec<Leftover>,
    /// Remarks about the whole import.
    pub remarks: Vec<String>,
}

/// An error in a listing, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {wrong}")]
pub struct ImportError {
    /// Name of the file.
    pub file: String,
    /// Line number, counted from 1.
    pub line: usize,
    /// Column, counted from 1.
    pub column: usize,
    /// The error.
    pub wrong: Wrong,
}

impl ImportError {
    fn at(file: &str, line: usize, column: usize, wrong: Wrong) -> Self {
        let file = file.to_owned();
        Self {
            file,
            line,
            column,
            wrong,
        }
    }
}

/// Why a file is not a valid listing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// The file is empty or contains only white space.
    #[error("the file is empty")]
    Empty,
    /// The file is not UTF-8.
    #[error("the file is not UTF-8 text")]
    NotText,
    /// The file has no known format.
    #[error("the file is not a listing of iptables-save, ip6tables-save, `ipset save` or `nft -j list ruleset`")]
    NotAListing,
    /// A line precedes the first `*table`.
    #[error("`{0}` is outside of a table")]
    OutsideOfTable(String),
    /// `COMMIT` is missing at the end of a table.
    #[error("the previous table has no COMMIT: is the listing complete?")]
    NotCommitted,
    /// A chain declaration `:CHAIN …` is invalid.
    #[error("`{0}` is not a valid declaration of a chain")]
    Chain(String),
    /// A line is not an `-A` command.
    #[error("`{0}` is not a valid line of a listing")]
    NotALine(String),
    /// A quote is not closed.
    #[error("a quote is not closed")]
    Quote,
    /// `-A` refers to an undeclared chain.
    #[error("there is no chain `{0}`")]
    UnknownChain(String),
    /// `add` refers to an undeclared set.
    #[error("there is no set `{0}`")]
    UnknownSet(String),
    /// The JSON is invalid.
    #[error("{0}")]
    Json(String),
    /// The JSON has no `nftables` list.
    #[error("the file has no `nftables` list: write the file with `nft -j list ruleset`")]
    NotNft,
    /// A JSON object lacks a mandatory field.
    #[error("object {0} has no {1}")]
    Object(usize, &'static str),
    /// Jumps form a loop.
    #[error("the jump `{0}` closes a loop of chains")]
    JumpLoop(String),
    /// A table is listed twice.
    #[error("table {0} of this family is listed twice")]
    Twice(String),
    /// The listing of nft also contains the rules of iptables.
    #[error("the listing of nft also contains the rules of iptables: import only one of them")]
    Both,
}

/// Convert listings to one configuration. `addresses` contains addresses of interfaces, by interface name.
///
/// # Errors
/// A listing is invalid, or its chains form a loop.
pub fn import(
    sources: &[Source<'_>],
    format: Option<Format>,
    addresses: &IndexMap<String, OwnAddress>,
) -> Result<Imported, ImportError> {
    let mut listing = Listing::default();
    let mut formats = Vec::new();
    // Sets are read first, since rules of any file may refer to them.
    let of_sets = |source: &Source<'_>| format == Some(Format::Ipset) || sets::detect(source.text);
    let (with_sets, others): (Vec<&Source<'_>>, Vec<_>) = sources.iter().partition(|source| of_sets(source));
    for source in with_sets {
        sets::read(source.name, source.text, &mut listing)?;
    }
    for source in others {
        let format = format.or_else(|| detect(source.text)).ok_or_else(|| {
            let wrong = match source.text.trim().is_empty() {
                true => Wrong::Empty,
                false => Wrong::NotAListing,
            };
            ImportError::at(source.name, 1, 1, wrong)
        })?;
        formats.push(format);
        if formats.contains(&Format::Nft) && formats.len() > 1 {
            return Err(ImportError::at(source.name, 1, 1, Wrong::Both));
        }
        let known = listing.tables.len();
        match format {
            Format::Nft => nft::read(source.name, source.text, &mut listing)?,
            Format::Ipset => sets::read(source.name, source.text, &mut listing)?,
            text => iptables::read(source.name, source.text, text == Format::Ip6tables, &mut listing)?,
        }
        checked(source.name, &listing, known)?;
    }
    Ok(convert(&mut listing, addresses))
}

/// Content of a file as text.
///
/// # Errors
/// Returns the place of the first byte that is not UTF-8.
pub fn text<'b>(name: &str, bytes: &'b [u8]) -> Result<&'b str, ImportError> {
    std::str::from_utf8(bytes).map_err(|wrong| {
        let before = &bytes[..wrong.valid_up_to()];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|&&byte| byte != b'\n').count() + 1;
        ImportError::at(name, line, column, Wrong::NotText)
    })
}

fn detect(text: &str) -> Option<Format> {
    if text.trim_start().starts_with('{') {
        return Some(Format::Nft);
    }
    iptables::detect(text).map(|v6| match v6 {
        true => Format::Ip6tables,
        false => Format::Iptables,
    })
}

/// Check the tables of a file. The tables begin at index `known`. A table must not be listed twice, and chains must not form a
/// loop.
fn checked(file: &str, listing: &Listing, known: usize) -> Result<(), ImportError> {
    for (at, table) in listing.tables.iter().enumerate().skip(known) {
        let before = &listing.tables[..at];
        if before
            .iter()
            .any(|other| (&other.name, &other.families) == (&table.name, &table.families))
        {
            return Err(ImportError::at(file, 1, 1, Wrong::Twice(table.name.clone())));
        }
        if let Err(chains::JumpLoop(line)) = chains::check_loops(table) {
            let line = &listing.lines[line];
            let text = iptables::shortened(line.place.as_ref().unwrap_or(&line.text));
            return Err(ImportError::at(file, line.line.unwrap_or(1), 1, Wrong::JumpLoop(text)));
        }
    }
    Ok(())
}

/// Collected reports on all parts of the conversion.
#[derive(Debug, Default)]
struct ConversionReport {
    leftovers: IndexMap<LineIndex, String>,
    notes: IndexSet<(LineIndex, String)>,
    remarks: Vec<String>,
    reached: HashSet<LineIndex>,
    /// Lines that reject packets, for the notes that are added if every packet is filtered.
    refusing: Vec<LineIndex>,
}

impl ConversionReport {
    fn leave(&mut self, line: LineIndex, why: impl Into<String>) {
        self.leftovers.entry(line).or_insert_with(|| why.into());
    }

    fn note(&mut self, line: LineIndex, how: impl Into<String>) {
        self.notes.insert((line, how.into()));
    }
}

fn convert(listing: &mut Listing, addresses: &IndexMap<String, OwnAddress>) -> Imported {
    let mut report = ConversionReport::default();
    for (line, why) in std::mem::take(&mut listing.leftovers) {
        report.leave(line, why);
    }
    for (line, how) in std::mem::take(&mut listing.notes) {
        report.note(line, how);
    }
    let filter = filter::filter(listing, &mut report);
    unnamed_sets(&filter, listing, &mut report);
    let nat = nat::nat(listing, addresses, &mut report);
    answers(&filter, &nat, &mut report);
    unreached(listing, &mut report);
    let mut document = Document {
        filter,
        nat,
        ..Document::default()
    };
    let to_gateway = |rule: &schema::DestinationRule| rule.to == Target::Gateway;
    if document.nat.destination.iter().any(to_gateway) {
        let hosted = schema::Router {
            daemon: true,
            ..schema::Router::default()
        };
        document.routers.insert("default".into(), hosted);
    }
    document.interfaces = interfaces(&document, addresses);
    if !listing.interfaces.contains(GATEWAY) {
        // In rules, the name `gateway` represents the gateway itself.
        document.interfaces.shift_remove(GATEWAY);
    }
    if document.interfaces.is_empty() {
        report
            .remarks
            .push("No rule names an interface: add tables such as [interfaces.inside].".into());
    }
    let ConversionReport {
        mut leftovers,
        mut notes,
        remarks,
        ..
    } = report;
    leftovers.sort_unstable_keys();
    notes.retain(|(line, _)| !leftovers.contains_key(line));
    notes.sort_unstable();
    let place = |(line, reason): (LineIndex, String)| {
        let line = listing.lines[line].clone();
        Leftover {
            file: line.file,
            line: line.line,
            place: line.place,
            text: line.text,
            reason,
        }
    };
    Imported {
        document,
        leftovers: leftovers.into_iter().map(place).collect(),
        notes: notes.into_iter().map(place).collect(),
        remarks,
    }
}

/// Add a note for each set to which no rule refers.
fn unnamed_sets(filter: &Option<Filter>, listing: &Listing, report: &mut ConversionReport) {
    let is_named = |name: &String| filter.as_ref().is_some_and(|filter| filter.sets.contains_key(name));
    for (name, known) in listing.sets.iter().filter(|(name, _)| !is_named(name)) {
        let why = match &known.form {
            Err(why) => why.clone(),
            Ok(sets::SetForm::Named(_)) => format!("no converted rule uses set `{name}`"),
            Ok(sets::SetForm::Tuples(..)) => {
                format!(
                    "the elements of set `{name}` are written into the rules that use the set, so that only a \
                     commit can change them"
                )
            }
        };
        report.note(known.line, why);
    }
}

/// Add a note for lines that reject replies. Translated flows have sessions even if every packet is filtered, so the
/// replies of translated flows pass anyway.
fn answers(filter: &Option<Filter>, nat: &Nat, report: &mut ConversionReport) {
    let translates = !(nat.source.is_empty() && nat.destination.is_empty() && nat.one_to_one.is_empty());
    let Some(filter) = filter.as_ref().filter(|filter| translates && !filter.sessions) else {
        return;
    };
    for line in std::mem::take(&mut report.refusing) {
        report.note(
            line,
            "replies of translated connections pass nevertheless, because these connections have sessions",
        );
    }
    if filter.default != Verdict::Accept {
        report.remarks.push(
            "Replies of translated connections pass without a rule, because these connections have \
                 sessions."
                .into(),
        );
    }
}

/// Report rules that no packet reaches, and policies of chains without an equivalent.
fn unreached(listing: &Listing, report: &mut ConversionReport) {
    for table in &listing.tables {
        let used = used(table, listing);
        for (name, chain) in &table.chains {
            let why = match chain.hook {
                Some(Hook::Other) => {
                    if chain.policy == crate::schema::Verdict::Drop {
                        report.leave(
                            chain.line,
                            "this chain has no counterpart, because packets that the gateway itself sends are not \
                             filtered",
                        );
                    }
                    format!("chain `{name}` of table {} has no counterpart", table.name)
                }
                _ => format!("no converted rule leads to chain `{name}`"),
            };
            for rule in &chain.rules {
                match report.reached.contains(&rule.line) {
                    true => {}
                    false if used.contains(name.as_str()) => report.leave(rule.line, why.as_str()),
                    false => report.note(rule.line, "no rule leads to the chain of this line"),
                }
            }
        }
    }
}

/// Chains that packets may reach, through converted rules or other rules.
fn used<'t>(table: &'t Table, listing: &'t Listing) -> HashSet<&'t str> {
    let hooked = table.chains.iter().filter(|(_, chain)| chain.hook.is_some());
    let mut open: Vec<&str> = hooked.map(|(name, _)| name.as_str()).collect();
    let mut used: HashSet<&str> = open.iter().copied().collect();
    while let Some(name) = open.pop() {
        for rule in table.chains.get(name).iter().flat_map(|chain| &chain.rules) {
            let to: Vec<&str> = match &rule.meaning {
                Ok(meaning) => meaning.then.iter().filter_map(Step::target).collect(),
                // If a rule is not supported, any of its words may be the name of a chain.
                Err(_) => {
                    let text = &listing.lines[rule.line].text;
                    text.split([' ', '"']).collect()
                }
            };
            let known = to.into_iter().filter(|to| table.chains.contains_key(*to));
            open.extend(known.filter(|to| used.insert(to)));
        }
    }
    used
}

/// Add a stub for each interface that occurs in rules.
fn interfaces(document: &Document, addresses: &IndexMap<String, OwnAddress>) -> IndexMap<String, Interface> {
    let mut found = IndexMap::new();
    let rules = document.filter.iter().flat_map(|filter| &filter.rules);
    let named = rules.flat_map(|rule| {
        rule.incoming
            .0
            .iter()
            .chain(&rule.out.0)
            .map(|name| name.value.0.as_str())
    });
    let nat = &document.nat;
    let by_nat = nat.source.iter().map(|rule| &rule.out);
    let by_nat = by_nat
        .chain(nat.one_to_one.iter().map(|rule| &rule.out))
        .chain(nat.exempt.iter().map(|rule| &rule.out));
    let incoming = nat.destination.iter().flat_map(|rule| &rule.incoming.0);
    let by_nat = by_nat
        .flatten()
        .map(String::as_str)
        .chain(incoming.map(|name| name.0.as_str()));
    let given = addresses.iter().filter(|(_, own)| own.on_link.is_some());
    for name in named.chain(by_nat).chain(given.map(|(name, _)| name.as_str())) {
        let on_link = addresses.get(name).and_then(|own| own.on_link);
        let stub = || Interface {
            device: name.parse().ok(),
            addresses: on_link.into_iter().collect(),
            ..Interface::default()
        };
        found.entry(name.to_owned()).or_insert_with(stub);
    }
    found
}
