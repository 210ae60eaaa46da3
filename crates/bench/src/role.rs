//! Processes of a benchmark in namespaces of their own, controlled by [`Peer`](crate::process::Peer).

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::kernel::generator;
use crate::loss::{relay, transfers};
use crate::process::message;
use crate::rows::Failure;

/// Role of a process, which receives its role as its first message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Packet generator of `kernel` and `vm`.
    Generate(generator::Settings),
    /// Lossy link of `loss`.
    Relay(relay::Settings),
    /// Server of the file transfers of `loss`, at this address.
    Serve(SocketAddr),
    /// Client of the file transfers of `loss`.
    Transfer(transfers::Settings),
}

/// Runs the role of the first message until the input ends.
pub fn run() -> Result<(), Failure> {
    match message()?.ok_or("a process has no role")? {
        Role::Generate(settings) => generator::run(settings),
        Role::Relay(settings) => relay::run(&settings),
        Role::Serve(address) => transfers::serve(address),
        Role::Transfer(settings) => transfers::transfer_all(&settings),
    }
}
