// SPDX-License-Identifier: GPL-2.0-only
//! Text that others have written, as a terminal may see it. Pure.

/// `text` with control characters spelled out: anybody can name a thread or a file so that it adds a
/// line or an escape sequence to what root reads, or has the rest of a line read from right to left.
pub fn printable(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let spelled = text.chars().flat_map(|c| {
        let (plain, escaped) = match c.is_control() || turns(c) {
            true => (None, Some(c.escape_default())),
            false => (Some(c), None),
        };
        plain.into_iter().chain(escaped.into_iter().flatten())
    });
    spelled.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_add_neither_lines_nor_escape_sequences() {
        let text = "a b\u{1b}[2J\n 7 launch\u{9b}\u{fffd}é";
        assert_eq!(printable(text), "a b\\u{1b}[2J\\n 7 launch\\u{9b}\u{fffd}é");
        assert_eq!(printable("a\u{202e}b\u{2066}"), "a\\u{202e}b\\u{2066}");
    }
}
