//! A plan as bytes: what tells it from others, and what another process is given to compile.

use sha2::{Digest, Sha256};

use super::super::bytes::{Reader, Short, Writer};
use super::super::{Class, Refused};
use super::{Expressive, Fingerprint, Needle, Needles, Plan};
use crate::signature::Id;

impl Plan {
    /// What tells it from others.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint(Sha256::digest(self.bytes()).into())
    }

    /// All of it. No two plans are written alike.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        for needles in &self.literals {
            out.number(needles.len() as u32);
            for (literal, rules) in needles {
                needle(&mut out, literal);
                out.list(rules);
            }
        }
        out.number(self.expressive.len() as u32);
        for expressive in &self.expressive {
            out.number(expressive.rule);
            out.number(expressive.candidates.len() as u32);
            for (candidate, classes) in &expressive.candidates {
                needle(&mut out, candidate);
                let classes: Vec<_> = classes.iter().map(|class| class.index() as u32).collect();
                out.list(&classes);
            }
        }
        out.number(self.unconditional.len() as u32);
        for (protocol, rules) in &self.unconditional {
            out.protocol(*protocol);
            out.list(rules);
        }
        self.by_port.iter().for_each(|rules| out.list(rules));
        out.number(self.names.len() as u32);
        for name in &self.names {
            let Id {
                generator,
                signature,
                revision,
            } = name.id;
            for number in [name.line, generator, signature, revision] {
                out.number(number);
            }
        }
        out.0
    }

    /// What [`Plan::bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Plan, Short> {
        let mut from = Reader(bytes);
        let mut literals: [Needles; Class::COUNT] = std::array::from_fn(|_| Needles::default());
        for needles in &mut literals {
            for _ in 0..from.number()? {
                needles.insert(read_needle(&mut from)?, from.list()?.into());
            }
        }
        let mut expressive = Vec::new();
        for _ in 0..from.number()? {
            let rule = from.number()?;
            let mut candidates = Vec::new();
            for _ in 0..from.number()? {
                let needle = read_needle(&mut from)?;
                let classes = from.list()?.into_iter();
                let classes: Option<Vec<_>> = classes.map(|index| Class::from_index(index as usize)).collect();
                candidates.push((needle, classes.ok_or(Short)?));
            }
            expressive.push(Expressive { rule, candidates });
        }
        let mut unconditional = Vec::new();
        for _ in 0..from.number()? {
            unconditional.push((from.protocol()?, from.list()?.into()));
        }
        let mut by_port: [Vec<u32>; Class::COUNT] = std::array::from_fn(|_| Vec::new());
        for rules in &mut by_port {
            *rules = from.list()?.into();
        }
        let mut names = Vec::new();
        for _ in 0..from.number()? {
            names.push(Refused {
                line: from.number()?,
                id: Id {
                    generator: from.number()?,
                    signature: from.number()?,
                    revision: from.number()?,
                },
                why: "".into(),
            });
        }
        let plan = Plan {
            literals,
            expressive,
            unconditional,
            by_port,
            names,
        };
        match from.0.is_empty() && plan.rules().all(|rule| (rule as usize) < plan.names.len()) {
            true => Ok(plan),
            false => Err(Short),
        }
    }

    /// Every rule that is named anywhere.
    fn rules(&self) -> impl Iterator<Item = u32> {
        let literals = self.literals.iter().flat_map(|needles| needles.values().flatten());
        let unconditional = self.unconditional.iter().flat_map(|(_, rules)| rules);
        let by_port = self.by_port.iter().flatten();
        let expressive = self.expressive.iter().map(|expressive| expressive.rule);
        literals.chain(unconditional).chain(by_port).copied().chain(expressive)
    }
}

fn needle(out: &mut Writer, needle: &Needle) {
    let (flags, bytes): ([bool; 5], &[u8]) = match needle {
        Needle::Literal { bytes, caseless } => ([false, *caseless, false, false, false], bytes),
        Needle::Expression { source, flags } => ([true, flags[0], flags[1], flags[2], flags[3]], source.as_bytes()),
    };
    out.0.extend(flags.map(u8::from));
    out.bytes(bytes);
}

fn read_needle(from: &mut Reader<'_>) -> Result<Needle, Short> {
    let [is_expression, flags @ ..] = from.array::<5>()?.map(|flag| flag != 0);
    let bytes = from.bytes()?;
    Ok(match is_expression {
        true => Needle::Expression {
            source: std::str::from_utf8(bytes).map_err(|_| Short)?.into(),
            flags,
        },
        false => Needle::Literal {
            bytes: bytes.into(),
            caseless: flags[0],
        },
    })
}
