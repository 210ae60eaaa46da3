//! Conditions on the application of a session. The application is identified only after several packets of the session,
//! so rules with such conditions are evaluated one by one, and only for sessions with an identified application.

/// The identified application of a session. The numbers are those of nDPI; 0 means that nothing was identified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionApplication {
    /// Number of the protocol that carries the application.
    pub master: u16,
    /// Number of the application.
    pub application: u16,
    /// Whether the identification is complete.
    pub is_all: bool,
}

/// Condition of a rule on the application of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ApplicationMatch {
    /// Protocol that must carry the application. If `None`, the application may itself be the carrying protocol.
    pub master: Option<u16>,
    /// Number of the application; 0 means an unknown application.
    pub application: u16,
}

impl ApplicationMatch {
    /// Whether a session's application satisfies the condition.
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

/// Whether a session's application satisfies any of a rule's conditions.
pub(super) fn any_matches(named: &[ApplicationMatch], known: Option<SessionApplication>) -> bool {
    named.is_empty() || known.is_some_and(|known| named.iter().any(|named| named.matches(known)))
}
