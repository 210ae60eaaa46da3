//! `[routers.NAME]`: virtual routers beside the one that the top level is about.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::nat::{DestinationRule, ExemptRule, SourceRule, StaticRule};
use super::pool::{SessionLimits, is_default};
use super::{Filter, Route};
use crate::value::Period;

/// `[routers.NAME]`: a virtual router. Interfaces are in it by their key `router`; it has routes, neighbours, translation, a
/// packet filter and sessions of its own, and its addresses may be those of others too. What stands at the top level is
/// about the router `default`, which there always is; `[routers.default]` has settings alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Router {
    /// It has a network namespace, `sluice-NAME`, with an interface for each of its own, in which routing daemons and services
    /// run: what is addressed to it, and is not answered by itself, comes there.
    pub daemon: bool,
    /// A routing daemon tells its routes by FPM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fpm: Option<Fpm>,
    /// Routes of the namespace's own table are the router's: those of BIRD, or of `ip route`. Where it is not given, they are
    /// where there is a namespace, and no daemon tells its routes by FPM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_routes: Option<bool>,
    /// Static routes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Address translation.
    #[serde(skip_serializing_if = "is_default")]
    pub nat: RouterNat,
    /// The packet filter; where it is not given, all packets pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// Limits of its sessions together.
    #[serde(skip_serializing_if = "is_default")]
    pub limits: SessionLimits,
}

/// `[routers.NAME.fpm]`: where a routing daemon tells the router its routes, as FRR does with the module `dplane_fpm_nl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Fpm {
    /// Address and port to listen at: in the router's namespace where it has one, otherwise of this host. Whoever reaches it
    /// can change the router's routes.
    pub listen: SocketAddr,
    /// How long the routes stay of a daemon that is gone, or does not tell them again.
    #[serde(default = "grace")]
    pub grace: Period,
}

fn grace() -> Period {
    Period::seconds(120)
}

/// `[routers.NAME.nat]`: rules, as in `[nat]`. The pools that they name are in `[nat.pools]`, and are this router's alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RouterNat {
    /// Source rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source: Vec<SourceRule>,
    /// Destination rules (port forwarding).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destination: Vec<DestinationRule>,
    /// Networks whose addresses are translated one to one.
    #[serde(rename = "static", skip_serializing_if = "Vec::is_empty")]
    pub one_to_one: Vec<StaticRule>,
    /// What is not translated (RFC 6888, REQ-6).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exempt: Vec<ExemptRule>,
}
