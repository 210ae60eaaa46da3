//! Classes of rules and their priorities.

use std::collections::HashMap;

use thiserror::Error;

/// Priority of each class; 1 is the most urgent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    priorities: HashMap<Box<str>, u8>,
}

/// An invalid line of a classification file.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line}: {text:?} is not `config classification: name,description,priority` with a priority of 1 to 255")]
pub struct ClassesError {
    /// Line number, counted from 1.
    pub line: u32,
    /// Text of the line.
    pub text: Box<str>,
}

/// Priority of rules without a class or with an unknown class.
const DEFAULT_PRIORITY: u8 = 3;

/// Names of commonly used classes, by priority.
const DEFAULT_CLASSES: &[(u8, &str)] = &[
    (
        1,
        "attempted-admin attempted-user command-and-control coin-mining credential-theft domain-c2 exploit-kit \
         inappropriate-content malware-cnc file-format client-side-exploit policy-violation shellcode-detect \
         successful-admin successful-user targeted-activity trojan-activity unsuccessful-user \
         web-application-attack",
    ),
    (
        2,
        "attempted-dos attempted-recon bad-unknown default-login-attempt denial-of-service external-ip-check \
         misc-attack non-standard-protocol pup-activity rpc-portmap-decode social-engineering successful-dos \
         successful-recon-largescale successful-recon-limited suspicious-filename-detect suspicious-login \
         system-call-detect unusual-client-port-connection web-application-activity sdf",
    ),
    (
        3,
        "icmp-event misc-activity network-scan not-suspicious protocol-command-decode string-detect unknown",
    ),
    (4, "tcp-connection"),
];

impl Default for Classes {
    fn default() -> Classes {
        let named = |(priority, names): &(u8, &'static str)| {
            let priority = *priority;
            names.split(' ').map(move |name| (name.into(), priority))
        };
        Classes {
            priorities: DEFAULT_CLASSES.iter().flat_map(named).collect(),
        }
    }
}

impl Classes {
    /// Parses a `classification.config`. The classes of the file are added to the default classes; a class of the same
    /// name replaces the default.
    pub fn read(text: &str) -> Result<Classes, ClassesError> {
        let mut classes = Classes::default();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (name, priority) = class(text).ok_or_else(|| ClassesError {
                line,
                text: text.into(),
            })?;
            classes.priorities.insert(name.into(), priority);
        }
        Ok(classes)
    }

    /// Priority of a class.
    pub fn priority(&self, class: Option<&str>) -> u8 {
        class
            .and_then(|class| self.priorities.get(class))
            .copied()
            .unwrap_or(DEFAULT_PRIORITY)
    }
}

fn class(text: &str) -> Option<(&str, u8)> {
    let rest = text
        .strip_prefix("config")?
        .trim_start()
        .strip_prefix("classification")?
        .trim_start();
    let (name, rest) = rest.strip_prefix(':')?.split_once(',')?;
    let (_, priority) = rest.rsplit_once(',')?;
    let priority = priority.trim().parse().ok().filter(|priority| *priority > 0)?;
    Some((name.trim(), priority)).filter(|(name, _)| !name.is_empty())
}
