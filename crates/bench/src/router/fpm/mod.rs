//! Routes from a routing daemon over FPM while packets are forwarded: a full table, changes of single routes, and the
//! full table again after the daemon has reconnected.

mod lane;
mod stream;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use sluice_dpdk::eal::{Eal, allowed_cores};
use sluice_dpdk::workers::{Worker, pin};
use sluice_dpdk::{Devices, tsc};
use sluice_engine::control::plane::ControlPlane;
use sluice_route::feed::fpm::FrameBuffer;
use sluice_route::feed::{Feed, Links, MAIN_TABLE, RoutePeer};
use sluice_route::rib::Origin;
use sluice_route::{Address, Prefix};

use super::forward::{destinations, plane};
use super::internet::routes;
use crate::rig::frames::{ROUTER_MAC, Random, SEED};
use crate::rig::gateway::Gateway;
use crate::rig::policy::{Job, Style, memory, neighbours, policy, route, route_set};
use crate::rows::{Failure, Row, Run, Runs};
use lane::{Lane, PROBE, Sight};

/// Number of bytes per read, and number of stale routes removed at a time, as in the control thread.
const READ: usize = 64 * 1024;
const SLICE: usize = 2_000;
/// Interval at which memory that no reader uses any more is freed.
const COLLECT: Duration = Duration::from_millis(100);
/// Maximum time to wait for any event.
const PATIENCE: Duration = Duration::from_secs(120);

/// Progress of a connection from the daemon.
#[derive(Clone, Copy, Debug)]
struct Followed {
    at: Instant,
    /// CPU time of the control thread in seconds.
    cpu: f64,
    offered: u64,
    stale: usize,
    /// Number of ended connections whose stale routes were removed.
    ended: usize,
}

/// The control thread: serves one connection after another until no more can arrive.
fn control(
    mut plane: ControlPlane,
    listener: &TcpListener,
    visits: usize,
    tell: &Sender<Followed>,
) -> Result<ControlPlane, Failure> {
    let mut feed = Feed::new(RoutePeer {
        origin: Origin::Fpm,
        table: MAIN_TABLE,
        links: Links::Numbered([(stream::LINK, 1)].into()),
    });
    let (began, mut buffer) = (Instant::now(), vec![0; READ]);
    for visit in 0..visits {
        let (mut stream, _) = listener.accept()?;
        let mut frames = FrameBuffer::default();
        plane.change_routes(0, |rib| feed.begin(rib));
        let mut collected = Instant::now();
        loop {
            let count = stream.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            frames.push(&buffer[..count]);
            let now = began.elapsed().as_nanos() as u64;
            let (mut followed, mut stale) = (Ok(()), 0);
            plane.change_routes(0, |rib| {
                followed = follow(&mut feed, rib, &mut frames, now);
                stale = rib.stale(Origin::Fpm);
            });
            followed?;
            tell.send(Followed {
                at: Instant::now(),
                cpu: processor()?,
                offered: feed.counts().offered,
                stale,
                ended: visit,
            })?;
            if collected.elapsed() > COLLECT {
                plane.collect();
                collected = Instant::now();
            }
        }
        // Remove the routes that were not sent again; with a real daemon, this happens several seconds after its last
        // message.
        let mut swept = SLICE;
        while swept == SLICE {
            plane.change_routes(0, |rib| swept = rib.end_replay(Origin::Fpm, SLICE));
        }
        plane.collect();
        tell.send(Followed {
            at: Instant::now(),
            cpu: processor()?,
            offered: feed.counts().offered,
            stale: 0,
            ended: visit + 1,
        })?;
    }
    Ok(plane)
}

/// CPU time of this thread in seconds, which is independent of the load by other processes.
fn processor() -> Result<f64, Failure> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split(' ').next().and_then(|word| word.parse::<u64>().ok());
    Ok(nanoseconds.ok_or("the kernel does not tell how long a thread ran")? as f64 / 1e9)
}

fn follow(
    feed: &mut Feed,
    rib: &mut sluice_route::rib::Rib,
    frames: &mut FrameBuffer,
    now: u64,
) -> Result<(), Failure> {
    while let Some(frame) = frames.take()? {
        feed.follow(rib, frame, now);
    }
    Ok(())
}

struct Daemon<'d> {
    address: std::net::SocketAddr,
    told: &'d Receiver<Followed>,
    sight: &'d Sight,
    /// Number of routes received on all connections.
    offered: u64,
    /// Number of ended connections.
    ended: usize,
    /// CPU time of the control thread in seconds at that time.
    cpu: f64,
}

impl Daemon<'_> {
    fn connect(&self) -> Result<TcpStream, Failure> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Closes the connection, and waits until the control thread has processed the close.
    fn leave(&mut self, stream: TcpStream) -> Result<(), Failure> {
        drop(stream);
        self.ended += 1;
        loop {
            let followed = self.told.recv_timeout(PATIENCE)?;
            if followed.ended >= self.ended {
                self.cpu = followed.cpu;
                return Ok(());
            }
        }
    }

    /// Sends a full table, and waits until it is installed. Returns the number of packets that were forwarded by the
    /// default route meanwhile.
    fn tell(&mut self, stream: &mut TcpStream, bytes: &[u8], routes: usize, runs: &mut Runs) -> Result<u64, Failure> {
        self.offered += routes as u64;
        let (before, begin) = (self.sight.packets(), Instant::now());
        stream.write_all(bytes)?;
        loop {
            let followed = self.told.recv_timeout(PATIENCE)?;
            if followed.offered < self.offered || followed.stale > 0 {
                continue;
            }
            let after = self.sight.packets();
            let [sent, _, astray] = [0, 1, 2].map(|k| after[k] - before[k]);
            // Time from sending the first byte of the table until its last route was installed, and CPU time of the
            // control thread in that interval.
            let seconds = followed.at.duration_since(begin).as_secs_f64();
            runs.extend([
                ("seconds", seconds),
                ("cpu_seconds", followed.cpu - self.cpu),
                ("routes_per_s", routes as f64 / seconds),
                ("packets", sent as f64),
                ("packets_per_s", sent as f64 / seconds),
            ]);
            return Ok(astray);
        }
    }

    /// Milliseconds from sending one message until packets are forwarded accordingly.
    fn visible(&mut self, stream: &mut TcpStream, message: &[u8], found: bool) -> Result<f64, Failure> {
        let (begin, since) = (tsc::now(), Instant::now());
        stream.write_all(message)?;
        while self.sight.found.load(Ordering::Acquire) != found {
            if since.elapsed() > PATIENCE {
                return Err("packets do not follow a route".into());
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        let cycles = self.sight.changed.load(Ordering::Relaxed).saturating_sub(begin);
        Ok(cycles as f64 * 1e3 / tsc::frequency() as f64)
    }
}

/// Results of the thread that acts as the daemon.
#[derive(Default)]
struct Outcome {
    loads: Runs,
    visible: Vec<f64>,
    replays: Runs,
    /// Number of packets that were forwarded by the default route, for each replay of the table.
    astray: Vec<u64>,
}

fn speak(
    daemon: &mut Daemon<'_>,
    table: &[u8],
    routes: usize,
    runs: usize,
    singles: usize,
) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    for run in 0..runs {
        if run > 0 {
            // If a connection ends without messages, all routes become stale and are then removed.
            let silent = daemon.connect()?;
            daemon.leave(silent)?;
        }
        let mut stream = daemon.connect()?;
        daemon.tell(&mut stream, table, routes, &mut outcome.loads)?;
        daemon.leave(stream)?;
    }
    for _ in 0..runs {
        let mut stream = daemon.connect()?;
        let astray = daemon.tell(&mut stream, table, routes, &mut outcome.replays)?;
        outcome.astray.push(astray);
        if outcome.astray.len() == runs {
            let prefix = Prefix::new(Address::V4(PROBE), 24);
            for _ in 0..singles {
                let [add, remove] = [stream::add(prefix), stream::remove(prefix)];
                outcome.visible.push(daemon.visible(&mut stream, &add, true)?);
                daemon.visible(&mut stream, &remove, false)?;
            }
        }
        daemon.leave(stream)?;
    }
    Ok(outcome)
}

/// Number of connections that [`speak`] opens.
const fn visits(runs: usize) -> usize {
    3 * runs - 1
}

/// Measures the rows for a table of this number of routes.
pub fn fpm(run: &mut Run<'_>, eal: &'static Eal, number: u32, count: usize, runs: usize) -> Result<(), Failure> {
    let cores = allowed_cores();
    let first = *cores.first().ok_or("this process may use no core")?;
    let second = cores.get(1).copied().unwrap_or(first);
    let mut random = Random(SEED);
    let prefixes: Vec<_> = routes(false, count + 16, &mut random)
        .into_iter()
        .filter(|prefix| !prefix.contains(Address::V4(PROBE)))
        .take(count)
        .collect();
    let drawn = destinations(&prefixes, &mut random).into_iter();
    let destinations: Arc<[u32]> = drawn.map(|(_, destination)| destination).collect();
    let table = stream::table(&prefixes);
    let [(_, inside, _), _] = neighbours(Job::Forward)?;
    // Packets without a route leave through the interface on which they arrived, where they are counted.
    let policy = policy(Job::Forward, Style::SESSIONS, 0)?;
    let routes = route_set(&policy, &[route(Address::V4(0), 0, inside)])?;
    let plane = plane(policy, &[routes])?;
    let memory = Box::leak(Box::new(memory(&plane)?));
    let mut gateway = Gateway::new(eal, number, Job::Forward, plane, memory)?;
    for gateway_of in 0..stream::NEXT_HOPS {
        gateway.know((1, Address::V4(stream::GATEWAY + gateway_of), ROUTER_MAC))?;
    }
    let Gateway {
        plane,
        rounds,
        source,
        devices,
    } = gateway;
    let sight = Arc::new(Sight::default());
    let lane = Lane {
        source,
        rounds,
        destinations,
        sight: sight.clone(),
    };
    let lane = Worker::start(eal, "lane", first, move |stop| lane.run(&stop))?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (tell, told) = channel();
    let mut daemon = Daemon {
        address: listener.local_addr()?,
        told: &told,
        sight: &sight,
        offered: 0,
        ended: 0,
        cpu: 0.0,
    };
    let singles = if run.quick { 50 } else { 500 };
    let (outcome, plane) = std::thread::scope(|scope| {
        let control = scope.spawn(move || {
            let pinned = pin(second).map_err(Failure::from);
            let plane = pinned.and_then(|()| control(plane, &listener, visits(runs), &tell));
            plane.map_err(|error| error.to_string())
        });
        let outcome = speak(&mut daemon, &table, prefixes.len(), runs, singles);
        while outcome.is_err() && !control.is_finished() {
            // Unblock the control thread, which waits for a connection.
            drop(daemon.connect());
        }
        let plane = control.join().map_err(|_| "the control thread failed")??;
        Ok::<_, Failure>((outcome?, plane))
    })?;
    sight.drains.store(true, Ordering::Release);
    let begin = Instant::now();
    let lost = loop {
        let [sent, routed, astray] = sight.packets();
        if sent == routed + astray || begin.elapsed() > Duration::from_secs(2) {
            break sent - routed - astray;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let lane = lane.stop().map_err(|_| "the lane failed")?;
    rows(run, &outcome, prefixes.len(), lost, &plane);
    drop((lane.rounds, plane));
    lane.source.close();
    drop(Devices::close(devices));
    Ok(())
}

/// Creates the rows; `lost` is the number of packets that were not output.
fn rows(run: &mut Run<'_>, outcome: &Outcome, routes: usize, lost: u64, plane: &ControlPlane) {
    let kilobytes = (plane.fib().bytes() + plane.ribs().bytes()) as f64 / 1024.0;
    let row = |phase| {
        let row = Row::new("fpm").key("fib", "ours").key("family", 4);
        row.key("phase", phase).key("routers", 1).key("routes", routes)
    };
    (run.row)(row("load").runs(&outcome.loads).figure("memory_kb", &[kilobytes]));
    // Packets that used the default route, and lost packets, both indicate that a route was missing from the table.
    let astray: Vec<_> = outcome.astray.iter().map(|astray| (astray + lost) as f64).collect();
    (run.row)(row("replay").runs(&outcome.replays).figure("lost", &astray));
    let mut sorted = outcome.visible.clone();
    sorted.sort_by(f64::total_cmp);
    let p99 = sorted.get(sorted.len() * 99 / 100).copied().unwrap_or(f64::NAN);
    (run.row)(
        row("live")
            .figure("visible_ms", &outcome.visible)
            .figure("visible_p99_ms", &[p99]),
    );
}
