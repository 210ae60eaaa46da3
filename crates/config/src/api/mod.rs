//! The control API: HTTP/1.1 over the UNIX socket of `[control]`, bodies in JSON.
//!
//! [`operation`] has them all, and `docs/api.md` lists them.
//!
//! What a `GET` is with stands in its query string, what a `POST` is with in its body. A list is read page by page: as
//! long as an answer has `next`, ask again with it as `cursor`. Entries that exist all the time are listed once; those
//! that come or go meanwhile may be. A failure answers [`Failure`].

mod applications;
pub mod column;
mod filter;
mod filter_request;
mod graph;
mod inspection;
mod mappings;
mod nat;
pub mod operation;
mod packet_filter;
mod packets;
mod routers;
mod sets;
mod show;
mod subscribers;
mod uplinks;

pub use applications::{ApplicationSessions, ApplicationsFate, ApplicationsStatus};
pub use column::{Align, Column, Row};
pub use filter::{EndpointFilter, FilterError, NeighbourFilter, NetFilter, Position, Protocol, SessionFilter};
pub use filter_request::FilterRequest;
pub use graph::{Graph, GraphChain, GraphEdge, GraphNode, GraphStep, NodeWork};
pub use inspection::{
    Alert, AlertRequest, AppliedRules, InspectionReason, InspectionStatus, RefusedSignature, SearchMade,
};
pub use mappings::{Mapping, MappingFilter, PortBlock, Share, Subscriber, SubscriberFilter};
pub use nat::{
    ByProtocol, HostState, Nat, NatRequest, Pool, PoolBlocks, Rule, RuleAction, RuleHost, RuleKind, Span, TableUse,
};
pub use operation::{Answered, Description, Listed, Operation};
pub use packet_filter::{
    Decision, EditAnswer, FilterRule, Hits, InsertPlace, InsertRequest, Packet, PacketFilter, RemoveRequest,
};
pub use packets::{CaptureDirection, CaptureRequest, CaptureSource, Pcapng, TraceRecord, TraceRequest, TraceStep};
pub use routers::{RouteFilter, RouteOrigin, RouteTeller, Router, RouterFilter, RouterHost};
pub use sets::{Element, Set, SetAnswer, SetFilter, SetRequest, Sets};
pub use show::{
    Bridge, BridgeSide, Core, Counter, Drop, Endpoint, Flow, Initiator, Interface, Neighbour, Route, Session, Status,
};
pub use subscribers::{DhcpStatus, Lease, LeaseFilter, LeaseServerStatus, PublicClientStatus, Site, SiteFilter};
pub use uplinks::{Uplink, UplinkTarget};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::diagnosis::Complaint;
use crate::difference::Change;

/// A request that says nothing more.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unfiltered {}

/// Part of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Page<T> {
    /// Entries.
    pub items: Vec<T>,
    /// Where the next part begins, as `cursor` of the next request; the list ends where it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// A list in one part.
    pub fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}

/// How many entries were removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Cleared {
    /// How many.
    pub count: u64,
}

/// Take over another configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ApplyRequest {
    /// What complaints call the text: the path of its file.
    pub name: String,
    /// The configuration.
    pub text: String,
    /// Only say what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// What became of a configuration. It is taken over whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "result")]
pub enum ApplyAnswer {
    /// It runs, or would run with `dry-run`.
    #[serde(rename_all = "kebab-case")]
    Committed {
        /// Number of the commit, counted from 1 at start.
        generation: u64,
        /// What differs from before.
        changes: Vec<Change>,
        /// What it says that is seldom meant.
        advice: Vec<Complaint>,
        /// What became of the rules of inspection, where there are others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rules: Option<AppliedRules>,
    },
    /// It is wrong; the old one goes on.
    #[serde(rename_all = "kebab-case")]
    Refused {
        /// What is wrong with it.
        complaints: Vec<Complaint>,
    },
    /// It is right, but a running process can't take it over; the old one goes on.
    #[serde(rename_all = "kebab-case")]
    NeedsRestart {
        /// What can't be taken over, and why.
        changes: Vec<Change>,
    },
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[serde(rename_all = "kebab-case")]
pub struct Failure {
    /// For a person.
    pub message: String,
}
