//! The control API: HTTP/1.1 over the UNIX socket of `[control]`, bodies in JSON.
//!
//! | request | answers |
//! | --- | --- |
//! | `GET /v1/status` | [`Status`] |
//! | `GET /v1/interfaces` with [`RouterFilter`] | [`Page`] of [`Interface`] |
//! | `GET /v1/sessions` with [`SessionFilter`] and [`Position`] | [`Page`] of [`Session`] |
//! | `POST /v1/sessions/clear` with [`SessionFilter`] | [`Cleared`] |
//! | `GET /v1/nat` with [`NatRequest`] | [`Nat`] |
//! | `GET /v1/filter` with [`FilterRequest`] | [`PacketFilter`] |
//! | `POST /v1/filter/insert` with [`InsertRequest`] | [`EditAnswer`] |
//! | `POST /v1/filter/remove` with [`RemoveRequest`] | [`EditAnswer`] |
//! | `GET /v1/shares` with [`MappingFilter`] and [`Position`] | [`Page`] of [`Share`] |
//! | `GET /v1/port-blocks` with [`MappingFilter`] and [`Position`] | [`Page`] of [`PortBlock`] |
//! | `GET /v1/mappings` with [`MappingFilter`] and [`Position`] | [`Page`] of [`Mapping`] |
//! | `POST /v1/mappings/clear` with [`MappingFilter`] | [`Cleared`] |
//! | `GET /v1/subscribers` with [`SubscriberFilter`] and [`Position`] | [`Page`] of [`Subscriber`] |
//! | `GET /v1/sites` with [`SiteFilter`] and [`Position`] | [`Page`] of [`Site`] |
//! | `GET /v1/dhcp` | [`DhcpStatus`] |
//! | `GET /v1/leases` with [`LeaseFilter`] and [`Position`] | [`Page`] of [`Lease`] |
//! | `GET /v1/routers` | [`Page`] of [`Router`] |
//! | `GET /v1/routes` with [`RouteFilter`] and [`Position`] | [`Page`] of [`Route`] |
//! | `GET /v1/uplinks` | [`Page`] of [`Uplink`] |
//! | `GET /v1/neighbours` with [`NeighbourFilter`] and [`Position`] | [`Page`] of [`Neighbour`] |
//! | `POST /v1/neighbours/clear` with [`NeighbourFilter`] | [`Cleared`] |
//! | `GET /v1/sets` with [`SetFilter`] | [`Sets`] |
//! | `POST /v1/sets/add`, `/v1/sets/remove`, `/v1/sets/flush` with [`SetRequest`] | [`SetAnswer`] |
//! | `GET /v1/graph` with [`RouterFilter`] | [`Graph`] |
//! | `GET /v1/cores` | [`Page`] of [`Core`] |
//! | `GET /v1/drops` | [`Page`] of [`Drop`] |
//! | `GET /v1/alerts` with [`AlertRequest`] | [`Page`] of [`Alert`], oldest first |
//! | `GET /v1/inspection` | [`InspectionStatus`] |
//! | `GET /v1/applications` | [`ApplicationsStatus`] |
//! | `POST /v1/trace` with [`TraceRequest`] | a [`TraceRecord`] a line, as packets come |
//! | `POST /v1/capture` with [`CaptureRequest`] | a pcapng stream, as packets come |
//! | `POST /v1/apply` with [`ApplyRequest`] | [`ApplyAnswer`] |
//!
//! What a `GET` is with stands in its query string, what a `POST` is with in its body. A list is read page by page: as
//! long as an answer has `next`, ask again with it as `cursor`. Entries that exist all the time are listed once; those
//! that come or go meanwhile may be. A failure answers [`Failure`].

mod applications;
mod filter;
mod graph;
mod inspection;
mod nat;
mod packet_filter;
mod packets;
mod routers;
mod sets;
mod show;
mod subscribers;
mod uplinks;

pub use applications::{ApplicationSessions, ApplicationsFate, ApplicationsStatus};
pub use filter::{EndpointFilter, FilterError, NeighbourFilter, NetFilter, Position, Protocol, SessionFilter};
pub use graph::{Graph, GraphChain, GraphEdge, GraphNode, GraphStep};
pub use inspection::{
    Alert, AlertRequest, AppliedRules, InspectionReason, InspectionStatus, RefusedSignature, SearchMade,
};
pub use nat::{
    ByProtocol, HostState, Mapping, MappingFilter, Nat, NatRequest, Pool, PoolBlocks, PortBlock, Rule, RuleAction,
    RuleHost, RuleKind, Share, Span, Subscriber, SubscriberFilter, TableUse,
};
pub use packet_filter::{
    Decision, EditAnswer, FilterRequest, FilterRule, Hits, InsertPlace, InsertRequest, Packet, PacketFilter,
    RemoveRequest,
};
pub use packets::{CaptureDirection, CaptureRequest, CaptureSource, TraceRecord, TraceRequest, TraceStep};
pub use routers::{RouteFilter, RouteOrigin, RouteTeller, Router, RouterFilter, RouterHost};
pub use sets::{Element, Set, SetAnswer, SetFilter, SetRequest, Sets};
pub use show::{
    Bridge, BridgeSide, Core, Counter, Drop, Endpoint, Flow, Initiator, Interface, Neighbour, Route, Session, Status,
};
pub use subscribers::{DhcpStatus, Lease, LeaseFilter, LeaseServerStatus, PublicClientStatus, Site, SiteFilter};
pub use uplinks::{Uplink, UplinkTarget};

use serde::{Deserialize, Serialize};

use crate::diagnosis::Complaint;
use crate::difference::Change;

/// Paths of requests. They begin with the version of the API: what one says never changes its meaning.
pub mod path {
    /// State of the process.
    pub const STATUS: &str = "/v1/status";
    /// Interfaces.
    pub const INTERFACES: &str = "/v1/interfaces";
    /// Sessions.
    pub const SESSIONS: &str = "/v1/sessions";
    /// Remove sessions.
    pub const CLEAR_SESSIONS: &str = "/v1/sessions/clear";
    /// Pools, and who uses them most.
    pub const NAT: &str = "/v1/nat";
    /// The packet filter, and what its rules have counted.
    pub const FILTER: &str = "/v1/filter";
    /// Insert rules of the filter.
    pub const INSERT_RULES: &str = "/v1/filter/insert";
    /// Remove rules of the filter.
    pub const REMOVE_RULES: &str = "/v1/filter/remove";
    /// Sets of the filter.
    pub const SETS: &str = "/v1/sets";
    /// Add addresses to a set.
    pub const ADD_TO_SET: &str = "/v1/sets/add";
    /// Remove addresses from a set.
    pub const REMOVE_FROM_SET: &str = "/v1/sets/remove";
    /// Remove all addresses from a set.
    pub const FLUSH_SET: &str = "/v1/sets/flush";
    /// Mappings.
    pub const MAPPINGS: &str = "/v1/mappings";
    /// Remove mappings, with their sessions.
    pub const CLEAR_MAPPINGS: &str = "/v1/mappings/clear";
    /// Port blocks.
    pub const PORT_BLOCKS: &str = "/v1/port-blocks";
    /// Subscribers.
    pub const SUBSCRIBERS: &str = "/v1/subscribers";
    /// Sites of subscribers.
    pub const SITES: &str = "/v1/sites";
    /// How DHCP goes, on both sides of sites.
    pub const DHCP: &str = "/v1/dhcp";
    /// Private leases of their terminals.
    pub const LEASES: &str = "/v1/leases";
    /// Ports that inside addresses have by computation.
    pub const SHARES: &str = "/v1/shares";
    /// Virtual routers.
    pub const ROUTERS: &str = "/v1/routers";
    /// The graph of nodes, and chains.
    pub const GRAPH: &str = "/v1/graph";
    /// Routes.
    pub const ROUTES: &str = "/v1/routes";
    /// Uplinks.
    pub const UPLINKS: &str = "/v1/uplinks";
    /// Neighbours.
    pub const NEIGHBOURS: &str = "/v1/neighbours";
    /// Remove neighbours.
    pub const CLEAR_NEIGHBOURS: &str = "/v1/neighbours/clear";
    /// Rules of inspection that matched.
    pub const ALERTS: &str = "/v1/alerts";
    /// How inspection goes.
    pub const INSPECTION: &str = "/v1/inspection";
    /// How looking for applications goes.
    pub const APPLICATIONS: &str = "/v1/applications";
    /// Bridges.
    pub const BRIDGES: &str = "/v1/bridges";
    /// Workers and their cores.
    pub const CORES: &str = "/v1/cores";
    /// Dropped packets by reason.
    pub const DROPS: &str = "/v1/drops";
    /// What every node does with packets.
    pub const TRACE: &str = "/v1/trace";
    /// Packets themselves.
    pub const CAPTURE: &str = "/v1/capture";
    /// Another configuration.
    pub const APPLY: &str = "/v1/apply";
}

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
