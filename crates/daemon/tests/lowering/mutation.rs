//! Changes example configurations.

use super::choices::Choices;

/// Limits, and the numbers just below and above the limits.
const NUMBERS: [&str; 26] = [
    "0",
    "1",
    "2",
    "3",
    "8",
    "32",
    "33",
    "63",
    "64",
    "65",
    "128",
    "255",
    "256",
    "576",
    "1023",
    "1024",
    "1025",
    "2048",
    "4095",
    "4096",
    "32768",
    "65535",
    "65536",
    "1048576",
    "16777216",
    "4294967295",
];

/// Byte positions of the numbers of a text, outside of words and addresses.
fn numbers(text: &str) -> Vec<(usize, usize)> {
    let bytes = text.as_bytes();
    let is_in = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-/\"".contains(&byte);
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = bytes[at..].iter().take_while(|&&byte| is_in(byte)).count();
        let word = &text[at..at + length];
        if length > 0 && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') {
            found.push((at, at + length));
        }
        at += length.max(1);
    }
    found
}

/// Byte positions of the strings of a text, without their quotation marks.
fn strings(text: &str) -> Vec<(usize, usize)> {
    let marks: Vec<_> = text.match_indices('"').map(|(at, _)| at).collect();
    marks.chunks_exact(2).map(|pair| (pair[0] + 1, pair[1])).collect()
}

/// The lines of the table that contains the line with this number.
fn block(lines: &[&str], at: usize) -> std::ops::Range<usize> {
    let is_header = |line: &&str| line.starts_with('[');
    let first = (0..=at).rev().find(|&line| is_header(&lines[line])).unwrap_or(0);
    let last = (at + 1..lines.len()).find(|&line| is_header(&lines[line]));
    first..last.unwrap_or(lines.len())
}

/// The text with one change.
fn changed(choose: &mut Choices, text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let at = choose.below(lines.len().max(1));
    match choose.below(6) {
        // Remove a line or a table, or repeat a table at the end.
        0 if !lines.is_empty() => {
            lines.remove(at);
        }
        1 if !lines.is_empty() => {
            lines.drain(block(&lines, at));
        }
        2 if !lines.is_empty() => lines.extend(lines[block(&lines, at)].to_vec()),
        3 | 4 => {
            let places = numbers(text);
            if let Some(&(first, end)) = places.get(choose.below(places.len().max(1))) {
                return format!("{}{}{}", &text[..first], choose.of(&NUMBERS), &text[end..]);
            }
        }
        _ => {
            let places = strings(text);
            let [one, other] = [0, 1].map(|_| choose.below(places.len().max(1)));
            if let (Some(&(first, end)), Some(&(from, to))) = (places.get(one), places.get(other)) {
                return format!("{}{}{}", &text[..first], &text[from..to], &text[end..]);
            }
        }
    }
    lines.join("\n") + "\n"
}

/// An example with one to three changes.
pub fn example(choose: &mut Choices, examples: &[String]) -> String {
    let example = &examples[choose.below(examples.len())];
    let comments = |line: &&str| !line.trim_start().starts_with('#');
    let mut text: String = example
        .lines()
        .filter(comments)
        .map(|line| format!("{line}\n"))
        .collect();
    for _ in 0..=choose.below(3) {
        text = changed(choose, &text);
    }
    text
}
