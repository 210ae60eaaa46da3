//! Adds and removes devices while the process runs: hotplugged cards, kernel interfaces that are deleted and created
//! again, and the interfaces of a commit.
//!
//! A worker may use a removed port until it has processed the renewal request for that port. The port is then closed on
//! a separate thread, since a driver may block on an absent card.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_config::config::InterfaceIndex;
use sluice_config::{Config, Fault};
use sluice_dpdk::{Device, Port, PortPlan, SetError, limits};
use sluice_engine::packet::io::{PortIndex, WorkerIndex};
use sluice_engine::snapshot::Senders;
use sluice_engine::worker::request::{Reply, Request};

use crate::control::Control;
use crate::handle::WorkerEnded;
use crate::ports::{Outlook, outlook, port_plan};
use crate::{DaemonError, lowering, start};

/// Maximum number of devices added while the process runs.
pub(crate) const SPARE_PLACES: usize = 8;

/// Interval between checks of the devices.
const PERIOD: Duration = Duration::from_millis(100);

/// Pause after the first failed attempt to open a device. The pause doubles with each attempt up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Polling interval while a port is waiting to be closed.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Maximum wait at the end of the process for devices that are being closed. The e1000e driver polls the registers of a
/// removed card for half a minute.
const PATIENCE: Duration = Duration::from_secs(1);

/// Properties of a port that are kept while its device is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// Ethernet address. A device that returns gets the same address.
    pub mac: [u8; 6],
    /// Workers that have a transmit queue.
    pub senders: Senders,
}

/// State of a port whose device is absent.
struct Absent {
    /// Whether the former device is still being closed.
    closing: Arc<AtomicBool>,
    retry: Instant,
    pause: Duration,
    /// Error of the last attempt to open the device.
    message: String,
}

impl Absent {
    fn new(closing: Arc<AtomicBool>) -> Self {
        Self {
            closing,
            retry: Instant::now() + FIRST_PAUSE,
            pause: FIRST_PAUSE,
            message: String::new(),
        }
    }

    fn is_due(&self) -> bool {
        !self.closing.load(Ordering::Relaxed) && Instant::now() >= self.retry
    }

    /// Record a failed attempt to open the device. Repetitions of the same error are not logged.
    fn failed(&mut self, name: &str, why: String) {
        if self.message != why {
            tracing::warn!("{name}: the device is back but can't be opened: {why}");
            self.message = why;
        }
        self.retry = Instant::now() + self.pause;
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
    }
}

/// Devices that are being closed.
#[derive(Debug, Default)]
pub(crate) struct Closing(Mutex<Vec<(String, Arc<AtomicBool>)>>);

impl Closing {
    /// Close a port once no API request refers to it. The returned flag is true until the port is closed.
    fn start(&self, port: Arc<Port>) -> Arc<AtomicBool> {
        let name = port.name().to_owned();
        self.run(name, move || {
            while Arc::strong_count(&port) > 1 {
                std::thread::sleep(POLL_INTERVAL);
            }
            drop(port);
        })
    }

    fn run(&self, name: String, close: impl FnOnce() + Send + 'static) -> Arc<AtomicBool> {
        let closing = Arc::new(AtomicBool::new(true));
        let under_way = closing.clone();
        let body = move || {
            close();
            under_way.store(false, Ordering::Relaxed);
        };
        if let Err(error) = std::thread::Builder::new().name("port-close".into()).spawn(body) {
            // The closure owned the port, so dropping the closure has closed the port here.
            tracing::warn!("{name}: the control thread closed the device, because no thread could be created: {error}");
            closing.store(false, Ordering::Relaxed);
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, closing)| closing.load(Ordering::Relaxed));
        all.push((name, closing.clone()));
        closing
    }

    /// Wait for the devices that are being closed, up to [`PATIENCE`]. Returns the interfaces whose devices are still
    /// open; the kernel closes these devices when the process ends.
    pub(crate) fn finish(&self) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|(_, closing)| closing.load(Ordering::Relaxed));
            if all.is_empty() || Instant::now() >= deadline {
                return all.drain(..).map(|(name, _)| name).collect();
            }
            drop(all);
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Ports that a commit has opened. The ports are closed on drop unless the commit calls [`Opened::keep`].
pub(crate) struct Opened<'c> {
    control: &'c Control,
    places: Vec<PortIndex>,
}

impl Opened<'_> {
    /// Keep the ports, because the commit succeeded and workers receive from them.
    pub(crate) async fn keep(mut self) -> Result<(), WorkerEnded> {
        for place in std::mem::take(&mut self.places) {
            self.control.renew(place).await?;
        }
        Ok(())
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        for &place in &self.places {
            // No worker has processed a renewal request for the port, so no worker uses the port.
            if let Some(port) = self.control.devices.detach(place) {
                self.control.closing.start(port);
            }
        }
    }
}

impl Control {
    /// Properties of the ports, by port index.
    pub(crate) fn known_ports(&self) -> MutexGuard<'_, Vec<Known>> {
        self.known_ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ethernet address of each port.
    pub(crate) fn macs(&self) -> Vec<[u8; 6]> {
        self.known_ports().iter().map(|known| known.mac).collect()
    }

    /// For each port, the workers that send on the port.
    pub(crate) fn senders(&self) -> Vec<Senders> {
        self.known_ports().iter().map(|known| known.senders.clone()).collect()
    }

    /// Make every worker switch to the current device of a port.
    async fn renew(&self, port: PortIndex) -> Result<(), WorkerEnded> {
        for worker in 0..self.workers() {
            let receives = self.devices.receives(worker as WorkerIndex, port);
            // A worker rejects the request while a shard is moving.
            while !matches!(
                self.ask(worker, Request::RenewPort { port, receives }).await?,
                Reply::Done
            ) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }

    /// Wait until no worker uses a port that was removed from the set of ports, then close the port.
    async fn release(&self, place: PortIndex, port: Arc<Port>) -> Result<Arc<AtomicBool>, WorkerEnded> {
        if let Err(removed) = self.renew(place).await {
            // A worker that has not processed the renewal request may still use the port.
            std::mem::forget(port);
            return Err(removed);
        }
        Ok(self.closing.start(port))
    }

    /// Close the ports of removed devices, and open the ports of returned devices. Runs for the life of the process.
    pub(crate) async fn follow_devices(self: &Arc<Self>) {
        let mut absent: HashMap<PortIndex, Absent> = HashMap::new();
        let mut members: HashMap<Device, Absent> = HashMap::new();
        loop {
            let config = self.config();
            for (place, index) in lowering::ports(&config) {
                let removed = match self.devices.port(place) {
                    Some(port) => port.is_removed(),
                    None => {
                        let absent = absent.entry(place).or_insert_with(|| Absent::new(Default::default()));
                        if absent.is_due() && self.return_device(&config, (place, index), absent).await.is_err() {
                            return;
                        }
                        continue;
                    }
                };
                absent.remove(&place);
                if !removed && self.follow_members(place, &mut members).await.is_err() {
                    return;
                }
                if removed {
                    match self.lose_device(place).await {
                        Ok(Some(closing)) => drop(absent.insert(place, Absent::new(closing))),
                        Ok(None) => {}
                        Err(WorkerEnded) => return,
                    }
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Handle the removal of a port's device.
    async fn lose_device(&self, place: PortIndex) -> Result<Option<Arc<AtomicBool>>, WorkerEnded> {
        let _pause = self.pause_shard_moves().await;
        let Some(port) = self.devices.detach(place) else {
            return Ok(None);
        };
        tracing::warn!(
            "{}: the device was removed, or the kernel requests its removal: the other interfaces continue, and the \
             device is used again when it returns",
            port.name()
        );
        let closing = self.release(place, port).await?;
        self.settle_links();
        Ok(Some(closing))
    }

    /// Remove absent members from a bond, and add members that returned.
    async fn follow_members(&self, place: PortIndex, absent: &mut HashMap<Device, Absent>) -> Result<(), WorkerEnded> {
        let Some(port) = self.devices.port(place) else {
            return Ok(());
        };
        let lost = port.lost_members();
        if !lost.is_empty() {
            let _pause = self.pause_shard_moves().await;
            self.devices.pause(place, &port);
            self.renew(place).await?;
            let parted = port.part_members();
            self.devices.resume(place, &port);
            self.renew(place).await?;
            let closing = self.closing.run(port.name().to_owned(), move || drop(parted));
            for device in lost {
                tracing::warn!(
                    "{}: the bond member {device} was removed, or has no carrier, or the kernel requests its removal: \
                     the other members continue, and the member is used again when it returns",
                    port.name()
                );
                absent.insert(device, Absent::new(closing.clone()));
            }
        }
        for device in port.absent_members() {
            let known = absent
                .entry(device.clone())
                .or_insert_with(|| Absent::new(Default::default()));
            let limits = || limits(&device, port.mtu(), 1, None);
            if !known.is_due() || limits().iter().any(|limit| limit.fatal) {
                continue;
            }
            let _pause = self.pause_shard_moves().await;
            let (bond, wanted) = (port.clone(), device.clone());
            let opened = blocking(move || bond.open_member(&wanted)).await;
            let joined = match opened {
                Ok(member) => {
                    self.devices.pause(place, &port);
                    self.renew(place).await?;
                    let (bond, wanted) = (port.clone(), device.clone());
                    let joined = blocking(move || bond.join_member(&wanted, member)).await;
                    self.devices.resume(place, &port);
                    self.renew(place).await?;
                    joined
                }
                Err(error) => Err(error),
            };
            match joined {
                Ok(()) => tracing::info!("{}: the bond member {device} is back", port.name()),
                Err(error) => known.failed(port.name(), error),
            }
        }
        Ok(())
    }

    /// Try to open the device of a port again.
    async fn return_device(
        self: &Arc<Self>,
        config: &Config,
        (place, index): (PortIndex, InterfaceIndex),
        absent: &mut Absent,
    ) -> Result<(), WorkerEnded> {
        let Some(Ok(wanted)) = port_plan(config, index) else {
            return Ok(());
        };
        if !Outlook::new(index, wanted.clone()).is_ready() {
            // The card is absent or bound to a different driver. The attempt is repeated, since the card may become
            // available later.
            absent.retry = Instant::now() + FIRST_PAUSE;
            return Ok(());
        }
        let _pause = self.pause_shard_moves().await;
        if self.devices.port(place).is_some() || self.config().numbering.ports != config.numbering.ports {
            return Ok(());
        }
        let known = self.known_ports().get(usize::from(place)).cloned().unwrap_or_default();
        let wanted = PortPlan {
            mac: wanted.mac.or((known.mac != [0; 6]).then_some(known.mac)),
            ..wanted
        };
        let name = wanted.name.clone();
        match self.open_device(place, wanted, index).await {
            Ok(port) => {
                if let Err(error) = self.readdress(place, &known) {
                    tracing::error!("{name}: the device is back, but can't be configured: {error}");
                }
                self.renew(place).await?;
                tracing::info!("{name}: the device is back, with driver {}", port.driver());
                self.settle_links();
                self.settle_hosts().await;
            }
            Err(error) => absent.failed(&name, error),
        }
        Ok(())
    }

    /// Publish the Ethernet address and the senders of a port if they have changed.
    fn readdress(&self, place: PortIndex, before: &Known) -> Result<(), DaemonError> {
        let now = self.known_ports().get(usize::from(place)).cloned().unwrap_or_default();
        if now == *before {
            return Ok(());
        }
        let fresh = lowering::interfaces(&self.config(), &self.macs());
        let routes = lowering::routes(&self.config(), &fresh)?;
        let mut plane = self.plane();
        plane.change_device(
            |policy| {
                let interfaces = policy.interfaces.iter_mut().zip(fresh);
                for (interface, fresh) in interfaces.filter(|(interface, _)| interface.port == place) {
                    (interface.mac, interface.link) = (fresh.mac, fresh.link);
                }
                if let Some(senders) = policy.senders.get_mut(usize::from(place)) {
                    *senders = now.senders;
                }
            },
            &routes,
        )?;
        Ok(())
    }

    /// Open a device at a port index. Workers use the port after [`Control::renew`].
    async fn open_device(
        self: &Arc<Self>,
        place: PortIndex,
        mut wanted: PortPlan,
        index: InterfaceIndex,
    ) -> Result<Arc<Port>, String> {
        {
            let (config, plane) = (self.config(), self.plane());
            crate::ports::steer_one(&mut wanted, &config, index, plane.start_parameters());
        }
        let control = self.clone();
        let port = blocking(move || control.devices.attach(place, &wanted)).await?;
        let config = self.config();
        let senders = {
            let plane = self.plane();
            let wanted = plane
                .start_parameters()
                .stages
                .senders(self.workers(), plane.start_parameters().assist.is_some());
            start::senders(port.senders(), &wanted, self.workers())
        };
        let known = Known {
            mac: start::describe(&port, &config, place),
            senders,
        };
        if let Some(place) = self.known_ports().get_mut(usize::from(place)) {
            *place = known;
        }
        Ok(port)
    }

    /// Open the devices that only the new configuration has. With `dry_run`, only check whether the devices can be
    /// opened.
    ///
    /// # Errors
    /// Faults of the configuration: no port index is free, or a device can't be opened.
    pub(crate) async fn open_added(self: &Arc<Self>, config: &Config, dry_run: bool) -> Result<Opened<'_>, Vec<Fault>> {
        let running = self.config();
        let mut opened = Opened {
            control: self,
            places: Vec::new(),
        };
        let outlooks = outlook(config)?;
        for (place, index) in lowering::ports(config) {
            let Some(outlook) = outlooks.iter().find(|outlook| outlook.interface == index) else {
                continue;
            };
            if running.numbering.ports.of(&outlook.plan.name).is_some() {
                continue;
            }
            let fault = |description: String| Fault {
                key: ["interfaces", &outlook.plan.name, "device"].map(str::to_owned).to_vec(),
                description,
                hint: None,
            };
            let faults = outlook.faults(config);
            if !faults.is_empty() {
                return Err(faults);
            }
            let places = self.plane().start_parameters().ports;
            if usize::from(place) >= places {
                let port = outlook.plan.name.clone();
                return Err(vec![fault(SetError::NoFreeIndex { port, places }.to_string())]);
            }
            if !dry_run {
                let opening = self.open_device(place, outlook.plan.clone(), index).await;
                opening.map_err(|error| vec![fault(error)])?;
                opened.places.push(place);
            }
        }
        Ok(opened)
    }

    /// Close the devices that only the previous configuration `before` had.
    pub(crate) async fn close_removed(&self, before: &Config) -> Result<(), WorkerEnded> {
        let running = self.config();
        for (place, name) in crate::numbers::removed(&before.numbering.ports, &running.numbering.ports) {
            let place = place as PortIndex;
            if let Some(port) = self.devices.detach(place) {
                let closing = self.release(place, port).await?;
                // Wait a while for the close to complete, since the next commit may add the device again.
                let deadline = Instant::now() + PATIENCE;
                while closing.load(Ordering::Relaxed) && Instant::now() < deadline {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                tracing::info!("{name}: the device is closed");
            }
            if let Some(known) = self.known_ports().get_mut(usize::from(place)) {
                *known = Known::default();
            }
        }
        Ok(())
    }
}

/// Run a driver call on a separate thread, since the call may take seconds. Returns the error of the call as text.
async fn blocking<T: Send + 'static, E: ToString + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(panicked) => Err(panicked.to_string()),
    }
}
