//! Imports `iptables-save` and `ip6tables-save`: tables, chains, and the words of a line.

use indexmap::IndexMap;

use super::listing::{Chain, Hook, Line, Listing, Rule, Table};
use super::matches::{self, Context};
use super::{ImportError, Wrong};
use crate::schema::Verdict;

/// Whether a text looks like the output of `iptables-save`, and whether the output is for IPv6.
pub fn detect(text: &str) -> Option<bool> {
    let lines = || text.lines().map(str::trim);
    lines().find(|line| line.starts_with('*'))?;
    let named = lines().take_while(|line| line.starts_with('#') || line.is_empty());
    let mut named = named.filter_map(|line| {
        let v6 = line.contains("ip6tables-save");
        (v6 || line.contains("iptables-save")).then_some(v6)
    });
    let by_address = || {
        let mut rules = lines().filter(|line| line.starts_with("-A") || line.starts_with('['));
        rules.any(|rule| {
            let mut words = rule.split_whitespace().skip_while(|word| word.starts_with('['));
            words.any(|word| {
                word == "ipv6-icmp"
                    || word
                        .split('/')
                        .next()
                        .is_some_and(|a| a.parse::<std::net::Ipv6Addr>().is_ok())
            })
        })
    };
    Some(named.next().unwrap_or_else(by_address))
}

/// Add the tables of a file to the listing.
///
/// # Errors
/// The first line that is invalid in the output of `iptables-save`.
pub fn read(file: &str, text: &str, v6: bool, listing: &mut Listing) -> Result<(), ImportError> {
    let mut table: Option<Table> = None;
    let mut last = 0;
    for (at, line) in text.lines().enumerate() {
        last = at + 1;
        let wrong = |wrong| ImportError::at(file, at + 1, 1, wrong);
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('*') {
            if table.is_some() {
                return Err(wrong(Wrong::NotCommitted));
            }
            table = Some(Table {
                name: name.to_owned(),
                families: vec![v6],
                chains: IndexMap::new(),
            });
            continue;
        }
        let Some(open) = &mut table else {
            return Err(wrong(Wrong::OutsideOfTable(shortened(line))));
        };
        if line == "COMMIT" {
            listing.tables.extend(table.take());
            continue;
        }
        let index = listing.line(Line {
            file: file.into(),
            line: Some(at + 1),
            place: None,
            text: line.into(),
        });
        match line.strip_prefix(':') {
            Some(declared) => {
                let (name, chain) =
                    chain(&open.name, declared, index).ok_or_else(|| wrong(Wrong::Chain(shortened(line))))?;
                open.chains.insert(name, chain);
            }
            None => {
                let (name, rule) = rule(line, v6, index, open, listing).map_err(wrong)?;
                let Some(chain) = open.chains.get_mut(&name) else {
                    return Err(wrong(Wrong::UnknownChain(shortened(&name))));
                };
                chain.rules.push(rule);
            }
        }
    }
    match table {
        Some(_) => Err(ImportError::at(file, last, 1, Wrong::NotCommitted)),
        None => Ok(()),
    }
}

/// Shortens a text for a message.
pub fn shortened(text: &str) -> String {
    let mut short = crate::text::escaped(&text.chars().take(60).collect::<String>()).into_owned();
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}

/// Parse a chain declaration such as `FORWARD ACCEPT [0:0]`, without the colon.
fn chain(table: &str, declared: &str, line: usize) -> Option<(String, Chain)> {
    let mut words = declared.split_whitespace();
    let (name, policy) = (words.next()?, words.next()?);
    let hook = match (table, name) {
        _ if policy == "-" => None,
        ("filter", "FORWARD") => Some(Hook::Forward),
        ("filter", "INPUT") => Some(Hook::Input),
        ("raw", "PREROUTING") => Some(Hook::Raw),
        ("nat", "PREROUTING") => Some(Hook::Prerouting),
        ("nat", "POSTROUTING") => Some(Hook::Postrouting),
        _ => Some(Hook::Other),
    };
    let policy = match policy {
        "DROP" => Verdict::Drop,
        "ACCEPT" | "-" => Verdict::Accept,
        _ => return None,
    };
    let (priority, rules) = (0, Vec::new());
    let chain = Chain {
        line,
        hook,
        priority,
        policy,
        rules,
    };
    Some((name.to_owned(), chain))
}

fn rule(line: &str, v6: bool, index: usize, table: &Table, listing: &mut Listing) -> Result<(String, Rule), Wrong> {
    // Lines may begin with counters: `[packets:bytes] -A …`.
    let counted = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let text = counted.map_or(line, |(_, rest)| rest.trim_start());
    let words = words(text).ok_or(Wrong::Quote)?;
    let [append, chain, rest @ ..] = words.as_slice() else {
        return Err(Wrong::NotALine(shortened(line)));
    };
    if append != "-A" && append != "--append" {
        return Err(Wrong::NotALine(shortened(line)));
    }
    let context = Context { v6, table };
    let meaning = matches::meaning(rest, &context, listing);
    Ok((chain.clone(), Rule { line: index, meaning }))
}

/// Words of a line, without quotes and backslashes. `None` if a quote is not closed.
pub fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '\\' => word.get_or_insert_default().push(letters.next()?),
            space if space.is_whitespace() && !quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    (!quoted).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_quotes_are_one() {
        assert_eq!(
            Some(vec!["-m".into(), "a \"b\" c".into(), "d".into(), String::new()]),
            words(r#"-m "a \"b\" c"  d """#)
        );
        assert_eq!(None, words("a \"b"));
    }
}
