//! Reasons for refusing a rule.

use thiserror::Error;

/// Why a rule is refused; with the offending text as it is in the file.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum RuleError {
    #[error("the line is not UTF-8: bytes outside of it are written |C3 28| in a content")]
    NotUtf8,
    #[error("the options do not stand in ( ) at the end of the rule")]
    MissingParenthesis,
    #[error("a quote is not closed")]
    UnclosedQuote,
    #[error("the last option does not end with ;")]
    MissingSemicolon,
    #[error("there is no option of this name{}", suggestion(.hint))]
    UnknownOption { hint: Option<&'static str> },
    #[error("what this option asks for is not inspected")]
    NotInspected,
    #[error("{0:?} of this option is not inspected")]
    PartNotInspected(Box<str>),
    #[error("{written:?} is not known here{}", suggestion(.hint))]
    Unknown {
        written: Box<str>,
        hint: Option<&'static str>,
    },
    #[error("protocol {0} is not recognised, so that the rule would never match; name its transport and ports instead")]
    NotIdentified(Box<str>),
    #[error("the option wants a value")]
    MissingValue,
    #[error("the option takes no value, {0:?} is given")]
    UnexpectedValue(Box<str>),
    #[error("{0:?} stands in the way")]
    Trailing(Box<str>),
    #[error("{0:?} is not in quotes")]
    NotQuoted(Box<str>),
    #[error("{0:?} is not a number")]
    NotANumber(Box<str>),
    #[error("{0:?} is out of range")]
    OutOfRange(Box<str>),
    #[error("{0:?} is no range")]
    NotARange(Box<str>),
    #[error("{0:?} excludes values in the midst, which is not inspected here")]
    Gap(Box<str>),
    #[error("{0:?} is neither a number nor the name of an extracted one")]
    UnknownValue(Box<str>),
    #[error("a number is used before it is extracted")]
    UsedBeforeExtracted,
    #[error("a change of a buffer follows the name of the buffer, such as http.uri, before what looks in it")]
    NoBufferBefore,
    #[error("a rule changes at most 4 buffers")]
    TooManyTransformed,
    #[error("{0:?} has no group in parentheses, which is what is left of the buffer")]
    NoGroup(Box<str>),
    #[error("{path}: {why}: a list is read from a file, named from the folder of the rules")]
    List { path: Box<str>, why: Box<str> },
    #[error("list {0:?} is of another type, or loaded from another file, in an earlier rule")]
    OtherList(Box<str>),
    #[error("list {0:?} holds addresses: it goes with ip.src or ip.dst, and others with another buffer")]
    NotOfList(Box<str>),
    #[error("a rule extracts at most 255 numbers")]
    TooManyExtracted,
    #[error("nothing is looked for")]
    Empty,
    #[error("{0:?} is not pairs of hexadecimal digits")]
    NotHexadecimal(Box<str>),
    #[error("hexadecimal digits are not closed by |")]
    UnclosedHexadecimal,
    #[error("{0:?} is no escape: only \\\\ \\\" \\; and \\: are")]
    NotAnEscape(Box<str>),
    #[error("it modifies a content, and there is none before it")]
    NoContentBefore,
    #[error("it is given twice for one content")]
    ModifierTwice,
    #[error("positions from the begin and from the match before exclude each other")]
    MixedPositions,
    #[error("a content that is searched for only once has no position and is not negated")]
    OnlyWithPosition,
    #[error("the content is longer than the {0} bytes where it must lie")]
    NoRoom(i64),
    #[error("the condition can not be true")]
    NeverTrue,
    #[error("{0:?} is not /expression/flags")]
    NotAnExpression(Box<str>),
    #[error("{0:?} is no flag of an expression that is inspected")]
    ExpressionFlag(char),
    #[error("it needs flow:to_client")]
    NeedsToClient,
    #[error("{0:?} contradicts what the option said before")]
    Contradiction(Box<str>),
    #[error("a rule has one rate")]
    SecondRate,
    #[error("{0:?} is missing")]
    MissingPart(&'static str),
    #[error("the rule has no sid")]
    NoId,
    #[error("line {line} has the same number with rev {revision}")]
    Twice { line: u32, revision: u32 },
    #[error("a header is: action protocol addresses ports -> addresses ports")]
    NotAHeader,
    #[error("{0:?} is no direction that is inspected: -> or <>")]
    Direction(Box<str>),
    #[error("variable ${name} is not defined{}", suggestion(.hint))]
    UndefinedVariable { name: Box<str>, hint: Option<Box<str>> },
    #[error("variable ${0} leads back to itself")]
    CircularVariable(Box<str>),
    #[error("{0:?} is no name of a variable")]
    NotAVariable(Box<str>),
    #[error("{0:?} is no address")]
    NotAnAddress(Box<str>),
    #[error("{0:?} is no port")]
    NotAPort(Box<str>),
    #[error("{0:?} leaves nothing")]
    NothingLeft(Box<str>),
    #[error("{0:?} excludes what is itself excluded in part")]
    NestedNegation(Box<str>),
    #[error("lists, variables and negations stand too deep in each other")]
    TooDeep,
    #[error("a list is not closed")]
    UnclosedList,
}

fn suggestion(hint: &Option<impl AsRef<str>>) -> String {
    hint.as_ref()
        .map(|hint| format!("; {} is meant?", hint.as_ref()))
        .unwrap_or_default()
}

/// The most similar name, if at most a third of its letters differ.
pub(super) fn nearest<'n>(written: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    if written.len() > 40 {
        return None;
    }
    names
        .map(|name| (strsim::damerau_levenshtein(written, name), name))
        .filter(|(distance, name)| *distance * 3 <= name.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}
