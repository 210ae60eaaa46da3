//! Tests of faults in the program: packets are forwarded even if the control thread fails, and the process ends if any
//! worker fails.
//!
//! Each test runs in its own process and network namespace, because DPDK can be started only once per process.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use axum::routing::get;
use sluice_config::schema::LogLevel;
use sluice_dpdk::{Eal, tsc};
use sluice_engine::packet::io::{
    BURST_SIZE, BufferIndex, Handover, NoteWords, PacketIo, Packets, Parked, PortIndex, ReceiveError, WorkerIndex,
};
use sluice_table::memory::Line;

use crate::control::Control;
use crate::rebalance::Move;
use crate::start::{start, waiting};
use crate::watchdog::Watchdog;
use crate::workers::Workers;
use crate::{Loaded, api, load, log};

/// Environment variable that is set in the process of a scenario.
const VARIABLE: &str = "SLUICE_FAULT_SCENARIO";

/// Run a test's scenario in a separate process and return its output. Returns `None` in the process that runs the
/// scenario.
fn scenario(test: &str) -> Option<Output> {
    if std::env::var_os(VARIABLE).is_some() {
        return None;
    }
    // /sys shows only the interfaces of the namespace in which it was mounted, so the scenario mounts /sys again.
    let script = "mount -t sysfs sysfs /sys && ip link set lo up && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--net", "--mount", "sh", "-c", script, "sh"])
        .arg(std::env::current_exe().expect("the path of this test"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, "1")
        .output()
        .expect("unshare runs");
    Some(output)
}

fn loaded(folder: &Path, interfaces: &str) -> Loaded {
    let path = folder.join("sluice.toml");
    let text =
        format!("[system]\nworkers = 1\nhugepages = \"off\"\n[sessions]\nipv4 = 1024\nipv6 = 1024\n{interfaces}");
    std::fs::write(&path, text).expect("a file");
    load(&path).unwrap_or_else(|error| panic!("{error}"))
}

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().expect("ip runs");
    assert!(status.success(), "ip {words}");
}

/// A network namespace behind an interface. The namespace exists as long as the process in it runs.
struct Host(Child);

impl Host {
    fn behind(interface: &str, address: &str, gateway: &str) -> Self {
        let script = "echo; exec cat";
        let mut child = Command::new("unshare")
            .args(["--net", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare runs");
        let mut ready = [0];
        let output = child.stdout.as_mut().expect("a pipe");
        output.read_exact(&mut ready).expect("the namespace is there");
        let host = Self(child);
        ip(&format!("link set {interface} netns {}", host.0.id()));
        for words in [
            format!("ip address add {address}/24 dev {interface}"),
            format!("ip link set {interface} up"),
            format!("ip route add default via {gateway}"),
        ] {
            let status = host.command(&words).status().expect("nsenter runs");
            assert!(status.success(), "{words}");
        }
        host
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new("nsenter");
        let target = self.0.id().to_string();
        command.args(["--net", "--target", &target]).args(words.split(' '));
        command
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Send a request to the control socket. Returns the status line and the body.
fn ask(socket: &Path, path: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("the socket answers");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: sluice\r\nConnection: close\r\n\r\n"
    )
    .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let _ = stream.shutdown(Shutdown::Both);
    answer
}

/// Serve the control API, with a handler that panics, until `request` returns.
fn served<T: Send>(control: &Arc<Control>, socket: &Path, request: impl FnOnce(&Path) -> T + Send) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let _inside = runtime.enter();
    let listener = tokio::net::UnixListener::bind(socket).expect("a socket");
    let routes = api::routes().route("/v1/panic", get(panics));
    let (finish, finished) = tokio::sync::oneshot::channel();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let answer = request(socket);
            let _ = finish.send(());
            answer
        });
        runtime.block_on(async {
            tokio::select! {
                ended = axum::serve(listener, api::guarded(routes, control.clone())) => ended.expect("it serves"),
                // A failed assertion in `request` drops the sender, which ends the wait.
                _ = finished => {}
            }
        });
        asking.join().expect("every answer is as it should be")
    })
}

async fn panics() {
    panic!("a fault in a handler");
}

#[test]
fn panic_of_a_control_handler_is_its_clients_error_and_no_packet_is_lost() {
    let name = "faults::panic_of_a_control_handler_is_its_clients_error_and_no_packet_is_lost";
    if let Some(output) = scenario(name) {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let interfaces = "[interfaces.inside]\ndevice = \"tap:inside\"\naddresses = [\"10.0.0.1/24\"]\n\
                      [interfaces.outside]\ndevice = \"tap:outside\"\naddresses = [\"192.0.2.1/24\"]\n";
    let loaded = loaded(folder.path(), interfaces);
    let running = start(&loaded).unwrap_or_else(|error| panic!("{error}"));
    let watchdog =
        Watchdog::start(running.plane.counters().to_vec(), vec![0], Duration::from_secs(1)).expect("a thread");
    let (control, workers) = Control::new(loaded, running, watchdog).unwrap();
    let control = Arc::new(control);
    let inside = Host::behind("inside", "10.0.0.2", "10.0.0.1");
    let _outside = Host::behind("outside", "192.0.2.2", "192.0.2.1");
    let first = inside.command("ping -n -q -c 3 -i 0.2 -W 10 192.0.2.2").status();
    assert!(first.expect("ping runs").success());

    let socket = folder.path().join("control");
    let pings = inside
        .command("ping -n -q -c 100 -i 0.01 -W 10 192.0.2.2")
        .stdout(Stdio::piped())
        .spawn()
        .expect("ping runs");
    let status = served(&control, &socket, |socket| {
        for _ in 0..20 {
            let answer = ask(socket, "/v1/panic");
            assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
            assert!(answer.contains("a fault of the program"), "{answer}");
        }
        ask(socket, "/v1/status")
    });
    assert!(status.starts_with("HTTP/1.1 200 "), "{status}");
    assert!(status.contains("20 requests to the control socket failed"), "{status}");
    let output = pings.wait_with_output().expect("ping ends");
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.contains("100 received, 0% packet loss"), "{output}");
    workers.stop(&control.counters);
}

#[test]
fn list_that_is_asked_for_in_the_middle_of_a_move_waits_and_the_shard_does_not() {
    let name = "faults::list_that_is_asked_for_in_the_middle_of_a_move_waits_and_the_shard_does_not";
    if let Some(output) = scenario(name) {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sluice.toml");
    let text = "[system]\nworkers = 2\nshards = 4\nhugepages = \"off\"\n[sessions]\nipv4 = 1048576\nipv6 = 1024\n\
                [interfaces.a]\ndevice = \"null:\"\n";
    std::fs::write(&path, text).expect("a file");
    let loaded = load(&path).unwrap_or_else(|error| panic!("{error}"));
    let running = start(&loaded).unwrap_or_else(|error| panic!("{error}"));
    let watchdog =
        Watchdog::start(running.plane.counters().to_vec(), vec![0, 1], Duration::from_secs(1)).expect("a thread");
    let (control, workers) = Control::new(loaded, running, watchdog).unwrap();
    let order = std::cell::RefCell::new(Vec::new());
    // Lock the request queue for some time, as the handler of a long session list does.
    let list = async |name, milliseconds| {
        let locked = control.handle(0).await;
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        order.borrow_mut().push(name);
        drop(locked);
    };
    let moving = async {
        let moved = control.move_shard(Move { shard: 0, to: 1 }).await;
        assert!(moved.is_ok(), "{moved:?}");
        order.borrow_mut().push("move");
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        tokio::join!(list("before", 20), moving, list("meanwhile", 2000));
    });
    assert_eq!(vec!["before", "move", "meanwhile"], order.into_inner());
    workers.stop(&control.counters);
}

/// Devices with a faulty driver.
struct Faulty;

impl PacketIo for Faulty {
    fn receive(&mut self, _port: PortIndex) -> usize {
        panic!("a fault in a driver");
    }
    fn packets<'a>(&'a mut self, _into: &mut Packets<'a>) {}
    fn transmit(&mut self, _port: PortIndex, _slots: &[BufferIndex]) -> usize {
        0
    }
    fn free(&mut self, _slots: &[BufferIndex]) {}
    fn allocate(&mut self, _count: usize) -> usize {
        0
    }
    fn park(&mut self, _slot: BufferIndex) -> Option<Parked> {
        None
    }
    fn unpark(&mut self, parked: Parked) -> Result<BufferIndex, Parked> {
        Err(parked)
    }
    fn release(&mut self, _parked: Parked) {}
    fn end(&mut self) -> usize {
        0
    }
    fn refused(&self, _port: PortIndex) -> &[(ReceiveError, u64)] {
        &[]
    }
    fn outstanding(&self) -> usize {
        0
    }
    fn parked(&self) -> usize {
        0
    }
}

impl Handover for Faulty {
    fn hand_over(&mut self, _to: WorkerIndex, _slots: &[BufferIndex], _carried: &[NoteWords]) -> usize {
        0
    }
    fn free_entries(&self, _to: WorkerIndex) -> usize {
        0
    }
    fn mark(&mut self) {}
    fn has_arrived(&self) -> bool {
        true
    }
    fn waiting(&self) -> usize {
        0
    }
    fn take_over(&mut self, _carried: &mut ArrayVec<NoteWords, BURST_SIZE>) -> usize {
        0
    }
}

#[test]
fn panic_of_a_worker_ends_the_process_and_names_its_core() {
    if let Some(output) = scenario("faults::panic_of_a_worker_ends_the_process_and_names_its_core") {
        let stderr_text = String::from_utf8_lossy(&output.stderr);
        // The signal is SIGABRT, which supervisors treat as a failure.
        assert_eq!(Some(6), output.status.signal(), "{stderr_text}");
        assert!(stderr_text.contains("worker 0 on core"), "{stderr_text}");
        assert!(stderr_text.contains("a fault in a driver"), "{stderr_text}");
        return;
    }
    log::start(LogLevel::Error);
    let folder = tempfile::tempdir().expect("a folder");
    let loaded = loaded(folder.path(), "[interfaces.a]\ndevice = \"null:\"\n");
    let mut running = start(&loaded).unwrap_or_else(|error| panic!("{error}"));
    running.workers.stop(running.plane.counters());
    let lines = running.plane.lines().total();
    let memory = |_| &mut *vec![Line::ZERO; lines].leak();
    let made = running.plane.worker(0, Box::new(Faulty), vec![0], memory, tsc::now);
    let (worker, _desk) = made.unwrap_or_else(|error| panic!("{error}"));
    let eal = Eal::get().expect("it runs");
    let cores = &loaded.checked.config.cores;
    let _workers = Workers::start(
        eal,
        vec![worker],
        cores,
        (waiting(&loaded.checked.config), vec![running.devices.queues(0)]),
        running.started_at,
    )
    .unwrap_or_else(|error| panic!("{error}"));
    loop {
        std::thread::park();
    }
}
