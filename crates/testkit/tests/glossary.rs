//! Compares the glossary with the code: each place must exist, and abandoned words must not be used again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};

/// Identifiers that the crates below no longer use.
const ABANDONED: &[&str] = &[
    "About",
    "Aim",
    "Ask",
    "Asked",
    "Beside",
    "Book",
    "Complain",
    "Complaint",
    "Complaints",
    "Desk",
    "Door",
    "Ear",
    "Farewell",
    "Fate",
    "Few",
    "Follows",
    "ForwardsLentPort",
    "GiveBack",
    "Giving",
    "Glance",
    "Grant",
    "HAND",
    "HASTE",
    "Heard",
    "Hearing",
    "Hearings",
    "Holding",
    "IN_HAND",
    "LEAST",
    "Left",
    "LeftToOffload",
    "Lend",
    "Lent",
    "Lessor",
    "MOST",
    "Misfit",
    "NOBODY",
    "Nobody",
    "Nobodys",
    "NotAsWished",
    "NothingLeft",
    "Oddities",
    "Otherwise",
    "Paths",
    "Planned",
    "ROOM",
    "Resting",
    "RouteTeller",
    "SAVED",
    "Said",
    "Settling",
    "Setup",
    "Several",
    "Sought",
    "Spoilt",
    "Standing",
    "Standings",
    "Standstill",
    "Story",
    "Strangers",
    "TakeBack",
    "TakenIn",
    "Teller",
    "Told",
    "Turn",
    "Unasked",
    "Unfollowed",
    "Unsettled",
    "Untold",
    "WANTED",
    "Wanted",
    "Watch",
    "Way",
    "Ways",
    "Whose",
    "Why",
    "Witness",
    "YES",
    "aim",
    "anybody",
    "aside",
    "asked",
    "asker",
    "asking",
    "asks",
    "began",
    "begun",
    "book",
    "books",
    "boxes",
    "comes_back",
    "company",
    "complain",
    "complained",
    "complaint",
    "complaints",
    "conclude",
    "credit",
    "credits",
    "dealt",
    "deed",
    "desk",
    "desks",
    "door",
    "doors",
    "doubts",
    "ear",
    "earned",
    "ears",
    "fate",
    "fates",
    "forgone",
    "four",
    "gave_way",
    "give_back",
    "giver",
    "gives",
    "goes",
    "goes_on",
    "grant",
    "granted",
    "granting",
    "hand",
    "has_come",
    "has_room",
    "hear",
    "heard",
    "hearing",
    "hearings",
    "hears",
    "heir",
    "heirs",
    "holding",
    "insists",
    "is_anew",
    "is_asked_alone",
    "judge",
    "judged",
    "junk",
    "least",
    "left_to_offload",
    "lend",
    "lends",
    "lent",
    "lessor",
    "maybe",
    "meant",
    "mine",
    "misfit",
    "misfits",
    "oddities",
    "onward",
    "paths",
    "patience",
    "picks_up",
    "renounce",
    "returning",
    "room",
    "rooms",
    "see_load",
    "seeking",
    "settling",
    "setup",
    "shelf",
    "shelves",
    "sight",
    "six",
    "sought",
    "spoken",
    "stand_still",
    "standing",
    "standings",
    "stayed",
    "story",
    "suits",
    "swept",
    "taker",
    "takers",
    "tell",
    "teller",
    "tellers",
    "tidy",
    "told",
    "turns",
    "unasked",
    "under_way",
    "unhold",
    "unsaid",
    "unsettled",
    "unspeak",
    "unstash",
    "vouches",
    "way",
    "ways",
    "who",
    "whom",
    "whose",
    "wish",
    "wished",
    "witness",
];

/// The crates whose names follow the glossary.
const CRATES: [&str; 11] = [
    "config", "daemon", "dpdk", "engine", "filter", "inspect", "nat", "route", "sluice", "table", "wire",
];

/// Abandoned names that are still used, for each crate. The list may only become shorter. `lent` and `begun` are keys in
/// the JSON of `sluice top`.
#[rustfmt::skip]
const LEFT: &[(&str, &str)] = &[
    ("config", "Left"),
    ("config", "NothingLeft"),
    ("config", "dealt"),
    ("config", "goes_on"),
    ("config", "meant"),
    ("config", "seeking"),
    ("config", "unsaid"),
    ("daemon", "Unsettled"),
    ("daemon", "Watch"),
    ("daemon", "asking"),
    ("daemon", "begun"),
    ("daemon", "hand"),
    ("daemon", "judge"),
    ("daemon", "meant"),
    ("daemon", "patience"),
    ("daemon", "room"),
    ("daemon", "seeking"),
    ("daemon", "six"),
    ("daemon", "spoken"),
    ("daemon", "swept"),
    ("daemon", "taker"),
    ("daemon", "under_way"),
    ("daemon", "wish"),
    ("sluice", "Left"),
    ("sluice", "begun"),
    ("sluice", "four"),
    ("sluice", "lent"),
    ("sluice", "wish"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn glossary_is_sorted_and_names_places_that_exist() {
    let text = fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| ---"))
        .skip(1)
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert!(rows.len() > 30, "{}", rows.len());
    let terms: Vec<String> = rows.iter().map(|row| row[0].to_lowercase()).collect();
    assert!(terms.is_sorted(), "terms are not in order");
    for row in &rows {
        let [term, meaning, source, place] = row[..] else {
            panic!("{row:?} is no row of four");
        };
        assert!(
            meaning.ends_with('.') && !source.is_empty(),
            "{term}: meaning or source"
        );
        let mut names = place.split('`').skip(1).step_by(2);
        let file = names.next().unwrap();
        let code = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{term}: {file}: {error}"));
        for name in names {
            let found = ["struct", "enum", "trait", "fn", "type", "const"].iter().any(|kind| {
                let definition = format!("{kind} {name}");
                let mut ends = code.match_indices(&definition).map(|(at, found)| at + found.len());
                ends.any(|end| !code[end..].starts_with(|next: char| next.is_alphanumeric() || next == '_'))
            });
            assert!(found, "{term}: {file} defines no `{name}`");
        }
    }
}

fn identifiers(tokens: TokenStream, found: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => drop(found.insert(name.to_string())),
            TokenTree::Group(group) => identifiers(group.stream(), found),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn sources(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            identifiers(text.parse().unwrap_or_else(|_| panic!("{}", path.display())), found);
        }
    }
}

#[test]
fn abandoned_names_are_not_used_again() {
    let left: BTreeSet<(&str, &str)> = LEFT.iter().copied().collect();
    let mut used = BTreeSet::new();
    for package in CRATES {
        let mut names = BTreeSet::new();
        sources(&root().join("crates").join(package).join("src"), &mut names);
        assert!(names.len() > 500, "{package}: {}", names.len());
        let abandoned = ABANDONED.iter().filter(|&&name| names.contains(name));
        used.extend(abandoned.map(|&name| (package, name)));
    }
    let lines = |pairs: BTreeSet<&(&str, &str)>| {
        let line = |(package, name): &&(&str, &str)| format!("    (\"{package}\", \"{name}\"),\n");
        pairs.iter().map(line).collect::<String>()
    };
    assert!(
        used == left,
        "used again:\n{}no longer used, take them off the list:\n{}",
        lines(used.difference(&left).collect()),
        lines(left.difference(&used).collect())
    );
}
