//! Converts the settings of application identification and application names.

use std::sync::{Arc, OnceLock};

use sluice_config::{Config, nearest};
use sluice_engine::session::identification::IdentificationSettings;
use sluice_filter::ApplicationMatch;
use sluice_inspect::applications::{ApplicationCapacity, ApplicationNames, ApplicationSelector, Error};

use super::LoweringError;

/// Names of all applications. The names are loaded once per process, because loading takes a while.
///
/// # Errors
/// The installed library has an unsupported version.
pub fn application_names() -> Result<Arc<ApplicationNames>, Error> {
    static NAMES: OnceLock<Arc<ApplicationNames>> = OnceLock::new();
    if let Some(names) = NAMES.get() {
        return Ok(names.clone());
    }
    let names = Arc::new(ApplicationNames::installed()?);
    Ok(NAMES.get_or_init(|| names).clone())
}

/// Settings of application identification. `None` if application identification is not configured.
pub(super) fn seeking(config: &Config) -> Result<Option<Arc<IdentificationSettings>>, Error> {
    let Some(applications) = &config.applications else {
        return Ok(None);
    };
    let names = application_names()?;
    Ok(Some(Arc::new(IdentificationSettings::new(
        applications.interfaces.clone(),
        names,
    ))))
}

/// Capacity of application identification per worker.
pub(super) fn capacity(config: &Config) -> Option<ApplicationCapacity> {
    let written = config.document.applications.as_ref()?;
    Some(ApplicationCapacity {
        flows: written.flows,
        memory: written.memory as usize,
        tcp_packets: written.tcp_packets,
        other_packets: written.other_packets,
    })
}

/// A name that no application has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no application `{name}`{}", hint.as_deref().map(|hint| format!(": {hint}")).unwrap_or_default())]
pub struct UnknownApplication {
    /// Name as configured.
    pub name: String,
    /// Suggestion for a correction.
    pub hint: Option<String>,
    /// Position of the name within the rule.
    pub place: usize,
    /// Position of the rule in the configuration.
    pub rule: usize,
}

/// Numbers of the applications that a rule states by name.
pub(super) fn named(written: &[String]) -> Result<Vec<ApplicationMatch>, LoweringError> {
    if written.is_empty() {
        return Ok(Vec::new());
    }
    let names = application_names()?;
    let one = |(place, name): (usize, &String)| {
        let ApplicationSelector { master, application } = names.selector(name).ok_or_else(|| UnknownApplication {
            name: name.clone(),
            hint: suggestion(name, &names).map(|suggestion| format!("did you mean `{suggestion}`?")),
            place,
            rule: 0,
        })?;
        Ok(ApplicationMatch { master, application })
    };
    written.iter().enumerate().map(one).collect()
}

/// Returns the application name that is most similar to an unknown name.
fn suggestion(written: &str, names: &ApplicationNames) -> Option<String> {
    let known: Vec<_> = names.iter().map(|(_, name)| name.to_owned()).collect();
    let one = |part: &str| match names.number(part).and_then(|number| names.name(number)) {
        Some(name) => Some(name.to_owned()),
        None => nearest(part, &known).cloned(),
    };
    match written.split_once('.') {
        Some((master, application)) => Some(format!("{}.{}", one(master)?, one(application)?)),
        None => one(written),
    }
}

#[cfg(test)]
mod tests {
    use sluice_config::memory::EntryBytes;
    use sluice_inspect::applications::ApplicationDetector;

    use super::*;

    #[test]
    fn session_that_is_looked_at_takes_no_more_than_is_planned_for() {
        let planned = EntryBytes::default().identification;
        assert!(
            planned >= ApplicationDetector::FLOW as u64 + 64,
            "{}",
            ApplicationDetector::FLOW
        );
    }

    #[test]
    fn name_of_no_application_is_answered_with_the_nearest() {
        let hint = |name: &str| match named(&[name.to_owned()]) {
            Err(LoweringError::UnknownApplication(unknown)) => unknown.hint,
            other => panic!("{other:?}"),
        };
        assert_eq!(Some("did you mean `BitTorrent`?".into()), hint("BitTorent"));
        assert_eq!(Some("did you mean `TLS.NetFlix`?".into()), hint("tls.Netflx"));
        assert_eq!(None, hint("what nobody speaks"));
    }

    #[test]
    fn names_of_applications_are_found_whatever_their_case() {
        let names = ["bittorrent", "TLS.Google", "Unknown"].map(String::from);
        let found = named(&names).unwrap();
        let named = |master, application| ApplicationMatch { master, application };
        assert_eq!(vec![named(None, 37), named(Some(91), 126), named(None, 0)], found);
    }
}
