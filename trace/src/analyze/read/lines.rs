// SPDX-License-Identifier: GPL-2.0-only
//! Lines of a file, numbered, of bounded length: a file that is not text must not fill memory.

use std::io::{self, BufRead, Read};

/// The longest line of a genuine trace is under a kilobyte; its header may have a long command.
const MAX_LINE: usize = 65_536;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What came next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A line with its end.
    Line,
    /// A line that is too long; its text is its beginning.
    TooLong,
    /// The last line, without its end.
    Cut,
    /// The end of the file.
    Nothing,
}

/// Lines of `input`.
#[derive(Debug)]
pub struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    number: u64,
    bytes: u64,
}

impl<R: BufRead> Lines<R> {
    /// From the beginning.
    pub fn new(input: R) -> Self {
        Self {
            input,
            buffer: Vec::new(),
            number: 0,
            bytes: 0,
        }
    }

    /// Goes on to the next line.
    pub fn advance(&mut self) -> io::Result<Found> {
        self.buffer.clear();
        self.read()
    }

    /// Appends the next line to this one: a quoted field goes on there.
    pub fn append(&mut self) -> io::Result<Found> {
        self.buffer.push(b'\n');
        self.read()
    }

    fn read(&mut self) -> io::Result<Found> {
        let read = (&mut self.input)
            .take(MAX_LINE as u64)
            .read_until(b'\n', &mut self.buffer)?;
        if read == 0 {
            return Ok(Found::Nothing);
        }
        self.number += 1;
        self.bytes += read as u64;
        if self.number == 1 && self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.buffer.drain(..BYTE_ORDER_MARK.len());
        }
        if self.buffer.last() != Some(&b'\n') {
            if read < MAX_LINE {
                return Ok(Found::Cut);
            }
            self.bytes += skip_line(&mut self.input)?;
            return Ok(Found::TooLong);
        }
        self.buffer.pop();
        if self.buffer.last() == Some(&b'\r') {
            self.buffer.pop();
        }
        Ok(Found::Line)
    }

    /// The line, without its end.
    pub fn text(&self) -> &[u8] {
        &self.buffer
    }

    /// Its number, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn skip_line(input: &mut impl BufRead) -> io::Result<u64> {
    let mut skipped = 0;
    loop {
        let held = input.fill_buf()?;
        let (used, done) = match held.iter().position(|&byte| byte == b'\n') {
            _ if held.is_empty() => return Ok(skipped),
            Some(at) => (at + 1, true),
            None => (held.len(), false),
        };
        input.consume(used);
        skipped += used as u64;
        if done {
            return Ok(skipped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_and_bounded() {
        let long = "x".repeat(3 * MAX_LINE);
        let text = format!("\u{feff}one\r\n\n{long}\nthree\nfou");
        let mut lines = Lines::new(text.as_bytes());
        let mut seen = Vec::new();
        loop {
            let found = lines.advance().unwrap();
            if found == Found::Nothing {
                break;
            }
            assert!(lines.text().len() <= MAX_LINE);
            let start = String::from_utf8_lossy(&lines.text()[..lines.text().len().min(5)]);
            seen.push((lines.number(), found, start.into_owned()));
        }
        let expected = [
            (1, Found::Line, "one"),
            (2, Found::Line, ""),
            (3, Found::TooLong, "xxxxx"),
            (4, Found::Line, "three"),
            (5, Found::Cut, "fou"),
        ];
        assert_eq!(
            seen,
            expected.map(|(number, found, text)| (number, found, text.to_owned()))
        );
        assert_eq!(lines.bytes(), text.len() as u64);
    }
}
