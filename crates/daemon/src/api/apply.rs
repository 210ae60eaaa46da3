//! Operation `apply`: commits all changes of a new configuration, or none of them.

use std::sync::Arc;
use std::time::Duration;

use sluice_config::api::{ApplyAnswer, ApplyRequest, operation};
use sluice_config::config::Neighbour;
use sluice_config::{Change, Config, Diagnosis, Fault, Finding, Valid, check_numbered, difference, place};
use sluice_engine::control::plane::ControlPlaneError;
use sluice_engine::features::inspection::InspectionPolicy;
use sluice_engine::snapshot::Snapshot;
use sluice_engine::worker::request::{Filter, Request};
use sluice_route::{Address, RouteSet};
use tokio::time::Instant;

use super::renewed::Renewed;
use super::sessions::clear_sessions;
use super::{Refusal, Serve};
use crate::control::Control;
use crate::lowering::{self, LoweringError, PoolNames, Rules};
use crate::numbers::removed;
use crate::routing;
use crate::rules::RunningRules;

/// Maximum time that a change waits for the previous pool migration.
const PATIENCE: Duration = Duration::from_secs(2);

/// Polling interval while a change waits for the previous pool migration.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Differences between two configurations. Differences that require a restart are marked.
fn changes(old: &Config, new: &Config) -> Vec<Change> {
    difference(old, new).changes
}

/// Differences from the running configuration, including inserted and removed filter rules.
fn differing(control: &Control, config: &Config) -> Vec<Change> {
    let running = control.config();
    let edited = control.rules().as_ref().and_then(|rules| rules.edited(&running));
    changes(edited.as_ref().unwrap_or(&running), config)
}

fn needs_restart(changes: &[Change]) -> Option<ApplyAnswer> {
    let fixed: Vec<_> = changes
        .iter()
        .filter(|change| change.fixed.is_some())
        .cloned()
        .collect();
    (!fixed.is_empty()).then_some(ApplyAnswer::NeedsRestart { changes: fixed })
}

/// Response that rejects a configuration because of faults.
fn refused_for(request: &ApplyRequest, faults: Vec<Fault>) -> ApplyAnswer {
    ApplyAnswer::Refused {
        findings: place(&request.name, &request.text, faults).findings(),
    }
}

/// Response that rejects a configuration whose text is wrong.
fn refused_text(request: &ApplyRequest, diagnosis: &Diagnosis) -> ApplyAnswer {
    let findings = diagnosis.findings();
    tracing::warn!(
        "{} is refused: the configuration has {} faults",
        request.name,
        findings.len()
    );
    ApplyAnswer::Refused { findings }
}

/// Response that rejects the pools of a configuration, with a hint for the operator.
fn refused_pools(request: &ApplyRequest, error: &ControlPlaneError) -> ApplyAnswer {
    let hint = match error {
        ControlPlaneError::PoolsTooLarge { .. } => {
            "restart with this configuration, or raise `spare-addresses` in [nat] first"
        }
        ControlPlaneError::SteeringConflict => {
            "restart with this configuration: after the restart, all flows of a host belong \
             to one shard"
        }
        _ => "apply the configuration again in a few seconds",
    };
    let fault = Fault {
        key: ["nat", "pools"].map(str::to_owned).to_vec(),
        description: error.to_string(),
        hint: Some(hint.into()),
    };
    refused_for(request, vec![fault])
}

/// Response that rejects a configuration because it can't be converted to engine parameters.
fn refused_lowering(request: &ApplyRequest, error: &LoweringError) -> ApplyAnswer {
    match crate::filter::filter_fault(error) {
        Some(fault) => refused_for(request, vec![fault]),
        None => refused(error.to_string()),
    }
}

fn refused(message: String) -> ApplyAnswer {
    ApplyAnswer::Refused {
        findings: vec![Finding {
            line: 1,
            column: 1,
            text: String::new(),
            message,
            hint: None,
            advice: false,
        }],
    }
}

/// Check whether the engine accepts the pools of a snapshot. If sessions still use ports that the previous change
/// removed, waits up to [`PATIENCE`] for the end of these sessions.
async fn admitted(control: &Control, policy: &Snapshot) -> Result<(), ControlPlaneError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let admitted = control.plane().admits_pools(policy);
        if !matches!(admitted, Err(ControlPlaneError::MigrationPending)) || Instant::now() >= deadline {
            return admitted;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Engine parameters to which a configuration is converted.
type Built = (Option<Rules>, Vec<RouteSet>, Snapshot);

fn built(
    control: &Control,
    config: &Config,
    pools: &PoolNames,
    inspection: Option<&Arc<InspectionPolicy>>,
) -> Result<Built, LoweringError> {
    let rules = {
        let running = control.rules();
        lowering::filters(config, running.as_ref().map(RunningRules::list))?
    };
    let sites = control
        .plane()
        .snapshot()
        .sites
        .as_ref()
        .map(|sites| sites.table.clone());
    let mut policy = lowering::policy(
        config,
        &control.macs(),
        pools,
        rules.as_ref(),
        inspection,
        sites.as_ref(),
    )?;
    policy.senders = control.senders();
    let routes = lowering::routes(config, &policy.interfaces)?;
    Ok((rules, routes, policy))
}

/// Commits engine parameters, and replaces the running filter rules.
fn commit(
    control: &Control,
    config: &Config,
    (rules, routes, policy): (Option<Rules>, &[RouteSet], Snapshot),
) -> Result<u32, ControlPlaneError> {
    // The lock prevents a filter rebuild from completing between the commit and the replacement of the rules.
    let mut running = control.rules();
    let generation = control.plane().commit(policy, routes)?;
    if let Some(rules) = &*running {
        crate::filter::write_log(config, rules.list());
    }
    if let Some(rules) = &rules {
        lowering::update_sets(config, rules);
    }
    *running = rules.map(RunningRules::new);
    Ok(generation)
}

/// Makes a committed configuration the configuration of the daemon.
fn set_configuration(control: &Control, config: Valid<Config>, pools: PoolNames) {
    if let Some(sites) = &control.sites {
        sites.follow(&config, control.plane().snapshot(), &pools);
    }
    control.set_pools(pools);
    control.set_config(config);
}

/// Adapts devices, route feeds, host stacks and neighbours to the committed configuration. `old` is the configuration before.
async fn follow(control: &Arc<Control>, old: &Config) -> Result<(), Refusal> {
    control.close_removed(old).await?;
    control.settle_links();
    control.follow_feeds();
    forget(control, old).await?;
    control.settle_hosts().await;
    control.set_neighbours().await?;
    Ok(())
}

impl Serve for operation::Apply {
    async fn serve(control: Arc<Control>, request: ApplyRequest) -> Result<Self::Answer, Refusal> {
        let (known, numbering) = (control.config(), control.numbering());
        let checked = match check_numbered(&request.name, &request.text, &control.machine, &numbering) {
            Ok(checked) => checked,
            Err(diagnosis) => return Ok(refused_text(&request, &diagnosis)),
        };
        if let Some(answer) = needs_restart(&differing(&control, &checked.config)) {
            return Ok(answer);
        }
        // Compiling the rules may take a long time. Meanwhile, traffic is forwarded and other requests are served.
        let renewed = match Renewed::of(&control, &checked.config, request.dry_run).await {
            Ok(renewed) => renewed,
            Err(error) => return Ok(error.answer(&request)),
        };
        let _pause = control.pause_shard_moves().await;
        let config = control.config();
        if !Arc::ptr_eq(&config, &known) {
            return Ok(refused(
                "another configuration was committed at the same time: apply this configuration again".into(),
            ));
        }
        let faults = routing::key_faults(&checked.config);
        if !faults.is_empty() {
            return Ok(refused_for(&request, faults));
        }
        let mut changes = differing(&control, &checked.config);
        if let Some(answer) = needs_restart(&changes) {
            return Ok(answer);
        }
        let applied = renewed
            .as_ref()
            .and_then(|renewed| renewed.applied(&control, &mut changes));
        let advice = checked.advice.findings();
        let pools = lowering::pool_names(&checked.config, &control.pools());
        let inspection = renewed.as_ref().map(|renewed| &renewed.inspection);
        let opened = match control.open_added(&checked.config, request.dry_run).await {
            Ok(opened) => opened,
            Err(faults) => return Ok(refused_for(&request, faults)),
        };
        let (rules, routes, policy) = match built(&control, &checked.config, &pools, inspection) {
            Ok(built) => built,
            Err(error) => return Ok(refused_lowering(&request, &error)),
        };
        if let Err(error) = admitted(&control, &policy).await {
            return Ok(refused_pools(&request, &error));
        }
        let generation = u64::from(control.plane().snapshot().generation);
        if request.dry_run || changes.is_empty() {
            let generation = generation + u64::from(!changes.is_empty());
            return Ok(ApplyAnswer::Committed {
                generation,
                changes,
                advice,
                rules: applied,
            });
        }
        let generation = match commit(&control, &config, (rules, &routes, policy)) {
            Ok(generation) => generation.into(),
            Err(error) => return Ok(refused(error.to_string())),
        };
        if let Some(renewed) = renewed {
            control.set_signatures(renewed.report);
        }
        set_configuration(&control, checked.config, pools);
        opened.keep().await?;
        follow(&control, &config).await?;
        if changes.iter().any(|change| change.key.starts_with("nat.")) {
            control.record_shares();
        }
        if let Some(applied) = &applied {
            tracing::info!("{}", applied.said);
        }
        tracing::info!("commit {generation}: {} changes from {}", changes.len(), request.name);
        Ok(ApplyAnswer::Committed {
            generation,
            changes,
            advice,
            rules: applied,
        })
    }
}

/// Remove what only the former configuration `before` had: the sessions of removed routers, the neighbours of removed
/// interfaces, and removed static neighbours.
async fn forget(control: &Control, before: &Config) -> Result<(), Refusal> {
    let config = control.config();
    for (number, name) in removed(&before.numbering.routers, &config.numbering.routers) {
        let filter = Filter {
            context: u32::try_from(number).ok(),
            ..Filter::default()
        };
        let count = clear_sessions(control, filter).await?;
        tracing::info!("router {name} is removed, and {count} sessions with it");
    }
    for (number, name) in removed(&before.numbering.interfaces, &config.numbering.interfaces) {
        tracing::info!("interface {name} is removed");
        clear_neighbours(control, number as u16, None).await?;
    }
    let stays = |neighbour: &&Neighbour| {
        let same = |other: &Neighbour| (other.interface, other.address) == (neighbour.interface, neighbour.address);
        config.neighbours.iter().any(same)
    };
    for neighbour in before.neighbours.iter().filter(|neighbour| !stays(neighbour)) {
        clear_neighbours(control, neighbour.interface, Some(neighbour.address.into())).await?;
    }
    Ok(())
}

async fn clear_neighbours(control: &Control, interface: u16, address: Option<Address>) -> Result<(), Refusal> {
    let request = Request::ClearNeighbours {
        interface: Some(interface),
        address,
        permanent: true,
    };
    control.request_owner(request).await?;
    Ok(())
}
