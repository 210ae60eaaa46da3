//! The control API: HTTP/1.1 over the Unix socket of `[control]`, with JSON bodies.
//!
//! [`operation`] contains all operations, and `docs/api.md` lists them.
//!
//! A `GET` has its request in the query string, a `POST` in the body. A list is read page by page: as long as a
//! response has `next`, the next request passes this value as `cursor`. Entries that exist during the whole listing are
//! returned exactly once. Entries that are added or removed during the listing may be missing. A failed request returns
//! [`Failure`].

mod applications;
pub mod column;
mod counters;
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

pub use applications::{ApplicationResults, ApplicationSessions, ApplicationsStatus};
pub use column::{Align, Column, Row};
pub use counters::{CounterValue, CounterValues, WorkerCounter};
pub use filter::{EndpointFilter, FilterError, NeighbourFilter, NetFilter, Position, SessionFilter};
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
pub use routers::{RouteFeedStatus, RouteFilter, RouteOrigin, Router, RouterFilter, RouterHost};
pub use sets::{Element, Set, SetAnswer, SetFilter, SetRequest, Sets};
pub use show::{
    Bridge, BridgeSide, Core, Counter, Drop, Endpoint, Flow, Initiator, Interface, Neighbour, Route, Session, Status,
};
pub use subscribers::{DhcpStatus, Lease, LeaseFilter, LeaseServerStatus, PublicClientStatus, Site, SiteFilter};
pub use uplinks::{Uplink, UplinkTarget};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::diagnosis::Finding;
use crate::difference::Change;

/// A request without parameters.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unfiltered {}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Page<T> {
    /// Entries.
    pub items: Vec<T>,
    /// Value of `cursor` in the next request. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// A complete list as one page.
    pub fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}

/// Result of a request that removes entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Cleared {
    /// Number of removed entries.
    pub count: u64,
}

/// Request to apply another configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ApplyRequest {
    /// Name of the configuration in messages: the path of its file.
    pub name: String,
    /// The configuration.
    pub text: String,
    /// Only report the effect, without applying the configuration.
    #[serde(default)]
    pub dry_run: bool,
}

/// Result of applying a configuration. A configuration is applied completely or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "result")]
pub enum ApplyAnswer {
    /// The configuration is active. In a dry run, the configuration could be made active.
    #[serde(rename_all = "kebab-case")]
    Committed {
        /// Number of the commit, counted from 1 at start.
        generation: u64,
        /// Differences from the previous configuration.
        changes: Vec<Change>,
        /// Advice about unusual settings.
        advice: Vec<Finding>,
        /// Changed inspection rules, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rules: Option<AppliedRules>,
    },
    /// The configuration is invalid. The previous configuration remains active.
    #[serde(rename_all = "kebab-case")]
    Refused {
        /// Problems of the configuration.
        findings: Vec<Finding>,
    },
    /// The configuration is valid, but requires a restart. The previous configuration remains active.
    #[serde(rename_all = "kebab-case")]
    NeedsRestart {
        /// Changes that require a restart, with reasons.
        changes: Vec<Change>,
    },
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[serde(rename_all = "kebab-case")]
pub struct Failure {
    /// Message for the operator.
    pub message: String,
}
