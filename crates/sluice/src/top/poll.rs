//! One look at the daemon's counters.

use std::path::{Path, PathBuf};
use std::time::Instant;

use sluice_daemon::config::api::{Core, Drop, Interface, RouterFilter, Status, Unfiltered, operation};

use crate::client::{Client, ClientError};

/// What the daemon had counted at one time.
#[derive(Clone, Debug)]
pub struct Poll {
    /// When.
    pub at: Instant,
    /// The process.
    pub status: Status,
    /// Its workers.
    pub cores: Vec<Core>,
    /// Its interfaces.
    pub interfaces: Vec<Interface>,
    /// Its drops by reason.
    pub drops: Vec<Drop>,
}

/// Looks again and again, also at a daemon that was restarted meanwhile.
pub struct Poller {
    socket: PathBuf,
    client: Option<Client>,
}

impl Poller {
    /// For the daemon at a socket.
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
            client: None,
        }
    }

    /// Look.
    ///
    /// # Errors
    /// Nobody listens, or the connection breaks: the next look makes another.
    pub fn poll(&mut self) -> Result<Poll, ClientError> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&self.socket)?,
        };
        let poll = read(&mut client)?;
        self.client = Some(client);
        Ok(poll)
    }
}

fn read(client: &mut Client) -> Result<Poll, ClientError> {
    let status = client.ask::<operation::Status>(&Unfiltered {})?;
    Ok(Poll {
        at: Instant::now(),
        status,
        cores: client.all::<operation::Cores>(&Unfiltered {})?,
        interfaces: client.all::<operation::Interfaces>(&RouterFilter::default())?,
        drops: client.all::<operation::Drops>(&Unfiltered {})?,
    })
}
