//! Tests the file with a compiled prefilter. The file is loaded unchanged, or refused with a specific error.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::made::{self, expression, found, payload, rule};
use sluice_inspect::Signature;
use sluice_inspect::prefilter::{CacheError, Fingerprint, PatternClass, PatternSet, Prefilter};
use sluice_inspect::signature::{Condition, Ports, Protocol, Toward};
use tempfile::TempDir;

const CLASSES: [PatternClass; 3] = [
    PatternClass::Stream(Toward::Server),
    PatternClass::Stream(Toward::Client),
    PatternClass::Datagram,
];

fn some_rules() -> Vec<Signature> {
    let mut rules = made::drawn(40);
    rules.push(rule(41, Protocol::Icmp, vec![]));
    rules.push(rule(42, Protocol::Number(47), vec![]));
    rules.push(rule(
        43,
        Protocol::Tcp,
        vec![Condition::Expression(expression("ab.*cd"))],
    ));
    rules.push(rule(
        44,
        Protocol::Tcp,
        vec![Condition::Expression(expression("[0-9]{9}"))],
    ));
    rules.push(rule(45, Protocol::Tcp, vec![payload(b"\0zero")]));
    let mut short = rule(46, Protocol::Udp, vec![payload(b"~")]);
    short.header.destination.ports = Ports([79..=79].into());
    rules.push(short);
    rules
}

fn all_contents(rules: &[Signature]) -> Vec<u8> {
    let contents = rules.iter().flat_map(|rule| &rule.conditions);
    let bytes = contents.filter_map(|condition| match condition {
        Condition::Content(content) => Some(content.bytes.to_vec()),
        _ => None,
    });
    bytes.chain([b"ab__cd".to_vec()]).flatten().collect()
}

fn stored(folder: &TempDir) -> (std::path::PathBuf, Fingerprint, Prefilter) {
    let prefilter = Prefilter::compile(&some_rules(), &mut |_, _| {}).unwrap();
    let path = folder.path().join("signatures.cache");
    prefilter.store(&path).unwrap();
    (path, PatternSet::of(&some_rules()).fingerprint(), prefilter)
}

#[test]
fn loaded_prefilter_is_the_stored_one() {
    let folder = TempDir::new().unwrap();
    let (path, fingerprint, expected) = stored(&folder);
    assert_eq!(0o600, fs::metadata(&path).unwrap().mode() & 0o7777);
    assert_eq!(1, fs::read_dir(folder.path()).unwrap().count());
    let loaded = Prefilter::load(&path, fingerprint).unwrap();
    assert_eq!(expected.fingerprint(), loaded.fingerprint());
    for protocol in [Protocol::Icmp, Protocol::Number(47), Protocol::Number(48)] {
        assert_eq!(expected.unconditional(protocol), loaded.unconditional(protocol));
    }
    assert_eq!([45], *loaded.without_pattern(PatternClass::Datagram));
    assert_eq!([43], *loaded.without_pattern(PatternClass::Stream(Toward::Client)));
    let data = all_contents(&some_rules());
    for class in CLASSES {
        let (one, other) = (expected.group(class).unwrap(), loaded.group(class).unwrap());
        assert_eq!(
            (one.patterns(), one.shortest(), one.longest(), one.overlap(), one.size()),
            (
                other.patterns(),
                other.shortest(),
                other.longest(),
                other.overlap(),
                other.size()
            )
        );
        let found = found(&loaded, class, &data);
        assert!(found.len() > 10);
        assert_eq!(made::found(&expected, class, &data), found);
    }
    // The second call of `store` replaces the file.
    loaded.store(&path).unwrap();
    Prefilter::load(&path, fingerprint).unwrap();
}

/// Offsets of the fields: magic, format, version, tuning, features, fingerprint, length, digest, payload.
#[test]
fn damage_in_each_field_is_named() {
    type Named = fn(&CacheError) -> bool;
    let fields: [(usize, &str, Named); 9] = [
        (0, "magic", |error| matches!(error, CacheError::Magic)),
        (8, "format", |error| matches!(error, CacheError::Format { .. })),
        (12, "version", |error| matches!(error, CacheError::Library { .. })),
        (76, "tuning", |error| matches!(error, CacheError::Processor)),
        (80, "features", |error| matches!(error, CacheError::Processor)),
        (88, "fingerprint", |error| matches!(error, CacheError::Signatures)),
        (120, "length", |error| matches!(error, CacheError::Length { .. })),
        (128, "digest", |error| matches!(error, CacheError::Digest)),
        (160, "payload", |error| matches!(error, CacheError::Digest)),
    ];
    let folder = TempDir::new().unwrap();
    let (path, fingerprint, _) = stored(&folder);
    let whole = fs::read(&path).unwrap();
    for (index, &(first, name, named)) in fields.iter().enumerate() {
        let end = fields.get(index + 1).map_or(whole.len(), |field| field.0);
        for at in [first, (first + end) / 2, end - 1] {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x20;
            fs::write(&path, &damaged).unwrap();
            let error = Prefilter::load(&path, fingerprint).unwrap_err();
            assert!(named(&error), "{name} at {at}: {error:?}");
        }
    }
    fs::write(&path, &whole).unwrap();
    Prefilter::load(&path, fingerprint).unwrap();
}

#[test]
fn truncated_and_longer_files_are_named() {
    let folder = TempDir::new().unwrap();
    let (path, fingerprint, _) = stored(&folder);
    let whole = fs::read(&path).unwrap();
    for length in (0..160).chain([160, 161, whole.len() / 2, whole.len() - 1]) {
        fs::write(&path, &whole[..length]).unwrap();
        let error = Prefilter::load(&path, fingerprint).unwrap_err();
        assert!(
            matches!(error, CacheError::Length { found, .. } if found == length as u64),
            "{length}: {error:?}"
        );
    }
    fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
    let error = Prefilter::load(&path, fingerprint).unwrap_err();
    assert!(matches!(error, CacheError::Length { .. }), "{error:?}");
}

#[test]
fn cache_of_other_signatures_is_named() {
    let folder = TempDir::new().unwrap();
    let (path, _, _) = stored(&folder);
    let other = PatternSet::of(&made::drawn(41)).fingerprint();
    assert!(matches!(Prefilter::load(&path, other), Err(CacheError::Signatures)));
}

#[test]
fn missing_and_strange_files_are_named() {
    let folder = TempDir::new().unwrap();
    let (path, fingerprint, _) = stored(&folder);
    let load = |path: &Path| Prefilter::load(path, fingerprint).unwrap_err();
    assert!(matches!(load(&folder.path().join("none")), CacheError::Missing));
    assert!(matches!(load(folder.path()), CacheError::Kind));
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(matches!(load(&link), CacheError::Kind));
}

#[test]
fn file_that_others_may_write_is_refused() {
    let folder = TempDir::new().unwrap();
    let (path, fingerprint, _) = stored(&folder);
    for mode in [0o602, 0o620, 0o666] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = Prefilter::load(&path, fingerprint).unwrap_err();
        assert!(
            matches!(error, CacheError::Writable { mode: found } if found == mode),
            "{error:?}"
        );
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    Prefilter::load(&path, fingerprint).unwrap();
}

#[test]
fn store_that_fails_leaves_nothing_behind() {
    let folder = TempDir::new().unwrap();
    let (_, _, prefilter) = stored(&folder);
    let taken = folder.path().join("folder");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("file"), "").unwrap();
    assert!(matches!(prefilter.store(&taken), Err(CacheError::Io(_))));
    assert_eq!(2, fs::read_dir(folder.path()).unwrap().count());
}

fn peak() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.unwrap_or("VmHWM: unknown").to_owned()
}

/// The test executes itself in two processes. One process compiles and stores the rules, and the other process loads
/// the rules. The candidates of the two processes are compared.
#[test]
fn one_process_compiles_and_another_finds_the_same() {
    const PART: &str = "SLUICE_TEST_CACHE_PART";
    const FILE: &str = "SLUICE_TEST_CACHE_FILE";
    let mut rules = made::real();
    rules.extend(made::drawn(4_000));
    let data = all_contents(&rules);
    let said = |prefilter: &Prefilter| {
        for class in CLASSES {
            println!("found {class:?} {:?}", found(prefilter, class, &data));
        }
    };
    if let Some(part) = std::env::var_os(PART) {
        let path = std::env::var_os(FILE).unwrap();
        let path = Path::new(&path);
        println!("before {part:?}: {}", peak());
        let prefilter = match part.to_str() {
            Some("compile") => {
                let prefilter = Prefilter::compile(&rules, &mut |_, _| {}).unwrap();
                prefilter.store(path).unwrap();
                prefilter
            }
            _ => Prefilter::load(path, PatternSet::of(&rules).fingerprint()).unwrap(),
        };
        println!("after {part:?}: {}", peak());
        said(&prefilter);
        return;
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("cache");
    let run = |part: &str| {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "prefilter_cache::one_process_compiles_and_another_finds_the_same",
                "--nocapture",
            ])
            .env(PART, part)
            .env(FILE, &path)
            .output()
            .unwrap();
        let text = String::from_utf8(child.stdout).unwrap();
        assert!(
            child.status.success(),
            "{text}{}",
            String::from_utf8_lossy(&child.stderr)
        );
        let (found, rest): (Vec<_>, Vec<_>) = text
            .lines()
            .partition(|line| line.contains("found Stream") || line.contains("found Datagram"));
        println!("{}", rest.join("\n"));
        found.join("\n")
    };
    let compiled = run("compile");
    println!("the cache has {} bytes", fs::metadata(&path).unwrap().len());
    assert_eq!(3, compiled.lines().count());
    assert_eq!(compiled, run("load"));
}

#[test]
fn plan_read_from_its_bytes_is_the_same_and_compiles_alike() {
    let plan = PatternSet::of(&some_rules());
    let bytes = plan.bytes();
    let read = PatternSet::from_bytes(&bytes).unwrap();
    assert_eq!((plan.fingerprint(), &bytes), (read.fingerprint(), &read.bytes()));
    let (expected, found) = (
        plan.compile(&mut |_, _| {}).unwrap(),
        read.compile(&mut |_, _| {}).unwrap(),
    );
    let data = all_contents(&some_rules());
    for class in CLASSES {
        assert_eq!(
            made::found(&expected, class, &data),
            made::found(&found, class, &data),
            "{class:?}"
        );
    }
}

#[test]
fn plan_that_is_cut_off_or_goes_on_is_not_read() {
    let mut bytes = PatternSet::of(&some_rules()).bytes();
    for end in [0, 1, bytes.len() / 2, bytes.len() - 1] {
        assert!(PatternSet::from_bytes(&bytes[..end]).is_err(), "{end}");
    }
    bytes.push(0);
    assert!(PatternSet::from_bytes(&bytes).is_err());
}
