//! Inspection: signature files read, their rules compiled, and how much memory a shard inspects with.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_config::Config;
use sluice_config::schema::{
    self, EveType, ExceptionPolicy, InspectionMode, OverloadAction, OverloadClass, SignatureDialect,
};
use sluice_config::value::{IpProtocol, PortRanges, Prefix};
use sluice_engine::inspection::{Class, Inspection, Limits, Overload, Shed};
use sluice_engine::records::Records;
use sluice_inspect::inspector::{Plan, Settings};
use sluice_inspect::prefilter;
use sluice_inspect::protocols::Capacity;
use sluice_inspect::rates::Rates;
use sluice_inspect::ruleset::Ordered;
use sluice_inspect::signature::{Id, Signature};
use sluice_inspect::signatures::{Classes, ClassesError, Dialect, Fault, Variables, read};
use sluice_inspect::stream::{self, Exception, Policies, Policy};
use sluice_inspect::transactions::Wanted;

use super::Secrets;

/// Sources and destinations of rules that count matches, all together.
const RATES: usize = 1 << 16;

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
    /// Vectorscan.
    #[error("the rules can't be searched for: {0}")]
    Search(#[from] prefilter::Error),
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
}

impl std::fmt::Display for SignatureReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.loaded + self.refused.len();
        write!(f, "{} of {all} signatures are in force", self.loaded)?;
        match self.refused.len() {
            0 => Ok(()),
            refused => write!(f, ", {refused} are refused"),
        }
    }
}

/// What would become of the signature files. `None` where nothing is inspected.
///
/// # Errors
/// As [`inspection`].
pub fn signatures(config: &Config) -> Result<Option<SignatureReport>, SignatureError> {
    Ok(inspection(config, Secrets::FIXED)?.map(|(_, report)| report))
}

/// The rules, and what became of their files. `None` where nothing is inspected.
///
/// # Errors
/// A file that can't be read, or no rule that can be used.
pub fn inspection(
    config: &Config,
    secrets: Secrets,
) -> Result<Option<(Arc<Inspection>, SignatureReport)>, SignatureError> {
    let (Some(inspection), Some(written)) = (&config.inspection, &config.document.inspection) else {
        return Ok(None);
    };
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
    let mut files = Vec::new();
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
        files.push((signatures.len(), file.path.clone()));
        signatures.extend(found.signatures);
    }
    let total = signatures.len() + report.refused.len();
    // Which file a rule is from is known by its number: they are unique within a file, and mostly between files.
    let homes: Vec<(Id, PathBuf)> = signatures
        .iter()
        .enumerate()
        .map(|(place, signature)| {
            let file = files.iter().rev().find(|(first, _)| *first <= place);
            (signature.id, file.map(|(_, path)| path.clone()).unwrap_or_default())
        })
        .collect();
    let file_of = |id: Id| {
        homes
            .iter()
            .find(|(of, _)| *of == id)
            .map(|(_, path)| path.clone())
            .unwrap_or_default()
    };
    let ordered = Ordered::new(signatures);
    for refused in &ordered.refused {
        report.refused.push(RefusedRule {
            file: file_of(refused.id),
            line: refused.line,
            id: Some(refused.id),
            why: refused.why.to_string(),
        });
    }
    let prefilter = ordered.plan().compile(&mut |_, _| {})?;
    for refused in prefilter.refused() {
        report.refused.push(RefusedRule {
            file: file_of(refused.id),
            line: refused.line,
            id: Some(refused.id),
            why: refused.why.to_string(),
        });
    }
    report.search_bytes = prefilter.groups().map(|group| group.size()).sum();
    report.loaded = total - report.refused.len();
    if report.loaded == 0 {
        return Err(SignatureError::None(total));
    }
    let [first, second] = secrets.sessions;
    let on = Inspection {
        settings: settings(written),
        rates: Arc::new(Rates::new(RATES, [second, first])),
        rules: Arc::new(ordered.with(prefilter)),
        alerts: written.alerts as usize,
        records: records(written),
        interfaces: inspection.interfaces.clone(),
        fragments: Limits {
            datagrams: written.fragments as usize,
            bytes: written.fragment_bytes as usize,
            patience: config.document.fragments.timeout.duration().as_nanos() as u64,
        },
        overload: written.overload.as_ref().map(overload).unwrap_or_default(),
        bypass: written.bypass.iter().map(bypassed).collect(),
    };
    Ok(Some((Arc::new(on), report)))
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

fn variables(written: &sluice_config::schema::Inspection) -> Result<Variables, SignatureError> {
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

fn settings(written: &sluice_config::schema::Inspection) -> Settings {
    let policy = |policy| match policy {
        ExceptionPolicy::DropFlow => Policy::DropFlow,
        ExceptionPolicy::DropPacket => Policy::DropPacket,
        ExceptionPolicy::Pass => Policy::Pass,
        ExceptionPolicy::Bypass => Policy::Bypass,
    };
    let mut policies = Policies::default();
    for exception in Exception::ALL {
        if let Some(&written) = written.exceptions.get(exception.key()) {
            policies = policies.with(*exception, policy(written));
        }
    }
    Settings {
        policies,
        depth: written.depth,
        passive: written.mode == InspectionMode::Detect,
        wanted: wanted(written),
    }
}

/// Of which protocols records are written.
fn wanted(written: &sluice_config::schema::Inspection) -> Wanted {
    let writes = |kind| written.eve.as_ref().is_some_and(|eve| eve.writes(kind));
    Wanted {
        http: writes(EveType::Http),
        dns: writes(EveType::Dns),
        tls: writes(EveType::Tls),
    }
}

/// Which records workers make, beside alerts.
fn records(written: &sluice_config::schema::Inspection) -> Records {
    let Some(eve) = &written.eve else {
        return Records::default();
    };
    let (drops, flows) = (eve.writes(EveType::Drop), eve.writes(EveType::Flow));
    let any = drops || flows || wanted(written).any();
    let most = if any { eve.records as usize } else { 0 };
    Records { drops, flows, most }
}

/// A class of these, with nothing said about overload.
fn class(protocol: Option<IpProtocol>, ports: &PortRanges, networks: &[Prefix]) -> Class {
    let networks = networks.iter().map(|network| network.net());
    Class {
        protocol: protocol.map(|protocol| protocol.0),
        ports: ports.0.iter().map(|ports| ports.first()..=ports.last()).collect(),
        networks: networks.map(|net| (net.addr(), net.prefix_len())).collect(),
        shed: Shed::default(),
    }
}

fn bypassed(written: &schema::BypassClass) -> Class {
    class(written.protocol, &written.ports, &written.networks)
}

fn overload(written: &schema::Overload) -> Overload {
    let class = |written: &OverloadClass| Class {
        shed: match (written.action, written.depth) {
            (OverloadAction::Inspect, _) => Shed::Inspect,
            (OverloadAction::InspectLess, depth) => Shed::Less(depth.unwrap_or(0)),
            (OverloadAction::Bypass, _) => Shed::Bypass,
            (OverloadAction::Drop, _) => Shed::Drop,
        },
        ..class(written.protocol, &written.ports, &written.networks)
    };
    Overload {
        begins: written.begins.into(),
        ends: written.ends.into(),
        classes: written.classes.iter().map(class).collect(),
    }
}

/// How much a shard inspects at once. Flows don't spread evenly over shards: there is room for a quarter more.
pub fn inspection_plan(config: &Config, shards: u32) -> Option<Plan> {
    let written = config.document.inspection.as_ref()?;
    let share = |all: u32| match shards {
        0 | 1 => all,
        shards => all.div_ceil(shards) + all.div_ceil(shards) / 4 + 16,
    };
    let flows = share(written.flows);
    let streams = stream::Plan {
        window: written.window as usize,
        holds: share(written.held) as usize,
        ..stream::Plan::of(flows as usize)
    };
    let protocols = Capacity {
        messages: share(written.messages),
        names: share(written.messages),
        inflaters: u16::try_from(share(written.decoders.into())).unwrap_or(u16::MAX),
        transactions: match wanted(written).any() {
            true => share(written.messages),
            false => 0,
        },
        ..Capacity::default()
    };
    Some(Plan {
        flows,
        streams,
        protocols,
    })
}

#[cfg(test)]
mod tests {
    use sluice_inspect::stream::Exception;

    #[test]
    fn exceptions_have_the_names_that_the_configuration_knows() {
        let names: Vec<_> = Exception::ALL.iter().map(|exception| exception.key()).collect();
        assert_eq!(sluice_config::EXCEPTIONS.to_vec(), names);
    }
}
