//! The context of a site's inside keys: which site, of which virtual router, and where its outside ports are from.

use sluice_wire::Context;

/// Set in the context of a site, where the bit above it, that of bridges, is not.
pub const SITES: Context = 1 << 30;

/// Set besides where outside ports come from a pool, and not from a public address of the site's own.
pub const POOLED: Context = 1 << 29;

/// Most sites.
pub const MAX_SITES: u32 = 1 << ROUTER;

/// Most virtual routers of which there can be sites.
pub const MAX_ROUTERS: u32 = 1 << (29 - ROUTER);

/// First bit of the router.
const ROUTER: u32 = 17;

/// The context of a site of a virtual router.
pub fn context(site: u32, router: u16, pooled: bool) -> Context {
    let router = u32::from(router) % MAX_ROUTERS;
    SITES | if pooled { POOLED } else { 0 } | router << ROUTER | (site % MAX_SITES)
}

/// Whether a context is a site's.
#[inline(always)]
pub fn is_site(context: Context) -> bool {
    context >> 30 == 1
}

/// Whether a site's outside ports come from a pool.
#[inline(always)]
pub fn is_pooled(context: Context) -> bool {
    context & POOLED != 0
}

/// The site of a context that is one's.
#[inline(always)]
pub fn site(context: Context) -> u32 {
    context % MAX_SITES
}

/// The context of outside keys: of a site its router's, of others their own.
#[inline(always)]
pub fn outer(context: Context) -> Context {
    if is_site(context) {
        context >> ROUTER & (MAX_ROUTERS - 1)
    } else {
        context
    }
}
