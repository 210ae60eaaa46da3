//! Conditions on the application of a session, which is known only after some of its packets: rules with such conditions
//! are evaluated one by one, and only for sessions with an identified application.

/// The application of a session, in numbers of the application identification; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionApplication {
    /// Protocol that carries the application.
    pub master: u16,
    /// The application.
    pub application: u16,
    /// Whether the result is final.
    pub is_all: bool,
}

/// An application that a rule names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ApplicationMatch {
    /// Protocol that must carry the application. `None`: the named application may be the carrier itself, too.
    pub master: Option<u16>,
    /// The named application; 0 stands for an unknown application.
    pub application: u16,
}

impl ApplicationMatch {
    /// Whether the application of a session matches.
    pub fn matches(self, known: SessionApplication) -> bool {
        let SessionApplication {
            master, application, ..
        } = known;
        match self.master {
            Some(named) => named == master && self.application == application,
            None if self.application == 0 => (master, application) == (0, 0),
            None => self.application == master || self.application == application,
        }
    }
}

/// Whether a rule with these applications matches a session.
pub(super) fn any_matches(named: &[ApplicationMatch], known: Option<SessionApplication>) -> bool {
    named.is_empty() || known.is_some_and(|known| named.iter().any(|named| named.matches(known)))
}
