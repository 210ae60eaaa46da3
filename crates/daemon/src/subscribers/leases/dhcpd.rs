//! Parses the statements of ISC dhcpd's `dhcpd.leases`; see dhcpd.leases(5).

use super::fault::{Fault, Reason};
use super::lines::MAX_LINE_LENGTH;
use super::text::{address, hardware, octets, parse};
use super::words::{Word, Words, unquoted};
use super::{Entry, Expiry, Lease, Lost, RelayInformation, date};

/// Statements other than IPv4 leases.
const OTHERS: [&[u8]; 17] = [
    b"authoring-byte-order",
    b"class",
    b"default-duid",
    b"dns-zone",
    b"failover",
    b"group",
    b"host",
    b"ia-na",
    b"ia-pd",
    b"ia-ta",
    b"key",
    b"option",
    b"server-duid",
    b"shared-network",
    b"subclass",
    b"subgroup",
    b"zone",
];

/// Assembles statements from lines.
#[derive(Debug, Default)]
pub struct Dhcpd {
    /// Text of the incomplete statement. Empty if the statement is faulty.
    statement: Vec<u8>,
    /// Line at which the incomplete statement began. 0 if no statement is incomplete.
    start_line: u64,
    /// Number of open braces.
    depth: u64,
    /// Why the statement is skipped.
    damage: Option<Reason>,
}

impl Dhcpd {
    /// Line at which the incomplete statement began.
    pub fn incomplete_line(&self) -> Option<u64> {
        (self.start_line != 0).then_some(self.start_line)
    }

    /// Add a line. `None` means a line that is too long.
    pub fn line(&mut self, number: u64, line: Option<&[u8]>, out: &mut Vec<Result<Entry, Fault>>) {
        let Some(mut line) = line else {
            self.start(number);
            self.spoil(Reason::TooLong);
            return;
        };
        // Only a lease statement begins with the word `lease`, so the previous statement was never closed.
        if line.starts_with(b"lease ") && self.start_line != 0 {
            self.spoil(Reason::Unfinished);
            self.end(out);
        }
        while let Some(length) = self.measure(number, line) {
            self.keep(&line[..length]);
            self.end(out);
            line = &line[length..];
        }
        if self.start_line != 0 {
            self.keep(line);
            self.keep(b"\n");
        }
    }

    /// If the statement ends in this line, returns the number of bytes of the line that belong to the statement.
    /// Returns `None` if the statement does not end in this line.
    fn measure(&mut self, number: u64, line: &[u8]) -> Option<usize> {
        let mut words = Words::of(line);
        while let Some(word) = words.next() {
            self.start(number);
            match word {
                Word::Begin => self.depth += 1,
                Word::End if self.depth == 0 => {
                    self.spoil(Reason::Brace);
                    return Some(words.at);
                }
                Word::End => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Some(words.at);
                    }
                }
                Word::Semicolon if self.depth == 0 => return Some(words.at),
                Word::Open => self.spoil(Reason::Quote),
                Word::Plain(_) | Word::Quoted(_) | Word::Semicolon => {}
            }
        }
        None
    }

    fn start(&mut self, number: u64) {
        if self.start_line == 0 {
            self.start_line = number;
        }
    }

    fn spoil(&mut self, reason: Reason) {
        self.damage.get_or_insert(reason);
        self.statement = Vec::new();
    }

    fn keep(&mut self, text: &[u8]) {
        if self.statement.len() + text.len() > MAX_LINE_LENGTH {
            self.spoil(Reason::TooLong);
        }
        if self.damage.is_none() {
            self.statement.extend_from_slice(text);
        }
    }

    fn end(&mut self, out: &mut Vec<Result<Entry, Fault>>) {
        let read = match self.damage.take() {
            Some(reason) => Err(reason),
            None => statement(&self.statement),
        };
        let line = self.start_line;
        out.extend(read.map_err(|reason| Fault { line, reason }).transpose());
        self.statement.clear();
        (self.start_line, self.depth) = (0, 0);
    }
}

fn statement(text: &[u8]) -> Result<Option<Entry>, Reason> {
    let mut words = Words::of(text);
    match words.next() {
        Some(Word::Plain(b"lease")) => {}
        Some(Word::Plain(other)) if OTHERS.contains(&other) => return Ok(None),
        Some(Word::Semicolon) => return Ok(None),
        _ => return Err(Reason::Statement),
    }
    let address = match words.next() {
        Some(Word::Plain(text)) => address(text).ok_or(Reason::Address)?,
        _ => return Err(Reason::Address),
    };
    if words.next() != Some(Word::Begin) {
        return Err(Reason::Statement);
    }
    let mut statements = LeaseStatements::default();
    let (mut own, mut depth) = (Vec::with_capacity(8), 0_u64);
    for word in words {
        match word {
            Word::Begin => depth += 1,
            // The closing brace of the lease statement.
            Word::End if depth == 0 => break,
            Word::End => depth -= 1,
            Word::Semicolon | Word::Open => {}
            Word::Plain(_) | Word::Quoted(_) => {
                if depth == 0 {
                    own.push(word);
                }
                continue;
            }
        }
        if depth == 0 {
            statements.add(&own)?;
            own.clear();
        }
    }
    // The last statement lacks its semicolon.
    if !own.is_empty() {
        return Err(Reason::Statement);
    }
    statements.entry(address)
}

/// Values of a lease's statements.
#[derive(Default)]
struct LeaseStatements<'a> {
    starts: Option<Expiry>,
    ends: Option<Expiry>,
    last_transaction: Option<Expiry>,
    state: Option<&'a [u8]>,
    hardware: Option<sluice_wire::Mac>,
    client_id: Option<Vec<u8>>,
    circuit: Option<Vec<u8>>,
    remote: Option<Vec<u8>>,
    host_name: Option<Vec<u8>>,
}

impl<'a> LeaseStatements<'a> {
    fn add(&mut self, words: &[Word<'a>]) -> Result<(), Reason> {
        use Word::Plain;
        match words {
            [Plain(b"starts"), date @ ..] => self.starts = Some(time(date)?),
            [Plain(b"ends"), date @ ..] => self.ends = Some(time(date)?),
            [Plain(b"cltt"), date @ ..] => self.last_transaction = Some(time(date)?),
            [Plain(b"binding"), Plain(b"state"), Plain(state)] => self.state = Some(state),
            [Plain(b"hardware"), Plain(b"ethernet"), Plain(text)] => self.hardware = hardware(text),
            [Plain(b"uid"), value] => self.client_id = Some(bytes(*value).ok_or(Reason::Client)?),
            [Plain(b"option"), Plain(b"agent.circuit-id"), value] => {
                self.circuit = Some(bytes(*value).ok_or(Reason::Relay)?);
            }
            [Plain(b"option"), Plain(b"agent.remote-id"), value] => {
                self.remote = Some(bytes(*value).ok_or(Reason::Relay)?);
            }
            [Plain(b"client-hostname"), value] => self.host_name = bytes(*value),
            _ => {}
        }
        Ok(())
    }

    fn entry(self, address: std::net::Ipv4Addr) -> Result<Option<Entry>, Reason> {
        let at = |time: Option<Expiry>| match time {
            Some(Expiry::At(seconds)) => seconds,
            Some(Expiry::Never) | None => 0,
        };
        let renewed = at(self.starts).max(at(self.last_transaction));
        let free = |why| Ok(Some(Entry::Free { address, renewed, why }));
        match self.state {
            Some(b"active") => {}
            // In these states, failover moves the address between the two dhcpd servers.
            Some(b"free" | b"backup" | b"reset" | b"released") => return free(Lost::Released),
            Some(b"expired") => return free(Lost::Expired),
            Some(b"abandoned") => return free(Lost::Declined),
            Some(_) | None => return Err(Reason::State),
        }
        let relay = match (self.circuit, self.remote) {
            (None, None) => None,
            (circuit, remote) => Some(Box::new(RelayInformation {
                circuit: circuit.unwrap_or_default().into(),
                remote: remote.unwrap_or_default().into(),
            })),
        };
        Ok(Some(Entry::Leased(Lease {
            address,
            hardware: self.hardware.ok_or(Reason::Hardware)?,
            client_id: self.client_id.map(Into::into),
            renewed,
            expires: self.ends.ok_or(Reason::Time)?,
            relay,
            host_name: self.host_name.map(|name| String::from_utf8_lossy(&name).into()),
        })))
    }
}

/// Bytes of a quoted text or of a list of numbers.
fn bytes(word: Word<'_>) -> Option<Vec<u8>> {
    match word {
        Word::Quoted(text) => Some(unquoted(text)),
        Word::Plain(text) => octets(text),
        _ => None,
    }
}

/// Parse `never`, `epoch N` (`db-time-format local`), or a day of the week, a date and a time.
fn time(words: &[Word<'_>]) -> Result<Expiry, Reason> {
    let at = |seconds: Option<u64>| seconds.map(Expiry::At).ok_or(Reason::Time);
    match words {
        [Word::Plain(b"never")] => Ok(Expiry::Never),
        [Word::Plain(b"epoch"), Word::Plain(seconds)] => at(parse(seconds)),
        [Word::Plain(_), Word::Plain(date), Word::Plain(time)] => {
            let (date, time) = (numbers(date, b'/'), numbers(time, b':'));
            at(date.zip(time).and_then(|(date, time)| date::seconds(date, time)))
        }
        _ => Err(Reason::Time),
    }
}

fn numbers(text: &[u8], between: u8) -> Option<[u64; 3]> {
    let numbers: Option<Vec<u64>> = text.split(|&byte| byte == between).map(parse).collect();
    numbers?.try_into().ok()
}
