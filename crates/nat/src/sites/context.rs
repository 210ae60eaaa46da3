//! Context in the inside keys of a subscriber site. The context encodes the site number, the virtual router, and
//! whether outside ports are allocated from a pool.

use sluice_wire::Context;

/// Flag in the context of a site. The next higher bit, which marks bridges, must not be set.
pub const SITES: Context = 1 << 30;

/// Flag: outside ports are allocated from a pool instead of the site's own public address.
pub const POOLED: Context = 1 << 29;

/// Maximum number of sites.
pub const MAX_SITES: u32 = 1 << ROUTER;

/// Number of virtual routers that can have sites. Routers with numbers from this number on can't have sites.
pub const MAX_ROUTERS: u32 = 1 << (29 - ROUTER);

/// Position of the router number's first bit.
const ROUTER: u32 = 17;

/// Context of a site in a virtual router.
pub fn context(site: u32, router: u16, pooled: bool) -> Context {
    let router = u32::from(router) % MAX_ROUTERS;
    SITES | if pooled { POOLED } else { 0 } | router << ROUTER | (site % MAX_SITES)
}

/// Whether the context belongs to a site.
#[inline(always)]
pub fn is_site(context: Context) -> bool {
    context >> 30 == 1
}

/// Whether the site's outside ports are allocated from a pool.
#[inline(always)]
pub fn is_pooled(context: Context) -> bool {
    context & POOLED != 0
}

/// Number of the site to which a context belongs.
#[inline(always)]
pub fn site(context: Context) -> u32 {
    context % MAX_SITES
}

/// Context of the outside keys that belong to inside keys with `context`: the router's context if `context` belongs to
/// a site, otherwise `context` itself.
#[inline(always)]
pub fn outer(context: Context) -> Context {
    if is_site(context) {
        context >> ROUTER & (MAX_ROUTERS - 1)
    } else {
        context
    }
}
