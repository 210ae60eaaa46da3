//! Connects the subscriber service with the workers' queues, the routers' host stacks and the API.

use std::sync::{Arc, OnceLock, Weak};

use sluice_config::Config;
use sluice_engine::snapshot::Snapshot;
use sluice_engine::worker::request::WorkerHandle;
use sluice_nat::Secret;
use sluice_nat::sites::{SiteWriter, is_site, site};
use sluice_wire::{Context, Mac};

use crate::DaemonError;
use crate::host::Hosts;
use crate::lowering::{self, PoolNames};
use crate::subscribers::service::{Count, Parameters};
use crate::subscribers::{Inbox, SubscriberQueues, Subscribers};

/// The running subscriber service.
pub struct SitesService {
    subscribers: Subscribers,
    inbox: Arc<Inbox>,
    /// Host stacks of routers, set after the host stacks have been created. The host stacks outlive the service's
    /// thread.
    hosts: Arc<OnceLock<Weak<Hosts>>>,
    macs: Vec<Mac>,
    secret: Secret,
}

impl SitesService {
    /// Start the service. The service writes leases to the table of `writer`.
    ///
    /// # Errors
    /// No thread or file descriptor is available.
    pub fn start(
        parameters: Parameters,
        writer: SiteWriter,
        handles: &mut [WorkerHandle],
    ) -> Result<Self, DaemonError> {
        let (inbox, receiver) = Inbox::new(&parameters)?;
        let hosts = Arc::new(OnceLock::<Weak<Hosts>>::new());
        let port = hosts.clone();
        let queues = SubscriberQueues {
            to_subscribers: handles
                .iter_mut()
                .filter_map(|handle| handle.to_subscribers.take())
                .collect(),
            from_subscribers: handles.iter_mut().find_map(|handle| handle.from_subscribers.take()),
            from_hosts: Some(receiver),
            to_hosts: Some(Box::new(move |interface, frame| {
                let hosts = port.get().and_then(Weak::upgrade);
                hosts.is_some_and(|hosts| hosts.deliver(interface, frame))
            })),
        };
        let (macs, secret) = (parameters.macs.clone(), parameters.secret);
        Ok(Self {
            subscribers: Subscribers::start(Arc::new(parameters), Box::new(writer), queues)?,
            inbox: Arc::new(inbox),
            hosts,
            macs,
            secret,
        })
    }

    /// Give the service access to the routers' host stacks, in which the servers of private leases run.
    pub fn live_with(&self, hosts: &Arc<Hosts>) {
        let _ = self.hosts.set(Arc::downgrade(hosts));
        let inbox = self.inbox.clone();
        hosts.divert(Box::new(move |interface, frame| inbox.takes(interface, frame)));
    }

    /// Apply a different configuration with the same sites.
    pub fn follow(&self, config: &Config, policy: &Snapshot, pools: &PoolNames) {
        let parameters = lowering::subscribers(config, &policy.interfaces, pools, self.macs.clone(), self.secret);
        if let Some(parameters) = parameters {
            self.inbox.follow(&parameters);
            self.subscribers.follow(parameters);
        }
    }

    /// The service.
    pub fn service(&self) -> &Subscribers {
        &self.subscribers
    }

    /// Warnings for the operator.
    pub fn warnings(&self) -> Vec<String> {
        let service = &self.subscribers;
        let panics = service.with(|service| service.counts().of(Count::Panics));
        let mut warnings = Vec::new();
        if panics > 0 {
            warnings.push(format!(
                "the service for subscribers' sites failed {panics} times because of a bug and was restarted"
            ));
        }
        let servers = service.with(|service| service.parameters().subscribers.servers.clone());
        for (place, server) in servers.iter().enumerate() {
            let Some(status) = service.status(place) else {
                continue;
            };
            match status.error {
                Some(error) => warnings.push(error),
                None if !status.there && status.looks > 0 => warnings.push(format!(
                    "the lease file {} does not exist, so no terminal has a lease of {}",
                    server.leases.display(),
                    server.name
                )),
                None => {}
            }
        }
        warnings
    }

    /// Stop the service and its thread.
    pub fn stop(&self) {
        self.subscribers.stop();
    }
}

/// Name of the site that a context identifies. `None` if the context belongs to no site.
pub(crate) fn site_name(config: &Config, context: Context) -> Option<String> {
    let subscribers = config.subscribers.as_ref().filter(|_| is_site(context))?;
    Some(subscribers.name(site(context))).filter(|name| !name.is_empty())
}

/// Context of the site with a name.
pub(crate) fn context_of(config: &Config, name: &str) -> Option<Context> {
    let subscribers = config.subscribers.as_ref()?;
    let site = subscribers.find(name)?;
    Some(lowering::site_context(subscribers.group_of(site)?, site))
}
