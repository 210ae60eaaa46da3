//! The FPM servers of the routers that ask for one, as configurations come and go.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use sluice_config::schema::Fpm;
use sluice_route::RouterIndex;
use sluice_route::feed::Links;
use sluice_route::rib::Rib;

use super::{Hearing, Routes, Settings, serve};
use crate::control::Control;

/// The routes of a router of the plane, by its name.
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
        let routers = &plane.policy().routers;
        let number = routers.iter().position(|router| router.name == self.name);
        number.is_some_and(|number| plane.change_routes(number as RouterIndex, change))
    }
}

/// The servers, by router.
#[derive(Default)]
pub(crate) struct Hearings(BTreeMap<String, (Fpm, Hearing)>);

impl Hearings {
    /// Serve where the configuration that runs asks for it, and nowhere else. A server whose settings stay goes on.
    pub(crate) fn follow(&mut self, control: &Arc<Control>) {
        let config = control.config();
        let asking = config.routers.iter();
        let wanted: BTreeMap<&str, &Fpm> = asking
            .filter_map(|router| Some((router.name.as_str(), router.fpm.as_ref()?)))
            .collect();
        self.0.retain(|name, (fpm, hearing)| {
            let stays = wanted.get(name.as_str()) == Some(&&*fpm);
            if !stays {
                tracing::info!("router {name}: no longer listens to FPM at {}", fpm.listen);
                hearing.forget();
            }
            stays
        });
        for (name, fpm) in wanted {
            let (control, name) = (Arc::downgrade(control), name.to_owned());
            self.0.entry(name.clone()).or_insert_with(|| {
                let began = control
                    .upgrade()
                    .map_or_else(std::time::Instant::now, |control| control.began);
                let settings = Settings {
                    grace: fpm.grace.duration(),
                    ..Settings::new(name.clone(), fpm.listen, Links::Foreign, began)
                };
                (fpm.clone(), serve(settings, Arc::new(OfRouter { control, name })))
            });
        }
    }
}
