//! Health checks of the hosts over which destination rules balance flows. Each host has an atomic flag for its state,
//! which workers read.
//!
//! The checks are sent from sockets in the namespace of the router, so that they take the same path as other packets
//! that the router originates.

use std::io::{Error, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use sluice_config::Config;
use sluice_config::config::HostCheck;
use sluice_nat::rule::{HostSet, HostState};
use sluice_wire::checksum::checksum;
use tokio::net::{TcpSocket, UdpSocket};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::control::Control;
use crate::host::namespace_name;
use crate::routing::within;

/// Interval at which the set of checked hosts is updated.
const PERIOD: Duration = Duration::from_millis(200);

/// Number of the next echo request of this process.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Target and method of a health check.
#[derive(Clone, Debug, PartialEq)]
struct Question {
    /// Name of the router.
    router: String,
    address: Ipv4Addr,
    check: HostCheck,
}

/// A host that is being checked.
struct Checked {
    question: Question,
    state: Arc<HostState>,
    task: JoinHandle<()>,
}

impl Drop for Checked {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Health checks that the configuration requires, with the state flags of the newest snapshot.
fn wanted(config: &Config, sets: &[HostSet<u32>]) -> Vec<(Question, Arc<HostState>)> {
    let of_set = |(configured, set): (&sluice_config::config::HostSet, &HostSet<u32>)| {
        let router = config.routers.get(usize::from(configured.router));
        let checked = router.zip(configured.health.clone());
        let hosts = set.hosts.iter().filter_map(move |host| {
            let (router, check) = checked.clone()?;
            let question = Question {
                router: router.name.clone(),
                address: Ipv4Addr::from_bits(host.address),
                check,
            };
            Some((question, host.state.clone()))
        });
        hosts.collect::<Vec<_>>()
    };
    config.host_sets.iter().zip(sets).flat_map(of_set).collect()
}

impl Control {
    /// Check hosts according to the running configuration; runs for the life of the process.
    pub(crate) async fn check_hosts(&self) {
        let mut checked: Vec<Checked> = Vec::new();
        let mut generation = None;
        loop {
            let committed = self.plane().snapshot().committed;
            if generation.replace(committed) != Some(committed) {
                let wanted = {
                    let plane = self.plane();
                    wanted(&self.config(), plane.snapshot().nat4.rules.sets())
                };
                checked.retain(|old| {
                    let is_same = |(question, state): &(Question, Arc<HostState>)| {
                        *question == old.question && Arc::ptr_eq(state, &old.state)
                    };
                    wanted.iter().any(is_same)
                });
                for (question, state) in wanted {
                    if checked.iter().any(|old| Arc::ptr_eq(&old.state, &state)) {
                        continue;
                    }
                    let task = tokio::spawn(check(question.clone(), state.clone()));
                    checked.push(Checked { question, state, task });
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    }
}

/// Number of consecutive checks whose result contradicts the present state of the host.
#[derive(Debug, Default)]
struct Streak(u32);

impl Streak {
    /// Record the result of a check. If this result changes the state of the host, returns the new state.
    fn note(&mut self, is_up: bool, answered: bool, check: &HostCheck) -> Option<bool> {
        if is_up == answered {
            self.0 = 0;
            return None;
        }
        self.0 += 1;
        let needed = if is_up { check.failures } else { check.successes };
        if self.0 < needed {
            return None;
        }
        self.0 = 0;
        Some(answered)
    }
}

/// Check one host; runs until its task is aborted.
async fn check(question: Question, state: Arc<HostState>) {
    let check = &question.check;
    let mut streak = Streak::default();
    let mut due = Instant::now();
    loop {
        let answer = match timeout(check.timeout, ask(&question)).await {
            Ok(answer) => answer,
            Err(_) => Err(ErrorKind::TimedOut.into()),
        };
        let address = question.address;
        match (streak.note(state.is_up(), answer.is_ok(), check), answer) {
            (Some(true), _) => {
                state.set_up(true);
                tracing::info!(
                    "router {}: the health checks of host {address} succeed, and destination rules use the \
                     host",
                    question.router
                );
            }
            (Some(false), answer) => {
                state.set_up(false);
                let why = answer.err().map_or_else(String::new, |why| why.to_string());
                tracing::warn!(
                    "router {}: the health checks of host {address} fail, and destination rules do not use the host: \
                     {why}",
                    question.router
                );
            }
            (None, _) => {}
        }
        due += check.interval;
        tokio::time::sleep_until(due).await;
    }
}

async fn ask(question: &Question) -> Result<(), Error> {
    let path = Path::new("/run/netns").join(namespace_name(&question.router));
    match question.check.port {
        Some(port) => {
            let socket = made_in(path, SocketType::STREAM, ipproto::TCP).await?;
            let socket = TcpSocket::from_std_stream(socket.into());
            let to = SocketAddrV4::new(question.address, port);
            socket.connect(to.into()).await.map(|_| ())
        }
        None => {
            let socket = made_in(path, SocketType::RAW, ipproto::ICMP).await?;
            echo(UdpSocket::from_std(socket.into())?, question.address).await
        }
    }
}

/// Create a socket in a router's namespace.
async fn made_in(
    path: PathBuf,
    kind: SocketType,
    protocol: rustix::net::Protocol,
) -> Result<std::os::fd::OwnedFd, Error> {
    let make = move || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        Ok(socket_with(AddressFamily::INET, kind, flags, Some(protocol))?)
    };
    let made = tokio::task::spawn_blocking(move || within(Some(&path), make));
    made.await.map_err(Error::other)?
}

/// Send an echo request and wait for its reply.
async fn echo(socket: UdpSocket, address: Ipv4Addr) -> Result<(), Error> {
    let to = SocketAddrV4::new(address, 0);
    socket.connect(to).await?;
    // Identifier and sequence number are unique among the requests of this process.
    let [a, b, c, d] = NUMBER.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let mut request = [8, 0, 0, 0, a, b, c, d];
    [request[2], request[3]] = checksum(&request).to_be_bytes();
    socket.send(&request).await?;
    let mut reply = [0; 128];
    loop {
        let length = socket.recv(&mut reply).await?;
        let header = usize::from(reply[0] & 15) * 4;
        let message = reply.get(header..length.min(header + 8));
        if message.is_some_and(|message| message.first() == Some(&0) && message.get(4..) == request.get(4..)) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_down_after_failures_in_a_row_and_up_after_answers_in_a_row() {
        let check = HostCheck {
            port: None,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            failures: 3,
            successes: 2,
        };
        let (mut streak, mut is_up, mut states) = (Streak::default(), true, String::new());
        for answered in "++--+---+-+---++--".chars().map(|answer| answer == '+') {
            is_up = streak.note(is_up, answered, &check).unwrap_or(is_up);
            states.push(if is_up { 'u' } else { 'd' });
        }
        assert_eq!("uuuuuuudddddddduuu", states);
    }
}
