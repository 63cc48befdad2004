// SPDX-License-Identifier: GPL-2.0-only
//! Figures in words, as people read them.

use std::time::Duration;

/// "7 min 20 s", "45 s".
pub fn in_words(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, seconds) => format!("{minutes} min {seconds:02} s"),
    }
}

/// A word for sh.
pub fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A line or more, broken at blanks; later lines begin with `indent`.
pub fn wrap(text: &str, columns: usize, indent: &str) -> String {
    let mut wrapped = String::new();
    let mut used = 0;
    for word in text.split([' ', '\n']) {
        let length = word.chars().count() + 1;
        let first = wrapped.is_empty();
        if !first && used + length > columns + 1 {
            wrapped += "\n";
            wrapped += indent;
            used = indent.len();
        } else if !first {
            wrapped.push(' ');
        }
        wrapped += word;
        used += length;
    }
    wrapped + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_durations_in_words() {
        assert_eq!(in_words(Duration::from_millis(45_400)), "45 s");
        assert_eq!(in_words(Duration::from_secs(440)), "7 min 20 s");
    }

    #[test]
    fn breaks_lines_at_blanks() {
        assert_eq!(wrap("- one two\nthree", 10, "  "), "- one two\n  three\n");
        assert_eq!(wrap("unbreakable", 3, ""), "unbreakable\n");
    }
}
