//! Validity checks of bridged frames.

use sluice_wire::layers::{self, Class, Layers};
use sluice_wire::validity::{self, Validity};
use sluice_wire::{Fault, Packet};

use crate::features::context::NodeContext;
use crate::nodes::parse;
use crate::packet::reason::{EngineReason, Reason};
use crate::session::family::{Family, V4, V6};
use crate::snapshot::Interface;

/// Whether the fault concerns only addresses or a source route, so that the headers can be parsed nevertheless.
pub(super) fn is_of_addresses(reason: Reason) -> bool {
    use Fault::{MartianDestination, MartianSource, SourceRoute};
    matches!(reason, Reason::Wire(MartianSource | MartianDestination | SourceRoute))
}

/// Repeats the remaining checks of [`look`] for a packet that failed a check of addresses or source routes.
#[cold]
pub(super) fn check_remaining(
    packet: &mut Packet<'_>,
    interface: &Interface,
    ctx: &NodeContext<'_, '_>,
) -> Result<Layers, Reason> {
    let snapshot = validity::Policy {
        martians: false,
        source_routes: false,
        ..interface.validity
    };
    let layers = check_with(packet, interface, &snapshot, ctx)?;
    let frame = packet.bytes();
    let to_itself = match layers.class {
        Class::Ipv4 => V4::addresses(&layers, frame).0 == V4::addresses(&layers, frame).1,
        _ => V6::addresses(&layers, frame).0 == V6::addresses(&layers, frame).1,
    };
    // A session has one key per direction. If source and destination address are equal, the two keys may be equal too.
    match to_itself {
        true => Err(Fault::Land.into()),
        false => Ok(layers),
    }
}

/// Parses and validates a frame, and returns its layers. If the sender uses checksum offload and the checksum is only
/// partial, the checksum is completed.
pub(super) fn look(
    packet: &mut Packet<'_>,
    interface: &Interface,
    ctx: &NodeContext<'_, '_>,
) -> Result<Layers, Reason> {
    check_with(packet, interface, &interface.validity, ctx)
}

#[inline(always)]
fn check_with(
    packet: &mut Packet<'_>,
    interface: &Interface,
    snapshot: &validity::Policy,
    ctx: &NodeContext<'_, '_>,
) -> Result<Layers, Reason> {
    let checksums = packet.checksums();
    let layers = layers::parse(packet.bytes())?;
    match validity::validate(packet.bytes(), checksums, &layers, snapshot)? {
        Validity::Valid => parse::clear_bad_checksum(packet),
        Validity::PartialChecksum if interface.complete_checksums => parse::complete_checksum(packet, &layers, ctx),
        Validity::PartialChecksum => return Err(EngineReason::PartialChecksum.into()),
    }
    Ok(layers)
}
