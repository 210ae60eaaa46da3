//! A rule as it is evaluated: cheap questions about the packet first, then the conditions in order, with expressions
//! compiled and names turned into numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_wire::ipv4::protocol::{ICMP, ICMPV6, TCP, UDP};

use crate::bindings::expression::{Compiled, Malformed, Options};
use crate::prefilter;
use crate::signature::{
    Base64Decode, Buffer, ByteExtract, ByteJump, ByteTest, Condition, Content, FlowBit, IsDataAt, Protocol, Signature,
};

/// Numbers that a rule extracts at most.
pub const NUMBERS: usize = 8;

/// A rule, ready to be asked.
#[derive(Debug)]
pub struct Rule {
    /// What it says.
    pub signature: Arc<Signature>,
    /// Questions about the packet and the flow.
    pub(crate) tests: Box<[Condition]>,
    /// What must have been noted of the flow.
    pub(crate) notes: Box<[Note]>,
    /// What must be found, in order.
    pub(crate) steps: Box<[Step]>,
}

/// A condition on data.
#[derive(Debug)]
pub(crate) enum Step {
    Content {
        content: Content,
        /// The prefilter searches for it, and tells of every place.
        searched: bool,
    },
    Expression {
        buffer: Buffer,
        compiled: Compiled,
        negated: bool,
        relative: bool,
    },
    ByteTest(ByteTest),
    ByteJump(ByteJump),
    ByteExtract(ByteExtract),
    IsDataAt(IsDataAt),
    Base64Decode(Base64Decode),
    Length(Buffer, std::ops::RangeInclusive<u32>),
}

/// What is done to notes of a flow, or asked about them.
#[derive(Debug)]
pub(crate) struct Note {
    pub command: FlowBit,
    pub bits: Box<[u16]>,
    pub any: bool,
}

/// Why a signature can't be made a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// PCRE2 does not take its expression.
    #[error("pcre:\"/{pattern}/\": {why}")]
    Expression {
        /// The expression.
        pattern: Box<str>,
        /// What PCRE2 says.
        why: Malformed,
    },
    /// More numbers than are kept.
    #[error("it extracts more than {NUMBERS} numbers")]
    Numbers,
    /// More names than are counted.
    #[error("the rules note more than {} different flowbits", u16::MAX)]
    Names,
}

/// The notes that rules take of flows, by name.
#[derive(Debug, Default)]
pub struct Names(BTreeMap<Box<str>, u16>);

impl Names {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn number(&mut self, name: &str) -> Result<u16, Unfit> {
        if let Some(&number) = self.0.get(name) {
            return Ok(number);
        }
        let number = u16::try_from(self.0.len()).map_err(|_| Unfit::Names)?;
        self.0.insert(name.into(), number);
        Ok(number)
    }
}

impl Rule {
    /// The rule of a signature.
    pub fn new(signature: Arc<Signature>, names: &mut Names) -> Result<Self, Unfit> {
        let (mut tests, mut notes, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        let searched = prefilter::chosen(&signature);
        for condition in &signature.conditions {
            match condition {
                Condition::Content(content) => steps.push(Step::Content {
                    content: content.clone(),
                    searched: searched.is_some_and(|searched| std::ptr::eq(searched, content)),
                }),
                Condition::Expression(expression) => {
                    let options = Options {
                        caseless: expression.caseless,
                        dot_all: expression.dot_all,
                        multi_line: expression.multi_line,
                        extended: expression.extended,
                        anchored: expression.anchored,
                        dollar_end_only: expression.dollar_end_only,
                        ungreedy: expression.ungreedy,
                    };
                    let compiled = Compiled::new(&expression.pattern, options).map_err(|why| Unfit::Expression {
                        pattern: expression.pattern.clone(),
                        why,
                    })?;
                    steps.push(Step::Expression {
                        buffer: expression.buffer,
                        compiled,
                        negated: expression.negated,
                        relative: expression.relative,
                    });
                }
                Condition::ByteTest(test) => steps.push(Step::ByteTest(*test)),
                Condition::ByteJump(jump) => steps.push(Step::ByteJump(*jump)),
                Condition::ByteExtract(extract) if usize::from(extract.into) >= NUMBERS => return Err(Unfit::Numbers),
                Condition::ByteExtract(extract) => steps.push(Step::ByteExtract(*extract)),
                Condition::IsDataAt(at) => steps.push(Step::IsDataAt(*at)),
                Condition::Base64Decode(decode) => steps.push(Step::Base64Decode(*decode)),
                Condition::BufferLength(buffer, length) => steps.push(Step::Length(*buffer, length.clone())),
                Condition::FlowBits(bits) => notes.push(Note {
                    command: bits.command,
                    bits: bits
                        .names
                        .iter()
                        .map(|name| names.number(name))
                        .collect::<Result<_, _>>()?,
                    any: bits.any,
                }),
                test => tests.push(test.clone()),
            }
        }
        Ok(Self {
            signature,
            tests: tests.into(),
            notes: notes.into(),
            steps: steps.into(),
        })
    }
}

impl Rule {
    /// Whether it takes notes when it matches, for which others may wait.
    pub(crate) fn takes_notes(&self) -> bool {
        let takes = |note: &Note| !matches!(note.command, FlowBit::IsSet | FlowBit::IsNotSet);
        self.notes.iter().any(takes)
    }

    /// Whether it may be about a protocol over IP. ICMP stands for ICMPv6, too, and any protocol that is neither TCP nor UDP for
    /// all of those.
    pub(crate) fn is_of(&self, number: u8) -> bool {
        let kind = |number: u8| match number {
            ICMPV6 => ICMP,
            TCP | UDP | ICMP => number,
            _ => 0,
        };
        match self.signature.header.protocol {
            Protocol::Number(own) => kind(own) == kind(number),
            protocol => protocol.is(number),
        }
    }

    /// Whether it looks in a buffer of a protocol, which a packet by itself does not have.
    pub(crate) fn is_by_message(&self) -> bool {
        let looks = |step: &Step| !matches!(step.buffer(), Buffer::Payload | Buffer::Base64);
        self.steps.iter().any(looks)
    }
}

impl Step {
    fn buffer(&self) -> Buffer {
        match self {
            Self::Content { content, .. } => content.buffer,
            Self::Expression { buffer, .. } | Self::Length(buffer, _) => *buffer,
            Self::ByteTest(test) => test.number.buffer,
            Self::ByteJump(jump) => jump.number.buffer,
            Self::ByteExtract(extract) => extract.number.buffer,
            Self::IsDataAt(at) => at.buffer,
            Self::Base64Decode(decode) => decode.buffer,
        }
    }

    /// Whether it depends on where the one before ended.
    pub(crate) fn is_relative(&self) -> bool {
        match self {
            Self::Content { content, .. } => content.distance.is_some() || content.within.is_some(),
            Self::Expression { relative, .. } => *relative,
            Self::ByteTest(test) => test.number.relative,
            Self::ByteJump(jump) => jump.number.relative,
            Self::ByteExtract(extract) => extract.number.relative,
            Self::IsDataAt(at) => at.relative,
            Self::Base64Decode(decode) => decode.relative,
            Self::Length(..) => false,
        }
    }
}
