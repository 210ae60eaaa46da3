//! Tokeniser for lines of `dhcpd.leases`.

use super::text::digit;

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word<'a> {
    /// A word of digits or letters, an address or a date.
    Plain(&'a [u8]),
    /// Quoted text, with its escapes unchanged.
    Quoted(&'a [u8]),
    /// An opening quotation mark without a closing quotation mark on the same line.
    Open,
    /// An opening brace.
    Begin,
    /// A closing brace.
    End,
    /// A semicolon.
    Semicolon,
}

/// Iterator over tokens. Quoted texts and comments end at the end of the line.
#[derive(Clone, Debug)]
pub struct Words<'a> {
    text: &'a [u8],
    /// Offset after the last token.
    pub at: usize,
}

impl<'a> Words<'a> {
    pub fn of(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Advance to the first byte that satisfies the condition.
    fn skip(&mut self, until: impl Fn(u8) -> bool) {
        let rest = &self.text[self.at..];
        self.at += rest.iter().position(|&byte| until(byte)).unwrap_or(rest.len());
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        loop {
            self.skip(|byte| !is_between(byte));
            if self.text.get(self.at) != Some(&b'#') {
                break;
            }
            self.skip(|byte| byte == b'\n');
        }
        let start = self.at;
        let first = *self.text.get(start)?;
        self.at += 1;
        Some(match first {
            b'{' => Word::Begin,
            b'}' => Word::End,
            b';' => Word::Semicolon,
            b'"' => return Some(self.quoted()),
            _ => {
                self.skip(|byte| is_between(byte) || matches!(byte, b'{' | b'}' | b';' | b'"' | b'#'));
                Word::Plain(&self.text[start..self.at])
            }
        })
    }
}

impl<'a> Words<'a> {
    fn quoted(&mut self) -> Word<'a> {
        let start = self.at;
        loop {
            self.skip(|byte| matches!(byte, b'"' | b'\\' | b'\n'));
            match self.text.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Word::Quoted(&self.text[start..self.at - 1]);
                }
                Some(b'\\') if !matches!(self.text.get(self.at + 1), None | Some(b'\n')) => self.at += 2,
                Some(b'\\') => self.at += 1,
                _ => return Word::Open,
            }
        }
    }
}

/// Whether a byte separates tokens. The operators of expressions count as separators, so they are ignored.
fn is_between(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'=' | b',' | b'(' | b')')
}

/// Replace the escapes in a quoted text: `\001`, `\x1f`, `\n`, `\"`.
pub fn unquoted(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        let (byte, behind) = match byte {
            b'\\' => escaped(behind),
            _ => (byte, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
    bytes
}

fn escaped(text: &[u8]) -> (u8, &[u8]) {
    let Some((&byte, behind)) = text.split_first() else {
        return (b'\\', text);
    };
    let digits = text
        .iter()
        .take(3)
        .take_while(|byte| matches!(byte, b'0'..=b'7'))
        .count();
    match (byte, behind) {
        (b'0'..=b'7', _) => {
            let value = text[..digits]
                .iter()
                .fold(0, |value: u8, &byte| value << 3 | (byte - b'0'));
            (value, &text[digits..])
        }
        (b'x', [high, low, behind @ ..]) => match (digit(*high), digit(*low)) {
            (Some(high), Some(low)) => (high << 4 | low, behind),
            _ => (byte, &text[1..]),
        },
        (b'n', _) => (b'\n', behind),
        (b'r', _) => (b'\r', behind),
        (b't', _) => (b'\t', behind),
        (b'b', _) => (8, behind),
        _ => (byte, behind),
    }
}
