//! Negotiation of steering: order of the requests to a device, and evaluation of the results.

use super::{
    Capabilities, Functions, HashKey, Shortfall, Steered, Steering, SteeringError, SteeringRequest, check_queues,
};

/// A device that selects receive queues by a hash.
pub(crate) trait HashDevice {
    /// Query the capabilities of the device.
    fn capabilities(&self) -> Result<Capabilities, Refusal>;
    /// Set the RSS hash functions and the hash key. `None` keeps the key of the device.
    fn set_hash(&self, functions: Functions, key: Option<&HashKey>) -> Result<(), Refusal>;
    /// Read the settings in use from the device.
    fn hash(&self, key_bytes: usize) -> Result<Hash, Refusal>;
    /// Set a table. The number of entries must equal the number of entries in the device's table.
    fn set_table(&self, table: &[u16]) -> Result<(), Refusal>;
    /// Read the table in use.
    fn table(&self, entries: u16) -> Result<Vec<u16>, Refusal>;
}

/// The device rejected a request. The value is the text of the error number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) String);

/// Hash settings of a device.
#[derive(Clone, Debug)]
pub(crate) struct Hash {
    pub(crate) functions: Functions,
    /// The key in use. `None` if the device does not report its key.
    pub(crate) key: Option<HashKey>,
    /// Whether the device delivers the hash together with the frame.
    pub(crate) delivered: bool,
}

/// One set of settings to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// Functions to request. An empty set disables the hash.
    pub(crate) functions: Functions,
    pub(crate) key: Option<HashKey>,
    /// Whether this attempt repeats the previous attempt without its key.
    without_key: bool,
}

/// Attempts in order of preference: requested steering, addresses and ports, any hash, no hash. Each attempt with a key
/// is followed by the attempt without the key, because a device may reject only the key.
pub(crate) fn attempts(steering_request: &SteeringRequest, capabilities: &Capabilities) -> Vec<Attempt> {
    let mut attempts = Vec::new();
    let mut push = |functions: Functions, key: Option<&HashKey>| {
        if functions.is_empty() || attempts.iter().any(|known: &Attempt| known.functions == functions) {
            return;
        }
        let key = key.map(|key| key.resized(capabilities.key_bytes));
        let keyed = key.is_some();
        attempts.push(Attempt {
            functions,
            key,
            without_key: false,
        });
        if keyed {
            attempts.push(Attempt {
                functions,
                key: None,
                without_key: true,
            });
        }
    };
    if steering_request.queues > 1 {
        let offered = capabilities.functions;
        let fallback = steering_request.fallback_key.as_ref().or(steering_request.key.as_ref());
        let exact = offered.to_steer(steering_request.steering);
        push(exact.unwrap_or_default(), steering_request.key.as_ref());
        push(offered.to_steer(Steering::FiveTuple).unwrap_or_default(), fallback);
        push(offered.to_spread(), fallback);
    }
    attempts.push(Attempt {
        functions: Functions::default(),
        key: None,
        without_key: false,
    });
    attempts
}

/// The accepted attempt, all later attempts, and the deviations found so far.
#[derive(Debug)]
pub(crate) struct Configured {
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) shortfalls: Vec<Shortfall>,
}

/// Configure a device with the first attempt that the device accepts. `reason` returns why the device rejected an
/// attempt, or `None` for an error that is unrelated to the hash. If the device rejects all attempts, the first error
/// is returned.
pub(crate) fn configure<E>(
    steering_request: &SteeringRequest,
    capabilities: &Capabilities,
    mut configure: impl FnMut(&Attempt) -> Result<(), E>,
    reason: impl Fn(&E) -> Option<String>,
) -> Result<Configured, E> {
    let mut attempts = attempts(steering_request, capabilities);
    let mut shortfalls = Vec::new();
    if steering_request.queues > 1 && capabilities.functions.to_spread().is_empty() {
        shortfalls.push(Shortfall::NoHash);
    } else if steering_request.queues > 1 && capabilities.functions.to_steer(steering_request.steering).is_none() {
        shortfalls.push(Shortfall::NotOffered {
            desired: steering_request.steering,
        });
    }
    let mut refusals = Refusals::default();
    let mut first_error = None;
    while let Some(attempt) = attempts.first() {
        match configure(attempt) {
            Ok(()) => {
                refusals.report_deviations(attempt, &mut shortfalls);
                return Ok(Configured { attempts, shortfalls });
            }
            Err(error) => {
                let Some(reason) = reason(&error) else {
                    return Err(error);
                };
                refusals.add(attempt, reason);
                first_error.get_or_insert(error);
                attempts.remove(0);
            }
        }
    }
    // An error has occurred, because the last attempt (without a hash) always exists.
    first_error.map_or_else(|| Ok(Configured { attempts, shortfalls }), Err)
}

/// Rejected attempts. A later accepted attempt shows whether the device has rejected the functions or the key.
#[derive(Default)]
struct Refusals(Vec<(Attempt, String)>);

impl Refusals {
    fn add(&mut self, attempt: &Attempt, reason: String) {
        self.0.push((attempt.clone(), reason));
    }

    /// Report deviations for the attempts that the device rejected before it accepted `taken`.
    fn report_deviations(self, taken: &Attempt, shortfalls: &mut Vec<Shortfall>) {
        for (refused, reason) in self.0 {
            if taken.without_key && refused.functions == taken.functions {
                shortfalls.push(Shortfall::KeyDeclined { reason });
            } else if !refused.without_key && !refused.functions.is_empty() {
                let requested = refused.functions;
                shortfalls.push(Shortfall::Declined { requested, reason });
            }
        }
    }
}

/// Steer a started device as far as possible, and read its settings back.
pub(crate) fn steer(
    device: &impl HashDevice,
    steering_request: &SteeringRequest,
    capabilities: &Capabilities,
    configured: Configured,
) -> Steered {
    let mut steered = Steered {
        capabilities: Some(*capabilities),
        shortfalls: configured.shortfalls,
        ..Steered::not(steering_request.steering, steering_request.queues)
    };
    if steering_request.queues < 2 {
        return steered;
    }
    let hash = agree(device, capabilities, &configured.attempts, &mut steered.shortfalls);
    let Some(hash) = hash else { return steered };
    steered.functions = Some(hash.functions);
    if hash.functions.is_empty() {
        return steered;
    }
    steered.steering = hash.functions.steering();
    steered.key = hash.key;
    steered.delivers_hash = hash.delivered;
    for (family, flows) in ["IPv4", "IPv6"].into_iter().zip(super::Flow::FAMILIES) {
        if !hash.functions.hashes(&flows) {
            steered.shortfalls.push(Shortfall::NotHashed { family });
        }
    }
    if capabilities.table_entries == 0 {
        steered.shortfalls.push(Shortfall::NoTable);
        return steered;
    }
    let entries = capabilities.table_entries.into();
    let (table, shortfall) = fill(&steering_request.table, entries);
    steered.shortfalls.extend(shortfall);
    let table = match &table[..] {
        [] => (0..steering_request.queues).cycle().take(entries).collect(),
        _ => table,
    };
    let (found, shortfall) = place(device, &table);
    steered.table = found;
    steered.shortfalls.extend(shortfall);
    steered
}

/// Find hash settings that the device applies, starting with the first remaining attempt. `None` if the device does not
/// report its settings.
fn agree(
    device: &impl HashDevice,
    capabilities: &Capabilities,
    attempts: &[Attempt],
    shortfalls: &mut Vec<Shortfall>,
) -> Option<Hash> {
    let mut refusals = Refusals::default();
    let mut kept_other = None;
    let read = || device.hash(capabilities.key_bytes);
    for (place, attempt) in attempts.iter().enumerate() {
        if kept_other == Some(attempt.functions) {
            continue;
        }
        if attempt.functions.is_empty() {
            refusals.report_deviations(attempt, shortfalls);
            // A device without a hash can't report a hash, so the failure is no deviation.
            return read().ok();
        }
        let mut hash = match read() {
            Ok(hash) => hash,
            Err(Refusal(reason)) => {
                shortfalls.push(Shortfall::UnreportedFields { reason });
                return None;
            }
        };
        // Some devices accept functions and key only at configuration, other devices only while running. Set functions
        // and key again only if they differ, because setting them may interrupt traffic.
        let is_as_requested =
            |hash: &Hash| hash.functions == attempt.functions && (attempt.key.is_none() || attempt.key == hash.key);
        if !is_as_requested(&hash) {
            if let Err(Refusal(reason)) = device.set_hash(attempt.functions, attempt.key.as_ref()) {
                refusals.add(attempt, reason);
                continue;
            }
            hash = match read() {
                Ok(hash) => hash,
                Err(Refusal(reason)) => {
                    shortfalls.push(Shortfall::UnreportedFields { reason });
                    return None;
                }
            };
        }
        if hash.functions != attempt.functions {
            let (requested, hashed) = (attempt.functions, hash.functions);
            shortfalls.push(Shortfall::OtherFunction { requested, hashed });
            let alternative = attempts[place..]
                .iter()
                .any(|later| later.functions != requested && !later.functions.is_empty());
            if alternative && hashed.steering() != requested.steering() {
                kept_other = Some(requested);
                continue;
            }
        }
        match (&attempt.key, &hash.key) {
            (Some(_), None) => shortfalls.push(Shortfall::UnreportedKey),
            (Some(desired), Some(found)) if desired != found => shortfalls.push(Shortfall::OtherKey),
            _ => {}
        }
        refusals.report_deviations(attempt, shortfalls);
        return Some(hash);
    }
    None
}

/// Create the entries for a device's table: repeat the given entries, or truncate them for a shorter device table.
/// Empty if the lengths are incompatible.
fn fill(given: &[u16], entries: usize) -> (Vec<u16>, Option<Shortfall>) {
    let length = given.len();
    if length <= entries && entries.checked_rem(length).is_none_or(|rest| rest == 0) {
        return (given.iter().copied().cycle().take(entries).collect(), None);
    }
    if !length.is_multiple_of(entries) {
        return (Vec::new(), Some(Shortfall::TableLength { given: length, entries }));
    }
    let table = given[..entries].to_vec();
    let elsewhere = given
        .iter()
        .zip(table.iter().cycle())
        .filter(|(desired, kept)| desired != kept);
    let elsewhere = elsewhere.count();
    let shortfall = (elsewhere > 0).then_some(Shortfall::TableFolded {
        given: length,
        entries,
        elsewhere,
    });
    (table, shortfall)
}

/// Set a device's table, and read back the table in use.
fn place(device: &impl HashDevice, table: &[u16]) -> (Option<Vec<u16>>, Option<Shortfall>) {
    let read = || device.table(table.len() as u16);
    if read().is_ok_and(|found| found == table) {
        return (Some(table.to_vec()), None);
    }
    let declined = device.set_table(table).err();
    let found = match read() {
        Ok(found) => found,
        Err(Refusal(reason)) => return (None, Some(Shortfall::UnreportedTable { reason })),
    };
    let shortfall = declined
        .map(|Refusal(reason)| Shortfall::TableDeclined { reason })
        .or_else(|| {
            let mut differing = (0..table.len()).filter(|&entry| found.get(entry) != Some(&table[entry]));
            let first = differing.next()?;
            Some(Shortfall::OtherTable {
                entries: 1 + differing.count(),
                first,
                desired: table[first],
                found: found.get(first).copied().unwrap_or_default(),
            })
        });
    (Some(found), shortfall)
}

/// Change the table of a steered device, and read the table back.
pub(crate) fn set_table(device: &impl HashDevice, steered: &mut Steered, given: &[u16]) -> Result<(), SteeringError> {
    let hashes = steered.functions.is_some_and(|functions| !functions.is_empty());
    let entries = steered
        .capabilities
        .map_or(0, |capabilities| capabilities.table_entries.into());
    if !hashes || entries == 0 {
        return Err(SteeringError::NoTable);
    }
    check_queues(given, steered.queues)?;
    let (table, folded) = fill(given, entries);
    if table.is_empty() {
        let given = given.len();
        return Err(SteeringError::TableLength { given, entries });
    }
    let (found, shortfall) = place(device, &table);
    steered.table = found;
    steered.shortfalls.retain(|shortfall| !shortfall.is_of_table());
    steered.shortfalls.extend(folded.into_iter().chain(shortfall.clone()));
    shortfall.map_or(Ok(()), |shortfall| Err(SteeringError::Mismatch(shortfall)))
}
