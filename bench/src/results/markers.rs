// SPDX-License-Identifier: GPL-2.0-only
//! The parts of a Markdown file that are generated: what stands between `<!-- NAME:begin … -->` and
//! `<!-- NAME:end -->`, each on a line of its own; and how wide its lines are. Pure.

use std::path::Path;

use crate::datafile::DataError;

/// No line of prose is longer.
pub const COLUMNS: usize = 118;

/// `text` with `block` between the markers of `name`.
///
/// # Errors
/// Not exactly one pair of markers is there.
pub fn replace(file: &Path, text: &str, name: &str, block: &str) -> Result<String, DataError> {
    let at = |what: &str| -> Result<usize, DataError> {
        let mark = format!("<!-- {name}:{what}");
        let lines = || text.lines().enumerate();
        let found: Vec<usize> = lines()
            .filter(|(_, line)| line.starts_with(&mark))
            .map(|(at, _)| at)
            .collect();
        match found[..] {
            [one] => Ok(one),
            _ => Err(DataError::Usage(format!(
                "{}: expected one line that begins with {mark:?}, got {}",
                file.display(),
                found.len()
            ))),
        }
    };
    let (begin, end) = (at("begin")?, at("end")?);
    if end < begin {
        let line = end + 1;
        return Err(DataError::Usage(format!(
            "{}:{line}: {name}: its end stands before its beginning",
            file.display()
        )));
    }
    let lines: Vec<&str> = text.lines().collect();
    let before = &lines[..=begin];
    let after = &lines[end..];
    Ok([before, &[block.trim_end()], after].concat().join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a\n<!-- results:begin made -->\nold\nold\n<!-- results:end -->\nb\n";

    fn replaced(text: &str) -> Result<String, DataError> {
        replace(Path::new("R.md"), text, "results", "new\n")
    }

    #[test]
    fn only_what_stands_between_the_markers_changes_and_once() {
        let expected = "a\n<!-- results:begin made -->\nnew\n<!-- results:end -->\nb\n";
        assert_eq!(replaced(TEXT).unwrap(), expected);
        assert_eq!(replaced(expected).unwrap(), expected);
    }

    #[test]
    fn a_file_without_one_pair_of_markers_is_refused() {
        for text in [
            "a\n",
            "<!-- results:begin -->\n",
            "<!-- results:begin -->\n<!-- results:begin -->\n<!-- results:end -->\n",
            "<!-- results:end -->\n<!-- results:begin -->\n",
        ] {
            let error = replaced(text).unwrap_err().to_string();
            assert!(error.starts_with("R.md:"), "{error}");
        }
    }
}
