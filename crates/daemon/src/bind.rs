//! `sluice bind` and `sluice unbind`: change the kernel driver of a card, now and for later boots.

mod kernel;
mod names;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Serialize;
use sluice_dpdk::Device;
pub use sluice_dpdk::PciAddress;
use sluice_dpdk::pci::{Card, CardFault, Mode, Process, System, UIO, VFIO, card_faults};

use crate::{files, management};
use kernel::{Kernel, Running, Step};

/// Drivers to which a card can be bound.
pub const DRIVERS: [&str; 3] = [VFIO, UIO, "igb_uio"];

/// Kernel module through which VFIO uses an IOMMU.
const TYPE1: &str = "vfio_iommu_type1";

/// Requested change of a card's driver.
#[derive(Clone, Debug)]
pub struct Wish {
    /// PCI address of the card.
    pub card: PciAddress,
    /// One of [`DRIVERS`]. `None` selects VFIO if the card is behind an IOMMU, and UIO otherwise.
    pub driver: Option<String>,
    /// Bind the card even if the machine is managed over the card or a process uses the card.
    pub force: bool,
    /// Save a udev rule that repeats the change after each boot.
    pub save: bool,
    /// Only report the steps, without running them.
    pub dry_run: bool,
}

/// Result of a bind, an unbind or a dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Done {
    /// PCI address of the card.
    pub card: String,
    /// Driver before the change.
    pub was: Option<String>,
    /// Driver after the change; in a dry run, the expected driver.
    pub driver: Option<String>,
    /// Kernel interfaces of the card after the change.
    pub interfaces: Vec<String>,
    /// Steps that were run, written as shell commands.
    pub steps: Vec<String>,
    /// Steps that the operator still has to do, and remarks.
    pub notes: Vec<String>,
    /// Udev rule that repeats the change after each boot.
    pub rule: Rule,
}

/// A udev rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Rule {
    /// Path of the rule's file.
    pub path: PathBuf,
    /// Content of the file.
    pub text: String,
    /// Whether the file already exists with this content.
    pub is_saved: bool,
}

/// Why the driver of a card was not changed.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// No card has this address.
    #[error(transparent)]
    Card(#[from] CardFault),
    /// The card's DPDK driver works on top of the kernel driver, so the card must stay bound to the kernel driver.
    #[error(
        "{address} must stay bound to {driver}, because its DPDK driver works together with the kernel driver: use \
         this address in the configuration without binding the card"
    )]
    Bifurcated {
        /// PCI address of the card.
        address: PciAddress,
        /// Kernel driver of the card.
        driver: String,
    },
    /// The machine is managed over the card. Changing the driver would end the operator's connection.
    #[error("the driver of {address} was not changed: {description}; choose another card, or add --force")]
    Managed {
        /// PCI address of the card.
        address: PciAddress,
        /// How this machine uses the card.
        description: String,
    },
    /// A process uses the card.
    #[error(
        "{address} is in use by {process}: stop this process, remove the card from its configuration, or add \
         --force"
    )]
    InUse {
        /// PCI address of the card.
        address: PciAddress,
        /// Process that uses the card.
        process: Process,
    },
    /// VFIO requires an IOMMU, and the card is not behind one.
    #[error(
        "{0} is not behind an IOMMU: turn on VT-d or AMD-Vi in the firmware and write intel_iommu=on or amd_iommu=on on the kernel's command line; or add --driver {UIO}"
    )]
    NoIommu(PciAddress),
    /// A kernel module can't be loaded.
    #[error("the kernel module {module} can't be loaded ({message}): {}", package(.module))]
    Module {
        /// Name of the module.
        module: String,
        /// Error output of modprobe.
        message: String,
    },
    /// The kernel rejected a step.
    #[error("the step `{step}` failed ({error}); {address} is {}", now(.driver))]
    Step {
        /// PCI address of the card.
        address: PciAddress,
        /// The failed step, written as a shell command.
        step: String,
        /// Error of the kernel.
        error: io::Error,
        /// Driver of the card after the failed change was undone as far as possible.
        driver: Option<String>,
    },
    /// All steps succeeded, but the card is not bound to the requested driver.
    #[error("the kernel did not bind {address} to {wanted} (see dmesg); the card is {}", now(.driver))]
    NotBound {
        /// PCI address of the card.
        address: PciAddress,
        /// Requested driver.
        wanted: String,
        /// Present driver.
        driver: Option<String>,
    },
    /// The udev rule can't be written or removed.
    #[error("the card is bound, but the udev rule {} can't be changed: {error}", path.display())]
    Rule {
        /// Path of the rule's file.
        path: PathBuf,
        /// Error of the kernel.
        error: io::Error,
    },
}

/// Package that contains a kernel module.
fn package(module: &str) -> &'static str {
    match module {
        "igb_uio" => "apt-get install dpdk-kmods-dkms",
        _ => {
            "install all modules of this kernel (Debian: linux-image-$(uname -r), Ubuntu: linux-modules-extra-$(uname -r))"
        }
    }
}

fn now(driver: &Option<String>) -> String {
    match driver {
        Some(driver) => format!("bound to {driver}"),
        None => "without a driver".into(),
    }
}

/// Bind a card to a driver that gives user processes access to it.
///
/// # Errors
/// The card can't be bound to the driver. The former driver stays bound or is bound again.
pub fn bind(wish: &Wish) -> Result<Done, BindError> {
    let used = management::use_of(&Device::Pci(wish.card)).map(|used| used.to_string());
    bind_in(&System::this(), &Running, wish, used)
}

/// Bind a card to the kernel's own driver.
///
/// # Errors
/// The card can't be bound. The error states the present driver of the card.
pub fn unbind(wish: &Wish) -> Result<Done, BindError> {
    unbind_in(&System::this(), &Running, wish)
}

/// Error for a card that did not get the requested driver: a step failed, or all steps succeeded and the kernel chose a
/// different driver.
fn not_bound(
    address: PciAddress,
    failed: Option<(&Step, std::io::Error)>,
    wanted: String,
    found: Option<String>,
) -> BindError {
    match failed {
        Some((Step::Load(module), error)) => BindError::Module {
            module: module.clone(),
            message: error.to_string(),
        },
        Some((step, error)) => BindError::Step {
            address,
            step: step.to_string(),
            error,
            driver: found,
        },
        None => BindError::NotBound {
            address,
            wanted,
            driver: found,
        },
    }
}

fn bind_in(system: &System, kernel: &dyn Kernel, wish: &Wish, used: Option<String>) -> Result<Done, BindError> {
    let address = wish.card;
    let card = card(system, address)?;
    if let (Mode::Bifurcated, Some(driver)) = (card.mode(), card.driver.clone()) {
        return Err(BindError::Bifurcated { address, driver });
    }
    if let Some(description) = used.filter(|_| !wish.force) {
        return Err(BindError::Managed { address, description });
    }
    let driver = wish.driver.clone().unwrap_or(card.best_driver().into());
    let with_iommu = card.has_iommu();
    if driver == VFIO && !with_iommu && !system.allows_vfio_without_iommu() {
        return Err(BindError::NoIommu(address));
    }
    let mut steps = Vec::new();
    if !system.path("sys/bus/pci/drivers").join(&driver).exists() {
        steps.push(Step::Load(driver.clone()));
    }
    if driver == VFIO && with_iommu && !system.path("sys/module").join(TYPE1).exists() {
        steps.push(Step::Load(TYPE1.into()));
    }
    if card.driver.as_ref() != Some(&driver) {
        free(system, &card, wish)?;
        steps.push(choose(system, address, &driver));
        steps.extend(card.driver.iter().map(|old| hand(system, address, old, "unbind")));
        steps.push(hand(system, address, &driver, "bind"));
    }
    let mut done = Done {
        card: address.to_string(),
        was: card.driver.clone(),
        driver: Some(driver.clone()),
        interfaces: Vec::new(),
        steps: steps.iter().map(ToString::to_string).collect(),
        notes: Vec::new(),
        rule: rule(system, address, &driver, wish.force),
    };
    if wish.dry_run {
        return Ok(done);
    }
    let failed = steps
        .iter()
        .find_map(|step| step.run(kernel).err().map(|error| (step, error)));
    let found = driver_of(system, address);
    if failed.is_some() || found.as_ref() != Some(&driver) {
        restore(system, kernel, &card);
        let found = driver_of(system, address);
        return Err(not_bound(address, failed, driver, found));
    }
    let others = card_faults(system, address).into_iter();
    let others = others.filter(|fault| !matches!(fault, CardFault::InUse { .. }));
    done.notes.extend(others.map(|fault| fault.to_string()));
    if driver != VFIO || !with_iommu {
        done.notes.push(format!(
            "with {driver}, the card uses physical addresses and therefore needs hugepages: `sluice check` prints how \
             many"
        ));
    }
    if wish.save {
        save(&mut done.rule)?;
    } else if !done.rule.is_saved && done.rule.path.exists() {
        let path = done.rule.path.display();
        done.notes.push(format!(
            "{path} contains another driver, which applies after the next boot: add --save to replace this file"
        ));
    }
    Ok(done)
}

fn unbind_in(system: &System, kernel: &dyn Kernel, wish: &Wish) -> Result<Done, BindError> {
    let address = wish.card;
    let card = card(system, address)?;
    let folder = system.folder(address);
    let dpdk_driver = DRIVERS.iter().find(|driver| card.driver.as_deref() == Some(**driver));
    let mut steps = vec![choose(system, address, "")];
    if let Some(driver) = dpdk_driver {
        free(system, &card, wish)?;
        steps.push(hand(system, address, driver, "unbind"));
    }
    if dpdk_driver.is_some() || card.driver.is_none() {
        // A kernel driver claims the card only if the driver's module is loaded. A built-in driver has no module to
        // load.
        let alias = fs::read_to_string(folder.join("modalias")).unwrap_or_default();
        steps.push(Step::Try(alias.trim().into()));
        steps.push(Step::Write {
            path: system.path("sys/bus/pci/drivers_probe"),
            text: address.to_string(),
        });
    }
    let mut rule = rule(system, address, dpdk_driver.unwrap_or(&""), false);
    let is_saved = rule.path.exists();
    if !wish.dry_run {
        for step in &steps {
            step.run(kernel).map_err(|error| BindError::Step {
                address,
                step: step.to_string(),
                error,
                driver: driver_of(system, address),
            })?;
        }
    }
    let now = card_now(system, address, &card);
    if !wish.dry_run && now.driver.as_deref().is_some_and(|driver| DRIVERS.contains(&driver)) {
        return Err(BindError::NotBound {
            address,
            wanted: "its kernel driver".into(),
            driver: now.driver,
        });
    }
    if is_saved {
        steps.push(Step::Remove(rule.path.clone()));
        if !wish.dry_run {
            fs::remove_file(&rule.path).map_err(|error| BindError::Rule {
                path: rule.path.clone(),
                error,
            })?;
            rule.is_saved = false;
        }
    }
    let mut notes = Vec::new();
    if !wish.dry_run && now.driver.is_none() {
        notes.push(
            "no kernel driver has bound the card: see dmesg, and check whether the driver's module is \
             installed"
                .into(),
        );
    }
    Ok(Done {
        card: address.to_string(),
        was: card.driver,
        driver: now.driver.filter(|_| !wish.dry_run),
        interfaces: now.interfaces,
        steps: steps.iter().map(ToString::to_string).collect(),
        notes,
        rule,
    })
}

/// Find the network card at an address.
fn card(system: &System, address: PciAddress) -> Result<Card, CardFault> {
    let card = system.card(address).ok_or(CardFault::Absent(address))?;
    let class = card.class;
    match card.is_network() {
        true => Ok(card),
        false => Err(CardFault::OtherDevice { address, class }),
    }
}

fn card_now(system: &System, address: PciAddress, before: &Card) -> Card {
    system.card(address).unwrap_or(before.clone())
}

fn driver_of(system: &System, address: PciAddress) -> Option<String> {
    system.card(address)?.driver
}

/// Check that no process uses the card. Unbinding a card in use would block until the process ends, or would break the
/// process.
fn free(system: &System, card: &Card, wish: &Wish) -> Result<(), BindError> {
    let address = card.address;
    match system.user(card).filter(|_| !wish.force) {
        Some(process) => Err(BindError::InUse { address, process }),
        None => Ok(()),
    }
}

/// Restrict a card to one driver (`driver_override`); an empty name removes the restriction.
fn choose(system: &System, address: PciAddress, driver: &str) -> Step {
    Step::Write {
        path: system.folder(address).join("driver_override"),
        text: driver.into(),
    }
}

/// Bind a card to a driver, or unbind a card from a driver. `description` is `bind` or `unbind`.
fn hand(system: &System, address: PciAddress, driver: &str, description: &str) -> Step {
    Step::Write {
        path: system.path(&format!("sys/bus/pci/drivers/{driver}/{description}")),
        text: address.to_string(),
    }
}

/// Bind a card to its previous driver again, if the kernel allows it.
fn restore(system: &System, kernel: &dyn Kernel, before: &Card) {
    let address = before.address;
    let found = driver_of(system, address);
    let mut steps = vec![choose(system, address, "")];
    if found != before.driver {
        steps.extend(found.iter().map(|other| hand(system, address, other, "unbind")));
        steps.extend(before.driver.iter().map(|old| hand(system, address, old, "bind")));
    }
    // Failures are ignored, because the caller reads and reports the driver that the card has afterwards.
    steps.iter().for_each(|step| drop(step.run(kernel)));
}

/// The udev rule that binds a card when it appears, at boot or after hotplug.
fn rule(system: &System, address: PciAddress, driver: &str, force: bool) -> Rule {
    let path = system.path(&format!("etc/udev/rules.d/90-sluice-{address}.rules"));
    let program = std::env::current_exe().unwrap_or("/usr/bin/sluice".into());
    let force = if force { " --force" } else { "" };
    let mut rule = Rule {
        text: format!(
            "ACTION==\"add\", SUBSYSTEM==\"pci\", KERNEL==\"{address}\", RUN+=\"{} bind {address} --driver {driver}{force}\"\n",
            program.display()
        ),
        is_saved: false,
        path,
    };
    rule.is_saved = fs::read_to_string(&rule.path).is_ok_and(|saved| saved == rule.text);
    rule
}

fn save(rule: &mut Rule) -> Result<(), BindError> {
    let failed = |error| BindError::Rule {
        path: rule.path.clone(),
        error,
    };
    fs::create_dir_all(rule.path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
    // udev's services read the file as an unprivileged user, so it is readable by everyone.
    files::replace(&rule.path, 0o644, |file| file.write_all(rule.text.as_bytes())).map_err(failed)?;
    rule.is_saved = true;
    Ok(())
}

/// A network card of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CardStatus {
    /// PCI address of the card.
    pub card: String,
    /// Vendor and device ID: `8086:10d3`.
    pub id: String,
    /// Vendor and device name; `None` if the list of names is not installed.
    pub name: Option<String>,
    /// Kernel driver that the card is bound to.
    pub driver: Option<String>,
    /// How user processes can access the card.
    pub mode: String,
    /// Kernel interfaces of the card.
    pub interfaces: Vec<String>,
    /// IOMMU group of the card.
    pub group: Option<u32>,
    /// NUMA node of the card.
    pub node: Option<u16>,
}

impl From<&Card> for CardStatus {
    fn from(card: &Card) -> Self {
        Self {
            card: card.address.to_string(),
            id: card.id(),
            name: names::name(card.vendor, card.device),
            driver: card.driver.clone(),
            mode: card.mode().to_string(),
            interfaces: card.interfaces.clone(),
            group: card.group.as_ref().map(|group| group.number),
            node: card.node,
        }
    }
}

/// All network cards of this machine.
pub fn list() -> Vec<CardStatus> {
    System::this().cards().iter().map(CardStatus::from).collect()
}
