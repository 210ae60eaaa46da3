//! Tests of rules that are loaded from the cache or compiled by the compiler process, and of a failing compiler
//! process.

use std::io::{stdin, stdout};
use std::os::unix::fs::MetadataExt;

use sluice_config::config;
use sluice_config::schema::{self, SignatureDialect};
use tempfile::TempDir;

use super::*;
use crate::lowering::{ReadRules, SignatureError, SignatureReport};

const RULES: &str = r#"
alert tcp any any -> any 80 (msg:"literal"; content:"evil"; sid:1;)
alert tcp any any -> any 80 (msg:"expression"; pcre:"/ab.*cd/"; sid:2;)
"#;

/// Main function of the compiler process: a test starts this test program with the name of this function.
#[test]
fn child_compiles() {
    let Some(path) = std::env::args().next_back().filter(|last| last.ends_with(FILE)) else {
        return;
    };
    if let Err(error) = compile_child(&mut stdin(), Path::new(&path), &mut stdout()) {
        eprintln!("{error}");
        std::process::exit(error.status().into());
    }
}

fn program(path: &Path, arguments: &[&str]) -> Program {
    Program {
        path: path.to_owned(),
        arguments: arguments.iter().map(Into::into).collect(),
        cores: None,
        patience: PATIENCE,
    }
}

/// A compiler that starts a separate process, with a cache in a directory.
fn compiler(cache: &Path) -> Compiler {
    let test = std::env::current_exe().unwrap();
    let arguments = ["compiling::tests::child_compiles", "--exact", "--nocapture"];
    Compiler {
        program: Some(program(&test, &arguments)),
        cache: Some(cache.to_owned()),
        stores: true,
        ..Compiler::here()
    }
}

/// A compiler whose process runs a shell script.
fn shell(script: &str, patience: Duration) -> Compiler {
    Compiler {
        program: Some(Program {
            patience,
            ..program(Path::new("/bin/sh"), &["-c", script, "sh"])
        }),
        ..Compiler::here()
    }
}

fn compiled(rules: &str, compiler: &Compiler) -> Result<SignatureReport, SignatureError> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("some.rules");
    fs::write(&path, rules).unwrap();
    let inspection = config::Inspection {
        interfaces: Vec::new(),
        signatures: vec![config::SignatureFile {
            partial: false,
            path,
            dialect: SignatureDialect::Suricata,
        }],
        classes: None,
        cache: None,
        eve: None,
    };
    let read = ReadRules::read(&inspection, &schema::Inspection::default())?;
    Ok(read.compiled(compiler)?.1)
}

fn why(report: &SignatureReport) -> &str {
    report.made.compiled.as_deref().unwrap_or("it was loaded")
}

#[test]
fn missing_cache_is_named_and_made_and_loaded_the_next_time() {
    let folder = TempDir::new().unwrap();
    let cache = folder.path().join("not/there");
    let compiler = compiler(&cache);
    let first = compiled(RULES, &compiler).unwrap();
    assert!(
        why(&first).ends_with("signatures.db: the cache file does not exist"),
        "{}",
        why(&first)
    );
    assert_eq!((2, 0), (first.loaded, first.refused.len()));
    let second = compiled(RULES, &compiler).unwrap();
    assert_eq!((None, first.search_bytes), (second.made.compiled, second.search_bytes));
    assert_eq!(1, fs::read_dir(&cache).unwrap().count());
    assert_eq!(0o700, fs::metadata(&cache).unwrap().mode() & 0o7777);
    assert_eq!(None, compiler.progress().get());
}

#[test]
fn cache_of_other_rules_is_named_and_made_anew() {
    let folder = TempDir::new().unwrap();
    let compiler = compiler(folder.path());
    compiled(RULES, &compiler).unwrap();
    let other = RULES.replace("evil", "bad");
    let report = compiled(&other, &compiler).unwrap();
    assert!(
        why(&report).ends_with("compiled from other signatures"),
        "{}",
        why(&report)
    );
    assert_eq!(None, compiled(&other, &compiler).unwrap().made.compiled);
}

#[test]
fn damaged_cache_is_named_and_made_anew() {
    let folder = TempDir::new().unwrap();
    let compiler = compiler(folder.path());
    compiled(RULES, &compiler).unwrap();
    let path = folder.path().join(FILE);
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let report = compiled(RULES, &compiler).unwrap();
    assert!(why(&report).ends_with("the cache is damaged"), "{}", why(&report));
    assert_eq!(None, compiled(RULES, &compiler).unwrap().made.compiled);
}

#[test]
fn cache_is_left_as_it_is_by_who_does_not_store() {
    let folder = TempDir::new().unwrap();
    let cache = folder.path().join("cache");
    let looking = Compiler {
        stores: false,
        ..compiler(&cache)
    };
    assert!(compiled(RULES, &looking).unwrap().made.compiled.is_some());
    assert!(!cache.exists());
    compiled(RULES, &compiler(&cache)).unwrap();
    assert_eq!(None, compiled(RULES, &looking).unwrap().made.compiled);
}

#[test]
fn folder_that_cannot_be_written_costs_the_cache_alone() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let compiler = compiler(&file.join("cache"));
    for _ in 0..2 {
        let report = compiled(RULES, &compiler).unwrap();
        assert_eq!((2, true), (report.loaded, report.made.compiled.is_some()));
    }
}

#[test]
fn child_that_is_killed_is_an_error() {
    let error = compiled(RULES, &shell("cat >/dev/null; kill -9 $$", PATIENCE)).unwrap_err();
    assert!(error.to_string().contains("signal 9"), "{error}");
}

#[test]
fn child_that_takes_too_long_is_ended_and_an_error() {
    let compiler = shell("echo 0 2; exec sleep 1000", Duration::from_millis(100));
    let error = compiled(RULES, &compiler).unwrap_err();
    assert!(
        matches!(error, SignatureError::Compile(CompileError::Late { .. })),
        "{error}"
    );
    assert_eq!(None, compiler.progress().get());
}

#[test]
fn child_that_fails_or_leaves_nothing_is_an_error_in_its_words() {
    let error = compiled(RULES, &shell("echo 'sluice: it is broken' >&2; exit 1", PATIENCE)).unwrap_err();
    assert!(
        error.to_string().ends_with("can't be compiled: it is broken"),
        "{error}"
    );
    let error = compiled(RULES, &shell("exit 0", PATIENCE)).unwrap_err();
    assert!(error.to_string().ends_with("the cache file does not exist"), "{error}");
    let nobody = Compiler {
        program: Some(program(Path::new("/no/such/program"), &[])),
        ..Compiler::here()
    };
    let error = compiled(RULES, &nobody).unwrap_err();
    assert!(
        matches!(error, SignatureError::Compile(CompileError::Start(_))),
        "{error}"
    );
}
