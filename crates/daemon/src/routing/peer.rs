//! Peers of route feeds, and the check whether a peer is allowed.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::FpmSettings;

/// The remote end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// TCP, from this host or another host.
    Host(SocketAddr),
    /// Unix socket, with the user ID of the peer's process.
    User(u32),
}

impl Peer {
    /// Whether the peer uses this host's interface names.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Host(peer) => peer.ip().to_canonical().is_loopback(),
            Self::User(_) => true,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(peer) => peer.fmt(f),
            Self::User(user) => write!(f, "user {user}"),
        }
    }
}

/// Why a peer is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerRefusal {
    /// The peer's address is not in `peers`, or the peer's user is not in `users`.
    NotNamed,
    /// The peer sent no complete message within the time limit.
    Silent,
    /// Too many other connections arrived while this connection waited for its first message.
    Crowded,
    /// The peer sent data that is not FPM.
    NotFpm,
}

impl PeerRefusal {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::NotNamed, Self::Silent, Self::Crowded, Self::NotFpm];

    /// Name of the reason's counter.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotNamed => "not-named",
            Self::Silent => "silent",
            Self::Crowded => "crowded",
            Self::NotFpm => "not-fpm",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::NotNamed => "the peer is not listed in `peers` or `users`",
            Self::Silent => "the first message of the peer did not arrive in time",
            Self::Crowded => "other peers connected before the first message of this peer arrived",
            Self::NotFpm => "the peer does not send FPM frames with netlink messages",
        }
    }
}

impl fmt::Display for PeerRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.description())
    }
}

/// Number of rejected peers, for each reason.
#[derive(Debug, Default)]
pub struct Refusals([AtomicU64; PeerRefusal::ALL.len()]);

impl Refusals {
    /// Count a rejected peer.
    pub fn add(&self, refusal: PeerRefusal) {
        self.0[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts in the order of [`PeerRefusal::ALL`].
    pub fn all(&self) -> [u64; PeerRefusal::ALL.len()] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

impl FpmSettings {
    /// Whether a peer is allowed.
    pub fn accepts(&self, peer: &Peer) -> bool {
        match peer {
            Peer::Host(peer) => self.peers.contains(&peer.ip().to_canonical()),
            Peer::User(user) => {
                let own = rustix::process::geteuid().as_raw();
                [0, own].contains(user) || self.users.iter().any(|name| number_of(name) == Some(*user))
            }
        }
    }
}

/// Convert a user name or a number to a user ID.
fn number_of(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let known = std::fs::read_to_string("/etc/passwd").ok()?;
    known.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name))
            .then(|| fields.nth(1)?.parse().ok())
            .flatten()
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use sluice_route::feed::Links;

    use super::*;

    #[test]
    fn user_is_known_by_name_and_by_number() {
        assert_eq!(Some(0), number_of("root"));
        assert_eq!(Some(4711), number_of("4711"));
        assert_eq!(None, number_of("nobody-of-that-name"));
    }

    #[test]
    fn user_is_heard_where_it_is_root_this_one_or_named() {
        let settings = FpmSettings {
            users: vec!["4711".into()],
            ..FpmSettings::new("blue", None, Links::Foreign, Instant::now())
        };
        let own = rustix::process::geteuid().as_raw();
        assert!([0, own, 4711].iter().all(|&user| settings.accepts(&Peer::User(user))));
        assert!(!settings.accepts(&Peer::User(4712)));
        let host = |text: &str| Peer::Host(text.parse().unwrap());
        assert!(settings.accepts(&host("[::ffff:127.0.0.1]:9")) && settings.accepts(&host("[::1]:9")));
        assert!(!settings.accepts(&host("192.0.2.1:9")));
    }
}
