//! Client of the control API: HTTP/1.1 over the daemon's UNIX socket, with one connection per command.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_daemon::config::api::operation::OperationKind;
use sluice_daemon::config::api::{Answered, Description, Failure, Listed, Operation, Page, Position};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No daemon listens at the socket.
    #[error(
        "no daemon answers at {}: {error}\nstart a daemon with `sluice run -c FILE`, or give the socket of a running \
         daemon with --socket",
        path.display()
    )]
    Absent {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the kernel.
        error: io::Error,
    },
    /// This user has no permission to use the socket.
    #[error("only the owner of {} may use the socket: run this command as the user that runs the daemon (usually \
         root)", path.display())]
    Forbidden {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The daemon rejects the request.
    #[error("{0}")]
    Refused(Failure),
    /// The connection broke.
    #[error("the daemon closed the connection: {0}")]
    Broken(#[from] hyper::Error),
    /// The response can't be decoded, probably because the daemon has a different version.
    #[error("the daemon's answer can't be read ({0}); do the versions of daemon and command differ?")]
    Unreadable(String),
    /// A connection can't be created in this process.
    #[error("the connection failed: {0}")]
    Local(#[from] io::Error),
}

/// A connection to the daemon.
pub struct Client {
    runtime: Runtime,
    sender: http1::SendRequest<Full<Bytes>>,
}

impl Client {
    /// Connect to the daemon's socket.
    ///
    /// # Errors
    /// No daemon listens at the socket, or this user has no permission.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let sender = runtime.block_on(async {
            let stream = UnixStream::connect(path).await.map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => ClientError::Forbidden { path: path.to_owned() },
                _ => ClientError::Absent {
                    path: path.to_owned(),
                    error,
                },
            })?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            // The task ends when the sender is dropped. The request reports errors of the connection.
            tokio::spawn(connection);
            Ok::<_, ClientError>(sender)
        })?;
        Ok(Self { runtime, sender })
    }

    /// Send a request and return its response.
    ///
    /// # Errors
    /// The daemon rejects the request, or the connection breaks.
    pub fn ask<O: Answered>(&mut self, wanted: &O::Request) -> Result<O::Answer, ClientError> {
        let Description { kind, path, .. } = O::DESCRIPTION;
        match kind {
            OperationKind::Get | OperationKind::List | OperationKind::Pages => self.get(path, &query(wanted)?),
            OperationKind::Post | OperationKind::Stream => {
                let request = request(Method::POST, path, json(wanted)?)?;
                self.answer(request)
            }
        }
    }

    fn get<A: DeserializeOwned>(&mut self, path: &str, query: &str) -> Result<A, ClientError> {
        let target = if query.is_empty() {
            path.to_owned()
        } else {
            format!("{path}?{query}")
        };
        let request = request(Method::GET, &target, Bytes::new())?;
        self.answer(request)
    }

    /// Read a list page by page. `page` returns whether to continue with the next page.
    ///
    /// # Errors
    /// The daemon rejects the request, the connection breaks, or `page` fails.
    pub fn list<O: Listed, E: From<ClientError>>(
        &mut self,
        filter: &O::Request,
        mut page: impl FnMut(Vec<O::Item>) -> Result<bool, E>,
    ) -> Result<(), E> {
        let mut position = Position::default();
        loop {
            let parts = [query(filter)?, query(&position)?];
            let parts: Vec<_> = parts
                .iter()
                .filter(|part| !part.is_empty())
                .map(String::as_str)
                .collect();
            let answer: Page<O::Item> = self.get(O::DESCRIPTION.path, &parts.join("&"))?;
            if !page(answer.items)? {
                return Ok(());
            }
            match answer.next {
                Some(next) => position.cursor = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Read all pages of a list.
    ///
    /// # Errors
    /// The daemon rejects the request, or the connection breaks.
    pub fn all<O: Listed>(&mut self, filter: &O::Request) -> Result<Vec<O::Item>, ClientError> {
        let mut found = Vec::new();
        self.list::<O, ClientError>(filter, |items| {
            found.extend(items);
            Ok(true)
        })?;
        Ok(found)
    }

    /// Send a request with a body, and pass the response to `piece` as it arrives.
    ///
    /// # Errors
    /// The daemon rejects the request, the connection breaks, or `piece` fails.
    pub fn stream<O: Operation, E: From<ClientError>>(
        &mut self,
        body: &O::Request,
        mut piece: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.follow::<O, E>(body, Duration::MAX, |bytes| {
            piece(bytes)?;
            Ok(true)
        })
    }

    /// Send a request with a body, and pass the response to `piece` as it arrives. If no data arrives for the given
    /// time, `piece` gets an empty slice. `piece` returns whether to continue. If `piece` returns false, this
    /// connection can't be used afterwards.
    ///
    /// # Errors
    /// The daemon rejects the request, the connection breaks, or `piece` fails.
    pub fn follow<O: Operation, E: From<ClientError>>(
        &mut self,
        body: &O::Request,
        longest: Duration,
        mut piece: impl FnMut(&[u8]) -> Result<bool, E>,
    ) -> Result<(), E> {
        let request = request(Method::POST, O::DESCRIPTION.path, json(body)?)?;
        let Self { runtime, sender } = self;
        runtime.block_on(async {
            let mut response = sent(sender, request).await?;
            loop {
                let data = match tokio::time::timeout(longest, response.body_mut().frame()).await {
                    Ok(None) => return Ok(()),
                    Ok(Some(frame)) => frame.map_err(ClientError::from)?.into_data().unwrap_or_default(),
                    Err(_) => Bytes::new(),
                };
                if !piece(&data)? {
                    return Ok(());
                }
            }
        })
    }

    fn answer<A: DeserializeOwned>(&mut self, request: Request<Full<Bytes>>) -> Result<A, ClientError> {
        let Self { runtime, sender } = self;
        let body = runtime.block_on(async {
            let response = sent(sender, request).await?;
            Ok::<_, ClientError>(response.into_body().collect().await?.to_bytes())
        })?;
        serde_json::from_slice(&body).map_err(|error| ClientError::Unreadable(error.to_string()))
    }
}

async fn sent(
    sender: &mut http1::SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, ClientError> {
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    if status == StatusCode::OK {
        return Ok(response);
    }
    let body = response.into_body().collect().await?.to_bytes();
    match serde_json::from_slice(&body) {
        Ok(failure) => Err(ClientError::Refused(failure)),
        Err(_) => Err(ClientError::Unreadable(status.to_string())),
    }
}

fn request(method: Method, target: &str, body: Bytes) -> Result<Request<Full<Bytes>>, ClientError> {
    Request::builder()
        .method(method)
        .uri(target)
        .header("host", "sluice")
        .header("content-type", "application/json")
        .body(Full::new(body))
        .map_err(|error| ClientError::Unreadable(error.to_string()))
}

fn json<Q: Serialize>(body: &Q) -> Result<Bytes, ClientError> {
    serde_json::to_vec(body)
        .map(Bytes::from)
        .map_err(|error| ClientError::Unreadable(error.to_string()))
}

fn query<Q: Serialize>(filter: &Q) -> Result<String, ClientError> {
    serde_urlencoded::to_string(filter).map_err(|error| ClientError::Unreadable(error.to_string()))
}
