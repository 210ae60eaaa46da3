//! A rule in a form for evaluation: cheap tests of the packet come first, then the other conditions in order.
//! Expressions are compiled, and names are replaced by numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_wire::ipv4::protocol::{ICMP, ICMPV6, TCP, UDP};

use crate::bindings::expression::{CompiledPattern, PatternError, PatternOptions};
use crate::datasets::Dataset;
use crate::evaluate::Needle;
use crate::prefilter;
use crate::signature::{
    Base64Decode, Buffer, ByteExtract, ByteJump, ByteMath, ByteTest, Condition, Content, DatasetCommand, DatasetTest,
    DatasetValue, FlowBit, FlowIntCommand, IsDataAt, JumpFrom, Operand, Protocol, Signature, Track, Transform, XBits,
};

/// Maximum number of values that a rule extracts.
pub const MAX_EXTRACTED: usize = 8;

/// A compiled rule, ready for evaluation.
#[derive(Debug)]
pub struct Rule {
    /// The signature from which the rule was compiled.
    pub signature: Arc<Signature>,
    /// Conditions on the packet and the flow.
    pub(crate) tests: Box<[Condition]>,
    /// Flowbits that the rule tests or sets.
    pub(crate) notes: Box<[FlowBitsOp]>,
    /// Flowints that the rule tests or changes.
    pub(crate) ints: Box<[FlowIntOp]>,
    /// Conditions on hosts: xbits and lists of addresses.
    pub(crate) gates: Box<[HostCondition]>,
    /// Transformed buffers that steps inspect. An entry has no transforms if no step inspects its buffer.
    pub(crate) transformed: Box<[(Buffer, Box<[CompiledTransform]>)]>,
    /// Conditions on data, in order.
    pub(crate) steps: Box<[Step]>,
    /// Whether the rule is evaluated only when an anomaly or a stream event occurs.
    pub(crate) is_of_event: bool,
    /// Whether all conditions have relative positions in the payload. Message boundaries then do not affect the rule.
    pub(crate) floats: bool,
    /// Whether later conditions depend only on the end of an earlier match. In this case a partial match remains usable
    /// after its bytes have been discarded.
    pub(crate) resumes: bool,
    /// Bit set of the buffers that the rule inspects.
    buffers: u64,
}

/// A condition on hosts.
#[derive(Debug)]
pub(crate) enum HostCondition {
    /// A condition on xbits, with the hash of their name.
    Bits(XBits, u64),
    /// A condition on an address in a list.
    Address(Track, DatasetCommand, Arc<Dataset>),
}

/// An operation on a flowint.
#[derive(Debug)]
pub(crate) struct FlowIntOp {
    pub number: u16,
    pub command: FlowIntCommand,
    /// Index of the second flowint, if the operand is a flowint.
    pub other: Option<u16>,
}

/// A transform of a buffer.
#[derive(Debug)]
pub(crate) enum CompiledTransform {
    Plain(Transform),
    Expression(CompiledPattern),
}

/// A condition on data.
#[derive(Debug)]
pub(crate) enum Step {
    Content {
        content: Content,
        needle: Needle,
        /// Whether the prefilter searches for this content and reports every position.
        searched: bool,
    },
    Expression {
        buffer: Buffer,
        compiled: CompiledPattern,
        negated: bool,
        relative: bool,
    },
    ByteTest(ByteTest),
    ByteJump(ByteJump),
    ByteExtract(ByteExtract),
    ByteMath(ByteMath),
    Dataset(Buffer, DatasetCommand, Arc<Dataset>),
    IsDataAt(IsDataAt),
    Base64Decode(Base64Decode),
    Length(Buffer, std::ops::RangeInclusive<u32>),
}

/// An operation on flowbits.
#[derive(Debug)]
pub(crate) struct FlowBitsOp {
    pub command: FlowBit,
    pub bits: Box<[u16]>,
    pub any: bool,
}

/// Why a signature can't be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// PCRE2 rejects the expression.
    #[error("pcre:\"/{pattern}/\": {reason}")]
    Expression {
        /// The expression.
        pattern: Box<str>,
        /// Error that PCRE2 returned.
        reason: PatternError,
    },
    /// The expression of a `pcrexform` captures no group, so the transformed buffer would be empty.
    #[error("pcrexform:\"{0}\": the expression has no group to select a part of the buffer")]
    Group(Box<str>),
    /// The rule extracts more values than are supported.
    #[error("the rule extracts more than {MAX_EXTRACTED} numbers")]
    Numbers,
    /// The ruleset uses more names of flow variables than are supported.
    #[error("the rules use more than {} different flowbits or flowints", u16::MAX)]
    Names,
}

/// Names of the flow variables of a ruleset.
#[derive(Debug, Default)]
pub struct FlowVarNames {
    bits: BTreeMap<Box<str>, u16>,
    ints: BTreeMap<Box<str>, u16>,
}

impl FlowVarNames {
    /// Number of 64-bit words of the variables in each flow. Flowbits start at the first word, and flowints are stored
    /// backwards from the last word.
    pub fn words(&self) -> usize {
        self.bits.len().div_ceil(64) + self.ints.len()
    }

    fn bit(&mut self, name: &str) -> Result<u16, CompileError> {
        numbered(&mut self.bits, name)
    }

    fn int(&mut self, name: &str) -> Result<u16, CompileError> {
        numbered(&mut self.ints, name)
    }
}

fn numbered(names: &mut BTreeMap<Box<str>, u16>, name: &str) -> Result<u16, CompileError> {
    if let Some(&number) = names.get(name) {
        return Ok(number);
    }
    let number = u16::try_from(names.len()).map_err(|_| CompileError::Names)?;
    names.insert(name.into(), number);
    Ok(number)
}

/// Hash of a name that is stable across rulesets (FNV-1a).
fn name_hash(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn compiled(pattern: &str, options: PatternOptions) -> Result<CompiledPattern, CompileError> {
    CompiledPattern::new(pattern, options).map_err(|reason| CompileError::Expression {
        pattern: pattern.into(),
        reason,
    })
}

/// Whether the positions of all steps are in the payload and do not depend on the start of the payload.
fn floats(steps: &[Step]) -> bool {
    let is_free = |step: &Step| {
        step.buffer() == Buffer::Payload
            && match step {
                Step::Content { content, .. } => {
                    !content.negated && !content.ends && content.offset.is_none() && content.depth.is_none()
                }
                Step::Expression { negated, relative, .. } => !negated && *relative,
                Step::ByteJump(jump) => jump.number.relative && jump.from == JumpFrom::Number,
                Step::Length(..) | Step::Dataset(..) => false,
                relative => relative.is_relative(),
            }
    };
    matches!(steps.first(), Some(Step::Content { .. })) && steps.iter().all(is_free)
}

/// Whether all steps inspect the same stream or file, and no step extracts values or decodes bytes for later steps.
fn resumes(steps: &[Step]) -> bool {
    let is_long = |buffer| matches!(buffer, Buffer::Payload | Buffer::FileData | Buffer::HttpClientBody);
    let leaves = |step: &Step| matches!(step, Step::ByteExtract(_) | Step::ByteMath(_) | Step::Base64Decode(_));
    let follows = |pair: &[Step]| is_long(pair[0].buffer()) && pair[1].is_relative();
    !steps.iter().any(leaves) && steps.windows(2).any(follows)
}

impl Rule {
    /// Compiles a signature.
    pub fn new(signature: Arc<Signature>, names: &mut FlowVarNames) -> Result<Self, CompileError> {
        let (mut tests, mut notes, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        let (mut ints, mut gates, mut changes) = (Vec::new(), Vec::new(), Vec::new());
        let mut is_of_event = false;
        let searched = prefilter::anchor_content(&signature);
        for condition in &signature.conditions {
            match condition {
                Condition::Content(content) => steps.push(Step::Content {
                    content: content.clone(),
                    needle: Needle::new(&content.bytes, content.nocase),
                    searched: searched.is_some_and(|searched| std::ptr::eq(searched, content)),
                }),
                Condition::Expression(expression) => {
                    let options = PatternOptions {
                        caseless: expression.caseless,
                        dot_all: expression.dot_all,
                        multi_line: expression.multi_line,
                        extended: expression.extended,
                        anchored: expression.anchored,
                        dollar_end_only: expression.dollar_end_only,
                        ungreedy: expression.ungreedy,
                    };
                    let compiled = compiled(&expression.pattern, options)?;
                    steps.push(Step::Expression {
                        buffer: expression.buffer,
                        compiled,
                        negated: expression.negated,
                        relative: expression.relative,
                    });
                }
                Condition::ByteTest(test) => steps.push(Step::ByteTest(*test)),
                Condition::ByteJump(jump) => steps.push(Step::ByteJump(*jump)),
                Condition::ByteExtract(extract) if usize::from(extract.into) >= MAX_EXTRACTED => {
                    return Err(CompileError::Numbers);
                }
                Condition::ByteExtract(extract) => steps.push(Step::ByteExtract(*extract)),
                Condition::ByteMath(math) if usize::from(math.into) >= MAX_EXTRACTED => {
                    return Err(CompileError::Numbers);
                }
                Condition::ByteMath(math) => steps.push(Step::ByteMath(*math)),
                Condition::Dataset(DatasetTest { set, value, command }) => match value {
                    DatasetValue::Address(track) => gates.push(HostCondition::Address(*track, *command, set.clone())),
                    DatasetValue::Buffer(buffer) => {
                        let step = Step::Dataset(*buffer, *command, set.clone());
                        // A dataset is changed only after all other conditions hold.
                        match command {
                            DatasetCommand::IsSet | DatasetCommand::IsNotSet => steps.push(step),
                            DatasetCommand::Set | DatasetCommand::Unset => changes.push(step),
                        }
                    }
                },
                Condition::XBits(bits) => gates.push(HostCondition::Bits(bits.clone(), name_hash(&bits.name))),
                Condition::FlowInt(int) => ints.push(FlowIntOp {
                    number: names.int(&int.name)?,
                    command: int.command.clone(),
                    other: match int.command.operand() {
                        Some(Operand::Name(name)) => Some(names.int(name)?),
                        _ => None,
                    },
                }),
                Condition::Event(_) => is_of_event = true,
                Condition::IsDataAt(at) => steps.push(Step::IsDataAt(*at)),
                Condition::Base64Decode(decode) => steps.push(Step::Base64Decode(*decode)),
                Condition::BufferLength(buffer, length) => steps.push(Step::Length(*buffer, length.clone())),
                Condition::FlowBits(bits) => notes.push(FlowBitsOp {
                    command: bits.command,
                    bits: bits
                        .names
                        .iter()
                        .map(|name| names.bit(name))
                        .collect::<Result<_, _>>()?,
                    any: bits.any,
                }),
                test => tests.push(test.clone()),
            }
        }
        steps.extend(changes);
        let looks = |buffer: Buffer| steps.iter().any(|step| step.buffer() == buffer);
        let transformed = Buffer::TRANSFORMED.into_iter().zip(&signature.transformed);
        let transformed = transformed.map(|(own, transformed)| {
            let steps = transformed.steps.iter().filter(|_| looks(own));
            let changes = steps.map(|step| match step {
                Transform::Expression(pattern) => match compiled(pattern, PatternOptions::default())? {
                    expression if expression.groups() == 0 => Err(CompileError::Group(pattern.clone())),
                    expression => Ok(CompiledTransform::Expression(expression)),
                },
                plain => Ok(CompiledTransform::Plain(plain.clone())),
            });
            Ok((transformed.buffer, changes.collect::<Result<_, _>>()?))
        });
        let transformed: Box<[(Buffer, Box<[CompiledTransform]>)]> = transformed.collect::<Result<_, _>>()?;
        let resumes = transformed.is_empty() && resumes(&steps);
        let inspected = steps.iter().map(Step::buffer).map(|buffer| {
            let changed = buffer.transformed().and_then(|place| transformed.get(place));
            changed.map_or(buffer, |(own, _)| *own)
        });
        Ok(Self {
            buffers: inspected.fold(0, |all, buffer| all | bit(buffer)),
            ints: ints.into(),
            gates: gates.into(),
            transformed,
            is_of_event,
            floats: floats(&steps),
            resumes,
            signature,
            tests: tests.into(),
            notes: notes.into(),
            steps: steps.into(),
        })
    }
}

/// Bit of a buffer in the set of inspected buffers. A request body counts as file data.
fn bit(buffer: Buffer) -> u64 {
    match buffer {
        Buffer::HttpClientBody => 1 << Buffer::FileData as u32,
        buffer => 1 << buffer as u32,
    }
}

impl Rule {
    /// Whether new bytes in a buffer can change the rule's result. A rule that inspects no buffer may depend on any buffer.
    pub(crate) fn inspects(&self, buffer: Buffer) -> bool {
        self.buffers == 0 || self.buffers & bit(buffer) != 0
    }

    /// Whether a match sets flow variables, xbits or list entries, which other rules may test.
    pub(crate) fn sets_flow_vars(&self) -> bool {
        let takes = |gate: &HostCondition| match gate {
            HostCondition::Bits(bits, _) => !bits.command.is_test(),
            HostCondition::Address(_, command, _) => matches!(command, DatasetCommand::Set | DatasetCommand::Unset),
        };
        self.notes.iter().any(|note| !note.command.is_test())
            || self.ints.iter().any(|int| !int.command.is_test())
            || self.gates.iter().any(takes)
    }

    /// Whether the rule can match packets of an IP protocol. ICMP includes ICMPv6. The number for other protocols stands for
    /// all protocols except TCP, UDP and ICMP.
    pub(crate) fn matches_protocol(&self, number: u8) -> bool {
        let kind = |number: u8| match number {
            ICMPV6 => ICMP,
            TCP | UDP | ICMP => number,
            _ => 0,
        };
        match self.signature.header.protocol {
            Protocol::Number(own) => kind(own) == kind(number),
            protocol => protocol.matches(number),
        }
    }

    /// Whether the rule inspects a protocol buffer, which does not exist for a single packet.
    pub(crate) fn is_message_rule(&self) -> bool {
        let looks = |step: &Step| !matches!(step.buffer(), Buffer::Payload | Buffer::Base64);
        self.steps.iter().any(looks)
    }
}

impl Rule {
    /// Whether the rule has conditions on single packets in addition to its header.
    pub(crate) fn has_packet_conditions(&self) -> bool {
        !self.tests.is_empty() || !self.steps.is_empty() || !self.ints.is_empty()
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
            Self::ByteMath(math) => math.number.buffer,
            Self::Dataset(buffer, ..) => *buffer,
            Self::IsDataAt(at) => at.buffer,
            Self::Base64Decode(decode) => decode.buffer,
        }
    }

    /// Whether the step's position is relative to the end of the preceding match.
    pub(crate) fn is_relative(&self) -> bool {
        match self {
            Self::Content { content, .. } => content.distance.is_some() || content.within.is_some(),
            Self::Expression { relative, .. } => *relative,
            Self::ByteTest(test) => test.number.relative,
            Self::ByteJump(jump) => jump.number.relative,
            Self::ByteExtract(extract) => extract.number.relative,
            Self::ByteMath(math) => math.number.relative,
            Self::IsDataAt(at) => at.relative,
            Self::Base64Decode(decode) => decode.relative,
            Self::Length(..) | Self::Dataset(..) => false,
        }
    }
}
