use std::io::{Error, ErrorKind};

use sluice_testkit::Machine;

use super::*;

const CARD: &str = "0000:00:02.0";

/// A machine with an IOMMU and all VFIO modules.
fn machine() -> Machine {
    let machine = Machine::default();
    machine.write("sys/module/vfio_iommu_type1/initstate", "live");
    machine
}

fn address(text: &str) -> PciAddress {
    text.parse().expect("an address")
}

fn system(machine: &Machine) -> System {
    System::at(machine.root())
}

fn texts(system: &System) -> Vec<String> {
    let faults = card_faults(system, address(CARD));
    faults.iter().map(ToString::to_string).collect()
}

#[test]
fn card_by_vfio_alone_in_its_group_has_no_fault() {
    let machine = machine();
    machine.card(CARD, Some(VFIO), Some(3));
    machine.device("0000:00:01.0", "0x060400", Some("pcieport"), Some(3));
    machine.card("0000:00:03.0", Some(VFIO), Some(3));
    machine.device("0000:00:04.0", "0x040300", None, Some(3));
    machine.device("0000:00:05.0", "0x040300", Some("pci-stub"), Some(3));
    assert_eq!(Vec::<String>::new(), texts(&system(&machine)));
    let card = system(&machine).card(address(CARD)).expect("a card");
    assert_eq!((Mode::Vfio, "8086:10d3".to_owned()), (card.mode(), card.id()));
}

#[test]
fn cards_are_network_cards_in_order_with_their_interfaces() {
    let machine = machine();
    machine.card("0000:3b:00.1", Some("ixgbe"), Some(9));
    machine.card(CARD, Some("virtio-pci"), None);
    machine.device("0000:00:01.0", "0x010802", Some("nvme"), None);
    machine.write("sys/bus/pci/devices/0000:3b:00.1/net/eth1/mtu", "1500");
    machine.write("sys/bus/pci/devices/0000:3b:00.1/numa_node", "1");
    machine.write(&format!("sys/bus/pci/devices/{CARD}/virtio0/net/eth0/mtu"), "1500");
    let cards = system(&machine).cards();
    let found: Vec<_> = cards
        .iter()
        .map(|card| (card.address.to_string(), card.interfaces.join(","), card.node))
        .collect();
    let expected = [(CARD, "eth0", None), ("0000:3b:00.1", "eth1", Some(1))];
    assert_eq!(
        expected.map(|(address, names, node)| (address.to_owned(), names.to_owned(), node)),
        found[..]
    );
    assert_eq!([UIO, VFIO], [cards[0].best_driver(), cards[1].best_driver()]);
}

#[test]
fn address_without_a_card_is_named() {
    let machine = machine();
    assert_eq!(
        vec!["there is no PCI device 0000:00:02.0: `sluice bind` lists the network cards of this machine"],
        texts(&system(&machine))
    );
    machine.device(CARD, "0x010802", Some("nvme"), Some(1));
    assert_eq!(
        vec![
            "0000:00:02.0 is not a network card (class 010802): `sluice bind` lists the network cards of this machine"
        ],
        texts(&system(&machine))
    );
}

#[test]
fn card_of_the_kernel_is_to_be_bound_to_what_the_machine_has() {
    let machine = machine();
    machine.card(CARD, Some("e1000e"), Some(3));
    machine.write(&format!("sys/bus/pci/devices/{CARD}/net/eth0/mtu"), "1500");
    assert_eq!(
        vec![
            "0000:00:02.0 is bound to the kernel driver e1000e (interface eth0): run `sluice bind 0000:00:02.0` as root, which binds the card to vfio-pci; or write device = \"eth0\""
        ],
        texts(&system(&machine))
    );
    machine.bind(CARD, None);
    assert_eq!(
        vec!["0000:00:02.0 has no driver: run `sluice bind 0000:00:02.0` as root, which binds the card to vfio-pci"],
        texts(&system(&machine))
    );
    let machine = Machine::default();
    machine.card(CARD, None, None);
    assert!(texts(&system(&machine))[0].ends_with("which gives it to uio_pci_generic"));
}

#[test]
fn card_of_a_bifurcated_driver_stays_with_the_kernel() {
    let machine = machine();
    for driver in ["mlx4_core", "mlx5_core", "mana", "nfp"] {
        let machine = Machine::default();
        machine.card(CARD, Some(driver), None);
        assert_eq!(Vec::<String>::new(), texts(&system(&machine)), "{driver}");
    }
    machine.card(CARD, Some("mlx5_ib"), None);
    assert_eq!(1, texts(&system(&machine)).len());
}

#[test]
fn vfio_without_an_iommu_is_a_fault_unless_the_kernel_allows_it() {
    let machine = machine();
    machine.card(CARD, Some(VFIO), None);
    let [fault] = &texts(&system(&machine))[..] else {
        panic!("one fault")
    };
    assert!(fault.contains("not behind an IOMMU: turn on VT-d"), "{fault}");
    assert!(
        fault.contains("sluice bind 0000:00:02.0 --driver uio_pci_generic"),
        "{fault}"
    );

    machine.write("sys/kernel/iommu_groups/0/name", "vfio-noiommu");
    machine.link(
        "sys/bus/pci/devices/0000:00:02.0/iommu_group",
        "sys/kernel/iommu_groups/0",
    );
    machine.write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N");
    assert_eq!(1, texts(&system(&machine)).len());
    machine.write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y");
    machine.write("dev/vfio/noiommu-0", "");
    assert_eq!(Vec::<String>::new(), texts(&system(&machine)));
    let card = system(&machine).card(address(CARD)).expect("a card");
    assert!(card.mode() == Mode::VfioWithoutIommu && card.mode().is_physical());
}

#[test]
fn vfio_without_its_driver_of_the_iommu_names_the_module() {
    let machine = Machine::default();
    machine.card(CARD, Some(VFIO), Some(3));
    assert_eq!(
        vec![
            "0000:00:02.0 is bound to vfio-pci, but the module vfio_iommu_type1 is not loaded: run modprobe vfio_iommu_type1"
        ],
        texts(&system(&machine))
    );
}

#[test]
fn group_with_a_device_of_the_kernel_names_it_and_how_it_is_freed() {
    let machine = machine();
    machine.card(CARD, Some(VFIO), Some(3));
    machine.card("0000:00:03.0", Some("e1000e"), Some(3));
    machine.device("0000:00:04.0", "0x040300", Some("snd_hda_intel"), Some(3));
    let found = texts(&system(&machine)).join("\n");
    for expected in [
        "0000:00:03.0 is in the IOMMU group 3 of 0000:00:02.0 and is bound to the kernel driver e1000e: run sluice bind \
         0000:00:03.0 as root",
        "snd_hda_intel: run echo 0000:00:04.0 > /sys/bus/pci/devices/0000:00:04.0/driver/unbind as root",
    ] {
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn group_in_use_names_the_process_unless_it_is_this_one() {
    let machine = machine();
    machine.card(CARD, Some(VFIO), Some(3));
    let mut system = system(&machine);
    system.open = |path| match path.ends_with("vfio/3") {
        true => Err(Error::from(ErrorKind::ResourceBusy)),
        false => Ok(()),
    };
    let unknown = "0000:00:02.0 is in use by another process: stop that process, or let that process use another card";
    assert_eq!(vec![unknown], texts(&system));
    machine.process(std::process::id(), "sluice", "/dev/vfio/3");
    assert_eq!(Vec::<String>::new(), texts(&system));
    machine.process(4242, "dpdk-testpmd", "/dev/vfio/3");
    assert_eq!(
        vec![unknown.replace("another process", "process 4242 (dpdk-testpmd)")],
        texts(&system)
    );
}

#[test]
fn group_that_may_not_be_opened_is_told_with_its_file() {
    let machine = machine();
    machine.card(CARD, Some(VFIO), Some(3));
    let mut system = system(&machine);
    system.open = |path| match path.ends_with("vfio/3") {
        true => Err(Error::from(ErrorKind::PermissionDenied)),
        false => Ok(()),
    };
    assert_eq!(
        vec![
            "no permission to use 0000:00:02.0 (/dev/vfio/3, permission denied): run the program as root, or make its user the owner of this file (chown)"
        ],
        texts(&system)
    );
    system.open = |_| Err(Error::from(ErrorKind::NotFound));
    assert!(texts(&system)[0].contains("(/dev/vfio/vfio, "));
}

#[test]
fn uio_in_use_names_the_process_and_is_never_opened() {
    let machine = Machine::default();
    machine.card(CARD, Some(UIO), None);
    machine.write(&format!("sys/bus/pci/devices/{CARD}/uio/uio2/name"), UIO);
    machine.write("dev/uio2", "");
    let mut system = system(&machine);
    system.open = |path| panic!("{} is opened", path.display());
    assert_eq!(Vec::<String>::new(), texts(&system));
    machine.process(4242, "sluice", "/dev/uio2");
    assert_eq!(
        vec![
            "0000:00:02.0 is in use by process 4242 (sluice): stop that process, or let that process use another card"
        ],
        texts(&system)
    );
}

#[test]
fn uio_behind_an_iommu_is_a_fault_unless_addresses_pass_through() {
    let machine = Machine::default();
    machine.card(CARD, Some(UIO), Some(3));
    machine.write("sys/kernel/iommu_groups/3/type", "DMA-FQ\n");
    let [fault] = &texts(&system(&machine))[..] else {
        panic!("one fault")
    };
    assert!(fault.contains("behind an IOMMU that translates"), "{fault}");
    assert!(
        fault.ends_with("or write iommu=pt on the kernel's command line"),
        "{fault}"
    );
    machine.write("sys/kernel/iommu_groups/3/type", "identity\n");
    assert_eq!(Vec::<String>::new(), texts(&system(&machine)));
}

#[test]
fn physical_addresses_need_their_capability() {
    let machine = Machine::default();
    machine.card(CARD, Some(UIO), None);
    machine.write("proc/self/status", "CapEff:\t0000000000003000\n");
    assert_eq!(
        vec![
            "no permission to use 0000:00:02.0 (reading physical addresses of memory): run as root, or with the capability \
             SYS_ADMIN"
        ],
        texts(&system(&machine))
    );
}

#[test]
fn hugepages_of_every_size_and_node_are_counted() {
    let machine = Machine::default();
    machine.hugepages(1 << 20, 2, 1);
    machine.hugepages(2048, 100, 60);
    machine.write("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "10");
    machine.write(
        "sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages",
        "60",
    );
    machine.write(
        "sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages",
        "0",
    );
    let sizes = system(&machine).hugepages();
    let messages: Vec<_> = sizes.iter().map(ToString::to_string).collect();
    assert_eq!(vec!["50 of 100 pages of 2 MiB", "1 of 2 pages of 1 GiB"], messages);
    assert_eq!(vec![(0, 60), (1, 0)], sizes[0].nodes);
    assert_eq!((1 << 30) + (100 << 20), system(&machine).free_hugepage_bytes());
    // Used pages stay reserved, and the missing pages are added.
    assert_eq!(
        Some("echo 150 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages".into()),
        reserve(&sizes, (1 << 30) + (200 << 20))
    );
    assert_eq!(None, reserve(&[], 1));
}
