// SPDX-License-Identifier: GPL-2.0-only
//! What was probably meant: the nearest of the words that are known.

/// Similar enough to be a slip of the fingers, by Jaro-Winkler: `cpu` and `cpus` are 0.94, `hold`
/// and `lend` 0.5.
const SIMILAR: f64 = 0.8;

/// The word of `known` that is nearest to `word`, if any is near.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let lower = word.to_lowercase().replace('-', "_");
    known
        .into_iter()
        .map(|candidate| {
            let plain = candidate.to_lowercase().replace('-', "_");
            (strsim::jaro_winkler(&lower, &plain), candidate)
        })
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, candidate)| candidate)
}

/// `; did you mean WORD?`, or nothing.
pub fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    nearest(word, known).map_or_else(String::new, |word| format!("; did you mean {word}?"))
}

/// Why `word` is none of `words`.
pub fn none_of(word: &str, words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
    let hint = did_you_mean(word, words.iter().copied());
    format!("{word:?}: expected {}{hint}", quoted.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_slip_of_the_fingers() {
        let known = ["cpus", "max", "smt", "lend", "hold_us"];
        assert_eq!(nearest("cpu", known), Some("cpus"));
        assert_eq!(nearest("hold-us", known), Some("hold_us"));
        assert_eq!(nearest("hold_ms", known), Some("hold_us"));
        assert_eq!(nearest("lends", known), Some("lend"));
        assert_eq!(nearest("colour", known), None);
    }

    #[test]
    fn names_all_words_and_the_nearest() {
        assert_eq!(
            none_of("whole_core", &["whole-core", "shared"]),
            "\"whole_core\": expected \"whole-core\" or \"shared\"; did you mean whole-core?"
        );
    }
}
