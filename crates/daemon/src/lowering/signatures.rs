//! Reads the signature files, and compiles the inspection rules.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_config::config;
use sluice_config::schema::{self, SignatureDialect};
use sluice_inspect::Ruleset;
use sluice_inspect::prefilter::Prefilter;
use sluice_inspect::ruleset::OrderedRules;
use sluice_inspect::signature::{Action, Id, Signature};
use sluice_inspect::signatures::{Classes, ClassesError, Dialect, Lists, RuleError, Variables, read_with};

use crate::compiling::{CompileError, Compiler, Made};

/// Why inspection rules can't be loaded.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// A signature file can't be read.
    #[error("{}: {error}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        error: std::io::Error,
    },
    /// The classification file is invalid.
    #[error("{}: {error}", path.display())]
    Classes {
        /// Path of the file.
        path: PathBuf,
        /// Error with its place in the file.
        error: ClassesError,
    },
    /// A variable of rules is invalid.
    #[error("variable ${name} in [inspection] is wrong: {fault}")]
    Variable {
        /// Configuration table of the variable.
        table: &'static str,
        /// Name of the variable.
        name: String,
        /// Error in its value.
        fault: RuleError,
    },
    /// No rule is usable.
    #[error("none of the {count} rules in the signature files can be used{}", first(.refused))]
    None {
        /// Number of rules in the files.
        count: usize,
        /// Rejected rules with reasons.
        refused: Vec<RefusedRule>,
    },
    /// A pass rule is rejected. Without the pass rule, other rules might drop traffic that the pass rule would pass.
    #[error("{} pass rules can't be used{}", .refused.len(), first(.refused))]
    Pass {
        /// Rejected pass rules.
        refused: Vec<RefusedRule>,
    },
    /// The rules can't be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
}

/// Place of the first rejected rule, and the reason.
fn first(refused: &[RefusedRule]) -> String {
    refused
        .first()
        .map_or_else(String::new, |RefusedRule { file, line, why, .. }| {
            format!("; the first, {}:{line}: {why}", file.display())
        })
}

impl SignatureError {
    /// Convert the error to a fault with its place in the configuration.
    pub fn fault(&self) -> sluice_config::Fault {
        let below: &[&str] = match self {
            Self::File { .. } | Self::None { .. } | Self::Pass { .. } => &["signatures"],
            Self::Classes { .. } => &["classes"],
            Self::Variable { table, name, .. } => &[table, name],
            Self::Compile(_) => &[],
        };
        sluice_config::Fault {
            key: ["inspection"]
                .iter()
                .chain(below)
                .map(|&step| step.to_owned())
                .collect(),
            description: self.to_string(),
            hint: matches!(self, Self::Pass { .. }).then(|| {
                "correct or remove the rule, or write `partial = true` for the file: other rules can then drop \
                 packets that this pass rule would pass"
                    .to_owned()
            }),
        }
    }
}

/// A rule that is not active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRule {
    /// Path of the rule's file.
    pub file: PathBuf,
    /// Line number.
    pub line: u32,
    /// Signature ID, if the ID could be read.
    pub id: Option<Id>,
    /// Option that is not supported, and the reason.
    pub why: String,
    /// Whether the rejection is an error. A rejected pass rule is an error, because verdicts would differ without it.
    pub is_missed: bool,
}

/// Result of loading the signature files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignatureReport {
    /// Number of active rules.
    pub loaded: usize,
    /// Rejected rules.
    pub refused: Vec<RefusedRule>,
    /// Number of rules that are commented out.
    pub commented: usize,
    /// Size of the compiled search database in bytes.
    pub search_bytes: usize,
    /// How the search database was obtained.
    pub made: Made,
}

impl std::fmt::Display for SignatureReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.loaded + self.refused.len();
        write!(f, "{} of {all} signatures are active", self.loaded)?;
        match self.refused.len() {
            0 => Ok(()),
            refused => write!(f, ", {refused} are refused"),
        }?;
        write!(f, "; {}", self.made)
    }
}

/// Files from which the rules were read. A signature ID is unique within a file, and usually across files.
struct Homes(Vec<Home>);

struct Home {
    line: u32,
    id: Id,
    path: PathBuf,
    is_missed: bool,
}

impl Homes {
    fn home(&self, line: u32, id: Id) -> Option<&Home> {
        self.0.iter().find(|home| (home.line, home.id) == (line, id))
    }

    fn of(&self, line: u32, id: Id) -> PathBuf {
        self.home(line, id).map(|home| home.path.clone()).unwrap_or_default()
    }

    fn refused(&self, line: u32, id: Id, why: &str) -> RefusedRule {
        RefusedRule {
            file: self.of(line, id),
            line,
            id: Some(id),
            why: why.to_owned(),
            is_missed: self.home(line, id).is_some_and(|home| home.is_missed),
        }
    }
}

/// Rules that have been read but not compiled.
pub struct ReadRules {
    ordered: OrderedRules,
    report: SignatureReport,
    total: usize,
}

impl ReadRules {
    /// Read the rules of all files.
    ///
    /// # Errors
    /// A file can't be read, or a variable is invalid.
    pub fn read(inspection: &config::Inspection, written: &schema::Inspection) -> Result<Self, SignatureError> {
        let variables = variables(written)?;
        let classes = match &inspection.classes {
            Some(path) => {
                let text = text(path)?;
                Classes::read(&String::from_utf8_lossy(&text)).map_err(|error| SignatureError::Classes {
                    path: path.clone(),
                    error,
                })?
            }
            None => Classes::default(),
        };
        let mut report = SignatureReport::default();
        let mut signatures: Vec<Signature> = Vec::new();
        let mut homes = Homes(Vec::new());
        let lists = Lists::default();
        for file in &inspection.signatures {
            let lists = lists.clone().in_folder(file.path.parent().unwrap_or(Path::new("")));
            let is_missed = |action| action == Action::Pass && !file.partial;
            let found = read_with(&text(&file.path)?, dialect(file.dialect), &variables, &classes, &lists);
            report.commented += found.commented;
            report
                .refused
                .extend(found.refused.into_iter().map(|refusal| RefusedRule {
                    file: file.path.clone(),
                    line: refusal.line,
                    id: refusal.id,
                    why: format!("{}: {}", refusal.option, refusal.why),
                    is_missed: refusal.action.is_some_and(is_missed),
                }));
            let here = |signature: &Signature| Home {
                line: signature.line,
                id: signature.id,
                path: file.path.clone(),
                is_missed: is_missed(signature.action),
            };
            homes.0.extend(found.signatures.iter().map(here));
            signatures.extend(found.signatures);
        }
        let total = signatures.len() + report.refused.len();
        let ordered = OrderedRules::new(signatures);
        let refused = ordered.refused.iter();
        let refused = refused.map(|refused| homes.refused(refused.line, refused.id, &refused.why));
        report.refused.extend(refused);
        none_is_missed(&report.refused)?;
        Ok(Self { ordered, report, total })
    }

    /// If these rules equal the running rules, returns the new report on the signature files. Returns `None` if the
    /// rules differ.
    ///
    /// # Errors
    /// A pass rule is rejected.
    pub fn same(&self, running: &Ruleset, before: &SignatureReport) -> Result<Option<SignatureReport>, SignatureError> {
        if !self.ordered.has_same_rules(running) {
            return Ok(None);
        }
        let report = self.reported(running.prefilter(), before.made.clone());
        none_is_missed(&report.refused)?;
        Ok(Some(report))
    }

    fn reported(&self, prefilter: &Prefilter, made: Made) -> SignatureReport {
        let report = self.report.clone();
        SignatureReport {
            made,
            search_bytes: prefilter.groups().map(|group| group.size()).sum(),
            loaded: self.total - report.refused.len(),
            ..report
        }
    }

    fn none(&self, refused: Vec<RefusedRule>) -> SignatureError {
        let count = self.total;
        SignatureError::None { count, refused }
    }

    /// Compile the rules, and report on their files.
    ///
    /// # Errors
    /// The search database can't be compiled, or no rule is usable.
    pub fn compiled(self, compiler: &Compiler) -> Result<(Ruleset, SignatureReport), SignatureError> {
        let (prefilter, made) = match self.report.refused.len() < self.total {
            true => compiler.prefilter(self.ordered.pattern_set())?,
            false => return Err(self.none(self.report.refused.clone())),
        };
        let report = self.reported(&prefilter, made);
        none_is_missed(&report.refused)?;
        match report.loaded {
            0 => Err(self.none(report.refused)),
            _ => Ok((self.ordered.with_prefilter(prefilter), report)),
        }
    }
}

/// Return an error if pass rules were rejected, since other rules might drop the traffic that the pass rules exempt.
fn none_is_missed(refused: &[RefusedRule]) -> Result<(), SignatureError> {
    let refused: Vec<_> = refused.iter().filter(|refused| refused.is_missed).cloned().collect();
    match refused.is_empty() {
        true => Ok(()),
        false => Err(SignatureError::Pass { refused }),
    }
}

fn text(path: &Path) -> Result<Vec<u8>, SignatureError> {
    fs::read(path).map_err(|error| SignatureError::File {
        path: path.to_owned(),
        error,
    })
}

fn dialect(dialect: SignatureDialect) -> Dialect {
    match dialect {
        SignatureDialect::Suricata => Dialect::Suricata,
        SignatureDialect::Snort2 => Dialect::Snort2,
        SignatureDialect::Snort3 => Dialect::Snort3,
    }
}

fn variables(written: &schema::Inspection) -> Result<Variables, SignatureError> {
    let mut variables = Variables::default();
    let wrong = |table, name: &String| {
        let name = name.clone();
        move |fault| SignatureError::Variable { table, name, fault }
    };
    for (name, text) in &written.addresses {
        variables.set_addresses(name, text).map_err(wrong("addresses", name))?;
    }
    for (name, text) in &written.ports {
        variables.set_ports(name, text).map_err(wrong("ports", name))?;
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use sluice_config::memory::EntryBytes;
    use sluice_config::{Config, Machine, Valid, check};
    use tempfile::TempDir;

    use super::*;
    use crate::lowering::{Secrets, inspection, other_inspection};

    const RULES: &str = "alert tcp any any -> $HOME_NET 80 (msg:\"a\"; content:\"evil\"; sid:1;)\n";

    fn config(folder: &TempDir, keys: &str) -> Valid<Config> {
        let text = format!(
            "[interfaces.a]\ndevice = \"null:\"\naddresses = [\"10.0.0.1/24\"]\n\
             [inspection]\ninterfaces = [\"a\"]\ncache = \"\"\n\
             [[inspection.signatures]]\nfile = \"some.rules\"\ndialect = \"suricata\"\n{keys}"
        );
        let machine = Machine {
            cores: vec![0, 1],
            memory: 1 << 40,
            entry: EntryBytes::default(),
        };
        let name = folder.path().join("sluice.toml");
        let checked = check(name.to_str().unwrap(), &text, &machine);
        checked.unwrap_or_else(|wrong| panic!("{wrong}")).config
    }

    fn write(folder: &TempDir, rules: &str) {
        fs::write(folder.path().join("some.rules"), rules).unwrap();
    }

    #[test]
    fn rules_read_again_stay_what_they_are_unless_they_say_something_else() {
        let folder = TempDir::new().unwrap();
        write(&folder, RULES);
        let (here, plain) = (Compiler::here(), config(&folder, ""));
        let (running, report) = inspection(&plain, Secrets::FIXED, &here).unwrap().unwrap();
        let again = |config: &Config| {
            let other = other_inspection(config, (&running, &report), &here).unwrap().unwrap();
            assert!(std::sync::Arc::ptr_eq(&running.rates, &other.0.rates));
            (std::sync::Arc::ptr_eq(&running.rules, &other.0.rules), other.1)
        };
        assert_eq!((true, report.clone()), again(&plain));
        // The setting `midstream` does not affect the rules.
        let detects = config(&folder, "[inspection.exceptions]\nmidstream = \"bypass\"\n");
        assert!(again(&detects).0);
        assert!(!again(&config(&folder, "[inspection.addresses]\nHOME_NET = \"10.0.0.0/24\"\n")).0);
        // The pattern is the same, but the action differs.
        write(&folder, &RULES.replace("alert", "drop"));
        assert!(!again(&plain).0);
        write(
            &folder,
            &(RULES.to_owned() + "alert tcp any any -> any any (msg:\"b\"; lua:x; sid:2;)\n"),
        );
        let (is_same, other) = again(&plain);
        assert_eq!((true, 1, 1), (is_same, other.loaded, other.refused.len()));
    }

    #[test]
    fn rule_that_lets_pass_and_is_refused_refuses_the_configuration_unless_its_file_may_be_partial() {
        let folder = TempDir::new().unwrap();
        let here = Compiler::here();
        let (plain, partial) = (config(&folder, ""), config(&folder, "partial = true\n"));
        for (wrong, option) in [
            ("lua:x;", "lua: "),
            ("content:\"a\"; pcre:\"/(/\";", "pcre:"),
            ("lua;", "lua: "),
        ] {
            let pass = format!("pass tcp any any -> any any (msg:\"p\"; {wrong} sid:2;)\n");
            write(&folder, &(RULES.to_owned() + &pass));
            let error = inspection(&plain, Secrets::FIXED, &here).err().unwrap().fault();
            assert_eq!(vec!["inspection", "signatures"], error.key);
            assert!(
                error.description.contains("some.rules:2: ") && error.description.contains(option),
                "{}",
                error.description
            );
            assert!(error.hint.is_some_and(|hint| hint.contains("partial = true")));
            let (_, report) = inspection(&partial, Secrets::FIXED, &here).unwrap().unwrap();
            assert_eq!((1, 1), (report.loaded, report.refused.len()));
            // A rejected drop rule is not an error.
            write(&folder, &(RULES.to_owned() + &pass.replace("pass", "drop")));
            assert!(inspection(&plain, Secrets::FIXED, &here).is_ok());
        }
    }

    #[test]
    fn lists_are_read_from_the_folder_of_their_rules_and_shared_by_files() {
        let folder = TempDir::new().unwrap();
        let here = Compiler::here();
        let rule =
            |option: &str| format!("alert http any any -> any any (msg:\"m\"; http.host; dataset:{option}; sid:2;)\n");
        fs::write(folder.path().join("hosts.lst"), "ZXZpbA==\n").unwrap();
        write(&folder, &rule("isset,hosts,type string,load hosts.lst"));
        let plain = config(&folder, "");
        let (running, report) = inspection(&plain, Secrets::FIXED, &here).unwrap().unwrap();
        assert_eq!((1, 0), (report.loaded, report.refused.len()));
        let again = || other_inspection(&plain, (&running, &report), &here).unwrap().unwrap().0;
        assert!(std::sync::Arc::ptr_eq(&running.rules, &again().rules));
        fs::write(folder.path().join("hosts.lst"), "ZXZpbDI=\n").unwrap();
        assert!(!std::sync::Arc::ptr_eq(&running.rules, &again().rules));
    }

    #[test]
    fn rules_that_cannot_be_had_are_refused_at_their_place() {
        let folder = TempDir::new().unwrap();
        let here = Compiler::here();
        let fault = |config: &Config| {
            let error = inspection(config, Secrets::FIXED, &here).err().unwrap();
            error.fault()
        };
        let missing = fault(&config(&folder, ""));
        assert_eq!(vec!["inspection", "signatures"], missing.key);
        assert!(missing.description.contains("some.rules"), "{}", missing.description);
        write(&folder, "alert nonsense\n");
        let unusable = fault(&config(&folder, ""));
        assert_eq!(vec!["inspection", "signatures"], unusable.key);
        assert!(
            unusable.description.contains("some.rules:1: "),
            "{}",
            unusable.description
        );
        write(&folder, RULES);
        let wrong = fault(&config(&folder, "[inspection.ports]\nWEB = \"eighty\"\n"));
        assert_eq!(vec!["inspection", "ports", "WEB"], wrong.key);
    }
}
