//! Tests that every start error states a remedy.

use crate::support::{self, on_each_memory, port, veth};
use sluice_dpdk::{Devices, Eal, EalError, EalRequirements, Plan, PortPlan};

#[test]
fn core_that_is_not_there_is_named() {
    let error = Eal::start(&EalRequirements {
        bytes: 1 << 20,
        cores: vec![4000],
        ..EalRequirements::default()
    })
    .expect_err("core 4000");
    assert!(matches!(error, EalError::NoSuchCore { core: 4000, .. }), "{error}");
    assert!(error.to_string().contains("write one of these cores"), "{error}");
}

fn refused(plan: PortPlan) -> String {
    let eal = Eal::get().expect("DPDK runs");
    let plan = Plan {
        buffers: 1023,
        ..Plan::new(vec![plan], 1)
    };
    Devices::open(eal, &plan)
        .map(|_| ())
        .expect_err("a port that can't open")
        .to_string()
}

#[test]
fn port_that_can_not_open_says_what_to_do() {
    on_each_memory("port_that_can_not_open_says_what_to_do", |scenario| {
        scenario.eal(128 << 20);
        veth("va", "vb", 1500);
        for (device, expected) in [
            (
                "nosuch0",
                "nosuch0: there is no interface nosuch0: `ip link` lists the interfaces",
            ),
            ("bond:va+nosuch0", "no interface nosuch0"),
            ("pcap:/nowhere/in.pcap", "/nowhere/in.pcap is no capture file"),
            ("tap:va", "an interface va exists already"),
            ("vhost:/nowhere/v.sock", "is in a folder that does not exist"),
            ("virtio:/tmp/nobody.sock", "first start the vhost end"),
            ("vhost:/etc/hostname", "/etc/hostname exists and is no socket"),
            ("0000:ff:1f.7", "no PCI device 0000:ff:1f.7: sluice bind lists"),
            ("bond:va+0000:ff:1f.7", "no PCI device 0000:ff:1f.7"),
        ] {
            let error = refused(port(device));
            assert!(error.contains(expected), "{device}: {error}");
        }
        let error = refused(PortPlan {
            mtu: 9000,
            driver: Some(sluice_dpdk::Driver::AfXdp),
            ..port("va")
        });
        assert!(
            error.contains("can't have an MTU of 9000 (at most 3400; AF_PACKET supports more)"),
            "{error}"
        );
        // The failed start has left no resources behind.
        let eal = Eal::get().expect("DPDK runs");
        let plan = Plan {
            buffers: 4095,
            ..Plan::new(vec![port("va")], 1)
        };
        let (devices, hands) = Devices::open(eal, &plan).unwrap_or_else(|error| panic!("{error}"));
        support::close(devices, hands);
    });
}

#[test]
fn start_without_enough_memory_is_refused() {
    let needs = EalRequirements {
        bytes: 1 << 50,
        hugepages: Some(false),
        ..EalRequirements::default()
    };
    let host = sluice_dpdk::eal::Host::look(&needs.pci);
    let error = sluice_dpdk::eal::arguments(&needs, &host).expect_err("a petabyte");
    assert!(
        error.to_string().contains("lower sessions, queues or buffers"),
        "{error}"
    );
}

#[test]
fn worker_runs_on_its_core_and_gives_back_its_result() {
    on_each_memory("worker_runs_on_its_core_and_gives_back_its_result", |scenario| {
        let eal = scenario.eal(64 << 20);
        let core = *sluice_dpdk::eal::allowed_cores().last().expect("a core");
        let worker = sluice_dpdk::workers::Worker::start(eal, "worker-1", core, |stop| {
            while !stop.is_stop_requested() {
                std::thread::yield_now();
            }
            std::fs::read_to_string("/proc/thread-self/status").expect("the thread's status")
        })
        .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(core, worker.core());
        let status = worker.stop().expect("the worker ends in order");
        assert!(status.contains("Name:\tworker-1"), "{status}");
        assert!(status.contains(&format!("Cpus_allowed_list:\t{core}\n")), "{status}");
        let error = sluice_dpdk::workers::Worker::start(eal, "worker-2", 4000, |_| ()).expect_err("core 4000");
        assert!(error.to_string().contains("write one of these cores"), "{error}");
    });
}
