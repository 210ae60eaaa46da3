//! Converts inspection: policy, rules, and the capacity of each shard's inspector.

use std::sync::Arc;

use sluice_config::Config;
use sluice_config::schema::{
    self, Encrypted, EveType, ExceptionPolicy, InspectionMode, OverloadAction, OverloadClass, UrgentPointer,
};
use sluice_config::value::{IpProtocol, PortRanges, Prefix};
use sluice_engine::features::inspection::{Class, InspectionPolicy, Overload, ReassemblyLimits, Shed};
use sluice_engine::session::records::Records;
use sluice_inspect::Ruleset;
use sluice_inspect::host_table::HostTable;
use sluice_inspect::inspector::{InspectorCapacity, Settings};
use sluice_inspect::protocols::ParserCapacity;
use sluice_inspect::stream::{self, Exception, Policies, Policy};
use sluice_inspect::transactions::LoggedProtocols;

use super::Secrets;
use super::signatures::{ReadRules, SignatureError, SignatureReport};
use crate::compiling::Compiler;

/// Maximum number of sources and destinations for which the matches of rules are counted, summed over all rules.
const RATES: usize = 1 << 16;

/// Report on the signature files of a configuration; `None` if inspection is not configured.
///
/// # Errors
/// Returns the errors of [`inspection`].
pub fn signatures(config: &Config) -> Result<Option<SignatureReport>, SignatureError> {
    Ok(inspection(config, Secrets::FIXED, &Compiler::of(config))?.map(|(_, report)| report))
}

/// Inspection policy of a configuration with its rules, and the report on the signature files. `None` if inspection is
/// not configured.
///
/// # Errors
/// A file can't be read, no rule is usable, or the rules can't be compiled.
pub fn inspection(
    config: &Config,
    secrets: Secrets,
    compiler: &Compiler,
) -> Result<Option<(Arc<InspectionPolicy>, SignatureReport)>, SignatureError> {
    let (Some(inspection), Some(written)) = (&config.inspection, &config.document.inspection) else {
        return Ok(None);
    };
    let (rules, report) = ReadRules::read(inspection, written)?.compiled(compiler)?;
    let [first, second] = secrets.sessions;
    let rates = Arc::new(HostTable::new(RATES, [second, first]));
    let on = composed(config, inspection, written, (rules.into(), rates));
    Ok(Some((Arc::new(on), report)))
}

/// Inspection policy that replaces a running one. Unchanged rules are reused, and rules keep their match counts.
///
/// # Errors
/// Returns the errors of [`inspection`].
pub fn other_inspection(
    config: &Config,
    (running, before): (&InspectionPolicy, &SignatureReport),
    compiler: &Compiler,
) -> Result<Option<(Arc<InspectionPolicy>, SignatureReport)>, SignatureError> {
    let (Some(inspection), Some(written)) = (&config.inspection, &config.document.inspection) else {
        return Ok(None);
    };
    let read = ReadRules::read(inspection, written)?;
    let (rules, report) = match read.same(&running.rules, before)? {
        Some(report) => (running.rules.clone(), report),
        None => {
            let (rules, report) = read.compiled(compiler)?;
            (Arc::new(rules), report)
        }
    };
    let on = composed(config, inspection, written, (rules, running.rates.clone()));
    Ok(Some((Arc::new(on), report)))
}

fn composed(
    config: &Config,
    inspection: &sluice_config::config::Inspection,
    written: &schema::Inspection,
    (rules, rates): (Arc<Ruleset>, Arc<HostTable>),
) -> InspectionPolicy {
    InspectionPolicy {
        settings: settings(written),
        rates,
        rules,
        alerts: written.alerts as usize,
        records: records(written),
        interfaces: inspection.interfaces.clone(),
        fragments: ReassemblyLimits {
            datagrams: written.fragments as usize,
            bytes: written.fragment_bytes as usize,
            timeout: config.document.fragments.timeout.duration().as_nanos() as u64,
        },
        overload: written.overload.as_ref().map(overload).unwrap_or_default(),
        bypass: written.bypass.iter().map(bypassed).collect(),
    }
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
        leave_encrypted: written.encrypted == Encrypted::Bypass,
        passive: written.mode == InspectionMode::Detect,
        clear_urgent: written.urgent_pointer == UrgentPointer::Clear,
        logged: wanted(written),
    }
}

/// Protocols whose transactions are recorded.
fn wanted(written: &sluice_config::schema::Inspection) -> LoggedProtocols {
    let writes = |kind| written.eve.as_ref().is_some_and(|eve| eve.writes(kind));
    LoggedProtocols {
        http: writes(EveType::Http),
        dns: writes(EveType::Dns),
        tls: writes(EveType::Tls),
    }
}

/// Types of records that workers create in addition to alerts.
fn records(written: &sluice_config::schema::Inspection) -> Records {
    let Some(eve) = &written.eve else {
        return Records::default();
    };
    let (drops, flows) = (eve.writes(EveType::Drop), eve.writes(EveType::Flow));
    let any = drops || flows || wanted(written).any();
    let max = if any { eve.records as usize } else { 0 };
    Records { drops, flows, max }
}

/// Traffic class with the given protocol, ports and networks. The class has no overload action.
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
        begins: written.threshold.into(),
        ends: written.ends.into(),
        classes: written.classes.iter().map(class).collect(),
    }
}

/// Inspector capacity of a shard. Flows are not distributed evenly over shards, so the capacity of a shard exceeds an
/// even part by a quarter.
pub fn inspection_plan(config: &Config, shards: u32) -> Option<InspectorCapacity> {
    let written = config.document.inspection.as_ref()?;
    let share = |all: u32| match shards {
        0 | 1 => all,
        shards => all.div_ceil(shards) + all.div_ceil(shards) / 4 + 16,
    };
    let flows = share(written.flows);
    let reassembly = share(written.reassembly_bytes) as usize;
    let streams = stream::StreamCapacity {
        window: written.window as usize,
        reassembly,
        share: reassembly / 2,
        ..stream::StreamCapacity::of(flows as usize)
    };
    let protocols = ParserCapacity {
        messages: share(written.messages),
        names: share(written.messages),
        inflaters: u16::try_from(share(written.decoders.into())).unwrap_or(u16::MAX),
        transactions: match wanted(written).any() {
            true => share(written.messages),
            false => 0,
        },
        ..ParserCapacity::default()
    };
    Some(InspectorCapacity {
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
