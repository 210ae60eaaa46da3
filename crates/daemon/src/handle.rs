//! Requests to a worker. The control thread is not blocked while a reply is awaited.

use std::sync::mpsc::{TryRecvError, TrySendError};
use std::time::Duration;

use sluice_engine::worker::request::{Reply, Request, WorkerHandle};

/// Number of polls before the control thread starts to sleep between polls.
const SPIN_POLLS: u32 = 64;

/// The worker has ended.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the worker has ended")]
pub struct WorkerEnded;

/// Request queue of one worker, as the control thread uses it.
#[derive(Debug)]
pub struct AsyncHandle {
    handle: WorkerHandle,
    /// Number of outstanding replies to requests of cancelled callers.
    outstanding: u32,
}

impl AsyncHandle {
    /// Create the queue on a worker handle.
    pub fn new(handle: WorkerHandle) -> Self {
        Self { handle, outstanding: 0 }
    }

    /// Send a request and wait for the reply.
    ///
    /// # Errors
    /// The worker has ended.
    pub async fn ask(&mut self, request: Request) -> Result<Reply, WorkerEnded> {
        while self.outstanding > 0 {
            self.answer().await?;
        }
        match self.handle.requests.try_send(request) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return Err(WorkerEnded),
        }
        self.outstanding = 1;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<Reply, WorkerEnded> {
        let mut attempts = 0;
        loop {
            match self.handle.replies.try_recv() {
                Ok(reply) => {
                    self.outstanding -= 1;
                    return Ok(reply);
                }
                Err(TryRecvError::Disconnected) => return Err(WorkerEnded),
                Err(TryRecvError::Empty) if attempts < SPIN_POLLS => {
                    attempts += 1;
                    tokio::task::yield_now().await;
                }
                Err(TryRecvError::Empty) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }
}
