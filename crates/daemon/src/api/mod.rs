//! The control API: HTTP/1.1 over the control socket, with the types of `sluice_config::api`.

mod applications;
mod apply;
mod bridges;
mod filter;
mod graph;
pub(crate) mod inspection;
mod json;
mod lists;
mod nat;
mod overview;
mod packets;
mod renewed;
mod routers;
mod routes;
mod sessions;
pub(crate) mod sets;
mod sites;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use sluice_config::api::{Failure, path};

use crate::control::Control;
use crate::desk::Gone;
use json::Json;

/// Largest request in bytes: a configuration with as many rules as there may be.
const LARGEST: usize = 256 << 20;

/// What handlers share.
type Shared = State<Arc<Control>>;

/// Why a request is not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// A name or value that means nothing here.
    #[error("{0}")]
    Wrong(String),
    /// The data plane ends.
    #[error(transparent)]
    Gone(#[from] Gone),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Wrong(_) => StatusCode::BAD_REQUEST,
            Self::Gone(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        failure(status, self.to_string())
    }
}

fn failure(status: StatusCode, message: String) -> Response {
    (status, Json(Failure { message })).into_response()
}

/// Serve until the listener fails.
///
/// # Errors
/// Those of the listener.
pub(crate) async fn serve(control: Arc<Control>, listener: tokio::net::UnixListener) -> std::io::Result<()> {
    axum::serve(listener, guarded(routes(), control)).await
}

/// What is answered, and by whom.
pub(crate) fn routes() -> Router<Arc<Control>> {
    Router::new()
        .route(path::STATUS, get(lists::status))
        .route(path::INTERFACES, get(lists::interfaces))
        .route(path::ROUTERS, get(routers::routers))
        .route(path::GRAPH, get(graph::graph))
        .route(path::ROUTES, get(routes::routes))
        .route(path::UPLINKS, get(routes::uplinks))
        .route(path::NEIGHBOURS, get(lists::neighbours))
        .route(path::CLEAR_NEIGHBOURS, post(lists::clear_neighbours))
        .route(path::CORES, get(lists::cores))
        .route(path::BRIDGES, get(bridges::bridges))
        .route(path::DROPS, get(lists::drops))
        .route(path::ALERTS, get(inspection::alerts))
        .route(path::INSPECTION, get(inspection::status))
        .route(path::APPLICATIONS, get(applications::status))
        .route(path::SESSIONS, get(sessions::list))
        .route(path::CLEAR_SESSIONS, post(sessions::clear))
        .route(path::NAT, get(overview::overview))
        .route(path::FILTER, get(filter::show))
        .route(path::INSERT_RULES, post(filter::insert))
        .route(path::REMOVE_RULES, post(filter::remove))
        .route(path::SETS, get(sets::show))
        .route(path::ADD_TO_SET, post(sets::add))
        .route(path::REMOVE_FROM_SET, post(sets::remove))
        .route(path::FLUSH_SET, post(sets::flush))
        .route(path::MAPPINGS, get(nat::mappings))
        .route(path::CLEAR_MAPPINGS, post(nat::clear))
        .route(path::PORT_BLOCKS, get(nat::port_blocks))
        .route(path::SUBSCRIBERS, get(nat::subscribers))
        .route(path::SITES, get(sites::sites))
        .route(path::DHCP, get(sites::dhcp))
        .route(path::LEASES, get(sites::leases))
        .route(path::SHARES, get(nat::shares))
        .route(path::TRACE, post(packets::trace))
        .route(path::CAPTURE, post(packets::capture))
        .route(path::APPLY, post(apply::apply))
}

/// Routes behind their boundary: what panics there fails alone.
pub(crate) fn guarded(routes: Router<Arc<Control>>, control: Arc<Control>) -> Router {
    routes
        .layer(DefaultBodyLimit::max(LARGEST))
        .layer(from_fn_with_state(control.clone(), guard))
        .with_state(control)
}

/// A request whose answering panics fails alone, and is counted.
async fn guard(State(control): Shared, request: Request, next: Next) -> Response {
    match tokio::spawn(next.run(request)).await {
        Ok(response) => response,
        Err(error) => {
            control.panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!("a request failed by a fault of the program: {error}");
            let message = "a fault of the program: its log says more, please report it".into();
            failure(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
    }
}
