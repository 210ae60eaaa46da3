//! Translation: which outside ports belong to whom.

use axum::Json;
use axum::extract::{Query, State};
use sluice_config::api::{MappingFilter, Page, Position, Share};

use super::{Refusal, Shared};
use crate::control::Control;
use crate::shares::Shares;

/// Entries of a page where no limit is given, and at most.
const PAGE: (u32, u32) = (256, 4_096);

/// The pool that a filter names must be there.
fn named_pool(control: &Control, filter: &MappingFilter) -> Result<(), Refusal> {
    match &filter.pool {
        Some(name) if !control.config().pools.iter().any(|pool| pool.name == *name) => Err(Refusal::Wrong(format!(
            "no pool is called `{name}`: show nat lists them"
        ))),
        _ => Ok(()),
    }
}

/// `GET /v1/shares`
pub(super) async fn shares(
    State(control): Shared,
    Query(filter): Query<MappingFilter>,
    Query(position): Query<Position>,
) -> Result<Json<Page<Share>>, Refusal> {
    named_pool(&control, &filter)?;
    let cursor = match &position.cursor {
        None => 0,
        Some(text) => text
            .parse()
            .map_err(|_| Refusal::Wrong(format!("`{text}` is no cursor of a list")))?,
    };
    let limit = position.limit.unwrap_or(PAGE.0).clamp(1, PAGE.1) as usize;
    let shares = Shares::of(&control.config()).map_err(|error| Refusal::Wrong(error.to_string()))?;
    let (items, next) = shares.list(&filter, cursor, limit);
    Ok(Json(Page {
        items,
        next: next.map(|cursor| cursor.to_string()),
    }))
}
