//! Rules of inspection: their files read, and what finds them.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_config::config;
use sluice_config::schema::{self, SignatureDialect};
use sluice_inspect::Ruleset;
use sluice_inspect::ruleset::Ordered;
use sluice_inspect::signature::{Id, Signature};
use sluice_inspect::signatures::{Classes, ClassesError, Dialect, Fault, Variables, read};

use crate::compiling::{At, CompileError, Compiler, Made};

/// Why there are no rules to inspect by.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// A file.
    #[error("{}: {error}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The file of classes.
    #[error("{}: {error}", path.display())]
    Classes {
        /// Its path.
        path: PathBuf,
        /// What is wrong.
        error: ClassesError,
    },
    /// A variable.
    #[error("${name} in [inspection]: {fault}")]
    Variable {
        /// Its name.
        name: String,
        /// What is wrong.
        fault: Fault,
    },
    /// No rule at all can be used.
    #[error("none of the {0} rules in the signature files can be used")]
    None(usize),
    /// What they are searched with.
    #[error(transparent)]
    Compile(#[from] CompileError),
}

/// A rule that is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRule {
    /// Its file.
    pub file: PathBuf,
    /// Its line.
    pub line: u32,
    /// Its number, where it has one.
    pub id: Option<Id>,
    /// The option that it needs, and why that is not possible.
    pub why: String,
}

/// What became of the signature files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignatureReport {
    /// Rules in force.
    pub loaded: usize,
    /// Rules that are not.
    pub refused: Vec<RefusedRule>,
    /// Rules that are commented out.
    pub commented: usize,
    /// Bytes of what is searched with.
    pub search_bytes: usize,
    /// How that was made.
    pub made: Made,
}

impl std::fmt::Display for SignatureReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.loaded + self.refused.len();
        write!(f, "{} of {all} signatures are in force", self.loaded)?;
        match self.refused.len() {
            0 => Ok(()),
            refused => write!(f, ", {refused} are refused"),
        }?;
        write!(f, "; {}", self.made)
    }
}

/// Where rules are from. Numbers are unique within a file, and mostly between files.
struct Homes(Vec<(u32, Id, PathBuf)>);

impl Homes {
    fn of(&self, line: u32, id: Id) -> PathBuf {
        let home = self.0.iter().find(|(at, of, _)| (*at, *of) == (line, id));
        home.map(|(.., path)| path.clone()).unwrap_or_default()
    }

    fn refused(&self, line: u32, id: Id, why: &str) -> RefusedRule {
        RefusedRule {
            file: self.of(line, id),
            line,
            id: Some(id),
            why: why.to_owned(),
        }
    }
}

/// Rules that were read, and are not searched for yet.
pub struct ReadRules {
    ordered: Ordered,
    report: SignatureReport,
    homes: Homes,
    total: usize,
}

impl ReadRules {
    /// The rules of the files.
    ///
    /// # Errors
    /// A file that can't be read, or a variable that stands for nothing.
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
        for file in &inspection.signatures {
            let found = read(&text(&file.path)?, dialect(file.dialect), &variables, &classes);
            report.commented += found.commented;
            report
                .refused
                .extend(found.refused.into_iter().map(|refusal| RefusedRule {
                    file: file.path.clone(),
                    line: refusal.line,
                    id: refusal.id,
                    why: format!("{}: {}", refusal.option, refusal.why),
                }));
            let here = |signature: &Signature| (signature.line, signature.id, file.path.clone());
            homes.0.extend(found.signatures.iter().map(here));
            signatures.extend(found.signatures);
        }
        let total = signatures.len() + report.refused.len();
        let ordered = Ordered::new(signatures);
        let refused = ordered.refused.iter();
        let refused = refused.map(|refused| homes.refused(refused.line, refused.id, &refused.why));
        report.refused.extend(refused);
        Ok(Self {
            ordered,
            report,
            homes,
            total,
        })
    }

    /// The rules with what finds them, and what became of their files.
    ///
    /// # Errors
    /// What searches can't be had, or no rule can be used.
    pub fn compiled(self, compiler: &Compiler) -> Result<(Ruleset, SignatureReport), SignatureError> {
        let Self {
            ordered,
            mut report,
            homes,
            total,
        } = self;
        let at =
            |refused: &sluice_inspect::prefilter::Refused| At::line(homes.of(refused.line, refused.id), refused.line);
        let (prefilter, made) = match report.refused.len() < total {
            true => compiler.prefilter(ordered.plan(), &at)?,
            false => return Err(SignatureError::None(total)),
        };
        let refused = prefilter.refused().iter();
        let refused = refused.map(|refused| homes.refused(refused.line, refused.id, &refused.why));
        report.refused.extend(refused);
        report.search_bytes = prefilter.groups().map(|group| group.size()).sum();
        (report.loaded, report.made) = (total - report.refused.len(), made);
        match report.loaded {
            0 => Err(SignatureError::None(total)),
            _ => Ok((ordered.with(prefilter), report)),
        }
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
    let wrong = |name: &String| {
        let name = name.clone();
        |fault| SignatureError::Variable { name, fault }
    };
    for (name, text) in &written.addresses {
        variables.set_addresses(name, text).map_err(wrong(name))?;
    }
    for (name, text) in &written.ports {
        variables.set_ports(name, text).map_err(wrong(name))?;
    }
    Ok(variables)
}
