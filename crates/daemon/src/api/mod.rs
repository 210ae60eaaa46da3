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

use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing};
use sluice_config::api::{Answered, Failure, Listed, Operation, Position, operation};

use crate::control::Control;
use crate::handle::WorkerEnded;
use json::Json;

/// Maximum size of a request in bytes, enough for a configuration with the maximum number of rules.
const LARGEST: usize = 256 << 20;

/// State that all handlers share.
type Shared = State<Arc<Control>>;

/// Why a request can't be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The request contains an unknown name or an invalid value.
    #[error("{0}")]
    Wrong(String),
    /// The data plane has ended.
    #[error(transparent)]
    WorkerEnded(#[from] WorkerEnded),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Wrong(_) => StatusCode::BAD_REQUEST,
            Self::WorkerEnded(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        failure(status, self.to_string())
    }
}

fn failure(status: StatusCode, message: String) -> Response {
    (status, Json(Failure { message })).into_response()
}

/// Serve requests until the listener fails.
///
/// # Errors
/// Returns the errors of the listener.
pub(crate) async fn serve(control: Arc<Control>, listener: tokio::net::UnixListener) -> std::io::Result<()> {
    axum::serve(listener, guarded(routes(), control)).await
}

/// Handler of an operation. Each operation in [`operation`] implements the handler trait of its kind.
trait Serve: Answered {
    /// Compute the response.
    fn serve(
        control: Arc<Control>,
        request: Self::Request,
    ) -> impl Future<Output = Result<Self::Answer, Refusal>> + Send;
}

/// Handler of a paged list.
trait ServePages: Listed {
    /// Compute the page that starts at a position.
    fn serve(
        control: Arc<Control>,
        request: Self::Request,
        position: Position,
    ) -> impl Future<Output = Result<Self::Answer, Refusal>> + Send;
}

/// Handler of a streamed response.
trait ServeStream: Operation {
    /// Start the response, with its content type.
    fn serve(control: Arc<Control>, request: Self::Request) -> impl Future<Output = Result<Response, Refusal>> + Send;
}

async fn get<O: Serve>(State(control): Shared, Query(request): Query<O::Request>) -> Result<Json<O::Answer>, Refusal> {
    O::serve(control, request).await.map(Json)
}

async fn pages<O: ServePages>(
    State(control): Shared,
    Query(request): Query<O::Request>,
    Query(position): Query<Position>,
) -> Result<Json<O::Answer>, Refusal> {
    O::serve(control, request, position).await.map(Json)
}

async fn post<O: Serve>(State(control): Shared, Json(request): Json<O::Request>) -> Result<Json<O::Answer>, Refusal> {
    O::serve(control, request).await.map(Json)
}

async fn stream<O: ServeStream>(State(control): Shared, Json(request): Json<O::Request>) -> Result<Response, Refusal> {
    O::serve(control, request).await
}

macro_rules! handler {
    (get $name:ident) => {
        routing::get(get::<operation::$name>)
    };
    (list $name:ident) => {
        handler!(get $name)
    };
    (pages $name:ident) => {
        routing::get(pages::<operation::$name>)
    };
    (post $name:ident) => {
        routing::post(post::<operation::$name>)
    };
    (stream $name:ident) => {
        routing::post(stream::<operation::$name>)
    };
}

macro_rules! router {
    ($(
        $(#[doc = $help:literal])+
        $kind:ident $name:ident $path:literal $request:ident => $answer:ident $(, $printed:ident $command:literal)?;
    )*) => {
        Router::new()$(.route($path, handler!($kind $name)))*
    };
}

/// Routes to the handlers of all operations.
pub(crate) fn routes() -> Router<Arc<Control>> {
    sluice_config::operations!(router)
}

/// Add a panic boundary to routes: a panic fails only the request that caused it.
pub(crate) fn guarded(routes: Router<Arc<Control>>, control: Arc<Control>) -> Router {
    routes
        .layer(DefaultBodyLimit::max(LARGEST))
        .layer(from_fn_with_state(control.clone(), guard))
        .with_state(control)
}

/// If the handler of a request panics, count the panic and return an error response.
async fn guard(State(control): Shared, request: Request, next: Next) -> Response {
    match tokio::spawn(next.run(request)).await {
        Ok(response) => response,
        Err(error) => {
            control.panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!("a request failed because of a bug: {error}");
            let message = "the request failed because of a bug: please report it with the log of the daemon".into();
            failure(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
    }
}
