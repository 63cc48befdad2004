// SPDX-License-Identifier: GPL-2.0-only
//! Cells of CSV, also where a data frame or a spreadsheet has written them again: what is certain to mean the
//! same is read, anything else is refused. Both readers of CSV, and that of NDJSON, go by this.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, Error, Visitor};

/// What other tools write where a column has a gap.
const GAPS: [&[u8]; 6] = [b"", b"NA", b"NaN", b"nan", b"null", b"None"];
/// Up to here a float holds every whole number.
const EXACT_IN_FLOATS: u64 = 1 << 53;

/// Fields as RFC 4180 quotes them.
pub fn split(line: &[u8]) -> Vec<Cow<'_, [u8]>> {
    if !line.contains(&b'"') {
        return line
            .split(|&byte| byte == b',')
            .map(Cow::Borrowed)
            .collect();
    }
    let mut fields = Vec::new();
    let (mut field, mut quoted) = (Vec::new(), false);
    let mut bytes = line.iter().peekable();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'"' if quoted && bytes.peek() == Some(&&b'"') => {
                bytes.next();
                field.push(b'"');
            }
            b'"' => quoted = !quoted,
            b',' if !quoted => fields.push(Cow::Owned(std::mem::take(&mut field))),
            other => field.push(other),
        }
    }
    fields.push(Cow::Owned(field));
    fields
}

/// Whether a quoted field goes on in the next line.
pub fn goes_on(line: &[u8]) -> bool {
    line.iter().filter(|&&byte| byte == b'"').count() % 2 == 1
}

/// Where the column of that name is among `names`; `None`: there is none.
///
/// # Errors
/// There are two.
pub fn find(names: &[Cow<[u8]>], name: &str) -> Result<Option<usize>, String> {
    let mut found = (0..names.len()).filter(|&at| names[at].trim_ascii() == name.as_bytes());
    match (found.next(), found.next()) {
        (first, None) => Ok(first),
        _ => Err(format!("two columns are called `{name}`")),
    }
}

/// Fails unless the row has as many columns as the line with their names.
pub fn check_count(found: usize, named: usize) -> Result<(), String> {
    if found == named {
        return Ok(());
    }
    Err(format!(
        "{found} columns, where the names of the columns are {named}: a comma in a number, or a cut line"
    ))
}

/// The same problem for anybody who writes CSV with other separators; `None`: it has commas.
pub fn other_separator(line: &[u8]) -> Option<String> {
    let nr = |byte: u8| line.iter().filter(|&&found| found == byte).count();
    let (separator, name) = [(b';', "`;`"), (b'\t', "tabs")]
        .into_iter()
        .find(|&(separator, _)| nr(separator) > 5 && nr(separator) > nr(b','))
        .unzip();
    separator.and(name).map(|name| {
        format!("the columns are separated by {name}: expected commas, and no commas in numbers")
    })
}

/// Does the cell say that there is nothing in it?
pub fn is_gap(cell: &[u8]) -> bool {
    GAPS.contains(&cell.trim_ascii())
}

/// A cell of digits; `None` where it is empty. Floats that are whole count as what they stand for.
pub fn figure(column: &str, cell: &[u8]) -> Result<Option<u64>, String> {
    let cell = cell.trim_ascii();
    if is_gap(cell) {
        return Ok(None);
    }
    whole(cell).map(Some).ok_or_else(|| {
        let found = String::from_utf8_lossy(cell);
        let why = match cell {
            cell if cell.contains(&b',') => ": no commas within numbers",
            cell if cell.ends_with(b".0") => ": a float cannot hold it to the last digit",
            _ => "",
        };
        format!("{column}: expected a whole number, found `{found}`{why}")
    })
}

/// `7`, and `7.0` of who keeps columns with gaps as floats.
pub fn whole(cell: &[u8]) -> Option<u64> {
    let point = cell.iter().position(|&byte| byte == b'.');
    let (digits, zeros) = cell.split_at(point.unwrap_or(cell.len()));
    let is_float = match zeros {
        [] => false,
        [_, zeros @ ..] if !zeros.is_empty() && zeros.iter().all(|&byte| byte == b'0') => true,
        _ => return None,
    };
    if digits.is_empty() {
        return None;
    }
    let value = digits.iter().try_fold(0_u64, |value, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })?;
    (!is_float || value <= EXACT_IN_FLOATS).then_some(value)
}

/// A figure of NDJSON, for serde: the same, and `null` for a gap.
pub fn figure_json<'de, D: Deserializer<'de>, T: TryFrom<u64>>(
    input: D,
) -> Result<Option<T>, D::Error> {
    let Some(value) = input.deserialize_any(Figure)? else {
        return Ok(None);
    };
    let too_large = |_| Error::custom(format!("{value} is too large here"));
    T::try_from(value).map(Some).map_err(too_large)
}

/// A figure that may not be missing.
pub fn needed_json<'de, D: Deserializer<'de>, T: TryFrom<u64>>(input: D) -> Result<T, D::Error> {
    figure_json(input)?.ok_or_else(|| Error::custom("null: expected a whole number"))
}

/// Text of NDJSON, for serde; `null` is none.
pub fn text_json<'de: 'a, 'a, D: Deserializer<'de>>(input: D) -> Result<Cow<'a, str>, D::Error> {
    input.deserialize_any(Text)
}

struct Figure;

impl Visitor<'_> for Figure {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Some(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        let is_whole = value.fract() == 0.0 && (0.0..=EXACT_IN_FLOATS as f64).contains(&value);
        let problem = || Error::custom(format!("{value}: expected a whole number"));
        is_whole.then_some(Some(value as u64)).ok_or_else(problem)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

struct Text;

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whole_numbers_are_read_however_they_are_written() {
        for (cell, value) in [
            ("0", Some(0)),
            ("17", Some(17)),
            (" 17.0", Some(17)),
            ("17.000 ", Some(17)),
            ("18446744073709551615", Some(u64::MAX)),
            ("9007199254740992.0", Some(1 << 53)),
            ("", None),
            ("NA", None),
            ("NaN", None),
            ("None", None),
        ] {
            assert_eq!(figure("x", cell.as_bytes()), Ok(value), "{cell}");
        }
    }

    #[test]
    fn what_may_have_lost_digits_or_is_of_another_country_is_refused() {
        for (cell, why) in [
            ("1.5", ""),
            ("1,0", "no commas"),
            ("1.000.000", ""),
            ("1e+06", ""),
            ("-1", ""),
            (".0", ""),
            ("1.", ""),
            ("18446744073709551616", ""),
            ("9007199254740994.0", "a float cannot hold it"),
        ] {
            let error = figure("wait_ns", cell.as_bytes()).unwrap_err();
            assert!(
                error.starts_with("wait_ns: expected a whole number"),
                "{error}"
            );
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn other_separators_are_named() {
        assert!(other_separator(b"a;b;c;d;e;f;g").unwrap().contains("`;`"));
        assert!(
            other_separator(b"a\tb\tc\td\te\tf\tg")
                .unwrap()
                .contains("tabs")
        );
        assert_eq!(other_separator(b"a,b,c,d,e,f;g,h,i,j"), None);
        assert_eq!(other_separator(b"nonsense; yes"), None);
    }

    proptest! {
        #[test]
        fn quoted_cells_are_read_back(cells in proptest::collection::vec("[a\",\n ]{0,5}", 1..6)) {
            let quoted: Vec<_> = cells.iter().map(|cell| format!("\"{}\"", cell.replace('"', "\"\""))).collect();
            let line = quoted.join(",");
            let found = split(line.as_bytes());
            prop_assert!(found.iter().map(|cell| &**cell).eq(cells.iter().map(String::as_bytes)));
            prop_assert!(!goes_on(line.as_bytes()));
        }
    }
}
