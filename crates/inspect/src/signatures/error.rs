//! Reasons for refusing a rule.

use thiserror::Error;

/// Why a rule is refused, with the invalid text as written in the file.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum RuleError {
    #[error("the line is not valid UTF-8: in a content, write non-UTF-8 bytes in hexadecimal, for example |C3 28|")]
    NotUtf8,
    #[error("the options are not enclosed in ( ) at the end of the rule")]
    MissingParenthesis,
    #[error("a closing quotation mark is missing")]
    UnclosedQuote,
    #[error("the last option does not end with ;")]
    MissingSemicolon,
    #[error("there is no option of this name{}", suggestion(.hint))]
    UnknownOption { hint: Option<&'static str> },
    #[error("this option is not supported")]
    NotInspected,
    #[error("the value {0:?} of this option is not supported")]
    PartNotInspected(Box<str>),
    #[error("{written:?} is not known here{}", suggestion(.hint))]
    Unknown {
        written: Box<str>,
        hint: Option<&'static str>,
    },
    #[error(
        "protocol {0} is not supported, so the rule would never match; use its transport protocol and ports instead"
    )]
    NotIdentified(Box<str>),
    #[error("the option needs a value")]
    MissingValue,
    #[error("the option takes no value, but {0:?} is given")]
    UnexpectedValue(Box<str>),
    #[error("{0:?} is unexpected")]
    Trailing(Box<str>),
    #[error("{0:?} is not in quotes")]
    NotQuoted(Box<str>),
    #[error("{0:?} is not a number")]
    NotANumber(Box<str>),
    #[error("{0:?} is out of range")]
    OutOfRange(Box<str>),
    #[error("{0:?} is not a valid range")]
    NotARange(Box<str>),
    #[error("{0:?} excludes values within a range, which is not supported")]
    Gap(Box<str>),
    #[error("{0:?} is neither a number nor the name of an extracted number")]
    UnknownValue(Box<str>),
    #[error("the option uses a number that no earlier option extracts")]
    UsedBeforeExtracted,
    #[error("a transform must follow a buffer, such as http.uri, and precede the content")]
    NoBufferBefore,
    #[error("a rule can have at most 4 transforms")]
    TooManyTransformed,
    #[error("{0:?} has no group in parentheses to select a part of the buffer")]
    NoGroup(Box<str>),
    #[error("{path}: {why}: the path of a dataset is relative to the folder of the rules")]
    List { path: Box<str>, why: Box<str> },
    #[error("dataset {0:?} has another type or file in an earlier rule")]
    OtherList(Box<str>),
    #[error("dataset {0:?} has the wrong type: addresses need ip.src or ip.dst, other types another buffer")]
    NotOfList(Box<str>),
    #[error("a rule can extract at most 255 numbers")]
    TooManyExtracted,
    #[error("the content is empty")]
    Empty,
    #[error("{0:?} does not consist of pairs of hexadecimal digits")]
    NotHexadecimal(Box<str>),
    #[error("the closing | after hexadecimal digits is missing")]
    UnclosedHexadecimal,
    #[error("{0:?} is not a valid escape: the valid escapes are \\\\ \\\" \\; and \\:")]
    NotAnEscape(Box<str>),
    #[error("the option modifies a content, but no content precedes the option")]
    NoContentBefore,
    #[error("the option is given twice for the same content")]
    ModifierTwice,
    #[error("a content can't have both an absolute and a relative position")]
    MixedPositions,
    #[error("a content with fast_pattern:only can have neither a position nor a negation")]
    OnlyWithPosition,
    #[error("the content is longer than its range of {0} bytes")]
    NoRoom(i64),
    #[error("the condition can never be true")]
    NeverTrue,
    #[error("{0:?} does not have the form /expression/flags")]
    NotAnExpression(Box<str>),
    #[error("{0:?} is not a supported flag of a regular expression")]
    ExpressionFlag(char),
    #[error("the option needs flow:to_client")]
    NeedsToClient,
    #[error("{0:?} contradicts an earlier value of the option")]
    Contradiction(Box<str>),
    #[error("a rule has one rate")]
    SecondRate,
    #[error("{0:?} is missing")]
    MissingPart(&'static str),
    #[error("the rule has no sid")]
    NoId,
    #[error("line {line} has the same signature ID with rev {revision}")]
    Twice { line: u32, revision: u32 },
    #[error("the header of a rule must have the form: action protocol addresses ports -> addresses ports")]
    NotAHeader,
    #[error("{0:?} is not a direction: write -> or <>")]
    Direction(Box<str>),
    #[error("variable ${name} is not defined{}", suggestion(.hint))]
    UndefinedVariable { name: Box<str>, hint: Option<Box<str>> },
    #[error("variable ${0} refers to itself")]
    CircularVariable(Box<str>),
    #[error("{0:?} is not a valid name of a variable")]
    NotAVariable(Box<str>),
    #[error("{0:?} is not an address")]
    NotAnAddress(Box<str>),
    #[error("{0:?} is not a port")]
    NotAPort(Box<str>),
    #[error("{0:?} excludes everything")]
    EmptySet(Box<str>),
    #[error("{0:?} negates a list that already contains negations")]
    NestedNegation(Box<str>),
    #[error("lists, variables and negations are nested too deep")]
    TooDeep,
    #[error("the closing bracket of a list is missing")]
    UnclosedList,
}

fn suggestion(hint: &Option<impl AsRef<str>>) -> String {
    hint.as_ref()
        .map(|hint| format!("; {} is meant?", hint.as_ref()))
        .unwrap_or_default()
}

/// The most similar name, if at most a third of the letters differ.
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
