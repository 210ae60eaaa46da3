//! Constructs buffers that satisfy conditions in order. Each content is placed at the leftmost possible position, and
//! moved to the right if later conditions can't be satisfied.

use std::collections::BTreeMap;

use sluice_inspect::signature::{Buffer, ByteTest, Comparison, Condition, Content, JumpFrom, NumberField, Value};

use super::cells::{Cells, read, written};
use super::pattern::{Edge, Text, text};
use super::wire::Buffers;

/// Position of a content of the rule.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub condition: usize,
    pub buffer: Buffer,
    pub at: usize,
}

/// A content that must not occur between two positions.
#[derive(Clone, Debug)]
struct Absent<'r> {
    content: &'r Content,
    from: usize,
    to: usize,
}

#[derive(Clone, Debug, Default)]
struct State<'r> {
    cells: BTreeMap<Buffer, Cells>,
    numbers: [i64; 8],
    absent: Vec<Absent<'r>>,
    places: Vec<Place>,
    /// Ends of the expressions that were placed before other conditions.
    ends: BTreeMap<usize, usize>,
    at: (Buffer, usize),
}

/// Maximum length of a buffer.
const LONGEST: usize = 9_000;
/// Maximum number of positions tried for a condition.
const TRIED: usize = 40;

pub struct Solver<'r> {
    conditions: &'r [Condition],
    texts: BTreeMap<usize, Text>,
    constants: Vec<i64>,
    /// Expressions that must be placed before all other conditions.
    first: Vec<usize>,
    filler: u8,
    steps: u32,
}

/// Buffers that probably satisfy the conditions, and the positions of their contents. With `expressions_first`,
/// contents are preferably placed within the text of expressions.
pub fn solve(conditions: &[Condition], expressions_first: bool) -> Result<(Buffers, Vec<Place>), &'static str> {
    let filler = filler(conditions);
    let (mut texts, mut first, mut constants) = (BTreeMap::new(), Vec::new(), vec![0, 1, 2, 4, 8, 16, 32]);
    for (place, condition) in conditions.iter().enumerate() {
        match condition {
            Condition::Expression(expression) if !expression.negated => {
                texts.insert(
                    place,
                    text(expression, filler).ok_or("pcre: no text is made for its form")?,
                );
                if expressions_first && !expression.relative {
                    first.push(place);
                }
            }
            Condition::ByteTest(ByteTest {
                value: Value::Constant(value),
                ..
            }) => {
                constants.extend([*value, value + 1, value - 1, value ^ 1]);
            }
            Condition::Base64Decode(_) => return Err("base64_decode"),
            _ => {}
        }
    }
    // Bits that several conditions test are combined.
    let bits = conditions.iter().filter_map(|condition| match condition {
        Condition::ByteTest(ByteTest {
            value: Value::Constant(value),
            comparison: Comparison::And,
            negated: false,
            ..
        }) => Some(*value),
        _ => None,
    });
    constants.push(bits.fold(0, |all, bit| all | bit));
    let mut solver = Solver {
        conditions,
        texts,
        constants,
        first,
        filler,
        steps: 30_000,
    };
    let state = solver.seed(0, State::default()).ok_or("no layout is found")?;
    let fill = |cells: Cells| cells.bytes.into_iter().map(|byte| byte.unwrap_or(filler)).collect();
    let buffers = state
        .cells
        .into_iter()
        .map(|(buffer, cells)| (buffer, fill(cells)))
        .collect();
    Ok((buffers, state.places))
}

/// Returns a byte that occurs in no condition.
pub fn filler(conditions: &[Condition]) -> u8 {
    let named = |byte: u8| {
        conditions.iter().any(|condition| match condition {
            Condition::Content(content) => content.bytes.to_ascii_lowercase().contains(&byte),
            Condition::Expression(expression) => expression.pattern.to_ascii_lowercase().contains(char::from(byte)),
            _ => false,
        })
    };
    b"-_zqjkxwvy~"
        .iter()
        .copied()
        .find(|&byte| !named(byte))
        .unwrap_or(b'-')
}

/// Maps buffers that are two views of the same bytes to one buffer.
fn same(buffer: Buffer) -> Buffer {
    match buffer {
        Buffer::HttpRawUri => Buffer::HttpUri,
        Buffer::HttpRawHeader => Buffer::HttpHeader,
        Buffer::HttpRawHost => Buffer::HttpHost,
        other => other,
    }
}

impl<'r> State<'r> {
    fn cells(&mut self, buffer: Buffer) -> &mut Cells {
        self.cells.entry(same(buffer)).or_insert(Cells {
            bytes: Vec::new(),
            longest: LONGEST,
        })
    }

    fn start(&self, buffer: Buffer, relative: bool) -> i64 {
        if relative && self.at.0 == buffer {
            self.at.1 as i64
        } else {
            0
        }
    }

    fn value(&self, value: Value) -> i64 {
        match value {
            Value::Constant(value) => value,
            Value::Extracted(number) => self.numbers[usize::from(number)],
        }
    }

    /// Start of the allowed range, and end of the range if it is bounded.
    fn region(&self, content: &Content) -> (usize, Option<usize>) {
        let of = |value: Option<Value>| value.map(|value| self.value(value));
        let mut from = of(content.offset).unwrap_or(0);
        let mut to = of(content.depth).map(|depth| from + depth);
        if content.distance.is_some() || content.within.is_some() {
            let start = self.start(content.buffer, true) + of(content.distance).unwrap_or(0);
            from = from.max(start);
            if let Some(within) = of(content.within) {
                to = Some(to.map_or(start + within, |to| to.min(start + within)));
            }
        }
        (from.max(0) as usize, to.map(|to| to.max(0) as usize))
    }

    /// Whether all negated contents are absent.
    fn is_clean(&self, filler: u8) -> bool {
        self.absent.iter().all(|absent| {
            let content = absent.content;
            let Some(cells) = self.cells.get(&same(content.buffer)) else {
                return true;
            };
            let bytes: Vec<u8> = cells.bytes.iter().map(|byte| byte.unwrap_or(filler)).collect();
            let to = absent.to.min(bytes.len());
            let hay = &bytes[absent.from.min(to)..to];
            !hay.windows(content.bytes.len()).any(|window| match content.nocase {
                true => window.eq_ignore_ascii_case(&content.bytes),
                false => *window == *content.bytes,
            }) || content.ends
        })
    }
}

impl<'r> Solver<'r> {
    fn seed(&mut self, next: usize, state: State<'r>) -> Option<State<'r>> {
        let Some(&place) = self.first.get(next) else {
            return self.go(0, state);
        };
        self.expression(place, state, &mut |solver, mut state, end| {
            state.ends.insert(place, end);
            solver.seed(next + 1, state)
        })
    }

    fn go(&mut self, next: usize, mut state: State<'r>) -> Option<State<'r>> {
        self.steps = self.steps.checked_sub(1)?;
        let conditions = self.conditions;
        let Some(condition) = conditions.get(next) else {
            return state.is_clean(self.filler).then_some(state);
        };
        match condition {
            Condition::Content(content) if content.negated => {
                let (from, to) = state.region(content);
                state.absent.push(Absent {
                    content,
                    from,
                    to: to.unwrap_or(usize::MAX),
                });
                self.go(next + 1, state)
            }
            Condition::Content(content) => self.content(next, content, state),
            Condition::Expression(expression) if expression.negated => self.go(next + 1, state),
            Condition::Expression(expression) => match state.ends.get(&next) {
                Some(&end) => {
                    state.at = (expression.buffer, end);
                    self.go(next + 1, state)
                }
                None => self.expression(next, state, &mut |solver, mut state, end| {
                    state.at = (expression.buffer, end);
                    solver.go(next + 1, state)
                }),
            },
            Condition::ByteTest(test) => {
                let value = state.value(test.value);
                let holds = |number: i64| {
                    let holds = match test.comparison {
                        Comparison::Less => number < value,
                        Comparison::LessOrEqual => number <= value,
                        Comparison::Equal => number == value,
                        Comparison::GreaterOrEqual => number >= value,
                        Comparison::Greater => number > value,
                        Comparison::And => number & value != 0,
                        Comparison::Xor => number ^ value != 0,
                    };
                    holds != test.negated
                };
                self.number(&test.number, state, &mut |solver, state, number, _| {
                    if holds(number) {
                        solver.go(next + 1, state)
                    } else {
                        None
                    }
                })
            }
            Condition::ByteExtract(extract) => {
                self.number(&extract.number, state, &mut |solver, mut state, number, end| {
                    let align = i64::from(extract.align.max(1));
                    let number = number * i64::from(extract.multiplier.max(1));
                    state.numbers[usize::from(extract.into)] = (number + align - 1) / align * align;
                    state.at = (extract.number.buffer, end);
                    solver.go(next + 1, state)
                })
            }
            Condition::ByteJump(jump) => self.number(&jump.number, state, &mut |solver, mut state, number, behind| {
                let mut far = number.checked_mul(i64::from(jump.multiplier.max(1)))?;
                if jump.align {
                    far = (far + 3) / 4 * 4;
                }
                let buffer = jump.number.buffer;
                let start = match jump.from {
                    JumpFrom::Number => behind as i64,
                    JumpFrom::Begin => 0,
                    JumpFrom::End => {
                        let end = state.cells(buffer).bytes.len();
                        state.cells(buffer).ends_at(end)?;
                        end as i64
                    }
                };
                let end = usize::try_from(start + far + state.value(jump.post_offset)).ok()?;
                state.cells(buffer).reach(end)?;
                state.at = (buffer, end);
                solver.go(next + 1, state)
            }),
            Condition::IsDataAt(there) => {
                let at = state.start(there.buffer, there.relative) + state.value(there.at);
                let at = usize::try_from(at).ok()?;
                let cells = state.cells(there.buffer);
                if there.negated {
                    cells.longest = cells.longest.min(at);
                    (cells.bytes.len() <= at).then_some(())?;
                } else {
                    cells.reach(at + 1)?;
                }
                self.go(next + 1, state)
            }
            Condition::BufferLength(buffer, range) => {
                let cells = state.cells(*buffer);
                cells.longest = cells.longest.min(*range.end() as usize);
                cells.reach(*range.start() as usize)?;
                (cells.bytes.len() <= cells.longest).then_some(())?;
                self.go(next + 1, state)
            }
            Condition::PayloadSize(range) => {
                let cells = state.cells(Buffer::Payload);
                cells.longest = cells.longest.min(*range.end() as usize);
                cells.reach(*range.start() as usize)?;
                (cells.bytes.len() <= cells.longest).then_some(())?;
                self.go(next + 1, state)
            }
            _ => self.go(next + 1, state),
        }
    }

    fn content(&mut self, next: usize, content: &Content, mut state: State<'r>) -> Option<State<'r>> {
        let (from, to) = state.region(content);
        let (length, bounded) = (
            content.bytes.len(),
            from > 0 || to.is_some() || content.distance.is_some(),
        );
        let bytes: Vec<Option<u8>> = content.bytes.iter().copied().map(Some).collect();
        let cells = state.cells(content.buffer);
        let have = cells.bytes.len();
        let last = to.map_or(have.max(from) + 1, |to| to.saturating_sub(length));
        if to.is_some_and(|to| from + length > to) {
            return None;
        }
        let fits: Vec<usize> = (from..=last.min(from.max(have) + TRIED))
            .filter(|&at| cells.takes(at, &bytes, content.nocase))
            .collect();
        let (there, mut fresh): (Vec<usize>, Vec<usize>) =
            fits.into_iter().partition(|&at| cells.laid(at, length) == length);
        if !bounded {
            // Prefer positions after the existing bytes, with a gap, to positions within the existing bytes.
            fresh.sort_by_key(|&at| (have > 0 && at <= have, at));
        }
        for at in there.into_iter().chain(fresh).take(TRIED) {
            let mut tried = state.clone();
            let cells = tried.cells(content.buffer);
            if cells.lay(at, &content.bytes, content.nocase).is_none()
                || content.ends && cells.ends_at(at + length).is_none()
            {
                continue;
            }
            tried.places.push(Place {
                condition: next,
                buffer: same(content.buffer),
                at,
            });
            if content.fast != sluice_inspect::signature::FastPattern::Only {
                tried.at = (content.buffer, at + length);
            }
            if let Some(done) = self.go(next + 1, tried) {
                return Some(done);
            }
        }
        None
    }

    fn expression(&mut self, place: usize, mut state: State<'r>, then: &mut Then<'_, 'r>) -> Option<State<'r>> {
        let Condition::Expression(expression) = &self.conditions[place] else {
            return None;
        };
        let text = self.texts[&place].clone();
        let (buffer, length) = (expression.buffer, text.bytes.len());
        let from = state.start(buffer, expression.relative) as usize;
        let cells = state.cells(buffer);
        let have = cells.bytes.len();
        let last = match text.start {
            Edge::Buffer => from,
            _ => have.max(from) + 2,
        };
        let mut fits: Vec<usize> = (from..=last)
            .filter(|&at| cells.takes(at, &text.bytes, expression.caseless))
            .collect();
        // Prefer positions where most of the text exists already; otherwise prefer positions after all existing bytes.
        fits.sort_by_key(|&at| {
            (
                std::cmp::Reverse(cells.laid(at, length)),
                have > 0 && at <= have && !expression.relative,
                at,
            )
        });
        for at in fits.into_iter().take(TRIED) {
            let mut tried = state.clone();
            let cells = tried.cells(buffer);
            let mut lay = || {
                cells.lay_text(at, &text.bytes, expression.caseless)?;
                if text.start == Edge::Line && at > from {
                    cells.lay(at - 1, b"\n", false)?;
                    // A header line ends with CR LF.
                    if at > 1 && matches!(buffer, Buffer::HttpHeader | Buffer::HttpRawHeader) {
                        cells.lay(at - 2, b"\r", false)?;
                    }
                }
                match text.end {
                    Edge::Buffer => cells.ends_at(at + length),
                    Edge::Line if cells.bytes.len() > at + length => cells.lay(at + length, b"\n", false),
                    Edge::Line => cells.ends_at(at + length),
                    Edge::Free => Some(()),
                }
            };
            if lay().is_some()
                && let Some(done) = then(self, tried, at + length)
            {
                return Some(done);
            }
        }
        None
    }

    fn number(&mut self, number: &NumberField, mut state: State<'r>, then: &mut Numbered<'_, 'r>) -> Option<State<'r>> {
        let start = state.start(number.buffer, number.relative) + state.value(number.offset);
        let (start, count) = (usize::try_from(start).ok()?, usize::from(number.count));
        let there = {
            let cells = state.cells(number.buffer);
            cells.reach(start + count)?;
            let there: Option<Vec<u8>> = cells.bytes[start..start + count].iter().copied().collect();
            there
        };
        if let Some(bytes) = there {
            let value = read(number, &bytes)?;
            return then(self, state, value, start + count);
        }
        for value in self.constants.clone() {
            let Some(bytes) = written(number, value) else { continue };
            let mut tried = state.clone();
            if tried.cells(number.buffer).lay(start, &bytes, false).is_some()
                && let Some(done) = then(self, tried, value, start + count)
            {
                return Some(done);
            }
        }
        None
    }
}

type Then<'t, 'r> = dyn FnMut(&mut Solver<'r>, State<'r>, usize) -> Option<State<'r>> + 't;
type Numbered<'t, 'r> = dyn FnMut(&mut Solver<'r>, State<'r>, i64, usize) -> Option<State<'r>> + 't;
