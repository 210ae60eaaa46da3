//! Route feeds of all routers: FPM servers and kernel listeners. Configuration changes start and stop feeds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use sluice_config::schema::Fpm;
use sluice_route::RouterIndex;
use sluice_route::feed::Links;
use sluice_route::rib::Rib;

use super::{Hearing, KernelSettings, Routes, Settings, Standing, listen, serve};
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
struct Heard<S> {
    settings: S,
    hearing: Hearing,
}

/// Route feeds of each router.
#[derive(Default)]
pub(crate) struct Hearings {
    fpm: BTreeMap<String, Heard<(Fpm, bool)>>,
    kernel: BTreeMap<String, Heard<()>>,
}

impl Hearings {
    /// Start and stop route feeds according to the running configuration. Unchanged feeds are not restarted.
    pub(crate) fn follow(&mut self, control: &Arc<Control>) {
        let config = control.config();
        let named = || config.routers.iter().filter(|router| !router.name.is_empty());
        let fpm = named().filter_map(|router| Some((router.name.as_str(), (router.fpm.clone()?, router.daemon))));
        let (control, began) = (Arc::downgrade(control), control.began);
        let routes = |name: &str| OfRouter {
            control: control.clone(),
            name: name.to_owned(),
        };
        settle(&mut self.fpm, fpm.collect(), |name, (fpm, in_namespace)| {
            let settings = Settings {
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
                ..Settings::new(name, fpm.listen, Links::Foreign, began)
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
                began,
            };
            listen(settings, Arc::new(routes(name)))
        });
    }

    /// Status of a router's FPM and kernel feeds.
    pub(crate) fn standings(&self, router: &str) -> [Option<Standing>; 2] {
        let fpm = self.fpm.get(router).map(|heard| heard.hearing.standing());
        [fpm, self.kernel.get(router).map(|heard| heard.hearing.standing())]
    }

    /// Update the kernel interface indexes of namespaces. A feed requests all routes again if its indexes have changed.
    pub(crate) fn know(&self, links: &[KernelLink]) {
        let of_router = |name: &str| {
            let own = links.iter().filter(|link| link.router == name);
            Links::Numbered(own.map(|link| (link.link, link.index)).collect())
        };
        for (name, heard) in self.fpm.iter().filter(|(_, heard)| heard.settings.1) {
            heard.hearing.set_links(of_router(name));
        }
        for (name, heard) in &self.kernel {
            heard.hearing.set_links(of_router(name));
        }
    }
}

/// Path of a router's namespace.
fn namespace(router: &str) -> PathBuf {
    Path::new("/run/netns").join(namespace_name(router))
}

/// Stop feeds that were removed or changed, and start new ones.
fn settle<S: Clone + PartialEq>(
    heard: &mut BTreeMap<String, Heard<S>>,
    wanted: BTreeMap<&str, S>,
    begin: impl Fn(&str, &S) -> Hearing,
) {
    heard.retain(|name, heard| {
        let stays = wanted.get(name.as_str()) == Some(&heard.settings);
        if !stays {
            tracing::info!("router {name}: the source of routes has changed or was removed");
            heard.hearing.forget();
        }
        stays
    });
    for (name, settings) in wanted {
        heard.entry(name.to_owned()).or_insert_with(|| Heard {
            hearing: begin(name, &settings),
            settings,
        });
    }
}
