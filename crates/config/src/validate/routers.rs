//! Validation of virtual routers: numbering, interfaces of each router, and the part of the file for each router.

use super::Check;
use crate::config::{DEFAULT_ROUTER, Interface, InterfaceIndex, Router, RouterIndex};
use crate::limits::MAX_ROUTERS;
use crate::problem::RouterProblem;
use crate::read::{Step, place};
use crate::schema::{self, Document};

/// Maximum length of a Linux interface name (IFNAMSIZ without the terminating zero).
const LONGEST_NAME: usize = 15;

/// The part of the file that configures one router.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    /// Number of the router.
    pub router: RouterIndex,
    /// Name of the router's table. `None` if the top level configures the router.
    pub table: Option<&'a str>,
    pub routes: &'a [schema::Route],
    pub source: &'a [schema::SourceRule],
    pub destination: &'a [schema::DestinationRule],
    pub one_to_one: &'a [schema::StaticRule],
    pub exempt: &'a [schema::ExemptRule],
    pub filter: Option<&'a schema::Filter>,
}

impl<'a> Scope<'a> {
    /// The part of the file for the default router.
    pub fn top(document: &'a Document) -> Self {
        let nat = &document.nat;
        Self {
            router: DEFAULT_ROUTER,
            table: None,
            routes: &document.routes,
            source: &nat.source,
            destination: &nat.destination,
            one_to_one: &nat.one_to_one,
            exempt: &nat.exempt,
            filter: document.filter.as_ref(),
        }
    }

    fn of(router: RouterIndex, name: &'a str, written: &'a schema::Router) -> Self {
        let nat = &written.nat;
        Self {
            router,
            table: Some(name),
            routes: &written.routes,
            source: &nat.source,
            destination: &nat.destination,
            one_to_one: &nat.one_to_one,
            exempt: &nat.exempt,
            filter: written.filter.as_ref(),
        }
    }

    /// Whether a rule of the router uses a pool.
    pub fn names(&self, pool: &str) -> bool {
        self.source.iter().any(|rule| rule.pool == pool)
    }

    /// Full path of an item, given its path within the part.
    pub fn place<'s>(&self, path: &[Step<'s>]) -> Vec<Step<'s>>
    where
        'a: 's,
    {
        match self.table {
            Some(name) => [place!["routers", name], path].concat(),
            None => path.to_vec(),
        }
    }
}

/// Name of the router that the top level configures.
pub const DEFAULT: &str = "default";

impl<'a> Check<'a> {
    /// Parts of the file: first the part of the default router, then the parts of the other routers in order.
    pub(super) fn scopes(&self) -> Vec<Scope<'a>> {
        let document = self.document;
        let others = document.routers.iter().filter(|(name, _)| *name != DEFAULT);
        let others = others.filter_map(|(name, written)| Some(Scope::of(self.router_number(name)?, name, written)));
        std::iter::once(Scope::top(document)).chain(others).collect()
    }

    /// Number of the router with this name.
    pub(super) fn router_number(&self, name: &str) -> Option<RouterIndex> {
        let number = self.numbering.routers.of(name)?;
        RouterIndex::try_from(number).ok()
    }

    pub(super) fn routers(&mut self) -> Vec<Router> {
        let document = self.document;
        let count = document.routers.len();
        if count >= MAX_ROUTERS {
            self.report(place!["routers"], RouterProblem::TooMany(count).into());
        }
        for (name, written) in &document.routers {
            self.name(place!["routers", name], name);
            self.session_limits(place!["routers", name, "limits"], &written.limits.of_sessions());
            self.router_share(name, written);
            self.router_host(name, written);
            if name == DEFAULT {
                self.only_settings(written);
            }
            if written.kernel_routes == Some(true) && !written.daemon {
                self.report(
                    place!["routers", name, "kernel-routes"],
                    RouterProblem::NoNamespace.into(),
                );
            }
            if written
                .fpm
                .as_ref()
                .is_some_and(|fpm| fpm.listen.is_none() && fpm.socket.is_none())
            {
                self.report(place!["routers", name, "fpm"], RouterProblem::ListensNowhere.into());
            }
            if let Some(fpm) = &written.fpm {
                self.md5_keys(name, fpm);
            }
            // Routers with namespaces listen in their namespace, so their addresses can't conflict.
            let listens =
                |other: &schema::Router| other.fpm.as_ref().filter(|_| !other.daemon).and_then(|fpm| fpm.listen);
            let mut others = document.routers.iter().take_while(|(other, _)| *other != name);
            if let Some(listen) = listens(written)
                && let Some((other, _)) = others.find(|(_, other)| listens(other) == Some(listen))
            {
                let other = other.clone();
                let at = place!["routers", name, "fpm", "listen"];
                self.report(at, RouterProblem::SameListen { listen, other }.into());
            }
        }
        let router = |name: &str| {
            let written = document.routers.get(name);
            let own = written.map(|written| written.limits).unwrap_or_default();
            let (filters, limits) = match name {
                DEFAULT => (document.filter.is_some(), own.with_sessions(document.nat.limits)),
                _ => (written.is_some_and(|written| written.filter.is_some()), own),
            };
            Router {
                name: name.to_owned(),
                limits,
                weight: written.and_then(|written| written.share.weight),
                filters,
                daemon: written.is_some_and(|written| written.daemon),
                host: written.map(|written| written.host).unwrap_or_default(),
                kernel_routes: written
                    .is_some_and(|written| written.daemon && written.kernel_routes.unwrap_or(written.fpm.is_none())),
                fpm: written.and_then(|written| written.fpm.clone()),
            }
        };
        self.numbering
            .routers
            .names()
            .map(|name| router(name.unwrap_or_default()))
            .collect()
    }

    fn only_settings(&mut self, written: &schema::Router) {
        let nothing = schema::Router::default();
        for (key, differs) in [
            ("routes", written.routes != nothing.routes),
            ("nat", written.nat != nothing.nat),
            ("filter", written.filter.is_some()),
            ("limits", written.limits.of_sessions() != nothing.limits.of_sessions()),
        ] {
            if differs {
                self.report(place!["routers", DEFAULT, key], RouterProblem::OfDefault(key).into());
            }
        }
    }

    /// Router of an interface.
    pub(super) fn router_of(&mut self, name: &str, written: &schema::Interface) -> RouterIndex {
        let Some(router) = &written.router else {
            return DEFAULT_ROUTER;
        };
        let number = self.router_number(router);
        if number.is_none() {
            let known = self.document.routers.keys().cloned().collect();
            let name_of = router.clone();
            let at = place!["interfaces", name, "router"];
            self.report(at, RouterProblem::Unknown { name: name_of, known }.into());
        }
        number.unwrap_or(DEFAULT_ROUTER)
    }

    /// Router of an interface. If the router has a namespace, the name of the interface must be valid in Linux.
    pub(super) fn router_in_namespace(&mut self, name: &str, written: &schema::Interface) -> RouterIndex {
        let of = written.router.as_deref().unwrap_or(DEFAULT);
        let has_namespace = self.document.routers.get(of).is_some_and(|router| router.daemon);
        if has_namespace && (name.len() > LONGEST_NAME || name == "lo") {
            let problem = RouterProblem::NotLinuxName(name.to_owned());
            self.report(place!["interfaces", name], problem.into());
        }
        self.router_of(name, written)
    }

    /// Check that TCP-MD5 keys belong to peers that can connect by TCP.
    fn md5_keys(&mut self, name: &str, fpm: &schema::Fpm) {
        for peer in fpm.md5_key_files.keys() {
            let is_peer = fpm
                .peers
                .iter()
                .any(|other| other.to_canonical() == peer.to_canonical());
            let problem = match fpm.listen {
                None => RouterProblem::KeysWithoutListen,
                Some(_) if !is_peer => RouterProblem::KeyWithoutPeer(*peer),
                Some(listen) if listen.is_ipv4() && peer.to_canonical().is_ipv6() => {
                    RouterProblem::KeyFamily(*peer, listen)
                }
                Some(_) => continue,
            };
            let written = peer.to_string();
            self.report(
                place!["routers", name, "fpm", "md5-key-files", &written],
                problem.into(),
            );
        }
    }

    /// Index of an interface, which must belong to the router that is being checked.
    pub(super) fn own_interface(&mut self, path: &[Step<'_>], name: &str) -> Option<InterfaceIndex> {
        let index = self.interface_index(path, name)?;
        let written = self.document.interfaces.get(name)?;
        let router = written.router.as_deref().unwrap_or(DEFAULT);
        if self.router_number(router) != Some(self.scope.router) {
            let (interface, router) = (name.to_owned(), router.to_owned());
            self.report(path, RouterProblem::Elsewhere { interface, router }.into());
            return None;
        }
        Some(index)
    }

    /// Pools that rules or sites of the current router use.
    pub(super) fn own_pools(&self) -> Vec<(&'a String, &'a schema::Pool)> {
        let is_named = |(name, _): &(&'a String, &'a schema::Pool)| {
            self.scope.names(name) || self.site_pools.get(name.as_str()) == Some(&self.scope.router)
        };
        self.document.nat.pools.iter().filter(is_named).collect()
    }

    /// Pools that neither rules nor sites use. The data plane assigns these pools to the default router, so there are
    /// none for other routers.
    pub(super) fn unused_pools(&self) -> Vec<(&'a String, &'a schema::Pool)> {
        let is_unused = |(name, _): &(&'a String, &'a schema::Pool)| {
            let is_named = self.scopes().iter().any(|scope| scope.names(name));
            !is_named && !self.site_pools.contains_key(name.as_str())
        };
        match self.scope.router {
            DEFAULT_ROUTER => self.document.nat.pools.iter().filter(is_unused).collect(),
            _ => Vec::new(),
        }
    }

    /// Router whose rules or sites use a pool. A pool that rules of two routers use is reported.
    pub(super) fn pool_router(&mut self, pool: &str) -> RouterIndex {
        let scopes = self.scopes();
        let mut naming = scopes.iter().filter(|scope| scope.names(pool));
        let (one, other) = (naming.next(), naming.next());
        if let (Some(one), Some(other)) = (one, other) {
            let name = |scope: &Scope<'_>| scope.table.unwrap_or(DEFAULT).to_owned();
            let problem = RouterProblem::SharedPool {
                pool: pool.to_owned(),
                one: name(one),
                other: name(other),
            };
            self.report(place!["nat", "pools", pool], problem.into());
        }
        let of_rules = one.map(|scope| scope.router);
        of_rules
            .or(self.site_pools.get(pool).copied())
            .unwrap_or(DEFAULT_ROUTER)
    }
}

/// Interfaces of a router, with their indexes.
pub(super) fn of_router(
    interfaces: &[Interface],
    router: RouterIndex,
) -> impl Iterator<Item = (InterfaceIndex, &Interface)> {
    (0..)
        .zip(interfaces)
        .filter(move |(_, interface)| interface.router == router)
}
