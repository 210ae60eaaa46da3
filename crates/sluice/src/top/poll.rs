//! One poll of the daemon's counters.

use std::path::{Path, PathBuf};
use std::time::Instant;

use sluice_daemon::config::api::{Core, Drop, Interface, RouterFilter, Status, Unfiltered, operation};

use crate::client::{Client, ClientError};

/// Counters of the daemon at one time.
#[derive(Clone, Debug)]
pub struct Poll {
    /// Time of the poll.
    pub at: Instant,
    /// Status of the process.
    pub status: Status,
    /// Counters of the workers.
    pub cores: Vec<Core>,
    /// Counters of the interfaces.
    pub interfaces: Vec<Interface>,
    /// Dropped packets for each reason.
    pub drops: Vec<Drop>,
}

/// Polls the daemon repeatedly. The poller reconnects if the daemon is restarted.
pub struct Poller {
    socket: PathBuf,
    client: Option<Client>,
}

impl Poller {
    /// Create a poller for the daemon at a socket.
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
            client: None,
        }
    }

    /// Poll the counters.
    ///
    /// # Errors
    /// No daemon listens at the socket, or the connection breaks. The next poll reconnects.
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
