use std::cell::RefCell;
use std::io::{Error, ErrorKind};

use sluice_testkit::Machine;

use super::*;

const CARD: &str = "0000:00:02.0";

/// A fake kernel that works on a directory. Writes to the directory have the same effects as writes to `/sys`.
struct Files {
    machine: Machine,
    /// Installed kernel modules.
    modules: Vec<&'static str>,
    /// Drivers that reject the card.
    refusing: Vec<&'static str>,
    /// The kernel's own driver for the card.
    own: Option<&'static str>,
    log: RefCell<Vec<String>>,
}

impl Files {
    fn new(driver: Option<&str>, group: Option<u32>) -> Self {
        let machine = Machine::default();
        machine.card(CARD, driver, group);
        machine.driver("e1000e");
        machine.write("sys/bus/pci/drivers_probe", "");
        Self {
            machine,
            modules: vec![VFIO, TYPE1, UIO],
            refusing: Vec::new(),
            own: Some("e1000e"),
            log: RefCell::default(),
        }
    }

    fn system(&self) -> System {
        System::at(self.machine.root())
    }

    fn bind(&self, wish: &Wish) -> Result<Done, BindError> {
        bind_in(&self.system(), self, wish, None)
    }

    fn driver(&self) -> Option<String> {
        driver_of(&self.system(), wish().card)
    }

    fn overridden(&self) -> String {
        self.machine
            .read(&format!("sys/bus/pci/devices/{CARD}/driver_override"))
    }
}

impl Kernel for Files {
    fn load(&self, module: &str) -> io::Result<()> {
        self.log.borrow_mut().push(format!("load {module}"));
        if !self.modules.contains(&module) {
            return Err(Error::other(format!("FATAL: Module {module} not found")));
        }
        match module {
            TYPE1 => self.machine.write(&format!("sys/module/{TYPE1}/initstate"), "live"),
            driver => self.machine.driver(driver),
        }
        Ok(())
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let below = path.strip_prefix(self.machine.root()).expect("a path below the root");
        let below = below.to_str().expect("a plain path");
        self.log.borrow_mut().push(format!("{below} {}", text.trim()));
        if !path.exists() {
            return Err(Error::from(ErrorKind::NotFound));
        }
        let words: Vec<&str> = below.split('/').collect();
        match words[..] {
            ["sys", "bus", "pci", "drivers", driver, "bind"] => {
                if self.driver().is_some() || ![driver, ""].contains(&self.overridden().as_str()) {
                    return Err(Error::from_raw_os_error(19));
                }
                if self.refusing.contains(&driver) {
                    return Err(Error::from_raw_os_error(22));
                }
                self.machine.bind(CARD, Some(driver));
            }
            ["sys", "bus", "pci", "drivers", driver, "unbind"] => {
                if self.driver().as_deref() != Some(driver) {
                    return Err(Error::from_raw_os_error(19));
                }
                self.machine.bind(CARD, None);
            }
            ["sys", "bus", "pci", "drivers_probe"] => self.machine.bind(CARD, self.own),
            _ => self.machine.write(below, text),
        }
        Ok(())
    }
}

fn wish() -> Wish {
    Wish {
        card: CARD.parse().expect("an address"),
        driver: None,
        force: false,
        save: false,
        dry_run: false,
    }
}

#[test]
fn card_behind_an_iommu_is_bound_to_vfio() {
    let files = Files::new(Some("e1000e"), Some(3));
    let done = files.bind(&wish()).unwrap();
    assert_eq!(Some(VFIO.into()), files.driver());
    assert_eq!((Some("e1000e".into()), Some(VFIO.into())), (done.was, done.driver));
    assert_eq!(VFIO, files.overridden());
    assert_eq!(
        vec![
            "load vfio-pci",
            "load vfio_iommu_type1",
            "sys/bus/pci/devices/0000:00:02.0/driver_override vfio-pci",
            "sys/bus/pci/drivers/e1000e/unbind 0000:00:02.0",
            "sys/bus/pci/drivers/vfio-pci/bind 0000:00:02.0",
        ],
        *files.log.borrow()
    );
    assert_eq!(Vec::<String>::new(), done.notes);
    assert!(!done.rule.is_saved && !done.rule.path.exists());
}

#[test]
fn card_without_an_iommu_is_bound_to_uio_and_hugepages_are_named() {
    let files = Files::new(None, None);
    let done = files.bind(&wish()).unwrap();
    assert_eq!((Some(UIO.into()), None), (done.driver, done.was));
    assert!(done.notes[0].contains("hugepages"), "{:?}", done.notes);
}

#[test]
fn card_that_is_bound_as_wished_gets_what_is_missing_alone() {
    let files = Files::new(Some(VFIO), Some(3));
    files.machine.process(4242, "sluice", "/dev/vfio/3");
    files.bind(&wish()).unwrap();
    assert_eq!(vec!["load vfio_iommu_type1"], *files.log.borrow());
    files.bind(&wish()).unwrap();
    assert_eq!(1, files.log.borrow().len());
}

#[test]
fn dry_run_says_the_commands_and_does_nothing() {
    let files = Files::new(Some("e1000e"), Some(3));
    let dry = Wish {
        dry_run: true,
        save: true,
        ..wish()
    };
    let done = files.bind(&dry).unwrap();
    assert_eq!("modprobe vfio-pci", done.steps[0]);
    assert!(done.steps[2].starts_with("echo vfio-pci > /") && done.steps[2].ends_with("/driver_override"));
    assert_eq!((0, Some("e1000e".into())), (files.log.borrow().len(), files.driver()));
    assert!(!done.rule.path.exists());
}

#[test]
fn card_that_a_driver_refuses_is_given_back() {
    let mut files = Files::new(Some("e1000e"), Some(3));
    files.refusing.push(VFIO);
    let error = files.bind(&wish()).unwrap_err().to_string();
    assert!(error.contains("vfio-pci/bind fails (Invalid argument"), "{error}");
    assert!(error.ends_with("0000:00:02.0 is bound to e1000e"), "{error}");
    assert_eq!(
        (Some("e1000e".into()), String::new()),
        (files.driver(), files.overridden())
    );
    files.refusing.push("e1000e");
    let error = files.bind(&wish()).unwrap_err().to_string();
    assert!(error.ends_with("0000:00:02.0 is without a driver"), "{error}");
}

#[test]
fn module_that_is_not_installed_is_named_and_nothing_is_touched() {
    let mut files = Files::new(Some("e1000e"), None);
    files.modules.clear();
    let error = files.bind(&wish()).unwrap_err().to_string();
    assert_eq!(
        "the kernel module uio_pci_generic can't be loaded (FATAL: Module uio_pci_generic not found): install all \
         modules of this kernel (Debian: linux-image-$(uname -r), Ubuntu: linux-modules-extra-$(uname -r))",
        error
    );
    assert_eq!(Some("e1000e".into()), files.driver());
    let driver = Some("igb_uio".into());
    let error = files.bind(&Wish { driver, ..wish() }).unwrap_err().to_string();
    assert!(error.ends_with("apt-get install dpdk-kmods-dkms"), "{error}");
}

#[test]
fn vfio_without_an_iommu_is_refused_before_the_card_is_touched() {
    let files = Files::new(Some("e1000e"), None);
    let driver = Some(VFIO.to_owned());
    let wish = Wish { driver, ..wish() };
    assert!(matches!(files.bind(&wish), Err(BindError::NoIommu(_))));
    assert_eq!(0, files.log.borrow().len());
    let switch = "sys/module/vfio/parameters/enable_unsafe_noiommu_mode";
    files.machine.write(switch, "Y\n");
    let done = files.bind(&wish).unwrap();
    assert_eq!((Some(VFIO.into()), files.driver()), (done.driver.clone(), done.driver));
    assert!(!files.log.borrow().iter().any(|line| line.contains(TYPE1)));
}

#[test]
fn card_that_this_machine_is_managed_over_is_taken_by_force_alone() {
    let files = Files::new(Some("e1000e"), Some(3));
    let bind = |force| {
        let used = Some("the default route of this machine uses eth0".into());
        bind_in(&files.system(), &files, &Wish { force, ..wish() }, used)
    };
    let error = bind(false).unwrap_err().to_string();
    assert!(error.contains("default route") && error.contains("--force"), "{error}");
    assert_eq!(Some("e1000e".into()), files.driver());
    let done = bind(true).unwrap();
    assert!(
        done.rule.text.contains("--driver vfio-pci --force\""),
        "{}",
        done.rule.text
    );
}

#[test]
fn card_that_a_process_uses_is_neither_bound_nor_unbound() {
    let files = Files::new(Some(UIO), Some(3));
    files
        .machine
        .write(&format!("sys/bus/pci/devices/{CARD}/uio/uio0/name"), UIO);
    files.machine.process(4242, "sluice", "/dev/uio0");
    for result in [files.bind(&wish()), unbind_in(&files.system(), &files, &wish())] {
        let error = result.unwrap_err().to_string();
        assert!(
            error.starts_with("0000:00:02.0 is in use by process 4242 (sluice)"),
            "{error}"
        );
    }
    assert_eq!(Some(UIO.into()), files.driver());
    let force = Wish { force: true, ..wish() };
    unbind_in(&files.system(), &files, &force).unwrap();
    assert_eq!(Some("e1000e".into()), files.driver());
}

#[test]
fn device_that_is_no_card_or_shared_with_the_kernel_stays() {
    let files = Files::new(Some("mlx5_core"), Some(3));
    let error = files.bind(&wish()).unwrap_err().to_string();
    assert!(error.starts_with("0000:00:02.0 stays bound to mlx5_core"), "{error}");
    for (address, expected) in [
        ("0000:00:09.0", "no PCI device"),
        ("0000:00:08.0", "is not a network card"),
    ] {
        files.machine.device("0000:00:08.0", "0x010802", Some("nvme"), None);
        let card = address.parse().expect("an address");
        let error = files.bind(&Wish { card, ..wish() }).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        std::fs::remove_dir_all(files.machine.root().join("sys/bus/pci/devices/0000:00:08.0")).unwrap();
    }
}

#[test]
fn group_that_the_kernel_shares_is_noted_with_the_next_step() {
    let files = Files::new(Some("e1000e"), Some(3));
    files.machine.card("0000:00:03.0", Some("e1000e"), Some(3));
    let done = files.bind(&wish()).unwrap();
    assert!(
        done.notes[0].contains("run sluice bind 0000:00:03.0 as root"),
        "{:?}",
        done.notes
    );
}

#[test]
fn rule_is_saved_and_goes_with_unbind() {
    let files = Files::new(Some("e1000e"), Some(3));
    let save = Wish { save: true, ..wish() };
    let done = files.bind(&save).unwrap();
    let path = "etc/udev/rules.d/90-sluice-0000:00:02.0.rules";
    let rule = files.machine.read(path);
    assert_eq!(rule, done.rule.text.trim());
    assert!(
        rule.starts_with("ACTION==\"add\", SUBSYSTEM==\"pci\", KERNEL==\"0000:00:02.0\", RUN+=\"/"),
        "{rule}"
    );
    assert!(rule.ends_with(" bind 0000:00:02.0 --driver vfio-pci\""), "{rule}");
    let dry = Wish {
        dry_run: true,
        ..wish()
    };
    let would = unbind_in(&files.system(), &files, &dry).unwrap();
    assert!(would.steps.last().unwrap().ends_with(path), "{:?}", would.steps);
    let done = unbind_in(&files.system(), &files, &wish()).unwrap();
    assert_eq!((Some(VFIO.into()), Some("e1000e".into())), (done.was, done.driver));
    assert_eq!(
        (Some("e1000e".into()), String::new()),
        (files.driver(), files.overridden())
    );
    assert!(!files.machine.root().join(path).exists());
    assert_eq!(would.steps, done.steps);
}

#[test]
fn card_that_no_driver_wants_is_told_after_unbind() {
    let mut files = Files::new(Some(VFIO), Some(3));
    files.own = None;
    let done = unbind_in(&files.system(), &files, &wish()).unwrap();
    assert_eq!(None, done.driver);
    assert!(
        done.notes[0].contains("no driver of the kernel wants it"),
        "{:?}",
        done.notes
    );
    assert!(files.log.borrow().contains(&"load pci:v00008086d000010D3".to_owned()));
    files.own = Some(VFIO);
    assert!(matches!(
        unbind_in(&files.system(), &files, &wish()),
        Err(BindError::NotBound { .. })
    ));
}
