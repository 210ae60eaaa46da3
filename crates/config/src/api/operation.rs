//! The operations of the control API, each declared once in [`operations!`](crate::operations): the daemon's routes, the
//! client's requests, the commands of `sluice show` and `docs/api.md` derive from this table.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Page;

/// How an operation is requested, and the form of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// `GET`: the request is the query string, the response a single value.
    Get,
    /// `GET`: the response is a complete list.
    List,
    /// `GET`: the response is a page of a list; the query string also contains a [`Position`](super::Position).
    Pages,
    /// `POST`: the request is the body, the response a single value.
    Post,
    /// `POST`: the request is the body, the response is streamed.
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
    /// Help text in lines; the first line is the summary.
    pub help: &'static [&'static str],
    /// Name of the request type.
    pub request: &'static str,
    /// Name of the response type; of a list, that of its rows.
    pub answer: &'static str,
    /// Command of `sluice show` that prints the response.
    pub command: Option<&'static str>,
}

impl Description {
    /// First line of the help text.
    pub fn summary(&self) -> &'static str {
        self.help.first().map_or("", |line| line.trim())
    }

    /// Help text with its paragraphs, if it has more than the summary.
    pub fn paragraphs(&self) -> Option<String> {
        let lines: Vec<_> = self.help.iter().map(|line| line.trim()).collect();
        let paragraphs = lines.split(|line| line.is_empty());
        let paragraphs: Vec<_> = paragraphs.map(|lines| lines.join(" ")).collect();
        (paragraphs.len() > 1).then(|| paragraphs.join("\n\n"))
    }
}

/// Calls a macro with the table of operations. A line contains the [`OperationKind`] in small letters, the name in
/// [`operation`](crate::api::operation), the path, and the types of the request and of the response or the rows of a
/// list. The command of `sluice show` follows: `table` if it prints only the columns of the rows, `text` if
/// `crates/sluice` implements its output, `several` if it makes several requests.
///
/// Paths begin with the version of the API. The meaning of a version never changes.
#[macro_export]
macro_rules! operations {
    ($then:ident) => {
        $then! {
            /// State of the process
            get Status "/v1/status" Unfiltered => Status;
            /// Interfaces: device, driver, link, addresses, what went through
            list Interfaces "/v1/interfaces" RouterFilter => Interface, text "interfaces";
            /// Sessions, both directions of each
            pages Sessions "/v1/sessions" SessionFilter => Session, text "sessions";
            /// Remove sessions that match all filters given; their hosts must connect anew
            post ClearSessions "/v1/sessions/clear" SessionFilter => Cleared;
            /// Translation: how full pools and tables are, who uses them most, and what its rules decided
            get Nat "/v1/nat" NatRequest => Nat, text "nat";
            /// The packet filter: its rules, what they have counted, and which one decides about a packet
            get Filter "/v1/filter" FilterRequest => PacketFilter, text "filter";
            /// Insert rules of the filter
            post InsertRules "/v1/filter/insert" InsertRequest => EditAnswer;
            /// Remove rules of the filter
            post RemoveRules "/v1/filter/remove" RemoveRequest => EditAnswer;
            /// Sets of the filter, or the elements of one
            get Sets "/v1/sets" SetFilter => Sets;
            /// Add elements to a set, or prolong their time
            post AddToSet "/v1/sets/add" SetRequest => SetAnswer;
            /// Remove elements from a set
            post RemoveFromSet "/v1/sets/remove" SetRequest => SetAnswer;
            /// Remove all elements from a set
            post FlushSet "/v1/sets/flush" SetRequest => SetAnswer;
            /// Outside ports and who has them, asked by either side
            ///
            /// Three lists: shares, what inside addresses of deterministic pools have by computation, in use or not (RFC 7422;
            /// only where an address is named); blocks of ports that subscribers have; mappings that sessions use. With
            /// --config the shares are those of a file: the configuration of a day in the past answers who had a port then.
            pages Mappings "/v1/mappings" MappingFilter => Mapping, several "mapping";
            /// Remove mappings that match all filters given, with their sessions; their hosts get others
            post ClearMappings "/v1/mappings/clear" MappingFilter => Cleared;
            /// Blocks of ports that subscribers have
            pages PortBlocks "/v1/port-blocks" MappingFilter => PortBlock;
            /// Ports that inside addresses have by computation
            pages Shares "/v1/shares" MappingFilter => Share;
            /// Subscribers that have sessions: paired address, blocks, ports and sessions
            pages Subscribers "/v1/subscribers" SubscriberFilter => Subscriber, text "subscribers";
            /// Sites of subscribers: public address and its lease, virtual MAC, terminals
            pages Sites "/v1/sites" SiteFilter => Site, table "sites";
            /// Private addresses of sites' terminals, as the DHCP servers' files have them
            ///
            /// The state says what is done with a terminal's packets: active, they are translated; waiting, its site has no
            /// public address yet; outside, the lease is in no site; conflict, its site can't have the address; full, there are
            /// as many terminals as may be.
            pages Leases "/v1/leases" LeaseFilter => Lease, table "leases";
            /// DHCP of sites: lease files, relays and clients, with what has happened to them
            ///
            /// JSON has counters of what has not happened, too. The guide of subscribers explains each.
            get Dhcp "/v1/dhcp" Unfiltered => DhcpStatus, text "dhcp";
            /// Virtual routers: interfaces, routes, neighbours, limits, what went through
            list Routers "/v1/routers" RouterFilter => Router, table "routers";
            /// The graph of nodes that packets pass, and the chains of routers with what their steps have counted
            get Graph "/v1/graph" RouterFilter => Graph, text "graph";
            /// Routes that are used: connected, static and learned ones, a line for each way
            ///
            /// With an address, the route that packets to it take: the longest match, with its next hops.
            pages Routes "/v1/routes" RouteFilter => Route, text "routes";
            /// Neighbours: Ethernet addresses of the hosts on the links
            list Neighbours "/v1/neighbours" NeighbourFilter => Neighbour, table "neighbours";
            /// Forget neighbours that match all filters given; they are asked for again
            post ClearNeighbours "/v1/neighbours/clear" NeighbourFilter => Cleared;
            /// Uplinks: which ones new flows take, and what their checks say
            list Uplinks "/v1/uplinks" Unfiltered => Uplink, table "uplinks";
            /// Workers: core, load, packets a second
            list Cores "/v1/cores" Unfiltered => Core, table "cores";
            /// Bridges: links, what passed, and what passed although not valid or not inspected
            list Bridges "/v1/bridges" Unfiltered => Bridge, text "bridges";
            /// Rules of inspection that matched, the last ones
            list Alerts "/v1/alerts" AlertRequest => Alert, table "alerts";
            /// Applications: sessions of each, and how many are looked at for it
            get Applications "/v1/applications" Unfiltered => ApplicationsStatus, text "applications";
            /// Inspection: rules in force and refused, what was looked at
            get Inspection "/v1/inspection" Unfiltered => InspectionStatus, text "inspection";
            /// Dropped packets by reason, and what each reason means
            list Drops "/v1/drops" Unfiltered => Drop, text "drops";
            /// What every node does with the next packets that match
            stream Trace "/v1/trace" TraceRequest => TraceRecord;
            /// Packets of an interface, or dropped ones
            stream Capture "/v1/capture" CaptureRequest => Pcapng;
            /// Take over another configuration
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
        let paths: HashSet<_> = ALL.iter().map(|operation| operation.path).collect();
        assert_eq!(ALL.len(), paths.len());
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
