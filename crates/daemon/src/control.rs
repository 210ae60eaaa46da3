//! The control thread: serves the API and runs the periodic tasks.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use sluice_config::config::InterfaceIndex;
use sluice_config::{Config, MAX_ROUTERS, Machine, Numbering, Valid};
use sluice_dpdk::interface::Interface;
use sluice_dpdk::{Devices, Port, tsc};
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::packet::counters::{CycleStage, WorkerCounters};
use sluice_engine::packet::io::PortIndex;
use sluice_engine::packet::time::Now;
use sluice_engine::snapshot::assist::Assist;
use sluice_engine::worker::request::{Reply, Request};
use sluice_filter::FilterError;

use crate::alerts::{AlertQueues, Alerts};
use crate::api;
use crate::compiling::Compiler;
use crate::devices::{Closing, Known};
use crate::eve::{Eve, Scene};
use crate::handle::{AsyncHandle, WorkerEnded};
use crate::host::{Hosts, KernelLink};
use crate::hosts;
use crate::lowering::{PoolNames, Rules, SignatureReport};
use crate::numbers::NumberQuarantine;
use crate::routing::{FeedStatus, RouteFeeds};
use crate::rules::RunningRules;
use crate::shares::Shares;
use crate::sites::SitesService;
use crate::start::{Running, mac_text};
use crate::uplinks::Uplinks;
use crate::watchdog::Watchdog;
use crate::{DaemonError, Loaded};

/// Interval at which retired snapshots and routes are freed.
const TICK: Duration = Duration::from_millis(100);

/// Interval at which the port shares of deterministic pools are logged (RFC 7422, section 3).
const DAY: Duration = Duration::from_secs(86_400);

/// Load of a worker in the last second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Packets per second.
    pub rate: u64,
    /// Fraction of the time that the worker spent on processing packets, from 0 to 1.
    pub busy: f64,
    /// Whether the worker processed no packets during the last second.
    pub asleep: bool,
    packets: u64,
    cycles: u64,
    rounds: u64,
    idle: u64,
}

/// Task that compiles a filter.
type Folding = tokio::task::JoinHandle<Result<Rules, FilterError>>;

/// State that the API and the periodic tasks share.
pub struct Control {
    /// Control plane handle of the data plane.
    plane: Mutex<ControlPlane>,
    /// Running configuration.
    config: Mutex<Arc<Valid<Config>>>,
    /// Serialises commits.
    pub(crate) committing: tokio::sync::Mutex<()>,
    handles: Vec<tokio::sync::Mutex<AsyncHandle>>,
    /// Counters of the workers.
    pub(crate) counters: Vec<Arc<WorkerCounters>>,
    /// Devices of all ports.
    pub(crate) devices: Devices,
    /// Properties of the ports, by port index.
    pub(crate) known_ports: Mutex<Vec<Known>>,
    /// Names of pools, by pool index.
    pools: Mutex<PoolNames>,
    /// Rules of the packet filter. Lock order: `rules` before `plane`.
    rules: Mutex<Option<RunningRules>>,
    /// Devices that are being closed.
    pub(crate) closing: Closing,
    /// Description of the machine, against which configurations are checked.
    pub(crate) machine: Machine,
    /// Wall-clock time at which the engine's clock started.
    pub(crate) started: SystemTime,
    /// Monotonic time at which the engine's clock started.
    pub(crate) started_at: Instant,
    /// Watchdog of the workers.
    pub(crate) watchdog: Watchdog,
    loads: Mutex<Vec<Load>>,
    /// Interfaces whose link is held down because the link at the other side of the bridge is down.
    held_links: Mutex<Vec<InterfaceIndex>>,
    /// Host stacks of virtual routers.
    pub(crate) hosts: Arc<Hosts>,
    /// Collector of alerts and records; `None` if inspection is not configured.
    pub(crate) alerts: Option<Alerts>,
    /// Result of loading the signature files.
    signatures: Mutex<Arc<SignatureReport>>,
    /// Compiler of inspection rules.
    pub(crate) compiler: Compiler,
    /// Subscriber service; `None` if no sites are configured.
    pub(crate) sites: Option<SitesService>,
    /// Quarantined numbers of removed interfaces and routers.
    quarantine: Mutex<NumberQuarantine>,
    /// Serialises compilations.
    pub(crate) compiling: tokio::sync::Mutex<()>,
    /// Route feeds from routing daemons.
    route_feeds: Mutex<RouteFeeds>,
    /// Uplinks. Lock order: `uplinks` before `plane`.
    uplinks: Mutex<Uplinks>,
    /// Number of requests whose handler panicked.
    pub(crate) panics: AtomicU64,
}

/// Interval at which the control thread checks whether assisting workers have returned all shards that they took over.
const STEP: Duration = Duration::from_micros(200);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Guard: until the guard is dropped, no shard moves, no worker takes over a shard, and no other task commits.
pub(crate) struct ShardMovePause<'c> {
    _one: tokio::sync::MutexGuard<'c, ()>,
    assist: Option<Arc<Assist>>,
}

impl Drop for ShardMovePause<'_> {
    fn drop(&mut self) {
        if let Some(assist) = &self.assist {
            assist.resume();
        }
    }
}

impl Control {
    /// Wait until no shard is moving and assisting workers have returned all shards. Then prevent new moves.
    pub(crate) async fn pause_shard_moves(&self) -> ShardMovePause<'_> {
        let pause = ShardMovePause {
            _one: self.committing.lock().await,
            assist: self.plane().start_parameters().assist.clone(),
        };
        if let Some(assist) = &pause.assist {
            assist.pause();
            while !assist.is_quiet() {
                tokio::time::sleep(STEP).await;
            }
        }
        pause
    }

    /// Create the control of a running data plane. The workers are passed separately.
    ///
    /// # Errors
    /// The file of records can't be opened, or the host stack of a router can't be created.
    pub fn new(
        loaded: Loaded,
        mut running: Running,
        watchdog: Watchdog,
    ) -> Result<(Self, crate::workers::Workers), DaemonError> {
        let counters = running.plane.counters().to_vec();
        let hosts = hosts::start(&loaded.checked.config, running.plane.snapshot(), &mut running.handles)?;
        let hosts = Arc::new(hosts);
        if let Some(sites) = &running.subscribers {
            sites.live_with(&hosts);
        }
        let queues = running.handles.iter_mut().filter_map(|handle| {
            let (alerts, records) = (handle.alerts.take()?, handle.records.take());
            Some(AlertQueues { alerts, records })
        });
        let inspection = loaded.checked.config.inspection.as_ref();
        let target = inspection.and_then(|inspection| inspection.eve.clone());
        let written = loaded.checked.config.document.inspection.as_ref();
        let eve = match (target, written.and_then(|inspection| inspection.eve.as_ref())) {
            (Some(target), Some(written)) => Some(Eve::start(target, written)?),
            _ => None,
        };
        let alerts = inspection.map(|_| Alerts::new(queues.collect(), eve));
        let policy = running.plane.snapshot();
        if let (Some(alerts), Some(inspection)) = (&alerts, &policy.inspection) {
            alerts.learn(policy.inspected, &inspection.rules);
        }
        let handles = running
            .handles
            .into_iter()
            .map(|counter| tokio::sync::Mutex::new(AsyncHandle::new(counter)));
        let control = Self {
            plane: Mutex::new(running.plane),
            config: Mutex::new(Arc::new(loaded.checked.config)),
            committing: tokio::sync::Mutex::new(()),
            handles: handles.collect(),
            held_links: Mutex::default(),
            loads: Mutex::new(vec![Load::default(); counters.len()]),
            counters,
            devices: running.devices,
            known_ports: Mutex::new(running.ports),
            closing: Closing::default(),
            pools: Mutex::new(running.pools),
            rules: Mutex::new(running.rules.map(RunningRules::new)),
            machine: loaded.machine,
            started: SystemTime::now()
                .checked_sub(running.started_at.elapsed())
                .unwrap_or(SystemTime::UNIX_EPOCH),
            started_at: running.started_at,
            watchdog,
            sites: running.subscribers,
            hosts,
            alerts,
            signatures: Mutex::new(Arc::new(running.signatures)),
            compiler: running.compiler,
            quarantine: Mutex::default(),
            compiling: tokio::sync::Mutex::new(()),
            route_feeds: Mutex::default(),
            uplinks: Mutex::default(),
            panics: AtomicU64::new(0),
        };
        Ok((control, running.workers))
    }

    /// Read the workers' alerts and records.
    pub(crate) fn collect_alerts(&self) {
        let Some(alerts) = &self.alerts else { return };
        let seeking = self.plane().snapshot().applications.clone();
        let config = self.config();
        let names: Vec<_> = config
            .interfaces
            .iter()
            .map(|interface| interface.name.clone())
            .collect();
        let scene = Scene {
            interfaces: &names,
            started: self.started,
            applications: seeking.as_deref().map(|seeking| &*seeking.names),
        };
        alerts.collect(&scene);
        alerts.write_statistics(&scene, self.started_at.elapsed(), |[written, lost]| {
            api::inspection::statistics(&self.counters, self.started_at.elapsed(), [written, lost])
        });
    }

    /// Reopen the file of records.
    pub(crate) fn reopen_records(&self) {
        if let Some(alerts) = &self.alerts {
            alerts.reopen();
        }
    }

    /// Stop recording, and write the records that are still queued.
    pub(crate) fn finish_records(&self) {
        if let Some(alerts) = &self.alerts {
            alerts.finish();
        }
    }

    /// Uplinks with their present state.
    pub(crate) fn uplinks(&self) -> MutexGuard<'_, Uplinks> {
        lock(&self.uplinks)
    }

    /// Control plane handle. The guard must not be held across an `await`.
    pub(crate) fn plane(&self) -> MutexGuard<'_, ControlPlane> {
        lock(&self.plane)
    }

    /// The running configuration.
    pub(crate) fn config(&self) -> Arc<Valid<Config>> {
        lock(&self.config).clone()
    }

    /// Numbers that the next configuration must keep, and quarantined numbers that it must not assign.
    pub(crate) fn numbering(&self) -> Numbering {
        let capacity = self.counters.first().map_or(0, |worker| worker.interfaces.len());
        lock(&self.quarantine).numbering(&self.config().numbering, [capacity, MAX_ROUTERS], Instant::now())
    }

    /// Replace the running configuration.
    pub(crate) fn set_config(&self, config: Valid<Config>) {
        lock(&self.quarantine).follow(&config.numbering, Instant::now());
        *lock(&self.config) = Arc::new(config);
    }

    /// Names of pools, by pool index.
    pub(crate) fn pools(&self) -> PoolNames {
        lock(&self.pools).clone()
    }

    /// Replace the names of pools after their indexes have changed.
    pub(crate) fn set_pools(&self, pools: PoolNames) {
        *lock(&self.pools) = pools;
    }

    /// Start and stop route feeds according to the running configuration. Must be called within the tokio runtime.
    pub(crate) fn follow_feeds(self: &Arc<Self>) {
        lock(&self.route_feeds).follow(self);
    }

    /// Status of the two route feeds of a router, FPM and kernel. Must not be called while the plane is locked, since
    /// the feeds lock it.
    pub(crate) fn statuses(&self, router: &str) -> [Option<FeedStatus>; 2] {
        lock(&self.route_feeds).statuses(router)
    }

    /// Update the interfaces of routers' namespaces. The route feeds use these interfaces to resolve kernel interfaces.
    pub(crate) fn set_kernel_links(&self, links: &[KernelLink]) {
        lock(&self.route_feeds).set_links(links);
    }

    /// Result of loading the signature files.
    pub(crate) fn signatures(&self) -> Arc<SignatureReport> {
        lock(&self.signatures).clone()
    }

    /// Store the loading result of the inspection rules that a commit has made active.
    pub(crate) fn set_signatures(&self, report: SignatureReport) {
        let plane = self.plane();
        let policy = plane.snapshot();
        if let (Some(alerts), Some(inspection)) = (&self.alerts, &policy.inspection) {
            alerts.learn(policy.inspected, &inspection.rules);
        }
        *lock(&self.signatures) = Arc::new(report);
    }

    /// Rules of the packet filter.
    pub(crate) fn rules(&self) -> MutexGuard<'_, Option<RunningRules>> {
        lock(&self.rules)
    }

    /// Number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.handles.len()
    }

    /// Load of a worker in the last second.
    pub(crate) fn load(&self, worker: usize) -> Load {
        lock(&self.loads).get(worker).copied().unwrap_or_default()
    }

    /// Send a request to a worker and wait for the reply.
    pub(crate) async fn ask(&self, worker: usize, request: Request) -> Result<Reply, WorkerEnded> {
        self.handle(worker).await?.ask(request).await
    }

    /// Lock a worker's request queue for exclusive access until the guard is dropped.
    pub(crate) async fn handle(&self, worker: usize) -> Result<tokio::sync::MutexGuard<'_, AsyncHandle>, WorkerEnded> {
        match self.handles.get(worker) {
            Some(handle) => Ok(handle.lock().await),
            None => Err(WorkerEnded),
        }
    }

    /// Send a request to the worker that owns the neighbour tables.
    pub(crate) async fn request_owner(&self, request: Request) -> Result<Reply, WorkerEnded> {
        let owner = self.plane().snapshot().owner;
        self.ask(owner.into(), request).await
    }

    /// Send the static neighbours of the configuration to the worker that owns the neighbour tables.
    ///
    /// # Errors
    /// The worker has ended.
    pub(crate) async fn set_neighbours(&self) -> Result<(), WorkerEnded> {
        for neighbour in &self.config().neighbours {
            let request = Request::SetNeighbour {
                interface: neighbour.interface,
                address: neighbour.address.into(),
                mac: neighbour.mac.bytes(),
            };
            if !matches!(self.request_owner(request).await?, Reply::Done) {
                tracing::warn!("the table has no space for the static neighbour {}", neighbour.address);
            }
        }
        Ok(())
    }

    /// The port at an index. `None` if the device is absent.
    pub(crate) fn port(&self, place: usize) -> Option<Arc<Port>> {
        self.devices.port(PortIndex::try_from(place).ok()?)
    }

    /// Whether the link of a port is up.
    pub(crate) fn link_is_up(&self, port: usize) -> bool {
        let Some(port) = self.port(port) else {
            return false;
        };
        // The DPDK drivers of kernel interfaces read the link state only at start, so the kernel is queried.
        match self.kernel_interface(port.name()) {
            Some(name) => Interface::named(&name).is_ok_and(|interface| interface.runs()),
            None => port.link().up,
        }
    }

    /// Take the link of a port up or down.
    pub(crate) fn set_port_link(&self, port: usize, up: bool) -> std::io::Result<()> {
        let port = self.port(port).ok_or(std::io::ErrorKind::NotFound)?;
        match self.kernel_interface(port.name()) {
            Some(name) => Interface::named(&name)?.set_up(up),
            None => port.set_link(up),
        }
    }

    /// Interfaces whose link is held down.
    pub(crate) fn held_links(&self) -> std::sync::MutexGuard<'_, Vec<InterfaceIndex>> {
        lock(&self.held_links)
    }

    fn kernel_interface(&self, name: &str) -> Option<String> {
        let config = self.config();
        let (_, interface) = config.interface(name)?;
        match &interface.link {
            sluice_config::config::Link::Device { device, .. }
                if device.kind() == sluice_config::value::DeviceKind::Kernel =>
            {
                Some(device.as_str().to_owned())
            }
            _ => None,
        }
    }

    /// Current time on the workers' clock, in nanoseconds.
    pub(crate) fn nanoseconds(&self) -> u64 {
        self.started_at.elapsed().as_nanos() as u64
    }

    /// Run the periodic tasks; runs for the life of the process.
    pub(crate) async fn housekeep(&self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut measured = Instant::now();
        let mut recorded = Instant::now();
        let mut folding = None;
        loop {
            tick.tick().await;
            {
                let mut plane = self.plane();
                plane.publish_changes(Now::at(self.nanoseconds()));
                plane.collect();
            }
            self.collect_alerts();
            self.log_conflict();
            crate::api::sets::expire(self);
            if let Some(rules) = &*self.rules() {
                crate::filter::write_log(&self.config(), rules.list());
            }
            folding = self.fold_rules(folding).await;
            if recorded.elapsed() >= DAY {
                recorded = Instant::now();
                self.record_shares();
            }
            let elapsed = measured.elapsed();
            if elapsed >= Duration::from_secs(1) {
                measured = Instant::now();
                self.measure(elapsed);
            }
        }
    }

    /// Log an address conflict: another host uses one of the gateway's addresses. At most ten conflicts per second are logged.
    fn log_conflict(&self) {
        let plane = self.plane();
        let Some(conflict) = plane.conflicts().take() else {
            return;
        };
        let interface = plane.snapshot().interface(conflict.interface);
        let name = interface.map_or("?", |interface| interface.name.as_str());
        let (address, mac) = (IpAddr::from(conflict.address), mac_text(conflict.mac));
        match conflict.of {
            Some(had) => tracing::warn!("{name}: {mac} claims {address}, which belonged to {}", mac_text(had)),
            None => tracing::warn!("{name}: {mac} claims {address}, which is an address of this gateway"),
        }
    }

    /// If many rules have changed, start a task that compiles a new filter; install the filter of a task that has ended.
    async fn fold_rules(&self, folding: Option<Folding>) -> Option<Folding> {
        let Some(folding) = folding else {
            let fold = self
                .rules()
                .as_mut()
                .and_then(|rules| rules.list_mut().begin_rebuild())?;
            return Some(tokio::task::spawn_blocking(|| fold.build()));
        };
        if !folding.is_finished() {
            return Some(folding);
        }
        let built = folding.await;
        let mut rules = self.rules();
        let rules = rules.as_mut()?;
        // Write the pending log entries before the positions of the rules change.
        crate::filter::write_log(&self.config(), rules.list());
        let folded = match built {
            Ok(Ok(built)) => rules.list_mut().end_rebuild(built).map_err(|error| error.to_string()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match folded {
            Ok(true) => {
                rules.name_all();
                self.plane().replace_filter(rules.list().filters().clone());
            }
            Ok(false) => {}
            Err(error) => {
                rules.list_mut().abort_rebuild();
                tracing::error!("the filter could not be rebuilt and stays as it is: {error}");
            }
        }
        None
    }

    /// Log that the present port shares of deterministic pools apply from now on (RFC 7422, section 3).
    pub(crate) fn record_shares(&self) {
        let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        for record in Shares::of(&self.config()).records(&time) {
            tracing::info!("deterministic: {record}");
        }
    }

    fn measure(&self, elapsed: Duration) {
        let available = (tsc::frequency() as f64 * elapsed.as_secs_f64()).max(1.0);
        for (counters, load) in self.counters.iter().zip(lock(&self.loads).iter_mut()) {
            let on_packets = CycleStage::ALL
                .iter()
                .filter(|&&stage| stage != CycleStage::Housekeeping);
            let cycles = on_packets
                .map(|&stage| counters.cycles[stage as usize].get())
                .sum::<u64>();
            let (packets, rounds) = (counters.packets.get(), counters.rounds.get());
            let idle = counters.idle_rounds.get();
            *load = Load {
                rate: ((packets - load.packets) as f64 / elapsed.as_secs_f64()) as u64,
                busy: (cycles.wrapping_sub(load.cycles) as f64 / available).clamp(0.0, 1.0),
                asleep: rounds - load.rounds == idle - load.idle,
                packets,
                cycles,
                rounds,
                idle,
            };
        }
    }

    /// Warnings for the operator.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let config = self.config();
        let stuck = config
            .cores
            .iter()
            .enumerate()
            .filter(|&(worker, _)| self.watchdog.is_stuck(worker));
        let mut warnings: Vec<_> = stuck
            .map(|(worker, core)| format!("core {core} is stuck: the loop of worker {worker} does not proceed"))
            .collect();
        let panics = self.panics.load(Ordering::Relaxed);
        if panics > 0 {
            warnings.push(format!(
                "{panics} requests to the control socket failed because of a bug"
            ));
        }
        let panics = self.hosts.panics();
        if panics > 0 {
            warnings.push(format!(
                "the service for hosts of routers failed {panics} times because of a bug and was restarted"
            ));
        }
        warnings.extend(self.sites.iter().flat_map(SitesService::warnings));
        warnings
    }

    /// Return the devices, consuming the control.
    pub(crate) fn into_devices(self) -> Devices {
        self.devices
    }
}
