//! Start of the data plane from a configuration.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_config::schema::Model;
use sluice_config::{Config, Fault, place};
use sluice_dpdk::memory::{Backing, Region};
use sluice_dpdk::workers::IdlePolicy;
use sluice_dpdk::{Devices, DpdkIo, Driver, Eal, Port, tsc};
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::packet::counters::WorkerCounters;
use sluice_engine::packet::io::PortIndex;
use sluice_engine::packet::time::Now;
use sluice_engine::snapshot::assist::{self, Assist};
use sluice_engine::snapshot::shard_owners::ShardExchange;
use sluice_engine::snapshot::stages::Stages;
use sluice_engine::worker::Worker;
use sluice_engine::worker::request::WorkerHandle;
use sluice_nat::Secret;
use sluice_nat::sites::SiteWriter;
use sluice_table::memory::{LINE, Line};

use crate::cards::{self, buffer_memory, wants_hugepages};
use crate::compiling::Compiler;
use crate::devices::{Known, SPARE_PLACES};
use crate::filter::{FilterOutlook, filter_fault};
use crate::lowering::{self, Secrets};
use crate::plan;
use crate::ports::{self, Outlook, outlook, steer};
use crate::routing;
use crate::sites::SitesService;
use crate::workers::Workers;
use crate::{DaemonError, Loaded};

/// Maximum wait for the links of cards.
const LINK_PATIENCE: Duration = Duration::from_secs(4);

/// A running data plane, as passed to the control thread.
pub struct Running {
    /// The devices.
    pub devices: Devices,
    /// Control plane handle, from which workers are created.
    pub plane: ControlPlane,
    /// Threads of the workers.
    pub workers: Workers,
    /// Handles for requests to the workers.
    pub handles: Vec<WorkerHandle>,
    /// Properties of the ports, by port index.
    pub ports: Vec<Known>,
    /// Names of pools, by pool index.
    pub pools: lowering::PoolNames,
    /// Rules of the packet filter.
    pub rules: Option<lowering::Rules>,
    /// Result of loading the signature files.
    pub signatures: lowering::SignatureReport,
    /// Compiler of inspection rules.
    pub compiler: Compiler,
    /// Subscriber service; `None` if no sites are configured.
    pub subscribers: Option<SitesService>,
    /// Time at which the engine's clock started.
    pub started_at: Instant,
}

/// Start DPDK, open the devices, create the tables and start the workers.
///
/// # Errors
/// The error states the missing resource and the remedy.
pub fn start(loaded: &Loaded) -> Result<Running, DaemonError> {
    let config = &loaded.checked.config;
    let refused = |faults| refused(loaded, faults);
    let (outlooks, reported) = usable_ports(loaded)?;
    let count = config.cores.len();
    let places = outlooks.len() + SPARE_PLACES;
    let secrets = Secrets::random().map_err(DaemonError::Randomness)?;
    // Compile before any device is opened and before workers occupy the cores, since compilation may take a long time.
    let compiler = Compiler::of(config).storing();
    let compiled = lowering::inspection(config, secrets, &compiler).map_err(|error| refused(vec![error.fault()]))?;
    let (inspection, signatures) =
        compiled.map_or_else(Default::default, |(inspection, report)| (Some(inspection), report));
    if inspection.is_some() {
        tracing::info!("{signatures}");
    }
    let (stages, assists) = stages(config);
    let mut parameters = lowering::start_parameters(config, places, (stages, count), secrets);
    parameters.assist = assists.then(|| assist(config, count));
    let mut devices = ports::plan(config, &outlooks, &parameters.stages, assists);
    steer(&mut devices, config, &outlooks, &parameters);
    devices.places = places;
    let cores: Vec<usize> = config.cores.iter().map(|&core| core.into()).collect();
    buffer_memory(config, &outlooks, &devices).map_err(|fault| refused(vec![fault]))?;
    let eal = Eal::start(&devices.needs(&cores, wants_hugepages(config)))?;
    tracing::info!("{}, packet buffers in {}", eal.version(), eal.memory());
    let (devices, ios) = Devices::open(eal, &devices).map_err(|error| open_error(loaded, error))?;
    let wanted = parameters.stages.senders(count, assists);
    let ports = known_ports(&devices, config, &wanted, places);
    warn_of_failures(&devices, &outlooks, &reported);
    let macs: Vec<_> = ports.iter().map(|known| known.mac).collect();
    wait_for_links(&devices);
    let pools = lowering::pool_names(config, &Vec::new());
    let rules = filter_rules(loaded)?;
    let served = served(config, secrets)?;
    let table = served.as_ref().map(|(writer, _)| writer.sites());
    let mut policy = lowering::policy(config, &macs, &pools, rules.as_ref(), inspection.as_ref(), table)?;
    policy.senders = ports.iter().map(|known| known.senders.clone()).collect();
    let routes = lowering::routes(config, &policy.interfaces)?;
    let started_at = Instant::now();
    let mut plane = ControlPlane::new(
        parameters,
        policy,
        &routes,
        lowering::neighbour_limits(config),
        count,
        Now::at(0),
    )?;
    let ring = config.document.system.ring as usize;
    let (workers, mut handles) = make_workers(&mut plane, &devices, ios, ring)?;
    // The service must run before the first packet arrives.
    let subscribers = served.and_then(|(writer, virtual_macs)| {
        let interfaces = &plane.snapshot().interfaces;
        let secret = Secret(secrets.subscribers);
        let parameters = lowering::subscribers(config, interfaces, &pools, virtual_macs, secret);
        parameters.map(|parameters| SitesService::start(parameters, writer, &mut handles))
    });
    let subscribers = subscribers.transpose()?;
    let queues = (0..count).map(|worker| devices.queues(worker as u16)).collect();
    let workers = Workers::start(eal, workers, &config.cores, (waiting(config), queues), started_at)?;
    log_workers(config, &plane);
    Ok(Running {
        devices,
        plane,
        workers,
        handles,
        ports,
        pools,
        rules,
        signatures,
        compiler,
        subscribers,
        started_at,
    })
}

/// Returns an error that reports these faults of a configuration.
fn refused(loaded: &Loaded, faults: Vec<Fault>) -> DaemonError {
    DaemonError::Configuration(place(&loaded.name, &loaded.text, faults))
}

/// Those ports of a configuration that can be started, and the names of the interfaces whose devices were reported as
/// absent.
fn usable_ports(loaded: &Loaded) -> Result<(Vec<Outlook>, Vec<String>), DaemonError> {
    let config = &loaded.checked.config;
    let outlooks = outlook(config).map_err(|faults| refused(loaded, faults))?;
    let (fatal, absent) = faults(config, &outlooks);
    if !fatal.is_empty() {
        return Err(refused(loaded, fatal));
    }
    let unsigned = routing::key_faults(config);
    if !unsigned.is_empty() {
        return Err(refused(loaded, unsigned));
    }
    let reported = absent.iter().filter_map(|fault| fault.key.get(1).cloned()).collect();
    warn_of_absent(loaded, absent);
    Ok((outlooks, reported))
}

/// Build the rules of the packet filter.
fn filter_rules(loaded: &Loaded) -> Result<Option<lowering::Rules>, DaemonError> {
    let begin = Instant::now();
    let rules = lowering::filters(&loaded.checked.config, None).map_err(|error| match filter_fault(&error) {
        Some(fault) => refused(loaded, vec![fault]),
        None => error.into(),
    })?;
    if let Some(rules) = &rules {
        tracing::info!("{}", FilterOutlook::of(rules, begin.elapsed()));
    }
    Ok(rules)
}

/// Log the devices that could not be opened. Interfaces in `reported` were already logged.
fn warn_of_failures(devices: &Devices, outlooks: &[Outlook], reported: &[String]) {
    for (place, error) in devices.failures() {
        let name = outlooks.get(usize::from(*place)).map_or("", |port| &port.plan.name);
        if !reported.iter().any(|other| other == name) {
            tracing::warn!("{error} (the other interfaces work, and opening this device is retried)");
        }
    }
}

/// Log the interfaces whose devices are absent.
fn warn_of_absent(loaded: &Loaded, absent: Vec<Fault>) {
    for finding in place(&loaded.name, &loaded.text, absent).findings() {
        let hint = finding.hint.map(|hint| format!(": {hint}")).unwrap_or_default();
        tracing::warn!(
            "{}:{}: {}{hint} (the other interfaces work, and this interface follows as soon as its device can be \
             opened)",
            loaded.name,
            finding.line,
            finding.message
        );
    }
}

/// Properties of the opened ports, by port index.
fn known_ports(devices: &Devices, config: &Config, wanted: &[u16], places: usize) -> Vec<Known> {
    let mut ports = vec![Known::default(); places];
    for (place, known) in (0..).zip(&mut ports) {
        if let Some(port) = devices.port(place) {
            known.mac = describe(&port, config, place);
            known.senders = senders(port.senders(), wanted, config.cores.len());
        }
    }
    ports
}

fn log_workers(config: &Config, plane: &ControlPlane) {
    for (worker, core) in config.cores.iter().enumerate() {
        let parts = plane.start_parameters().stages.parts(worker as u16);
        let shards = plane.start_parameters().owners.count(worker as u16);
        tracing::info!("worker {worker} on core {core}: {parts}, {shards} shards");
    }
}

type Served = (SiteWriter, Vec<[u8; 6]>);

/// Writer of the site table, and the sites' virtual MACs. `None` if no sites are configured.
fn served(config: &sluice_config::Config, secrets: Secrets) -> Result<Option<Served>, DaemonError> {
    let Some(subscribers) = &config.subscribers else {
        return Ok(None);
    };
    let virtual_macs = lowering::virtual_macs(config)?;
    let (sites, terminals) = (subscribers.sites(), subscribers.terminals);
    let networks = lowering::site_networks(config);
    let (writer, table) = SiteWriter::new(sites, terminals, &networks, secrets.subscribers);
    let bytes = sluice_config::memory::Bytes((table.bytes() + writer.bytes()) as u64);
    tracing::info!("{sites} sites with up to {terminals} terminals use {bytes} of memory");
    Ok(Some((writer, virtual_macs)))
}

/// Assignment of workers to stages, as configured or planned, and whether receiving workers assist.
fn stages(config: &sluice_config::Config) -> (Stages, bool) {
    let system = &config.document.system;
    if system.model != Model::Auto {
        return (Stages::new(config.stages.clone()), system.assists());
    }
    match plan::choose(config) {
        Ok(chosen) => {
            for reason in &chosen.reasons {
                tracing::info!("{reason}");
            }
            let assists = chosen.placement.assists();
            (Stages::of(&chosen.placement, &config.cores), assists)
        }
        Err(error) => {
            tracing::warn!(
                "no placement could be planned, so each worker processes its packets to completion: \
                 {error}"
            );
            (Stages::default(), false)
        }
    }
}

/// Configuration of assisting: when workers assist, and the maximum duration in TSC cycles.
fn assist(config: &sluice_config::Config, workers: usize) -> Arc<Assist> {
    let system = &config.document.system;
    let slice = system.roles.time_slice.duration().as_nanos() * u128::from(tsc::frequency()) / 1_000_000_000;
    let settings = assist::Settings {
        threshold: system.assist_threshold(),
        slice: u64::try_from(slice).unwrap_or(u64::MAX),
    };
    Assist::new(workers, settings).into()
}

/// Workers that send through a port on behalf of all workers. The list is empty if every sending worker has its own
/// queue.
pub(crate) fn senders(with_queues: &[u16], wanted: &[u16], workers: usize) -> Box<[u16]> {
    match wanted.len() == workers && wanted.iter().all(|worker| with_queues.contains(worker)) {
        true => Box::default(),
        false => {
            let having = wanted.iter().filter(|worker| with_queues.contains(worker));
            having.copied().collect()
        }
    }
}

/// How workers wait when they are idle.
pub(crate) fn waiting(config: &sluice_config::Config) -> IdlePolicy {
    let system = &config.document.system;
    IdlePolicy {
        spin: system.idle.spin,
        pause: system.idle.pause,
        sleep: (!system.busy_poll).then(|| system.idle.sleep.duration()),
        interrupt: system.idle.interrupt,
    }
}

/// Convert the error of a device that can't be opened. If the device is the cause, the device's place in the file is
/// added.
fn open_error(loaded: &Loaded, error: sluice_dpdk::SetError) -> DaemonError {
    let text = error.to_string();
    let interface = loaded.checked.config.interfaces.iter().find(|interface| {
        matches!(error, sluice_dpdk::SetError::Port(_)) && text.starts_with(&format!("{}:", interface.name))
    });
    match interface {
        Some(interface) => {
            let text = text.split_once(": ").map_or(text.as_str(), |(_, text)| text);
            let fault = cards::device_fault(&interface.name, text);
            DaemonError::Configuration(place(&loaded.name, &loaded.text, vec![fault]))
        }
        None => DaemonError::Devices(Box::new(error)),
    }
}

/// Returns two lists: faults that prevent the start, and faults of cards that can be opened later. If no interface has
/// its device, all faults prevent the start.
fn faults(config: &Config, outlooks: &[Outlook]) -> (Vec<Fault>, Vec<Fault>) {
    let (mut fatal, mut absent, mut ready) = (Vec::new(), Vec::new(), false);
    for port in outlooks {
        let faults = port.faults(config);
        ready |= faults.is_empty();
        match port.plan.required || port.is_ready() {
            true => fatal.extend(faults),
            false => absent.extend(faults),
        }
    }
    match ready {
        true => (fatal, absent),
        false => (fatal.into_iter().chain(absent).collect(), Vec::new()),
    }
}

/// Wait until the links of started cards are up. Received packets wait in the cards meanwhile, so that all routes exist
/// when the first packet is forwarded. A slow link delays the start by at most [`LINK_PATIENCE`].
fn wait_for_links(devices: &Devices) {
    let mut waiting = devices.ports();
    let deadline = Instant::now() + LINK_PATIENCE;
    loop {
        waiting.retain(|port| port.driver() == Driver::Native && !port.link().up);
        if waiting.is_empty() || Instant::now() >= deadline {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    for port in waiting {
        tracing::warn!(
            "{}: no link yet: check the cable and the remote end (the other interfaces work)",
            port.name()
        );
    }
}

/// Log a port that was opened, and return its Ethernet address.
pub(crate) fn describe(port: &Port, config: &sluice_config::Config, place: PortIndex) -> [u8; 6] {
    let configured = config.interface(port.name()).and_then(|(_, interface)| interface.mac);
    let mut mac = configured.map_or(port.mac(), |mac| mac.bytes());
    if mac == [0; 6] {
        // A device without an address gets a locally administered address.
        mac = [2, 0x53, 0x6c, 0, 0, place as u8];
    }
    let choice = port.choice();
    let why = match choice.reason.as_str() {
        "" => String::new(),
        reason => format!(" ({reason})"),
    };
    tracing::info!(
        "{}: driver {}{why}, {} queue{}, MTU {}, {}",
        port.name(),
        choice.driver,
        port.queues(),
        if port.queues() == 1 { "" } else { "s" },
        port.mtu(),
        mac_text(mac),
    );
    if let Some(offer) = port.offer() {
        tracing::info!("{}: {offer}", port.name());
    }
    if port.queues() > 1 {
        tracing::info!("{}: {}", port.name(), port.steering());
    }
    if config.document.system.idle.interrupt && !port.interrupts() {
        tracing::info!(
            "{}: the device has no receive interrupts, so its idle workers sleep for a fixed time",
            port.name()
        );
    }
    mac
}

/// Format an Ethernet address in the usual notation.
pub(crate) fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

type Made = (Vec<Worker<'static>>, Vec<WorkerHandle>);

fn make_workers(
    plane: &mut ControlPlane,
    devices: &Devices,
    ios: Vec<DpdkIo>,
    ring: usize,
) -> Result<Made, DaemonError> {
    let mut workers: Vec<Worker<'static>> = Vec::new();
    let mut handles = Vec::new();
    let lines = plane.lines();
    let others = plane.counters().len().saturating_sub(1);
    let exchange = Arc::new(ShardExchange::new(plane.start_parameters().owners.len(), others, ring));
    // Each shard begins at an even cache line, because the processor fetches lines in pairs.
    let part = lines.total().next_multiple_of(2);
    let mut bytes = 0;
    let mut backing = Backing::Hugepages;
    for (own, io) in (0u16..).zip(ios) {
        let shards = plane.start_parameters().owners.count(own);
        let region = Region::new(part * LINE * shards)?;
        bytes += region.bytes();
        if region.backing() != Backing::Hugepages {
            backing = region.backing();
        }
        // The tables exist for the life of the process.
        let memory: &'static mut [Line] = region.leak();
        let mut rest = memory.chunks_exact_mut(part);
        let places = 0..plane.start_parameters().ports as PortIndex;
        let receives = places.filter(|&place| devices.receives(own, place)).collect();
        let memory = |_| rest.next().unwrap_or_default();
        let (mut worker, handle) = plane.worker(own, Box::new(io), receives, memory, tsc::now)?;
        worker.join(exchange.clone());
        workers.push(worker);
        handles.push(handle);
    }
    if plane.reserved() > 0 {
        let region = Region::new(plane.reserved() * LINE)?;
        bytes += region.bytes();
        if region.backing() != Backing::Hugepages {
            backing = region.backing();
        }
        let reserves = plane.reserves(region.leak())?;
        for worker in &mut workers {
            worker.share(&reserves);
        }
    }
    let shards = plane.start_parameters().owners.len();
    let sum = |lines: usize| sluice_config::memory::Bytes((lines * LINE * shards) as u64);
    let [v4, v6] = plane.start_parameters().sessions;
    tracing::info!("capacity of {v4} IPv4 sessions in {}", sum(lines.sessions4));
    tracing::info!("capacity of {v6} IPv6 sessions in {}", sum(lines.sessions6));
    tracing::info!("port leases in {}", sum(lines.bindings4 + lines.bindings6));
    tracing::info!(
        "neighbours in {}",
        sluice_config::memory::Bytes(plane.neighbours().bytes() as u64)
    );
    tracing::info!(
        "the tables use {} in {backing}",
        sluice_config::memory::Bytes(bytes as u64)
    );
    Ok((workers, handles))
}

/// Sum of an interface's counters over all workers.
pub(crate) fn sum(
    counters: &[Arc<WorkerCounters>],
    interface: usize,
    value: impl Fn(&sluice_engine::packet::counters::InterfaceCounters) -> u64,
) -> u64 {
    counters
        .iter()
        .filter_map(|worker| worker.interfaces.get(interface))
        // If a device returns a frame, the counter of one worker may become negative. The wrapping sum is still
        // correct.
        .fold(0, |sum, counters| sum.wrapping_add(value(counters)))
}
