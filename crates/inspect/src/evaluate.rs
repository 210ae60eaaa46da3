//! Evaluates one rule: tests its conditions in order, at every position at which its contents match.
//!
//! Data may be incomplete: if the result of a rule is not known yet ([`RuleResult::Incomplete`]), the rule is evaluated
//! again when more data arrives, so that a match is found in the packet that completes it.

mod number;
mod packet;
mod search;
#[cfg(test)]
mod tests;
mod transform;

use arrayvec::ArrayVec;

pub use packet::{IcmpFields, IpFields, PacketFields, TcpFields};
pub(crate) use search::Needle;

use crate::bindings::expression::{Matcher, SearchResult};
use transform::{TransformBuffers, WithTransforms};

use crate::datasets::Dataset;
use crate::rule::{FlowBitsOp, FlowIntOp, MAX_EXTRACTED, Rule, Step};
use crate::signature::{
    Base64Decode, Buffer, ByteJump, ByteMath, Content, DatasetCommand, FlowBit, FlowIntCommand, IsDataAt, JumpFrom,
    Operand, Operator, Value,
};
use crate::work_budget::WorkBudget;

/// The visible part of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct BufferView<'a> {
    /// The bytes that are retained.
    pub bytes: &'a [u8],
    /// Offset of the first retained byte from the start of the buffer.
    pub base: u64,
    /// Whether the buffer is complete and grows no more.
    pub complete: bool,
    /// Whether the bytes end with the current packet. Conditions on the end of stream data (such as `endswith`) then
    /// hold at the end of the packet, because the end of a stream is known only after packets were forwarded.
    pub is_final: bool,
}

impl BufferView<'_> {
    fn begin(&self) -> i64 {
        self.base as i64
    }
    fn end(&self) -> i64 {
        self.base as i64 + self.bytes.len() as i64
    }
    /// Whether the buffer ends with these bytes, judged by the data up to the current packet.
    fn is_over(&self) -> bool {
        self.complete || self.is_final
    }
    /// Whether the buffer exists or may still arrive. A header field that the message lacks is represented by a complete, empty
    /// buffer.
    fn may_exist(&self, buffer: Buffer) -> bool {
        buffer == Buffer::Payload || !self.complete || self.end() > 0
    }
    /// The retained bytes between two offsets.
    fn slice(&self, from: i64, to: i64) -> &[u8] {
        let place = |at: i64| (at.clamp(self.begin(), self.end()) - self.begin()) as usize;
        self.bytes.get(place(from)..place(to)).unwrap_or_default()
    }
}

/// Provides buffers to the evaluation.
pub trait BufferSource {
    /// Returns a buffer of the packet, message or transaction. `None`: the buffer does not exist for this packet, and later
    /// data can't create it.
    fn view(&self, buffer: Buffer) -> Option<BufferView<'_>>;

    /// Unique identifier of the message that a protocol buffer belongs to; zeros if there is none.
    fn message(&self, _buffer: Buffer) -> (usize, u32) {
        (0, 0)
    }
}

/// Result of the evaluation of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleResult {
    /// All conditions hold.
    Match,
    /// A condition fails regardless of later data.
    NoMatch,
    /// More data is needed to decide.
    Incomplete,
    /// The rule would match if other rules had set the flow variables that it tests.
    Blocked,
}

impl RuleResult {
    fn or_incomplete(later: bool) -> Self {
        if later { Self::Incomplete } else { Self::NoMatch }
    }
}

/// Progress of a partial match. The evaluation can resume from this progress after the matched bytes have been discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartialMatch {
    /// Number of satisfied steps of the rule.
    pub steps: u8,
    /// Buffer of the last satisfied step.
    pub buffer: Buffer,
    /// Offset at which the last match ended.
    pub end: i64,
    /// Message that contains the last match, as identified by [`BufferSource::message`].
    pub message: (usize, u32),
}

/// Maximum number of steps of one evaluation: positions tried and conditions tested.
const MAX_STEPS: u32 = 4_000;

/// Bytes of a stream or a file that are guaranteed to be retained when the next bytes arrive.
pub(crate) const RETAINED_BYTES: i64 = 1_024;

/// Maximum number of bytes that `base64_decode` writes.
const MAX_DECODED: usize = 1024;
/// Maximum number of encoded bytes read for [`MAX_DECODED`] bytes: four for every three decoded bytes, doubled to allow
/// for line breaks.
const MAX_ENCODED: usize = MAX_DECODED * 8 / 3;

/// Scratch state that a worker needs to evaluate rules.
pub struct Evaluator {
    matcher: Matcher,
    decoded: ArrayVec<u8, MAX_DECODED>,
    numbers: [i64; MAX_EXTRACTED],
    steps: u32,
    /// Number of steps evaluated so far for the current rule.
    evaluated: usize,
    /// Partial match from which the evaluation can resume, if the result was [`RuleResult::Incomplete`].
    pub(crate) partial: Option<PartialMatch>,
    /// Buffers for transforms; `None` during the evaluation of a rule that uses the buffers.
    transforms: Option<Box<TransformBuffers>>,
    /// Work budget of the current packet.
    pub(crate) work: WorkBudget,
    /// The initial work budget. The budget is kept here, so that the packet path never frees its memory.
    first: Option<WorkBudget>,
    /// Whether the rule is evaluated for every packet. Its ordinary cost is then not charged to the sender.
    pub(crate) is_usual: bool,
    /// Evaluations that were given up because they exceeded their work limit.
    pub exhausted: u64,
}

/// Number of steps of a rule that are not charged; most evaluations take fewer steps.
const FREE_STEPS: u32 = 8;

/// Units of work charged for a step: a position tried or a condition tested.
const STEP_COST: u32 = 16;

impl Default for Evaluator {
    fn default() -> Self {
        Self {
            matcher: Matcher::default(),
            decoded: ArrayVec::new(),
            numbers: [0; MAX_EXTRACTED],
            steps: 0,
            evaluated: 0,
            partial: None,
            transforms: Some(Box::default()),
            work: WorkBudget::default(),
            first: None,
            is_usual: false,
            exhausted: 0,
        }
    }
}

/// Where the preceding condition matched.
#[derive(Clone, Copy)]
struct Cursor {
    buffer: Buffer,
    end: i64,
}

impl Cursor {
    /// End of the preceding match, as offset for a condition on `buffer`; 0 if that match is in a different buffer.
    fn on(self, buffer: Buffer) -> i64 {
        if self.buffer == buffer { self.end } else { 0 }
    }
}

impl Evaluator {
    /// Charges evaluations to a work budget from now on.
    #[inline]
    pub(crate) fn set_budget(&mut self, work: &WorkBudget) {
        if !self.work.is_same(work) {
            let before = std::mem::replace(&mut self.work, work.clone());
            self.first.get_or_insert(before);
        }
    }

    /// Evaluates a rule. `bits` contains the flow variables; a match updates the variables that the rule sets.
    pub fn evaluate(
        &mut self,
        rule: &Rule,
        facts: &PacketFields,
        buffers: &impl BufferSource,
        bits: &mut [u64],
    ) -> RuleResult {
        self.resume(None, rule, facts, buffers, bits)
    }

    /// Evaluates a rule, starting at its partial match if one is recorded.
    pub(crate) fn resume(
        &mut self,
        partial: Option<PartialMatch>,
        rule: &Rule,
        facts: &PacketFields,
        buffers: &impl BufferSource,
        bits: &mut [u64],
    ) -> RuleResult {
        self.partial = None;
        if !rule.tests.iter().all(|test| facts.holds(test)) {
            return RuleResult::NoMatch;
        }
        if !rule.notes.iter().all(|note| flow_bits_match(note, bits))
            || !rule.ints.iter().all(|int| flow_int_matches(int, bits))
        {
            return RuleResult::Blocked;
        }
        self.steps = MAX_STEPS;
        self.decoded.clear();
        let (buffer, end) = partial.map_or((Buffer::Payload, 0), |partial| (partial.buffer, partial.end));
        let begin = Cursor { buffer, end };
        let held = partial.map_or(0, |partial| usize::from(partial.steps));
        let steps = rule.steps.get(held..).unwrap_or_default();
        self.evaluated = rule.steps.len();
        let answer = match self.transforms.take_if(|_| !rule.transformed.is_empty()) {
            None => self.evaluate_steps(steps, begin, buffers),
            Some(mut bench) => {
                let answer = match bench.prepare(rule, buffers, &mut self.matcher, &self.work) {
                    true => self.evaluate_steps(
                        steps,
                        begin,
                        &WithTransforms {
                            buffers,
                            transforms: &bench,
                        },
                    ),
                    false => {
                        self.steps = 0;
                        RuleResult::NoMatch
                    }
                };
                self.transforms = Some(bench);
                answer
            }
        };
        if self.steps == 0 && answer != RuleResult::Match {
            self.exhausted += 1;
            self.work.exhaust();
            return RuleResult::NoMatch;
        }
        if answer == RuleResult::Match {
            rule.notes.iter().for_each(|note| update_flow_bits(note, bits));
            rule.ints.iter().for_each(|int| update_flow_int(int, bits));
        }
        answer
    }

    /// Position of a content in data. The bytes searched are charged to the work budget.
    fn find(&mut self, needle: &Needle, data: &[u8]) -> Option<usize> {
        let (found, units) = needle.find(data);
        if !self.is_usual && !self.work.charge(units) {
            self.steps = 0;
            return None;
        }
        found
    }

    /// Counts one more step; false if the evaluation has exceeded its work limit.
    #[inline]
    fn charge_step(&mut self) -> bool {
        let is_usual = MAX_STEPS - self.steps < FREE_STEPS;
        if self.steps > 0 && (is_usual || self.work.charge(STEP_COST)) {
            self.steps -= 1;
            return true;
        }
        self.steps = 0;
        false
    }

    fn evaluate_steps(&mut self, steps: &[Step], at: Cursor, buffers: &impl BufferSource) -> RuleResult {
        let Some((step, rest)) = steps.split_first() else {
            return RuleResult::Match;
        };
        if !self.charge_step() {
            return RuleResult::NoMatch;
        }
        match step {
            Step::Content { content, needle, .. } if content.negated => {
                self.absent((content, needle), rest, at, buffers)
            }
            Step::Content {
                content,
                needle,
                searched,
            } => self.present((content, needle), *searched, rest, at, buffers),
            Step::Expression { .. } => self.expression(step, rest, at, buffers),
            Step::ByteTest(test) => match self.compare(test, at, buffers) {
                RuleResult::Match => self.evaluate_steps(rest, at, buffers),
                other => other,
            },
            Step::ByteJump(jump) => match self.jump(jump, at, buffers) {
                Ok(cursor) => self.evaluate_steps(rest, cursor, buffers),
                Err(answer) => answer,
            },
            Step::ByteExtract(extract) => match self.read(&extract.number, at, buffers) {
                Ok((value, end)) => {
                    let value = value.saturating_mul(i64::from(extract.multiplier.max(1)));
                    let align = i64::from(extract.align.max(1));
                    if let Some(number) = self.numbers.get_mut(usize::from(extract.into)) {
                        *number = value.saturating_add(align - 1) / align * align;
                    }
                    let buffer = extract.number.buffer;
                    self.evaluate_steps(rest, Cursor { buffer, end }, buffers)
                }
                Err(answer) => answer,
            },
            Step::ByteMath(math) => match self.read(&math.number, at, buffers) {
                Ok((value, end)) => {
                    let Some(result) = calculated(math, value, self.value(math.value)) else {
                        return RuleResult::NoMatch;
                    };
                    if let Some(number) = self.numbers.get_mut(usize::from(math.into)) {
                        *number = result;
                    }
                    let buffer = math.number.buffer;
                    self.evaluate_steps(rest, Cursor { buffer, end }, buffers)
                }
                Err(answer) => answer,
            },
            Step::Dataset(buffer, command, set) => match self.dataset_lookup(*buffer, *command, set, buffers) {
                RuleResult::Match => self.evaluate_steps(rest, at, buffers),
                other => other,
            },
            Step::IsDataAt(there) => match self.is_data_at(there, at, buffers) {
                RuleResult::Match => self.evaluate_steps(rest, at, buffers),
                other => other,
            },
            Step::Base64Decode(decode) => match self.decode(decode, at, buffers) {
                RuleResult::Match => self.evaluate_steps(rest, at, buffers),
                other => other,
            },
            Step::Length(buffer, length) => {
                let Some(view) = buffers.view(*buffer) else {
                    return RuleResult::NoMatch;
                };
                let bytes = view.end();
                match (
                    view.complete,
                    bytes > i64::from(*length.end()),
                    bytes >= i64::from(*length.start()),
                ) {
                    (_, true, _) | (true, _, false) => RuleResult::NoMatch,
                    (true, false, true) => self.evaluate_steps(rest, at, buffers),
                    // A length condition without an upper bound can already be satisfied by an incomplete buffer.
                    (false, false, true) if *length.end() == u32::MAX => self.evaluate_steps(rest, at, buffers),
                    (false, ..) => RuleResult::Incomplete,
                }
            }
        }
    }

    fn value(&self, value: Value) -> i64 {
        match value {
            Value::Constant(value) => value,
            Value::Extracted(number) => self.numbers.get(usize::from(number)).copied().unwrap_or(0),
        }
    }

    /// Range in which a content may match: its start, and its end if the range is bounded.
    fn region(&self, content: &Content, at: Cursor) -> (i64, Option<i64>) {
        let relative = content.distance.is_some() || content.within.is_some();
        let of = |value: Option<Value>| value.map(|value| self.value(value));
        let (mut from, mut to) = (0, None);
        if let Some(offset) = of(content.offset) {
            from = offset;
        }
        if let Some(depth) = of(content.depth) {
            to = Some(from.saturating_add(depth));
        }
        if relative {
            let begin = at.on(content.buffer).saturating_add(of(content.distance).unwrap_or(0));
            from = from.max(begin);
            if let Some(within) = of(content.within) {
                let end = begin.saturating_add(within);
                to = Some(to.map_or(end, |to: i64| to.min(end)));
            }
        }
        (from.max(0), to)
    }

    fn present(
        &mut self,
        (content, needle): (&Content, &Needle),
        searched: bool,
        rest: &[Step],
        at: Cursor,
        buffers: &impl BufferSource,
    ) -> RuleResult {
        let decoded;
        let Some(view) = (match content.buffer {
            Buffer::Base64 => {
                decoded = self.decoded.clone();
                Some(BufferView {
                    bytes: &decoded,
                    base: 0,
                    complete: true,
                    is_final: true,
                })
            }
            buffer => buffers.view(buffer),
        }) else {
            return RuleResult::NoMatch;
        };
        let (from, to) = self.region(content, at);
        let end = to.unwrap_or(i64::MAX).min(view.end());
        // Only unsearched contents must remain pending: the prefilter reports later positions of searched contents.
        let mut later = !searched && !view.complete && to.is_none_or(|to| to > view.end());
        let again = rest.first().is_some_and(Step::is_relative);
        let mut start = from.max(view.begin());
        while let Some(found) = self.find(needle, view.slice(start, end)) {
            if !self.charge_step() {
                return RuleResult::NoMatch;
            }
            let place = start + found as i64;
            let behind = place + content.bytes.len() as i64;
            start = place + 1;
            if content.ends && !(view.is_over() && behind == view.end()) {
                later |= !view.complete;
                continue;
            }
            let cursor = match content.fast {
                // `fast_pattern:only` yields no position, so no condition is relative to it.
                crate::signature::FastPattern::Only => at,
                _ => Cursor {
                    buffer: content.buffer,
                    end: behind,
                },
            };
            let before = self.partial.take();
            let answer = self.evaluate_steps(rest, cursor, buffers);
            // Record the partial match at the last position, from which the next condition can reach furthest.
            self.partial = match answer {
                RuleResult::Incomplete if again => self.partial.or_else(|| self.match_prefix(rest, cursor, buffers)),
                _ => before,
            };
            match answer {
                RuleResult::Match => return RuleResult::Match,
                RuleResult::Incomplete | RuleResult::Blocked => later = true,
                // The remaining steps do not depend on this position, so no other position can make them match.
                RuleResult::NoMatch if !again => return RuleResult::NoMatch,
                RuleResult::NoMatch => {}
            }
            if !again {
                break;
            }
        }
        RuleResult::or_incomplete(later)
    }

    /// Records that all steps before `rest` are satisfied up to the cursor.
    fn match_prefix(&self, rest: &[Step], cursor: Cursor, buffers: &impl BufferSource) -> Option<PartialMatch> {
        Some(PartialMatch {
            steps: u8::try_from(self.evaluated.checked_sub(rest.len())?).ok()?,
            buffer: cursor.buffer,
            end: cursor.end,
            message: buffers.message(cursor.buffer),
        })
    }

    fn absent(
        &mut self,
        (content, needle): (&Content, &Needle),
        rest: &[Step],
        at: Cursor,
        buffers: &impl BufferSource,
    ) -> RuleResult {
        // A buffer that does not exist can't satisfy a negated content.
        let decoded;
        let view = match content.buffer {
            Buffer::Base64 => {
                decoded = self.decoded.clone();
                Some(BufferView {
                    bytes: &decoded,
                    base: 0,
                    complete: true,
                    is_final: true,
                })
            }
            buffer => buffers.view(buffer),
        };
        let Some(view) = view.filter(|view| view.may_exist(content.buffer)) else {
            return RuleResult::NoMatch;
        };
        let (from, to) = self.region(content, at);
        let end = to.unwrap_or(i64::MAX).min(view.end());
        let mut start = from.max(view.begin());
        while let Some(found) = self.find(needle, view.slice(start, end)) {
            let behind = start + (found + content.bytes.len()) as i64;
            start += found as i64 + 1;
            if !content.ends || view.complete && behind == view.end() {
                return RuleResult::NoMatch;
            }
            if view.is_final && behind == view.end() {
                return RuleResult::Incomplete;
            }
            if !self.charge_step() {
                return RuleResult::NoMatch;
            }
        }
        // The search was aborted before the end of the data, so the absence of the content is not proven.
        if self.steps == 0 {
            return RuleResult::NoMatch;
        }
        let open = !content.ends && to.is_none_or(|to| to > view.end());
        let undecided = !view.complete && (open || content.ends && !view.is_final);
        // A negated content with a bound waits for the end of its range. A negated content without a bound does not wait for the end of the stream.
        if undecided && (to.is_some() || content.ends || content.buffer != Buffer::Payload) {
            return RuleResult::Incomplete;
        }
        self.evaluate_steps(rest, at, buffers)
    }

    fn expression(&mut self, step: &Step, rest: &[Step], at: Cursor, buffers: &impl BufferSource) -> RuleResult {
        let Step::Expression {
            buffer,
            compiled,
            negated,
            relative,
        } = step
        else {
            return RuleResult::NoMatch;
        };
        let decoded;
        let view = match buffer {
            Buffer::Base64 => {
                decoded = self.decoded.clone();
                Some(BufferView {
                    bytes: &decoded,
                    base: 0,
                    complete: true,
                    is_final: true,
                })
            }
            buffer => buffers.view(*buffer),
        };
        let Some(view) = view else {
            return RuleResult::NoMatch;
        };
        if *negated && !view.may_exist(*buffer) {
            return RuleResult::NoMatch;
        }
        let from = if *relative { at.on(*buffer) } else { 0 };
        let again = rest.first().is_some_and(Step::is_relative);
        let (mut start, mut later) = (from.max(view.begin()), false);
        let mut starts = start == from;
        loop {
            if !self.charge_step() {
                return RuleResult::NoMatch;
            }
            let data = view.slice(start, i64::MAX);
            let account = (&self.work, self.is_usual);
            let mut found = self.matcher.find_within(account, compiled, data, starts, view.complete);
            if found == SearchResult::Incomplete && !negated && view.is_final && compiled.depends_on_end() {
                found = match self.matcher.find_within(account, compiled, data, starts, true) {
                    SearchResult::NoMatch => SearchResult::Incomplete,
                    found => found,
                };
            }
            match found {
                SearchResult::Exhausted => {
                    self.steps = 0;
                    return RuleResult::NoMatch;
                }
                SearchResult::Match(_) if *negated => return RuleResult::NoMatch,
                SearchResult::NoMatch if *negated => return self.evaluate_steps(rest, at, buffers),
                SearchResult::Incomplete if *negated && *buffer == Buffer::Payload => {
                    return self.evaluate_steps(rest, at, buffers);
                }
                SearchResult::Incomplete => return RuleResult::Incomplete,
                SearchResult::NoMatch => return RuleResult::or_incomplete(later),
                SearchResult::Match(range) => {
                    let end = start + range.end as i64;
                    match self.evaluate_steps(rest, Cursor { buffer: *buffer, end }, buffers) {
                        RuleResult::Match => return RuleResult::Match,
                        RuleResult::Incomplete | RuleResult::Blocked => later = true,
                        RuleResult::NoMatch => {}
                    }
                    if !again {
                        return RuleResult::or_incomplete(later);
                    }
                    start += range.start as i64 + 1;
                    starts = false;
                    if start > view.end() {
                        return RuleResult::or_incomplete(later || !view.complete);
                    }
                }
            }
        }
    }

    fn jump(&mut self, jump: &ByteJump, at: Cursor, buffers: &impl BufferSource) -> Result<Cursor, RuleResult> {
        let (value, behind) = self.read(&jump.number, at, buffers)?;
        let buffer = jump.number.buffer;
        let view = buffers.view(buffer).ok_or(RuleResult::NoMatch)?;
        let mut far = value.saturating_mul(i64::from(jump.multiplier.max(1)));
        if jump.align {
            far = far.saturating_add(3) / 4 * 4;
        }
        let begin = match jump.from {
            JumpFrom::Number => behind,
            JumpFrom::Begin => 0,
            JumpFrom::End if view.is_over() => view.end(),
            JumpFrom::End => return Err(RuleResult::Incomplete),
        };
        let end = begin.saturating_add(far).saturating_add(self.value(jump.post_offset));
        if end < 0 {
            Err(RuleResult::NoMatch)
        } else if end > view.end() {
            Err(RuleResult::or_incomplete(!view.complete))
        } else {
            Ok(Cursor { buffer, end })
        }
    }

    fn is_data_at(&self, there: &IsDataAt, at: Cursor, buffers: &impl BufferSource) -> RuleResult {
        let Some(view) = buffers.view(there.buffer) else {
            return RuleResult::NoMatch;
        };
        let from = if there.relative { at.on(there.buffer) } else { 0 };
        let place = from.saturating_add(self.value(there.at));
        match (view.end() > place, view.complete) {
            (is, true) if is != there.negated => RuleResult::Match,
            (true, false) if !there.negated => RuleResult::Match,
            (false, false) if there.negated && view.is_final => RuleResult::Match,
            (false, false) => RuleResult::Incomplete,
            _ => RuleResult::NoMatch,
        }
    }

    /// Whether the whole content of a buffer is in a list.
    fn dataset_lookup(
        &self,
        buffer: Buffer,
        command: DatasetCommand,
        set: &Dataset,
        buffers: &impl BufferSource,
    ) -> RuleResult {
        let view = match buffer {
            Buffer::Base64 => BufferView {
                bytes: &self.decoded,
                base: 0,
                complete: true,
                is_final: true,
            },
            buffer => match buffers.view(buffer) {
                Some(view) => view,
                None => return RuleResult::NoMatch,
            },
        };
        if !view.is_over() {
            return RuleResult::Incomplete;
        }
        // Only the last bytes of a long body may be retained. A part of a body must not be compared with the list.
        if view.base > 0 || !set.accepts(view.bytes) {
            return RuleResult::NoMatch;
        }
        match apply_dataset(set, command, view.bytes) {
            true => RuleResult::Match,
            false => RuleResult::NoMatch,
        }
    }

    fn decode(&mut self, decode: &Base64Decode, at: Cursor, buffers: &impl BufferSource) -> RuleResult {
        let Some(view) = buffers.view(decode.buffer) else {
            return RuleResult::NoMatch;
        };
        let from = if decode.relative { at.on(decode.buffer) } else { 0 } + i64::from(decode.offset);
        let to = decode.bytes.map_or(i64::MAX, |bytes| from + i64::from(bytes));
        if from >= view.end() {
            return RuleResult::or_incomplete(!view.complete);
        }
        let encoded = view.slice(from, to);
        let encoded = &encoded[..encoded.len().min(MAX_ENCODED)];
        if !self.work.charge(encoded.len() as u32) {
            self.steps = 0;
            return RuleResult::NoMatch;
        }
        search::decode_base64(encoded, &mut self.decoded);
        if self.decoded.is_empty() {
            RuleResult::or_incomplete(!view.complete)
        } else {
            RuleResult::Match
        }
    }
}

/// Executes a dataset command: tests, adds or removes a value.
pub(crate) fn apply_dataset(set: &Dataset, command: DatasetCommand, value: &[u8]) -> bool {
    match command {
        DatasetCommand::IsSet => set.contains(value),
        DatasetCommand::IsNotSet => !set.contains(value),
        DatasetCommand::Set => set.add(value),
        DatasetCommand::Unset => set.remove(value),
    }
}

fn calculated(math: &ByteMath, number: i64, value: i64) -> Option<i64> {
    let result = match math.operator {
        Operator::Add => number.checked_add(value),
        Operator::Subtract => number.checked_sub(value),
        Operator::Multiply => number.checked_mul(value),
        Operator::Divide => number.checked_div(value),
        Operator::ShiftLeft => {
            let places = u32::try_from(value).ok().filter(|places| *places < 64)?;
            let result = number.checked_shl(places)?;
            (result >> places == number).then_some(result)
        }
        Operator::ShiftRight => number.checked_shr(u32::try_from(value).ok()?).or(Some(0)),
    };
    result.filter(|result| *result >= 0)
}

/// Bit that marks a flowint as set, above the 32 bits of its value.
const INT_IS_SET: u64 = 1 << 63;

/// Index of a flowint. Flowints are stored backwards from the last word of the flow variables.
fn flow_int_index(number: u16, words: usize) -> Option<usize> {
    words.checked_sub(usize::from(number) + 1)
}

/// Value of a flowint, if it is set.
fn flow_int(number: u16, bits: &[u64]) -> Option<u32> {
    let word = *bits.get(flow_int_index(number, bits.len())?)?;
    (word & INT_IS_SET != 0).then_some(word as u32)
}

fn operand(int_note: &FlowIntOp, bits: &[u64]) -> Option<u32> {
    match (int_note.command.operand()?, int_note.other) {
        (Operand::Constant(value), _) => Some(*value),
        (Operand::Name(_), other) => flow_int(other?, bits),
    }
}

fn flow_int_matches(required: &FlowIntOp, bits: &[u64]) -> bool {
    let number = flow_int(required.number, bits);
    let compares = |is: fn(&u32, &u32) -> bool| {
        number
            .zip(operand(required, bits))
            .is_some_and(|(one, other)| is(&one, &other))
    };
    match required.command {
        FlowIntCommand::IsSet => number.is_some(),
        FlowIntCommand::IsNotSet => number.is_none(),
        FlowIntCommand::Less(_) => compares(u32::lt),
        FlowIntCommand::LessOrEqual(_) => compares(u32::le),
        FlowIntCommand::Equal(_) => compares(u32::eq),
        FlowIntCommand::NotEqual(_) => compares(u32::ne),
        FlowIntCommand::GreaterOrEqual(_) => compares(u32::ge),
        FlowIntCommand::Greater(_) => compares(u32::gt),
        FlowIntCommand::Set(_) | FlowIntCommand::Add(_) | FlowIntCommand::Subtract(_) => true,
    }
}

fn update_flow_int(taken: &FlowIntOp, bits: &mut [u64]) {
    let Some(value) = operand(taken, bits).filter(|_| !taken.command.is_test()) else {
        return;
    };
    let number = flow_int(taken.number, bits).unwrap_or(0);
    let number = match taken.command {
        FlowIntCommand::Add(_) => number.saturating_add(value),
        FlowIntCommand::Subtract(_) => number.saturating_sub(value),
        _ => value,
    };
    let place = flow_int_index(taken.number, bits.len());
    if let Some(word) = place.and_then(|place| bits.get_mut(place)) {
        *word = INT_IS_SET | u64::from(number);
    }
}

/// Whether a flowbit is set.
fn bit(bits: &[u64], number: u16) -> bool {
    bits.get(usize::from(number / 64))
        .is_some_and(|word| word >> (number % 64) & 1 == 1)
}

fn flow_bits_match(note: &FlowBitsOp, bits: &[u64]) -> bool {
    let taken = |number: &u16| bit(bits, *number);
    let required = match note.any {
        true => note.bits.iter().any(taken),
        false => note.bits.iter().all(taken),
    };
    match note.command {
        FlowBit::IsSet => required,
        FlowBit::IsNotSet => !required,
        FlowBit::Set | FlowBit::Unset | FlowBit::Toggle => true,
    }
}

fn update_flow_bits(note: &FlowBitsOp, bits: &mut [u64]) {
    for &number in &note.bits {
        let Some(word) = bits.get_mut(usize::from(number / 64)) else {
            continue;
        };
        let mask = 1 << (number % 64);
        match note.command {
            FlowBit::Set => *word |= mask,
            FlowBit::Unset => *word &= !mask,
            FlowBit::Toggle => *word ^= mask,
            FlowBit::IsSet | FlowBit::IsNotSet => {}
        }
    }
}
