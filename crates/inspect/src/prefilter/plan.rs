//! From signatures to databases.

mod written;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::choice::{Choice, choice, classes};
use super::{Class, Error, Group, Prefilter, Refused, Search};
use crate::bindings::vectorscan::{self, Block, Database, Mode, Pattern, Streaming};
use crate::signature::{Expression, Protocol, Signature};

/// What is searched for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Needle {
    Literal {
        bytes: Box<[u8]>,
        caseless: bool,
    },
    Expression {
        source: Box<str>,
        /// `i`, `s`, `m`, `x`
        flags: [bool; 4],
    },
}

impl Needle {
    fn of(expression: &Expression) -> Needle {
        let source = expression.pattern.clone();
        let flags = [
            expression.caseless,
            expression.dot_all,
            expression.multi_line,
            expression.extended,
        ];
        Needle::Expression { source, flags }
    }

    fn pattern(&self, id: u32) -> Option<Pattern<'_>> {
        match self {
            Needle::Literal { bytes, caseless } => Some(Pattern {
                bytes,
                caseless: *caseless,
                id,
            }),
            Needle::Expression { .. } => None,
        }
    }

    fn expression(&self, id: u32) -> Option<vectorscan::Expression<'_>> {
        match self {
            Needle::Literal { .. } => None,
            Needle::Expression { source, flags } => Some(vectorscan::Expression {
                source,
                caseless: flags[0],
                dot_all: flags[1],
                multi_line: flags[2],
                extended: flags[3],
                id,
            }),
        }
    }

    /// Bytes of the shortest and longest match.
    fn width(&self) -> (u32, Option<u32>) {
        match self {
            Needle::Literal { bytes, .. } => (bytes.len() as u32, Some(bytes.len() as u32)),
            Needle::Expression { .. } => {
                let width = self.expression(0).map(|expression| expression.width());
                width.and_then(Result::ok).unwrap_or((0, None))
            }
        }
    }
}

/// Patterns with the positions of their rules.
type Needles = BTreeMap<Needle, Vec<u32>>;

/// A rule that has nothing but expressions to search for.
#[derive(Debug)]
struct Expressive {
    rule: u32,
    /// Each with its classes; the first that Vectorscan takes is searched for.
    candidates: Vec<(Needle, Vec<Class>)>,
}

/// SHA-256 of everything that a prefilter is made from: two sets of rules that are searched for alike have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

/// What is searched for on behalf of which rule.
#[derive(Debug)]
pub struct Plan {
    literals: [Needles; Class::COUNT],
    expressive: Vec<Expressive>,
    unconditional: Vec<(Protocol, Vec<u32>)>,
    /// By class.
    by_port: [Vec<u32>; Class::COUNT],
    /// Lines and numbers, to name what is refused.
    names: Vec<Refused>,
}

impl Plan {
    /// Chooses a pattern for each signature; milliseconds, for thousands of them.
    pub fn of<'s>(signatures: impl IntoIterator<Item = &'s Signature>) -> Plan {
        let mut plan = Plan {
            literals: std::array::from_fn(|_| BTreeMap::new()),
            expressive: Vec::new(),
            unconditional: Vec::new(),
            by_port: std::array::from_fn(|_| Vec::new()),
            names: Vec::new(),
        };
        for (rule, signature) in (0..).zip(signatures) {
            plan.names.push(Refused {
                line: signature.line,
                id: signature.id,
                why: "".into(),
            });
            match choice(signature) {
                Choice::Literal(buffer, bytes, caseless) => {
                    let bytes = match caseless {
                        true => bytes.to_ascii_lowercase().into(),
                        false => bytes.into(),
                    };
                    let needle = Needle::Literal { bytes, caseless };
                    for class in classes(signature, buffer) {
                        plan.literals[class.index()]
                            .entry(needle.clone())
                            .or_default()
                            .push(rule);
                    }
                }
                Choice::Expressions(expressions) => plan.expressive.push(Expressive {
                    rule,
                    candidates: expressions
                        .into_iter()
                        .map(|expression| (Needle::of(expression), classes(signature, expression.buffer)))
                        .collect(),
                }),
                Choice::Ports(buffer) => {
                    for class in classes(signature, buffer) {
                        plan.by_port[class.index()].push(rule);
                    }
                }
                Choice::Event => {}
                Choice::Nothing => {
                    let protocol = signature.header.protocol;
                    match plan.unconditional.iter_mut().find(|(of, _)| *of == protocol) {
                        Some((_, rules)) => rules.push(rule),
                        None => plan.unconditional.push((protocol, vec![rule])),
                    }
                }
            }
        }
        plan
    }

    /// The rule whose expressions are compiled by themselves when so many patterns are done; none where others are, or
    /// all of a class together.
    pub fn expression_at(&self, done: usize) -> Option<&Refused> {
        let rule = self.expressive.get(done)?.rule;
        self.names.get(rule as usize)
    }

    /// Compiles the databases; `progress` is told how many patterns are done, and of how many.
    pub fn compile(mut self, progress: &mut dyn FnMut(usize, usize)) -> Result<Prefilter, Error> {
        let fingerprint = self.fingerprint();
        let total = self.literals.iter().map(BTreeMap::len).sum::<usize>() + self.expressive.len();
        let mut done = 0;
        let mut refused = Vec::new();
        let mut name = |rule: u32, why: &str| {
            refused.push(Refused {
                why: why.into(),
                ..self.names[rule as usize].clone()
            });
        };
        for expressive in self.expressive {
            match expressive.chosen() {
                Ok((needle, classes)) => {
                    for class in classes {
                        let rules = self.literals[class.index()].entry(needle.clone()).or_default();
                        rules.push(expressive.rule);
                    }
                }
                Err(why) => name(expressive.rule, &why),
            }
            done += 1;
            progress(done, total);
        }
        let mut groups = [const { None }; Class::COUNT];
        for (index, needles) in self.literals.into_iter().enumerate() {
            let class = Class::from_index(index).expect("every class has its place");
            done += needles.keys().filter(|needle| needle.pattern(0).is_some()).count();
            let mut needles: Vec<(Needle, Vec<u32>)> = needles.into_iter().collect();
            while !needles.is_empty() {
                match search(class, &needles) {
                    Ok(search) => {
                        groups[index] = Some(group(class, search, &needles));
                        break;
                    }
                    // What Vectorscan took alone it may refuse among others.
                    Err(vectorscan::Error::Refused { id: Some(id), message }) if (id as usize) < needles.len() => {
                        let (_, rules) = needles.remove(id as usize);
                        rules.into_iter().for_each(|rule| name(rule, &message));
                    }
                    Err(source) => return Err(Error::Class { class, source }),
                }
            }
            progress(done, total);
        }
        refused.sort_by_key(|refused| (refused.line, refused.id));
        refused.dedup();
        Ok(Prefilter {
            groups,
            unconditional: self
                .unconditional
                .into_iter()
                .map(|(protocol, rules)| (protocol, rules.into()))
                .collect(),
            by_port: self.by_port.map(Vec::into_boxed_slice),
            refused,
            fingerprint,
        })
    }
}

impl Prefilter {
    /// Chooses and compiles; as [`Plan::of`] and [`Plan::compile`].
    pub fn compile(signatures: &[Signature], progress: &mut dyn FnMut(usize, usize)) -> Result<Prefilter, Error> {
        Plan::of(signatures).compile(progress)
    }
}

impl Expressive {
    /// The first expression that Vectorscan compiles by itself, or what it says about the last.
    fn chosen(&self) -> Result<(&Needle, &[Class]), Box<str>> {
        let mut why = "".into();
        for (needle, classes) in &self.candidates {
            let alone = |class: &Class| search(*class, &[(needle.clone(), Vec::new())]).map(drop);
            match classes.iter().try_for_each(alone) {
                Ok(()) => return Ok((needle, classes)),
                Err(vectorscan::Error::Refused { message, .. }) => why = message,
                Err(other) => why = other.to_string().into(),
            }
        }
        Err(why)
    }
}

fn search(class: Class, needles: &[(Needle, Vec<u32>)]) -> Result<Search, vectorscan::Error> {
    fn compile<M: Mode>(needles: &[(Needle, Vec<u32>)]) -> Result<Database<M>, vectorscan::Error> {
        let numbered = || (0..).zip(needles);
        let patterns: Vec<Pattern> = numbered().filter_map(|(id, (needle, _))| needle.pattern(id)).collect();
        let expressions: Vec<vectorscan::Expression> = numbered()
            .filter_map(|(id, (needle, _))| needle.expression(id))
            .collect();
        Database::compile(&patterns, &expressions)
    }
    Ok(match class {
        Class::Stream(_) => Search::Stream(Arc::new(compile::<Streaming>(needles)?)),
        _ => Search::Block(compile::<Block>(needles)?),
    })
}

fn group(class: Class, search: Search, needles: &[(Needle, Vec<u32>)]) -> Group {
    let mut group = Group {
        class,
        search,
        rules: needles.iter().flat_map(|(_, rules)| rules).copied().collect(),
        starts: Box::default(),
        shortest: u32::MAX,
        longest: Some(0),
        expressions: 0,
    };
    let mut starts = vec![0];
    for (needle, rules) in needles {
        starts.push(starts[starts.len() - 1] + rules.len() as u32);
        let (shortest, longest) = needle.width();
        group.shortest = group.shortest.min(shortest);
        group.longest = group.longest.zip(longest).map(|(one, other)| one.max(other));
        group.expressions += u32::from(needle.pattern(0).is_none());
    }
    group.starts = starts.into();
    group
}
