//! Transforms: buffers that are changed before a rule inspects them.
//!
//! A buffer is transformed only when it is complete, and again for each evaluation. A buffer longer than [`MAX_LENGTH`]
//! is truncated, except for a digest, which covers the whole buffer.

use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::Sha256;

use super::{BufferSource, BufferView};
use crate::bindings::expression::Matcher;
use crate::rule::{CompiledTransform, Rule};
use crate::signature::{Buffer, Transform};
use crate::work_budget::WorkBudget;

/// Maximum number of bytes that are transformed.
pub const MAX_LENGTH: usize = 8_192;

/// Units of work charged for each byte that is transformed, and for each byte that is digested.
const TRANSFORM_COST: u32 = 1;
const DIGEST_COST: u32 = 4;

/// State of a transformed buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The buffer does not exist, or its start is no longer retained.
    #[default]
    Missing,
    /// The buffer is not complete.
    Growing,
    Ready,
}

/// Memory for transformed buffers, allocated once.
pub(super) struct TransformBuffers {
    states: [State; 4],
    outputs: [Vec<u8>; 4],
    /// Output buffer for transforms that can't work in place.
    spare: Vec<u8>,
}

impl Default for TransformBuffers {
    fn default() -> Self {
        // The capacity includes one byte for the dot of `dotprefix`.
        let capacity = || Vec::with_capacity(MAX_LENGTH + 1);
        Self {
            states: [State::Missing; 4],
            outputs: [capacity(), capacity(), capacity(), capacity()],
            spare: capacity(),
        }
    }
}

/// The buffers of a packet, together with a rule's transformed buffers.
pub(super) struct WithTransforms<'a, B> {
    pub buffers: &'a B,
    pub transforms: &'a TransformBuffers,
}

impl<B: BufferSource> BufferSource for WithTransforms<'_, B> {
    fn view(&self, buffer: Buffer) -> Option<BufferView<'_>> {
        match buffer.transformed() {
            None => self.buffers.view(buffer),
            Some(place) => self.transforms.view(place),
        }
    }
}

impl TransformBuffers {
    fn view(&self, place: usize) -> Option<BufferView<'_>> {
        let is_ready = match self.states.get(place)? {
            State::Missing => return None,
            State::Growing => false,
            State::Ready => true,
        };
        Some(BufferView {
            bytes: self.outputs.get(place).filter(|_| is_ready).map_or(&[], |bytes| bytes),
            base: 0,
            complete: is_ready,
            is_final: is_ready,
        })
    }

    /// Transforms the buffers that a rule inspects. Returns false if the work budget is too small.
    pub fn prepare(
        &mut self,
        rule: &Rule,
        buffers: &impl BufferSource,
        matcher: &mut Matcher,
        work: &WorkBudget,
    ) -> bool {
        self.states = [State::Missing; 4];
        for (place, (buffer, changes)) in rule.transformed.iter().enumerate() {
            if changes.is_empty() {
                continue;
            }
            let Some(view) = buffers.view(*buffer).filter(|view| view.base == 0) else {
                continue;
            };
            let (Some(state), Some(output)) = (self.states.get_mut(place), self.outputs.get_mut(place)) else {
                continue;
            };
            if !view.complete {
                *state = State::Growing;
            } else if !view.bytes.is_empty() {
                if !work.charge(units(changes, view.bytes.len())) {
                    return false;
                }
                *state = State::Ready;
                let changes = begin(view.bytes, changes, output);
                for change in changes {
                    apply(change, output, &mut self.spare, (matcher, work));
                }
            }
        }
        !work.is_exhausted()
    }
}

/// Units of work for the transforms of a buffer of `bytes` bytes.
fn units(changes: &[CompiledTransform], bytes: usize) -> u32 {
    let each = changes.iter().map(|change| match change {
        CompiledTransform::Plain(Transform::ToMd5 | Transform::ToSha1 | Transform::ToSha256) => DIGEST_COST,
        _ => TRANSFORM_COST,
    });
    each.sum::<u32>().saturating_mul(bytes as u32)
}

/// Copies a buffer to `output`. If the first transform is a digest, copies the digest instead. Returns the remaining
/// transforms.
fn begin<'c>(bytes: &[u8], changes: &'c [CompiledTransform], output: &mut Vec<u8>) -> &'c [CompiledTransform] {
    output.clear();
    if let Some((CompiledTransform::Plain(first), rest)) = changes.split_first()
        && digest(first, bytes, output)
    {
        return rest;
    }
    output.extend_from_slice(&bytes[..bytes.len().min(MAX_LENGTH)]);
    changes
}

/// Appends a digest of the bytes. Returns false if the transform is not a digest.
fn digest(transform: &Transform, bytes: &[u8], output: &mut Vec<u8>) -> bool {
    match transform {
        Transform::ToMd5 => output.extend_from_slice(&Md5::digest(bytes)),
        Transform::ToSha1 => output.extend_from_slice(&Sha1::digest(bytes)),
        Transform::ToSha256 => output.extend_from_slice(&Sha256::digest(bytes)),
        _ => return false,
    }
    true
}

fn apply(
    change: &CompiledTransform,
    bytes: &mut Vec<u8>,
    spare: &mut Vec<u8>,
    (matcher, work): (&mut Matcher, &WorkBudget),
) {
    let transform = match change {
        CompiledTransform::Plain(transform) => transform,
        CompiledTransform::Expression(expression) => {
            match matcher.group(work, expression, bytes) {
                Some(group) => {
                    bytes.truncate(group.end);
                    bytes.drain(..group.start);
                }
                None => bytes.clear(),
            }
            return;
        }
    };
    spare.clear();
    match transform {
        Transform::ToLowercase => bytes.make_ascii_lowercase(),
        Transform::ToUppercase => bytes.make_ascii_uppercase(),
        Transform::StripWhitespace => bytes.retain(|byte| !is_space(*byte)),
        Transform::CompressWhitespace => {
            let mut before = false;
            bytes.retain_mut(|byte| {
                let space = is_space(*byte);
                let kept = !(space && before);
                before = space;
                if space {
                    *byte = b' ';
                }
                kept
            });
        }
        Transform::ToMd5 | Transform::ToSha1 | Transform::ToSha256 => {
            digest(transform, bytes, spare);
            std::mem::swap(bytes, spare);
        }
        Transform::DotPrefix => {
            bytes.truncate(MAX_LENGTH);
            bytes.insert(0, b'.');
        }
        Transform::UrlDecode => {
            let mut rest = &bytes[..];
            while let [first, behind @ ..] = rest {
                let (byte, taken) = match (first, behind) {
                    (b'+', _) => (b' ', 1),
                    (b'%', [high, low, ..]) => match (nibble(*high), nibble(*low)) {
                        (Some(high), Some(low)) => (high << 4 | low, 3),
                        _ => (b'%', 1),
                    },
                    (other, _) => (*other, 1),
                };
                spare.push(byte);
                rest = &rest[taken..];
            }
            std::mem::swap(bytes, spare);
        }
        Transform::Xor(key) => {
            for (byte, key) in bytes.iter_mut().zip(key.iter().cycle()) {
                *byte ^= key;
            }
        }
        Transform::HeaderLowercase => {
            let mut is_name = true;
            for byte in bytes {
                match byte {
                    b'\n' => is_name = true,
                    b':' => is_name = false,
                    _ if is_name => byte.make_ascii_lowercase(),
                    _ => {}
                }
            }
        }
        Transform::StripPseudoHeaders => {
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                if line.first() != Some(&b':') {
                    spare.extend_from_slice(line);
                }
            }
            std::mem::swap(bytes, spare);
        }
        Transform::Expression(_) => {}
    }
}

/// White space as defined in C, which includes the vertical tab.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(transforms: &[Transform], bytes: &[u8]) -> Vec<u8> {
        let changes: Vec<_> = transforms.iter().cloned().map(CompiledTransform::Plain).collect();
        let (mut output, mut spare) = (Vec::with_capacity(MAX_LENGTH + 1), Vec::with_capacity(MAX_LENGTH + 1));
        for change in begin(bytes, &changes, &mut output) {
            let (matcher, work) = (&mut Matcher::default(), &WorkBudget::default());
            apply(change, &mut output, &mut spare, (matcher, work));
        }
        assert!(
            output.capacity() <= MAX_LENGTH + 1 && spare.capacity() <= MAX_LENGTH + 1,
            "it has grown"
        );
        output
    }

    #[test]
    fn buffers_are_changed_as_their_names_say() {
        use Transform::*;
        let rows: &[(Transform, &[u8], &[u8])] = &[
            (ToLowercase, b"AbC-\xc4", b"abc-\xc4"),
            (ToUppercase, b"AbC-\xe4", b"ABC-\xe4"),
            (StripWhitespace, b" a\t\x0b b\r\n", b"ab"),
            (CompressWhitespace, b"a \t b\n\nc", b"a b c"),
            (DotPrefix, b"example.org", b".example.org"),
            (UrlDecode, b"a%20b+c%2", b"a b c%2"),
            (UrlDecode, b"%zz%41", b"%zzA"),
            (Xor([0x20, 0x00].into()), b"aBcD", b"ABCD"),
            (HeaderLowercase, b"Host: A\r\nX-Y: Z\r\n", b"host: A\r\nx-y: Z\r\n"),
            (StripPseudoHeaders, b":method: GET\r\nhost: a\r\n", b"host: a\r\n"),
            (
                ToMd5,
                b"abc",
                b"\x90\x01\x50\x98\x3c\xd2\x4f\xb0\xd6\x96\x3f\x7d\x28\xe1\x7f\x72",
            ),
        ];
        for (transform, bytes, expected) in rows {
            assert_eq!(
                *expected,
                changed(std::slice::from_ref(transform), bytes),
                "{transform:?}"
            );
        }
        assert_eq!(
            (20, 32),
            (changed(&[ToSha1], b"abc").len(), changed(&[ToSha256], b"abc").len())
        );
        assert_eq!(changed(&[ToMd5], b"abc"), changed(&[ToLowercase, ToMd5], b"ABC"));
    }

    #[test]
    fn long_buffers_are_cut_and_digested_whole() {
        use Transform::*;
        let long = vec![b'A'; MAX_LENGTH + 100];
        for transform in [ToLowercase, DotPrefix, UrlDecode, Xor([1].into()), StripPseudoHeaders] {
            assert!(changed(&[transform.clone(), transform], &long).len() <= MAX_LENGTH + 1);
        }
        assert_ne!(changed(&[ToMd5], &long), changed(&[ToMd5], &long[1..]));
    }
}
