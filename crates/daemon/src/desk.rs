//! Requests to a worker. The control thread is not blocked while a reply is awaited.

use std::sync::mpsc::{TryRecvError, TrySendError};
use std::time::Duration;

use sluice_engine::worker::request::{Reply, Request, WorkerHandle};

/// Number of polls before the control thread starts to sleep between polls.
const EAGER: u32 = 64;

/// The worker has ended.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the worker has ended")]
pub struct Gone;

/// Request queue of one worker, as the control thread uses it.
#[derive(Debug)]
pub struct Desk {
    counter: WorkerHandle,
    /// Number of outstanding replies to requests of cancelled callers.
    owed: u32,
}

impl Desk {
    /// Create the queue on a worker handle.
    pub fn new(counter: WorkerHandle) -> Self {
        Self { counter, owed: 0 }
    }

    /// Send a request and wait for the reply.
    ///
    /// # Errors
    /// The worker has ended.
    pub async fn ask(&mut self, request: Request) -> Result<Reply, Gone> {
        while self.owed > 0 {
            self.answer().await?;
        }
        match self.counter.requests.try_send(request) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return Err(Gone),
        }
        self.owed = 1;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<Reply, Gone> {
        let mut attempts = 0;
        loop {
            match self.counter.replies.try_recv() {
                Ok(reply) => {
                    self.owed -= 1;
                    return Ok(reply);
                }
                Err(TryRecvError::Disconnected) => return Err(Gone),
                Err(TryRecvError::Empty) if attempts < EAGER => {
                    attempts += 1;
                    tokio::task::yield_now().await;
                }
                Err(TryRecvError::Empty) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }
}
