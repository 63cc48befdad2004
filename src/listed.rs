// SPDX-License-Identifier: GPL-2.0-only
//! Names in a line for people. Pure.

/// So many are enough for a line of the log.
pub const LISTED: usize = 8;

/// The first of `names`, `most` at most, and how many there are beside them.
pub fn listed(names: &[String], most: usize) -> String {
    let first = names[..names.len().min(most)].join(", ");
    match names.len().saturating_sub(most) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_counted() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(listed(&names, 3), "a, b, c");
        assert_eq!(listed(&names, 1), "a and 2 more");
        assert_eq!(listed(&[], 1), "");
    }
}
