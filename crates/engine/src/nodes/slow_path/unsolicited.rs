//! Unsolicited SYNs.

use sluice_nat::sites::is_site;
use sluice_nat::{TimeoutClass, Tuple};
use sluice_wire::ipv4::protocol::TCP;
use sluice_wire::layers::Fragment;
use sluice_wire::tcp::flag::{ACK, FIN, RST, SYN};

use crate::features::context::NodeContext;
use crate::packet::batch::{Meta, Origin};
use crate::packet::io::BufferIndex;
use crate::packet::reason::Reason;
use crate::packet::task::UnsolicitedSyn;
use crate::session::family::Family;

/// Parks an unsolicited SYN from outside before it is answered.
pub(super) fn unsolicited<F: Family>(
    ctx: &NodeContext<'_, '_>,
    slot: BufferIndex,
    meta: &Meta,
    key: &F::Key,
    reason: Reason,
) -> Option<UnsolicitedSyn> {
    use sluice_nat::Reason::{Filtered, Unsolicited as Unexpected};
    let waits = matches!(reason, Reason::Nat(Unexpected | Filtered))
        && !is_site(F::tuple(key).context())
        && ctx.snapshot.answers_syns
        && ctx.start.unsolicited_syns > 0
        && meta.origin == Origin::Received
        && F::protocol(key) == TCP
        && meta.layers.fragment == Fragment::Whole
        && meta.layers.tcp_flags & (SYN | ACK | RST | FIN) == SYN;
    let pools = &ctx.snapshot.nat::<F>().pools;
    let pool = pools.owner(F::tuple(key).context(), F::tuple(key).destination());
    let timeouts = pool
        .and_then(|pool| pools.get(pool))
        .map_or(&ctx.snapshot.timeouts, |pool| pool.timeouts());
    let seconds = u64::from(timeouts.seconds(TimeoutClass::TCP_INCOMING_SYN));
    waits.then(|| UnsolicitedSyn {
        slot,
        hash: F::hash_one(ctx.hasher, key),
        due: ctx.now.nanoseconds + seconds * 1_000_000_000,
        reason,
    })
}
