//! Queue of frames from routers' host stacks to DHCP relays. The frames are the replies of servers that run in a host
//! stack.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use super::{SubscribersError, lock, wake, wake_up};
use crate::subscribers::frame::Datagram;
use crate::subscribers::message::SERVER_PORT;
use crate::subscribers::service::Parameters;

/// Maximum number of frames queued for the thread.
const MAX_FRAMES: usize = 1_024;

/// Sending end of the queue of frames from host stacks to relays.
#[derive(Debug)]
pub struct Inbox {
    frames: SyncSender<(u16, Vec<u8>)>,
    wake: Arc<OwnedFd>,
    local_destinations: Mutex<LocalDestinations>,
}

/// Selects the frames that are addressed to relays.
#[derive(Debug)]
struct LocalDestinations {
    /// Addresses of relays, each with its virtual router.
    relays: HashSet<(u16, Ipv4Addr)>,
    /// Virtual router of each interface.
    routers: Vec<u16>,
}

impl LocalDestinations {
    fn of(parameters: &Parameters) -> Self {
        let groups = parameters.subscribers.groups.iter();
        Self {
            relays: groups.map(|group| (group.router, group.relay)).collect(),
            routers: parameters.interfaces.iter().map(|interface| interface.router).collect(),
        }
    }

    fn has(&self, interface: u16, address: Ipv4Addr) -> bool {
        let router = self.routers.get(usize::from(interface));
        router.is_some_and(|&router| self.relays.contains(&(router, address)))
    }
}

/// Receiving end of the queue.
#[derive(Debug)]
pub struct InboxReceiver {
    pub(super) frames: Receiver<(u16, Vec<u8>)>,
    pub(super) wake: Arc<OwnedFd>,
}

impl Inbox {
    /// Create a queue for the relays of sites. Returns both ends of the queue.
    ///
    /// # Errors
    /// No file descriptor is available.
    pub fn new(parameters: &Parameters) -> Result<(Self, InboxReceiver), SubscribersError> {
        let (frames, inbox) = sync_channel(MAX_FRAMES);
        let wake = Arc::new(wake()?);
        let own = Self {
            frames,
            wake: wake.clone(),
            local_destinations: Mutex::new(LocalDestinations::of(parameters)),
        };
        Ok((own, InboxReceiver { frames: inbox, wake }))
    }

    /// Update the relays and interfaces.
    pub fn follow(&self, parameters: &Parameters) {
        *lock(&self.local_destinations) = LocalDestinations::of(parameters);
    }

    /// Queue a frame from a host stack if the frame is addressed to a relay. Returns whether the frame is addressed to
    /// a relay.
    pub fn takes(&self, interface: u16, frame: &[u8]) -> bool {
        let datagram = Datagram::of(frame).filter(|datagram| datagram.destination.port() == SERVER_PORT);
        let local_destinations =
            datagram.is_some_and(|datagram| lock(&self.local_destinations).has(interface, *datagram.destination.ip()));
        if local_destinations && self.frames.try_send((interface, frame.to_vec())).is_ok() {
            wake_up(&self.wake);
        }
        local_destinations
    }
}
