//! Options that transform a buffer before conditions inspect it.

use super::draft::SignatureDraft;
use super::{RuleError, syntax};
use crate::signature::{Buffer, Transform};

macro_rules! plain {
    ($($function:ident $transform:ident,)*) => {
        $(pub(super) fn $function(draft: &mut SignatureDraft) -> Result<(), RuleError> {
            draft.transform(Transform::$transform)
        })*
    };
}

plain! {
    to_lowercase ToLowercase,
    to_uppercase ToUppercase,
    strip_whitespace StripWhitespace,
    compress_whitespace CompressWhitespace,
    to_md5 ToMd5,
    to_sha1 ToSha1,
    to_sha256 ToSha256,
    dot_prefix DotPrefix,
    url_decode UrlDecode,
    header_lowercase HeaderLowercase,
    strip_pseudo_headers StripPseudoHeaders,
}

/// `xor:"0d0ac8ff"`.
pub(super) fn xor(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let (text, rest) = syntax::quoted(value)?;
    if !rest.is_empty() {
        return Err(RuleError::Trailing(rest.into()));
    }
    let key = syntax::hexadecimal(text)?;
    if key.is_empty() || key.len() > 255 {
        return Err(RuleError::OutOfRange(text.into()));
    }
    draft.transform(Transform::Xor(key.into()))
}

/// `pcrexform:"[a-z]+ (.*)"`.
pub(super) fn expression(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let (text, rest) = syntax::quoted(value)?;
    if !rest.is_empty() {
        return Err(RuleError::Trailing(rest.into()));
    }
    if !text.contains('(') {
        return Err(RuleError::NoGroup(text.into()));
    }
    draft.transform(Transform::Expression(text.into()))
}

/// `ip.src` and `ip.dst` select an address for lists of addresses.
pub(super) fn source_address(draft: &mut SignatureDraft) -> Result<(), RuleError> {
    draft.select_address(crate::signature::Track::Source);
    Ok(())
}

pub(super) fn destination_address(draft: &mut SignatureDraft) -> Result<(), RuleError> {
    draft.select_address(crate::signature::Track::Destination);
    Ok(())
}

const _: () = assert!(Buffer::Transformed4 as usize - Buffer::Transformed1 as usize == 3);
