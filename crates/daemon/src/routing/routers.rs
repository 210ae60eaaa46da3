//! Route feeds of all routers: FPM servers and kernel listeners. Configuration changes start and stop feeds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use sluice_config::schema::Fpm;
use sluice_route::RouterIndex;
use sluice_route::feed::Links;
use sluice_route::rib::Rib;

use super::{FeedStatus, FpmSettings, KernelSettings, RouteFeed, Routes, listen, serve};
use crate::control::Control;
use crate::host::{KernelLink, namespace_name};

/// Access to the routes of a router in the control plane, by name.
struct OfRouter {
    control: Weak<Control>,
    name: String,
}

impl Routes for OfRouter {
    fn change(&self, change: &mut dyn FnMut(&mut Rib)) -> bool {
        let Some(control) = self.control.upgrade() else {
            return false;
        };
        let mut plane = control.plane();
        let routers = &plane.snapshot().routers;
        let number = routers.iter().position(|router| router.name == self.name);
        number.is_some_and(|number| plane.change_routes(number as RouterIndex, change))
    }
}

/// A running route feed, with its settings at the start.
struct ConfiguredFeed<S> {
    settings: S,
    route_feed: RouteFeed,
}

/// Route feeds of each router.
#[derive(Default)]
pub(crate) struct RouteFeeds {
    fpm: BTreeMap<String, ConfiguredFeed<(Fpm, bool)>>,
    kernel: BTreeMap<String, ConfiguredFeed<()>>,
}

impl RouteFeeds {
    /// Start and stop route feeds according to the running configuration. Unchanged feeds are not restarted.
    pub(crate) fn follow(&mut self, control: &Arc<Control>) {
        let config = control.config();
        let named = || config.routers.iter().filter(|router| !router.name.is_empty());
        let fpm = named().filter_map(|router| Some((router.name.as_str(), (router.fpm.clone()?, router.daemon))));
        let (control, started_at) = (Arc::downgrade(control), control.started_at);
        let routes = |name: &str| OfRouter {
            control: control.clone(),
            name: name.to_owned(),
        };
        settle(&mut self.fpm, fpm.collect(), |name, (fpm, in_namespace)| {
            let settings = FpmSettings {
                grace: fpm.grace.duration(),
                namespace: in_namespace.then(|| namespace(name)),
                peers: fpm.peers.clone(),
                md5_key_files: fpm
                    .md5_key_files
                    .iter()
                    .map(|(peer, path)| (*peer, PathBuf::from(path)))
                    .collect(),
                socket: fpm.socket.as_ref().map(PathBuf::from),
                users: fpm.users.clone(),
                ..FpmSettings::new(name, fpm.listen, Links::Foreign, started_at)
            };
            serve(settings, Arc::new(routes(name)))
        });
        let kernel = named()
            .filter(|router| router.kernel_routes)
            .map(|router| (router.name.as_str(), ()));
        settle(&mut self.kernel, kernel.collect(), |name, ()| {
            let settings = KernelSettings {
                router: name.to_owned(),
                namespace: Some(namespace(name)),
                links: Links::Foreign,
                started_at,
            };
            listen(settings, Arc::new(routes(name)))
        });
    }

    /// Status of a router's FPM and kernel feeds.
    pub(crate) fn statuses(&self, router: &str) -> [Option<FeedStatus>; 2] {
        let fpm = self.fpm.get(router).map(|feed| feed.route_feed.status());
        [fpm, self.kernel.get(router).map(|feed| feed.route_feed.status())]
    }

    /// Update the kernel interface indexes of namespaces. A feed requests all routes again if its indexes have changed.
    pub(crate) fn set_links(&self, links: &[KernelLink]) {
        let of_router = |name: &str| {
            let own = links.iter().filter(|link| link.router == name);
            Links::Numbered(own.map(|link| (link.link, link.index)).collect())
        };
        for (name, feed) in self.fpm.iter().filter(|(_, feed)| feed.settings.1) {
            feed.route_feed.set_links(of_router(name));
        }
        for (name, feed) in &self.kernel {
            feed.route_feed.set_links(of_router(name));
        }
    }
}

/// Path of a router's namespace.
fn namespace(router: &str) -> PathBuf {
    Path::new("/run/netns").join(namespace_name(router))
}

/// Stop feeds that were removed or changed, and start new ones.
fn settle<S: Clone + PartialEq>(
    feed: &mut BTreeMap<String, ConfiguredFeed<S>>,
    wanted: BTreeMap<&str, S>,
    start: impl Fn(&str, &S) -> RouteFeed,
) {
    feed.retain(|name, feed| {
        let stays = wanted.get(name.as_str()) == Some(&feed.settings);
        if !stays {
            tracing::info!("router {name}: the source of routes has changed or was removed");
            feed.route_feed.forget();
        }
        stays
    });
    for (name, settings) in wanted {
        feed.entry(name.to_owned()).or_insert_with(|| ConfiguredFeed {
            route_feed: start(name, &settings),
            settings,
        });
    }
}
