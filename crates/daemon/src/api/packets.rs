//! Traces and captures. Packets are streamed in one response. The response ends after the requested number of packets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use sluice_config::api::{
    CaptureDirection, CaptureRequest, CaptureSource, TraceRecord, TraceRequest, TraceStep, operation,
};
use sluice_config::text::to_json;
use sluice_engine::packet::reason::Reason;
use sluice_engine::worker::capture::{CaptureFilter, CapturePoint, CapturedFrame, Tap};
use sluice_engine::worker::request::{Filter, Reply, Request};
use sluice_engine::worker::trace::{PacketTrace, Tracer};
use sluice_route::Prefix;
use tokio::sync::mpsc;

use super::sessions::interface;
use super::{Refusal, ServeStream};
use crate::control::Control;
use crate::handle::WorkerEnded;
use crate::packet_text::describe;
use crate::pcapng::Writer;

/// Interval at which traced and captured packets are fetched from the workers.
const FETCH: Duration = Duration::from_millis(50);

/// Maximum number of packets that a worker buffers between two fetches of a trace.
const TRACE_CAPACITY: usize = 64;

/// Maximum number of bytes that a worker buffers between two fetches of a capture.
const CAPTURED: usize = 16 << 20;

/// Maximum number of response chunks that are queued for the client.
const PIECES: usize = 16;

/// A response that is sent in chunks.
fn pieces(receiver: mpsc::Receiver<Bytes>, kind: &'static str) -> Response {
    let body = Body::new(Pieces(receiver));
    ([("content-type", kind)], body).into_response()
}

/// The chunks as an HTTP body.
struct Pieces(mpsc::Receiver<Bytes>);

impl axum::body::HttpBody for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        self.0
            .poll_recv(context)
            .map(|piece| piece.map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}

impl ServeStream for operation::Trace {
    async fn serve(control: Arc<Control>, request: TraceRequest) -> Result<Response, Refusal> {
        let filter = {
            let plane = control.plane();
            Filter {
                address: request
                    .address
                    .map(|net| Prefix::new(net.0.addr().into(), net.0.prefix_len())),
                port: request.port,
                protocol: request.protocol.map(|protocol| protocol.0),
                interface: request
                    .interface
                    .as_deref()
                    .map(|name| interface(plane.snapshot(), name))
                    .transpose()?,
                ..Filter::default()
            }
        };
        let limit = control.config().document.control.trace_limit;
        let (sender, receiver) = mpsc::channel(PIECES);
        tokio::spawn(async move {
            let count = request.count.min(limit) as usize;
            let seconds = Duration::from_secs(request.seconds.into());
            // The error is ignored, because the trace has ended: the client has disconnected or a worker has ended.
            let _ = follow_trace(&control, filter, count, seconds, &sender).await;
            for worker in 0..control.workers() {
                let _ = control.ask(worker, Request::EndTrace).await;
            }
        });
        Ok(pieces(receiver, "application/x-ndjson"))
    }
}

async fn follow_trace(
    control: &Arc<Control>,
    filter: Filter,
    count: usize,
    seconds: Duration,
    sender: &mpsc::Sender<Bytes>,
) -> Result<(), WorkerEnded> {
    let end = Instant::now() + seconds;
    let fresh = || Request::Trace(Box::new(Tracer::new(filter, TRACE_CAPACITY)));
    let mut remaining = count;
    for worker in 0..control.workers() {
        control.ask(worker, fresh()).await?;
    }
    while remaining > 0 && Instant::now() < end && !sender.is_closed() {
        tokio::time::sleep(FETCH).await;
        let mut traces: Vec<(u16, PacketTrace)> = Vec::new();
        for worker in 0..control.workers() {
            if let Reply::Traced(Some(tracer)) = control.ask(worker, fresh()).await? {
                traces.extend(tracer.traces().iter().map(|trace| (worker as u16, trace.clone())));
            }
        }
        traces.sort_by_key(|(_, trace)| trace.nanoseconds);
        traces.truncate(remaining);
        remaining -= traces.len();
        for (worker, trace) in traces {
            let mut line = to_json(&record(control, worker, &trace)).unwrap_or_default();
            line.push('\n');
            if sender.send(line.into()).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn record(control: &Control, worker: u16, trace: &PacketTrace) -> TraceRecord {
    let plane = control.plane();
    let step = |step: &sluice_engine::worker::trace::TraceStep| TraceStep {
        node: step.node.into(),
        verdict: step.exit.into(),
    };
    let name = |interface| {
        plane
            .snapshot()
            .interface(interface)
            .map_or(String::new(), |interface| interface.name.clone())
    };
    let mut steps: Vec<_> = trace.steps.iter().map(step).collect();
    steps.extend(trace.egress.map(|egress| TraceStep {
        node: "transmit".into(),
        verdict: name(egress),
    }));
    TraceRecord {
        time: trace.nanoseconds,
        worker,
        interface: name(trace.interface),
        packet: describe(&trace.bytes, trace.length),
        steps,
    }
}

/// Parameters of a capture.
struct CaptureSelection {
    which: CaptureFilter,
    direction: CaptureDirection,
    reason: Option<Reason>,
    bytes: u16,
}

impl CaptureSelection {
    fn keeps(&self, copied: &CapturedFrame) -> bool {
        match copied.seen {
            CapturePoint::Received => self.direction != CaptureDirection::Out,
            CapturePoint::Sent => self.direction != CaptureDirection::In,
            CapturePoint::Dropped(reason) => self.reason.is_none_or(|selected| selected == reason),
        }
    }
}

impl ServeStream for operation::Capture {
    async fn serve(control: Arc<Control>, request: CaptureRequest) -> Result<Response, Refusal> {
        let selected = match &request.source {
            CaptureSource::Interface { name, direction } => CaptureSelection {
                which: CaptureFilter::Interface(interface(control.plane().snapshot(), name)?),
                direction: *direction,
                reason: None,
                bytes: request.bytes,
            },
            CaptureSource::Received => CaptureSelection {
                which: CaptureFilter::Received,
                direction: CaptureDirection::In,
                reason: None,
                bytes: request.bytes,
            },
            CaptureSource::Drops { reason } => CaptureSelection {
                which: CaptureFilter::Drops,
                direction: CaptureDirection::Both,
                reason: reason.as_deref().map(named).transpose()?,
                bytes: request.bytes,
            },
        };
        let (sender, receiver) = mpsc::channel(PIECES);
        tokio::spawn(async move {
            let seconds = Duration::from_secs(request.seconds.into());
            let _ = follow_capture(&control, &selected, request.count as usize, seconds, &sender).await;
            for worker in 0..control.workers() {
                let _ = control.ask(worker, Request::EndCapture).await;
            }
        });
        Ok(pieces(receiver, "application/x-pcapng"))
    }
}

fn named(name: &str) -> Result<Reason, Refusal> {
    let found = Reason::all().find(|reason| reason.name() == name);
    found.ok_or_else(|| {
        Refusal::Wrong(format!(
            "there is no drop reason `{name}`: `sluice show drops --all` lists the reasons"
        ))
    })
}

async fn follow_capture(
    control: &Arc<Control>,
    selected: &CaptureSelection,
    count: usize,
    seconds: Duration,
    sender: &mpsc::Sender<Bytes>,
) -> Result<(), WorkerEnded> {
    let end = Instant::now() + seconds;
    let (names, longest) = {
        let plane = control.plane();
        let interfaces = &plane.snapshot().interfaces;
        let names: Vec<_> = interfaces.iter().map(|interface| interface.name.clone()).collect();
        // Add the length of an Ethernet header with two VLAN tags.
        let longest = interfaces
            .iter()
            .map(|interface| interface.mtu.saturating_add(22))
            .max();
        (names, longest.unwrap_or(u16::MAX))
    };
    let bytes = selected.bytes.clamp(64, longest.max(64));
    let limit = control.config().document.control.capture_limit as usize;
    let frames = (CAPTURED / usize::from(bytes)).clamp(1, limit.max(1));
    let fresh = || Request::Capture(Box::new(Tap::new(selected.which, frames, bytes)));
    let mut writer = Writer::start(&names, bytes);
    for worker in 0..control.workers() {
        control.ask(worker, fresh()).await?;
    }
    let mut remaining = count;
    let mut missed = 0;
    while remaining > 0 && Instant::now() < end && !sender.is_closed() {
        tokio::time::sleep(FETCH).await;
        let mut taps = VecDeque::new();
        for worker in 0..control.workers() {
            if let Reply::Captured(Some(tap)) = control.ask(worker, fresh()).await? {
                missed += tap.missed;
                taps.push_back(tap);
            }
        }
        let mut copies: Vec<_> = taps
            .iter()
            .flat_map(|tap| tap.frames())
            .filter(|(copied, _)| selected.keeps(copied))
            .collect();
        copies.sort_by_key(|(copied, _)| copied.nanoseconds);
        copies.truncate(remaining);
        remaining -= copies.len();
        for (copied, frame) in copies {
            let comment = match copied.seen {
                CapturePoint::Dropped(reason) => Some(format!("{}: {}", reason.name(), reason.help())),
                _ => None,
            };
            let at = control.started + Duration::from_nanos(copied.nanoseconds);
            writer.write(
                at,
                copied.interface,
                copied.seen == CapturePoint::Sent,
                frame,
                copied.length,
                comment,
            );
        }
        let piece = writer.take();
        if !piece.is_empty() && sender.send(piece.into()).await.is_err() {
            return Ok(());
        }
    }
    if missed > 0 {
        tracing::warn!("{missed} packets were not captured, because they arrived too fast");
    }
    Ok(())
}
