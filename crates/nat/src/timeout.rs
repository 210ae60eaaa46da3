//! Idle timeouts of sessions by pool, protocol and port, with the defaults and minimums of RFC 5382, 4787 and 5508.

use thiserror::Error;

/// Timer class that a packet selects for its session. The session's record stores this class, which is an index into
/// [`Schedule`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct TimeoutClass(pub u8);

impl TimeoutClass {
    /// The packet does not restart the timer.
    pub const UNCHANGED: Self = Self(0);
    /// Established TCP connection.
    pub const TCP_ESTABLISHED: Self = Self(1);
    /// Partially open TCP connection.
    pub const TCP_TRANSITORY_OPEN: Self = Self(2);
    /// TCP connection that is closing or was reset.
    pub const TCP_TRANSITORY_CLOSE: Self = Self(3);
    /// Inbound TCP SYN without an answer.
    pub const TCP_INCOMING_SYN: Self = Self(4);
    /// UDP.
    pub const UDP: Self = Self(5);
    /// ICMP queries.
    pub const ICMP: Self = Self(6);
    /// Any other protocol.
    pub const OTHER: Self = Self(7);
    /// UDP to the first port of [`Timeouts::udp_by_port`]. The classes of further ports follow consecutively.
    const UDP_BY_PORT: u8 = 8;

    /// Name of the class.
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "unchanged",
            1 => "tcp-established",
            2 => "tcp-transitory-open",
            3 => "tcp-transitory-close",
            4 => "tcp-incoming-syn",
            5 => "udp",
            6 => "icmp",
            7 => "other",
            _ => "udp-by-port",
        }
    }
}

/// Maximum number of entries in [`Timeouts::udp_by_port`].
pub const UDP_PORTS: usize = 8;

/// Configured idle timeouts in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Established TCP connection: at least 7440 (RFC 5382, REQ-5).
    pub tcp_established: u32,
    /// Partially open TCP connection: 240 by default. Lower values are permitted (RFC 7857, section 2.1).
    pub tcp_transitory_open: u32,
    /// TCP connection that is closing or was reset: 240 by default. Lower values are permitted (RFC 7857, section 2.1).
    pub tcp_transitory_close: u32,
    /// Inbound TCP SYN without an answer: at least 6 (RFC 5382, REQ-4).
    pub tcp_incoming_syn: u32,
    /// UDP: at least 120, by default 300 (RFC 4787, REQ-5).
    pub udp: u32,
    /// UDP by destination port: at least 120 for ports from 1024 on (RFC 4787, REQ-5a). At most [`UDP_PORTS`] entries.
    pub udp_by_port: Vec<(u16, u32)>,
    /// ICMP queries: at least 60 (RFC 5508, REQ-2).
    pub icmp: u32,
    /// Any other protocol.
    pub other: u32,
    /// Whether inbound packets also refresh a session. Outbound packets always refresh a session (RFC 4787, REQ-6).
    pub inbound_refresh: bool,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            tcp_established: 7440,
            tcp_transitory_open: 240,
            tcp_transitory_close: 240,
            tcp_incoming_syn: 6,
            udp: 300,
            udp_by_port: Vec::new(),
            icmp: 60,
            other: 300,
            inbound_refresh: true,
        }
    }
}

/// Why timeouts are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TimeoutError {
    /// A timeout is below the minimum that an RFC requires.
    #[error("timeout {name} is {seconds} s, but the minimum is {min} s ({origin})")]
    TooShort {
        /// Name of the timeout.
        name: &'static str,
        /// Configured value in seconds.
        seconds: u32,
        /// Required minimum in seconds.
        min: u32,
        /// RFC and number of the requirement.
        origin: &'static str,
    },
    /// The UDP timeout of a port is below the minimum that RFC 4787 requires.
    #[error("the UDP timeout of port {port} is {seconds} s, but the minimum is {min} s (RFC 4787 REQ-5)")]
    PortTooShort {
        /// The destination port.
        port: u16,
        /// Configured value in seconds.
        seconds: u32,
        /// Required minimum in seconds.
        min: u32,
    },
    /// A port occurs twice.
    #[error("UDP port {port} has two timeouts")]
    PortTwice {
        /// The destination port.
        port: u16,
    },
    /// There are more than [`UDP_PORTS`] ports.
    #[error("{count} UDP ports have their own timeout, but at most 8 ports can")]
    TooManyPorts {
        /// Configured number of ports.
        count: usize,
    },
}

/// Validated timeouts, by class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    seconds: [u32; 16],
    ports: [u16; UDP_PORTS],
    count: u8,
    /// See [`Timeouts::inbound_refresh`].
    inbound_refresh: bool,
}

impl Default for Schedule {
    fn default() -> Self {
        Self::of(&Timeouts::default())
    }
}

impl Schedule {
    /// Validates the timeouts.
    pub fn new(timeouts: &Timeouts) -> Result<Self, TimeoutError> {
        let bounds = [
            ("tcp-established", timeouts.tcp_established, 7440, "RFC 5382 REQ-5"),
            (
                "tcp-transitory-open",
                timeouts.tcp_transitory_open,
                1,
                "0 ends it at once",
            ),
            (
                "tcp-transitory-close",
                timeouts.tcp_transitory_close,
                1,
                "0 ends it at once",
            ),
            ("tcp-incoming-syn", timeouts.tcp_incoming_syn, 6, "RFC 5382 REQ-4"),
            ("udp", timeouts.udp, 120, "RFC 4787 REQ-5"),
            ("icmp", timeouts.icmp, 60, "RFC 5508 REQ-2"),
            ("other", timeouts.other, 1, "0 ends it at once"),
        ];
        for (name, seconds, min, origin) in bounds {
            if seconds < min {
                return Err(TimeoutError::TooShort {
                    name,
                    seconds,
                    min,
                    origin,
                });
            }
        }
        if timeouts.udp_by_port.len() > UDP_PORTS {
            return Err(TimeoutError::TooManyPorts {
                count: timeouts.udp_by_port.len(),
            });
        }
        for (k, &(port, seconds)) in timeouts.udp_by_port.iter().enumerate() {
            let min = if port < 1024 { 1 } else { 120 };
            if seconds < min {
                return Err(TimeoutError::PortTooShort { port, seconds, min });
            }
            if timeouts.udp_by_port[..k].iter().any(|&(other, _)| other == port) {
                return Err(TimeoutError::PortTwice { port });
            }
        }
        Ok(Self::of(timeouts))
    }

    fn of(timeouts: &Timeouts) -> Self {
        let mut seconds = [0; 16];
        seconds[1..8].copy_from_slice(&[
            timeouts.tcp_established,
            timeouts.tcp_transitory_open,
            timeouts.tcp_transitory_close,
            timeouts.tcp_incoming_syn,
            timeouts.udp,
            timeouts.icmp,
            timeouts.other,
        ]);
        let mut ports = [0; UDP_PORTS];
        for (k, &(port, time)) in timeouts.udp_by_port.iter().take(UDP_PORTS).enumerate() {
            ports[k] = port;
            seconds[TimeoutClass::UDP_BY_PORT as usize + k] = time;
        }
        let count = timeouts.udp_by_port.len().min(UDP_PORTS) as u8;
        Self {
            seconds,
            ports,
            count,
            inbound_refresh: timeouts.inbound_refresh,
        }
    }

    /// Idle time in seconds after which a session of this class ends; 0 for [`TimeoutClass::UNCHANGED`].
    #[inline(always)]
    pub fn seconds(&self, class: TimeoutClass) -> u32 {
        self.seconds[(class.0 & 15) as usize]
    }

    /// Timeout class of UDP to a destination port. The class is determined once for each session.
    #[inline]
    pub fn udp(&self, destination_port: u16) -> TimeoutClass {
        let known = self
            .ports
            .iter()
            .take(self.count as usize)
            .position(|&port| port == destination_port);
        known.map_or(TimeoutClass::UDP, |k| TimeoutClass(TimeoutClass::UDP_BY_PORT + k as u8))
    }

    /// Whether a packet refreshes its session. `outbound` is the result of [`crate::Decision::outbound`].
    #[inline(always)]
    pub fn refreshes(&self, outbound: bool) -> bool {
        outbound | self.inbound_refresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Timeouts)) -> Result<Schedule, TimeoutError> {
        let mut timeouts = Timeouts::default();
        change(&mut timeouts);
        Schedule::new(&timeouts)
    }

    #[test]
    fn rfc5382_req5_tcp_defaults_hold_and_shorter_is_refused() {
        let schedule = Schedule::default();
        assert_eq!(7440, schedule.seconds(TimeoutClass::TCP_ESTABLISHED));
        assert_eq!(240, schedule.seconds(TimeoutClass::TCP_TRANSITORY_OPEN));
        assert_eq!(240, schedule.seconds(TimeoutClass::TCP_TRANSITORY_CLOSE));
        let expected = TimeoutError::TooShort {
            name: "tcp-established",
            seconds: 7439,
            min: 7440,
            origin: "RFC 5382 REQ-5",
        };
        assert_eq!(Err(expected), with(|t| t.tcp_established = 7439));
    }

    #[test]
    fn rfc7857_section2_1_transitory_below_four_minutes_is_allowed() {
        assert!(with(|t| (t.tcp_transitory_open, t.tcp_transitory_close) = (30, 10)).is_ok());
        assert!(with(|t| t.tcp_transitory_open = 0).is_err());
    }

    #[test]
    fn rfc5382_req4_incoming_syn_below_six_seconds_is_refused() {
        assert!(with(|t| t.tcp_incoming_syn = 5).is_err());
    }

    #[test]
    fn rfc4787_req5_udp_below_two_minutes_is_refused() {
        assert_eq!(300, Schedule::default().seconds(TimeoutClass::UDP));
        assert!(with(|t| t.udp = 119).is_err());
        assert!(with(|t| t.udp = 120).is_ok());
    }

    #[test]
    fn rfc4787_req5a_well_known_port_may_be_shorter() {
        let schedule = with(|t| t.udp_by_port = vec![(53, 15), (4500, 600)]).unwrap();
        assert_eq!(15, schedule.seconds(schedule.udp(53)));
        assert_eq!(600, schedule.seconds(schedule.udp(4500)));
        assert_eq!(300, schedule.seconds(schedule.udp(0)));
        let expected = TimeoutError::PortTooShort {
            port: 5353,
            seconds: 15,
            min: 120,
        };
        assert_eq!(Err(expected), with(|t| t.udp_by_port = vec![(5353, 15)]));
    }

    #[test]
    fn udp_by_port_twice_or_too_many_is_refused() {
        assert_eq!(
            Err(TimeoutError::PortTwice { port: 53 }),
            with(|t| t.udp_by_port = vec![(53, 15), (53, 20)])
        );
        let nine = (0..9).map(|port| (port, 15)).collect();
        assert_eq!(
            Err(TimeoutError::TooManyPorts { count: 9 }),
            with(|t| t.udp_by_port = nine)
        );
    }

    #[test]
    fn rfc5508_req2_icmp_below_a_minute_is_refused() {
        assert_eq!(60, Schedule::default().seconds(TimeoutClass::ICMP));
        assert!(with(|t| t.icmp = 59).is_err());
    }

    #[test]
    fn rfc4787_req6_outbound_refreshes_always_inbound_by_switch() {
        assert!(Schedule::default().refreshes(false));
        let strict = with(|t| t.inbound_refresh = false).unwrap();
        assert!(strict.refreshes(true));
        assert!(!strict.refreshes(false));
    }
}
