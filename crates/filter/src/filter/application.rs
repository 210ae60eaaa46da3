//! Rules about the application of a session, which is known after some of its packets: they are asked one by one, and only
//! where it is known.

/// The application of a session: numbers of whoever found it out, 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionApplication {
    /// What carries it.
    pub master: u16,
    /// What it is.
    pub application: u16,
    /// Whether that is all that will be known.
    pub is_all: bool,
}

/// An application as a rule names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ApplicationMatch {
    /// What has to carry it; where nothing is said, what is named may be what carries, too.
    pub master: Option<u16>,
    /// What is named; 0 stands for what nobody knows.
    pub application: u16,
}

impl ApplicationMatch {
    /// Whether a session's application is the one that is named.
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

/// Whether a rule that names these is about a session.
pub(super) fn any_matches(named: &[ApplicationMatch], known: Option<SessionApplication>) -> bool {
    named.is_empty() || known.is_some_and(|known| named.iter().any(|named| named.matches(known)))
}
