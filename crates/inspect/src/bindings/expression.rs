//! Regular expressions with PCRE2. Each expression is compiled once. A search allocates no memory, has a step limit,
//! and accepts data that may continue later.

use std::ops::Range;
use std::ptr::{self, NonNull};

use pcre2_sys as sys;

use crate::work_budget::WorkBudget;

/// Maximum number of steps of a search.
const MAX_STEPS: u32 = 20_000;

/// Initial step limit of a search. A search that stays within this limit is charged for the length of its subject, but
/// not for its steps.
const INITIAL_STEPS: u32 = 500;

/// Factor by which the step limit grows whenever a search reaches the limit.
const STEP_GROWTH: u32 = 6;

/// Units of work charged for a search, in addition to a quarter unit for each byte of its subject.
const SEARCH_COST: u32 = 8;

/// Units of work charged for a step, which takes 1 ns in compiled code and somewhat more in interpreted code.
const STEP_COST: u32 = 2;

/// Initial and maximum size in bytes of the stack of JIT-compiled searches.
const STACK_BYTES: [usize; 2] = [32 << 10, 256 << 10];

/// Options of an expression in PCRE syntax, with the names of PCRE2.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct PatternOptions {
    pub caseless: bool,
    pub dot_all: bool,
    pub multi_line: bool,
    pub extended: bool,
    pub anchored: bool,
    pub dollar_end_only: bool,
    pub ungreedy: bool,
}

/// An invalid expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (at byte {place} of the expression)")]
pub struct PatternError {
    message: String,
    place: usize,
}

/// A compiled expression over bytes.
pub struct CompiledPattern {
    code: NonNull<sys::pcre2_code_8>,
    /// Whether data after a match can invalidate the match, as with `\b` and `(?!…)`.
    has_lookahead: bool,
    depends_on_end: bool,
    /// Number of capture groups.
    groups: u32,
}

// SAFETY: compiled code is not written after `new`; PCRE2 documents that several threads may use it simultaneously.
unsafe impl Send for CompiledPattern {}
// SAFETY: compiled code is not written after `new`, so that threads may share a reference to it.
unsafe impl Sync for CompiledPattern {}

impl CompiledPattern {
    /// Compiles an expression.
    pub fn new(pattern: &str, options: PatternOptions) -> Result<Self, PatternError> {
        let flags = [
            (options.caseless, sys::PCRE2_CASELESS),
            (options.dot_all, sys::PCRE2_DOTALL),
            (options.multi_line, sys::PCRE2_MULTILINE),
            (options.extended, sys::PCRE2_EXTENDED),
            (options.anchored, sys::PCRE2_ANCHORED),
            (options.dollar_end_only, sys::PCRE2_DOLLAR_ENDONLY),
            (options.ungreedy, sys::PCRE2_UNGREEDY),
        ];
        let flags = flags.iter().filter(|(on, _)| *on).fold(0, |all, (_, flag)| all | flag);
        let (mut error, mut place) = (0, 0);
        // SAFETY: the pattern's bytes outlive the call, which copies the bytes that it needs; a null context selects the
        // defaults.
        let code = unsafe {
            sys::pcre2_compile_8(
                pattern.as_ptr(),
                pattern.len(),
                flags,
                &mut error,
                &mut place,
                ptr::null_mut(),
            )
        };
        let code = NonNull::new(code).ok_or_else(|| PatternError {
            message: message(error),
            place,
        })?;
        let mut groups = 0u32;
        // SAFETY: `code` was compiled above, and the count is written to a number of the size that PCRE2 requires.
        let error = unsafe {
            sys::pcre2_pattern_info_8(
                code.as_ptr(),
                sys::PCRE2_INFO_CAPTURECOUNT,
                ptr::from_mut(&mut groups).cast(),
            )
        };
        let groups = if error == 0 { groups } else { 0 };
        let compiled = Self {
            code,
            groups,
            has_lookahead: has_lookahead(pattern),
            depends_on_end: ["$", "\\z", "\\Z"].iter().any(|mark| pattern.contains(mark)),
        };
        let modes = sys::PCRE2_JIT_COMPLETE | sys::PCRE2_JIT_PARTIAL_HARD;
        // SAFETY: `code` was compiled above and is not shared yet.
        let error = unsafe { sys::pcre2_jit_compile_8(code.as_ptr(), modes) };
        if error != 0 {
            return Err(PatternError {
                message: message(error),
                place: 0,
            });
        }
        Ok(compiled)
    }
}

impl CompiledPattern {
    /// Number of capture groups.
    pub fn groups(&self) -> u32 {
        self.groups
    }

    /// Whether a match may depend on where the data ends.
    pub fn depends_on_end(&self) -> bool {
        self.depends_on_end
    }
}

impl Drop for CompiledPattern {
    fn drop(&mut self) {
        // SAFETY: `code` came from `pcre2_compile_8` and is freed once.
        unsafe { sys::pcre2_code_free_8(self.code.as_ptr()) }
    }
}

impl std::fmt::Debug for CompiledPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compiled")
    }
}

/// Whether a match may depend on the data after it. A false positive only makes the search wait for more data.
fn has_lookahead(pattern: &str) -> bool {
    ["(?!", "(?=", "\\b", "\\B", "\\z", "\\Z"]
        .iter()
        .any(|mark| pattern.contains(mark))
}

fn message(error: i32) -> String {
    let mut text = [0u8; 256];
    // SAFETY: the buffer has the passed length; PCRE2 truncates the message to it.
    let length = unsafe { sys::pcre2_get_error_message_8(error, text.as_mut_ptr(), text.len()) };
    String::from_utf8_lossy(&text[..usize::try_from(length).unwrap_or(0)]).into_owned()
}

/// Result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchResult {
    /// The expression matches at this range.
    Match(Range<usize>),
    /// The expression does not match.
    NoMatch,
    /// The expression does not match so far; more data may complete a match.
    Incomplete,
    /// The search exceeded its step limit.
    Exhausted,
}

/// Number of position pairs that a search returns: the match and its first group.
const MATCH_PAIRS: u32 = 2;

/// Scratch memory of a worker for searches.
pub struct Matcher {
    data: NonNull<sys::pcre2_match_data_8>,
    context: NonNull<sys::pcre2_match_context_8>,
    stack: NonNull<sys::pcre2_jit_stack_8>,
}

// SAFETY: the three objects are owned by the matcher alone and bound to no thread.
unsafe impl Send for Matcher {}

impl Matcher {
    /// Creates the scratch state of a worker. Only this function allocates memory; searches do not.
    pub fn new() -> Self {
        // SAFETY: the constructors use default contexts; the code below checks the results for null.
        let made = unsafe {
            (
                sys::pcre2_match_data_create_8(MATCH_PAIRS, ptr::null_mut()),
                sys::pcre2_match_context_create_8(ptr::null_mut()),
                sys::pcre2_jit_stack_create_8(STACK_BYTES[0], STACK_BYTES[1], ptr::null_mut()),
            )
        };
        let (Some(data), Some(context), Some(stack)) =
            (NonNull::new(made.0), NonNull::new(made.1), NonNull::new(made.2))
        else {
            std::alloc::handle_alloc_error(std::alloc::Layout::new::<[u8; STACK_BYTES[0]]>());
        };
        // SAFETY: context and stack were just created; the stack lives as long as the context (see `drop`).
        unsafe {
            sys::pcre2_set_match_limit_8(context.as_ptr(), MAX_STEPS);
            sys::pcre2_jit_stack_assign_8(context.as_ptr(), None, stack.as_ptr().cast());
        }
        Self { data, context, stack }
    }

    /// Finds the first match in `subject`. `starts`: the subject begins at the start of the buffer, so that `^` may
    /// match there. `complete`: nothing follows the subject, so that `$` may match at its end.
    ///
    /// The cost is charged to `work`; if the budget is exhausted, the search is given up. `is_usual`: the search is
    /// performed for every packet, so it is not charged if it takes few steps.
    pub fn find_within(
        &mut self,
        (work, is_usual): (&WorkBudget, bool),
        expression: &CompiledPattern,
        subject: &[u8],
        starts: bool,
        complete: bool,
    ) -> SearchResult {
        let mut steps = INITIAL_STEPS;
        let mut units = match is_usual {
            true => 0,
            false => (subject.len() / 4) as u32 + SEARCH_COST,
        };
        loop {
            if !work.charge(units) {
                return SearchResult::Exhausted;
            }
            let found = self.find_in(steps, expression, subject, starts, complete);
            if found != SearchResult::Exhausted || steps >= MAX_STEPS {
                return found;
            }
            steps = (steps * STEP_GROWTH).min(MAX_STEPS);
            units = steps * STEP_COST;
        }
    }

    /// Finds the first match in `subject`, as [`Matcher::find_within`] does, but without a work budget.
    pub fn find(&mut self, expression: &CompiledPattern, subject: &[u8], starts: bool, complete: bool) -> SearchResult {
        self.find_in(MAX_STEPS, expression, subject, starts, complete)
    }

    fn find_in(
        &mut self,
        steps: u32,
        expression: &CompiledPattern,
        subject: &[u8],
        starts: bool,
        complete: bool,
    ) -> SearchResult {
        let mut options = 0;
        if !starts {
            options |= sys::PCRE2_NOTBOL;
        }
        if !complete {
            options |= sys::PCRE2_NOTEOL;
            if expression.has_lookahead {
                options |= sys::PCRE2_PARTIAL_HARD;
            }
        }
        // SAFETY: the context is alive.
        unsafe { sys::pcre2_set_match_limit_8(self.context.as_ptr(), steps) };
        // SAFETY: code, data and context are alive; the subject has the passed length; the match data has capacity for
        // two pairs.
        let result = unsafe {
            sys::pcre2_match_8(
                expression.code.as_ptr(),
                subject.as_ptr(),
                subject.len(),
                0,
                options,
                self.data.as_ptr(),
                self.context.as_ptr(),
            )
        };
        match result {
            // 0 means that the expression has more groups than the requested pairs.
            0.. => {
                // SAFETY: after a match the vector contains at least the pair of the match.
                let (from, to) = unsafe {
                    let pair = sys::pcre2_get_ovector_pointer_8(self.data.as_ptr());
                    (*pair, *pair.add(1))
                };
                // `\K` may move the start beyond the end.
                SearchResult::Match(from.min(to)..to.min(subject.len()))
            }
            sys::PCRE2_ERROR_PARTIAL => SearchResult::Incomplete,
            sys::PCRE2_ERROR_NOMATCH if complete => SearchResult::NoMatch,
            sys::PCRE2_ERROR_NOMATCH => SearchResult::Incomplete,
            _ => SearchResult::Exhausted,
        }
    }
}

impl Matcher {
    /// Returns the first group of the first match in a complete subject, and charges the cost as
    /// [`Matcher::find_within`] does.
    pub fn group(&mut self, work: &WorkBudget, expression: &CompiledPattern, subject: &[u8]) -> Option<Range<usize>> {
        let found = self.find_within((work, false), expression, subject, true, true);
        if expression.groups == 0 || !matches!(found, SearchResult::Match(_)) {
            return None;
        }
        // SAFETY: the data was created for two pairs, and a match of an expression with a group sets both: to PCRE2_UNSET if the
        // group did not take part in the match.
        let (from, to) = unsafe {
            let pairs = sys::pcre2_get_ovector_pointer_8(self.data.as_ptr());
            (*pairs.add(2), *pairs.add(3))
        };
        (from <= to && to <= subject.len()).then_some(from..to)
    }
}

impl Default for Matcher {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Matcher {
    fn drop(&mut self) {
        // SAFETY: each object was created by its constructor and is freed once. The context is freed before the stack that it
        // uses.
        unsafe {
            sys::pcre2_match_data_free_8(self.data.as_ptr());
            sys::pcre2_match_context_free_8(self.context.as_ptr());
            sys::pcre2_jit_stack_free_8(self.stack.as_ptr());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pattern: &str, subject: &[u8], complete: bool) -> SearchResult {
        let compiled = CompiledPattern::new(pattern, PatternOptions::default()).unwrap();
        Matcher::new().find(&compiled, subject, true, complete)
    }

    #[test]
    fn match_is_found_with_its_place() {
        assert_eq!(SearchResult::Match(2..5), find("b.d", b"aab\xffdz", true));
        assert_eq!(SearchResult::NoMatch, find("b.d", b"aab", true));
    }

    #[test]
    fn data_that_may_go_on_has_no_end() {
        assert_eq!(SearchResult::Incomplete, find("ab$", b"ab", false));
        assert_eq!(SearchResult::Match(0..2), find("ab$", b"ab", true));
        assert_eq!(SearchResult::Incomplete, find("ab(?!c)", b"ab", false));
        assert_eq!(SearchResult::Match(0..2), find("ab(?!c)", b"abd", false));
        assert_eq!(SearchResult::Match(0..2), find("a+", b"aab", false));
    }

    #[test]
    fn begin_of_data_that_goes_before_is_no_begin() {
        let compiled = CompiledPattern::new("^a", PatternOptions::default()).unwrap();
        assert_eq!(
            SearchResult::NoMatch,
            Matcher::new().find(&compiled, b"ab", false, true)
        );
    }

    #[test]
    fn first_group_is_told() {
        let group = |pattern: &str, subject: &[u8]| {
            let compiled = CompiledPattern::new(pattern, PatternOptions::default()).unwrap();
            Matcher::new().group(&WorkBudget::default(), &compiled, subject)
        };
        assert_eq!(Some(2..4), group("a=([0-9]+)(x)?", b"a=12;"));
        assert_eq!(None, group("a=([0-9]+)", b"b=12;"));
        assert_eq!(None, group("a=([0-9]+)?b", b"a=b"));
        assert_eq!(None, group("a", b"a"));
    }

    #[test]
    fn expression_that_explodes_ends() {
        let subject = [b'a'; 64];
        assert_eq!(SearchResult::Exhausted, find("(a+)+$b|(a|aa)+x", &subject, true));
    }

    #[test]
    fn malformed_expression_is_named_with_its_place() {
        let error = CompiledPattern::new("a(b", PatternOptions::default()).unwrap_err();
        assert_eq!(
            "missing closing parenthesis (at byte 3 of the expression)",
            error.to_string()
        );
    }
}
