//! The operations of the control API, declared in the single table [`operations!`](crate::operations). The daemon's routes, the
//! client's requests, the commands of `sluice show` and `docs/api.md` derive from this table.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Page;

/// HTTP method of an operation, and form of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// `GET`: the request is the query string, the response is a single value.
    Get,
    /// `GET`: the request is the query string, the response is a complete list.
    List,
    /// `GET`: the response is a page of a list. The query string also contains a [`Position`](super::Position).
    Pages,
    /// `POST`: the request is the body, the response is a single value.
    Post,
    /// `POST`: the request is the body, the response is a stream.
    Stream,
}

impl OperationKind {
    /// HTTP method.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Get | Self::List | Self::Pages => "GET",
            Self::Post | Self::Stream => "POST",
        }
    }
}

/// An operation of the API.
pub trait Operation: Send + Sync + 'static {
    /// Description for documents and help.
    const DESCRIPTION: Description;
    /// Type of the request.
    type Request: Serialize + DeserializeOwned + Send;
}

/// An operation with a single response.
pub trait Answered: Operation {
    /// Type of the response.
    type Answer: Serialize + DeserializeOwned + Send;
}

/// An operation that lists entries.
pub trait Listed: Answered<Answer = Page<Self::Item>> {
    /// Type of an entry.
    type Item: Serialize + DeserializeOwned + Send;
}

/// Description of an operation for documents, help and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Kind of the operation.
    pub kind: OperationKind,
    /// Path of the operation.
    pub path: &'static str,
    /// Help text as lines. The first line is the summary.
    pub help: &'static [&'static str],
    /// Name of the request type.
    pub request: &'static str,
    /// Name of the response type. For a list, the name of the row type.
    pub answer: &'static str,
    /// Command of `sluice show` that prints the response.
    pub command: Option<&'static str>,
}

impl Description {
    /// First line of the help text.
    pub fn summary(&self) -> &'static str {
        self.help.first().map_or("", |line| line.trim())
    }

    /// Help text with its paragraphs. `None` if the help text consists only of the summary.
    pub fn paragraphs(&self) -> Option<String> {
        let lines: Vec<_> = self.help.iter().map(|line| line.trim()).collect();
        let paragraphs = lines.split(|line| line.is_empty());
        let paragraphs: Vec<_> = paragraphs.map(|lines| lines.join(" ")).collect();
        (paragraphs.len() > 1).then(|| paragraphs.join("\n\n"))
    }
}

/// Calls a macro with the table of operations. A line contains the [`OperationKind`] in lower case, the name in
/// [`operation`](crate::api::operation), the path, the request type, and the type of the response or of a list's rows.
/// The command of `sluice show` follows: `table` for a command that prints only the columns of the rows, `text` for an
/// output that `crates/sluice` implements, `several` for a command with several requests.
///
/// Paths begin with the version of the API. The meaning of a path in a given version never changes.
#[macro_export]
macro_rules! operations {
    ($then:ident) => {
        $then! {
            /// State of the daemon
            get Status "/v1/status" Unfiltered => Status;
            /// Interfaces: device, driver, link state, addresses, traffic
            list Interfaces "/v1/interfaces" RouterFilter => Interface, text "interfaces";
            /// Sessions with both directions
            pages Sessions "/v1/sessions" SessionFilter => Session, text "sessions";
            /// Remove sessions that match all given filters; their hosts have to connect again
            post ClearSessions "/v1/sessions/clear" SessionFilter => Cleared;
            /// NAT: usage of pools and tables, heaviest subscribers, counters of rules
            get Nat "/v1/nat" NatRequest => Nat, text "nat";
            /// Packet filter: rules, their counters, and the rule that matches a given packet
            get Filter "/v1/filter" FilterRequest => PacketFilter, text "filter";
            /// Insert filter rules
            post InsertRules "/v1/filter/insert" InsertRequest => EditAnswer;
            /// Remove filter rules
            post RemoveRules "/v1/filter/remove" RemoveRequest => EditAnswer;
            /// Filter sets, or the elements of one set
            get Sets "/v1/sets" SetFilter => Sets;
            /// Add elements to a set, or renew their timeout
            post AddToSet "/v1/sets/add" SetRequest => SetAnswer;
            /// Remove elements from a set
            post RemoveFromSet "/v1/sets/remove" SetRequest => SetAnswer;
            /// Remove all elements from a set
            post FlushSet "/v1/sets/flush" SetRequest => SetAnswer;
            /// Outside ports and the inside hosts that use them, searched by inside or outside address
            ///
            /// Prints three lists: the computed ports of inside addresses in deterministic pools (RFC 7422; only with an address), the
            /// port blocks of subscribers, and the mappings of sessions. With --config, the ports are computed from a configuration
            /// file. An old configuration shows which subscriber had a port when this configuration was in use.
            pages Mappings "/v1/mappings" MappingFilter => Mapping, several "mapping";
            /// Remove mappings that match all given filters, and their sessions; the hosts get new mappings
            post ClearMappings "/v1/mappings/clear" MappingFilter => Cleared;
            /// Port blocks of subscribers
            pages PortBlocks "/v1/port-blocks" MappingFilter => PortBlock;
            /// Computed ports of inside addresses in deterministic pools
            pages Shares "/v1/shares" MappingFilter => Share;
            /// Subscribers with sessions: paired address, port blocks, ports and sessions
            pages Subscribers "/v1/subscribers" SubscriberFilter => Subscriber, text "subscribers";
            /// Subscriber sites: public address and its lease, virtual MAC, terminals
            pages Sites "/v1/sites" SiteFilter => Site, table "sites";
            /// Private addresses of the terminals of sites, from the lease files of the DHCP servers
            ///
            /// The state of a terminal determines how its packets are treated. active: the packets are translated. waiting: the site has
            /// no public address yet. outside: the leased address belongs to no site. conflict: another terminal has the address. full:
            /// the maximum number of terminals is reached.
            pages Leases "/v1/leases" LeaseFilter => Lease, table "leases";
            /// DHCP of sites: lease files, relays and clients with their counters
            ///
            /// With --json, counters that are zero are included. docs/subscribers.md explains each counter.
            get Dhcp "/v1/dhcp" Unfiltered => DhcpStatus, text "dhcp";
            /// Virtual routers: interfaces, routes, neighbours, limits, traffic
            list Routers "/v1/routers" RouterFilter => Router, table "routers";
            /// Packet processing graph: nodes with their counters, and the chains of virtual routers
            get Graph "/v1/graph" RouterFilter => Graph, text "graph";
            /// Active routes: connected, static and learned, with a line for each next hop
            ///
            /// With an address, shows only the route to this address: the longest match with its next hops.
            pages Routes "/v1/routes" RouteFilter => Route, text "routes";
            /// Neighbours: MAC addresses of hosts on the links
            list Neighbours "/v1/neighbours" NeighbourFilter => Neighbour, table "neighbours";
            /// Remove neighbours that match all given filters; they are resolved again
            post ClearNeighbours "/v1/neighbours/clear" NeighbourFilter => Cleared;
            /// Uplinks: whether new flows use them, and results of their health checks
            list Uplinks "/v1/uplinks" Unfiltered => Uplink, table "uplinks";
            /// Workers: core, load, packets per second
            list Cores "/v1/cores" Unfiltered => Core, table "cores";
            /// Bridges: links, traffic, and packets that passed although they are invalid or not inspected
            list Bridges "/v1/bridges" Unfiltered => Bridge, text "bridges";
            /// Latest alerts of inspection rules
            list Alerts "/v1/alerts" AlertRequest => Alert, table "alerts";
            /// Applications: sessions of each application, and state of the identification
            get Applications "/v1/applications" Unfiltered => ApplicationsStatus, text "applications";
            /// Inspection: loaded and refused rules, inspected traffic
            get Inspection "/v1/inspection" Unfiltered => InspectionStatus, text "inspection";
            /// Dropped packets by reason, with the meaning of each reason
            list Drops "/v1/drops" Unfiltered => Drop, text "drops";
            /// Path of the next matching packets through the nodes of the graph
            stream Trace "/v1/trace" TraceRequest => TraceRecord;
            /// Packets of an interface, or dropped packets
            stream Capture "/v1/capture" CaptureRequest => Pcapng;
            /// Change the running daemon to another configuration
            post Apply "/v1/apply" ApplyRequest => ApplyAnswer;
        }
    };
}

macro_rules! traits {
    (list $name:ident $answer:ident) => {
        traits!(pages $name $answer);
    };
    (pages $name:ident $answer:ident) => {
        impl Answered for $name {
            type Answer = Page<super::$answer>;
        }

        impl Listed for $name {
            type Item = super::$answer;
        }
    };
    (post $name:ident $answer:ident) => {
        traits!(get $name $answer);
    };
    (get $name:ident $answer:ident) => {
        impl Answered for $name {
            type Answer = super::$answer;
        }
    };
    (stream $name:ident $answer:ident) => {};
}

macro_rules! kind {
    (get) => {
        OperationKind::Get
    };
    (list) => {
        OperationKind::List
    };
    (pages) => {
        OperationKind::Pages
    };
    (post) => {
        OperationKind::Post
    };
    (stream) => {
        OperationKind::Stream
    };
}

macro_rules! command {
    () => {
        None
    };
    ($command:literal) => {
        Some($command)
    };
}

macro_rules! declare {
    ($(
        $(#[doc = $help:literal])+
        $kind:ident $name:ident $path:literal $request:ident => $answer:ident $(, $printed:ident $command:literal)?;
    )*) => {
        $(
            $(#[doc = $help])+
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl $name {
                /// Path of the operation.
                pub const PATH: &str = $path;
            }

            impl Operation for $name {
                const DESCRIPTION: Description = Description {
                    kind: kind!($kind),
                    path: $path,
                    help: &[$($help),+],
                    request: stringify!($request),
                    answer: stringify!($answer),
                    command: command!($($command)?),
                };
                type Request = super::$request;
            }

            traits!($kind $name $answer);
        )*

        /// All operations.
        pub const ALL: &[Description] = &[$($name::DESCRIPTION),*];
    };
}

operations!(declare);

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::api::{self, Row};

    #[test]
    fn every_operation_has_a_path_of_its_own_and_help() {
        let operation_paths: HashSet<_> = ALL.iter().map(|operation| operation.path).collect();
        assert_eq!(ALL.len(), operation_paths.len());
        for operation in ALL {
            let Description { path, kind, .. } = operation;
            assert!(path.starts_with("/v1/"), "{path}");
            assert!(operation.summary().len() > 8, "{path} has no help");
            assert!(!operation.summary().ends_with('.'), "{path}");
            assert!(
                kind.method() == "GET" || operation.command.is_none(),
                "{path} changes something"
            );
        }
    }

    fn titles<T: Row>() {
        let titles: Vec<_> = T::COLUMNS.iter().map(|column| column.title).collect();
        assert!(titles.len() > 1);
        assert_eq!(titles.len(), titles.iter().collect::<HashSet<_>>().len(), "{titles:?}");
        for title in &titles {
            assert_eq!(title.to_uppercase(), *title, "{titles:?}");
        }
    }

    macro_rules! check_titles {
        ($(
            $(#[doc = $help:literal])+
            $kind:ident $name:ident $path:literal $request:ident => $answer:ident $(, $printed:ident $command:literal)?;
        )*) => {
            $($(check_titles!($printed $answer $command);)?)*
        };
        (table $answer:ident $command:literal) => {
            titles::<super::super::$answer>()
        };
        ($printed:ident $answer:ident $command:literal) => {};
    }

    #[test]
    fn every_table_has_columns_with_titles_of_their_own() {
        operations!(check_titles);
        titles::<api::Interface>();
        titles::<api::Session>();
        titles::<api::Route>();
        titles::<api::Drop>();
        titles::<api::Share>();
        titles::<api::PortBlock>();
        titles::<api::Mapping>();
        titles::<api::Subscriber>();
        titles::<api::Pool>();
        titles::<api::TableUse>();
        titles::<api::Rule>();
        titles::<api::RuleHost>();
        titles::<api::FilterRule>();
        titles::<api::Set>();
    }
}
