// SPDX-License-Identifier: GPL-2.0-only
//! Finds the mark that the guest writes after a stream's last byte. Pure.
//!
//! A virtio serial port has no end of file that can be trusted at power-off, so the guest marks
//! it with a word that the output cannot guess; all before it is passed on as it comes.

/// Splits a stream into what belongs to the command and the mark that ends it.
#[derive(Debug)]
pub struct Until {
    mark: Vec<u8>,
    held: Vec<u8>,
    ended: bool,
}

impl Until {
    /// `mark` must be non-empty.
    pub fn new(mark: &[u8]) -> Self {
        Self {
            mark: mark.to_vec(),
            held: Vec::new(),
            ended: false,
        }
    }

    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Takes the next bytes; returns those that are certain to be output. What could be the
    /// beginning of the mark is held back until the next call.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.ended {
            return Vec::new();
        }
        self.held.extend_from_slice(bytes);
        if let Some(at) = find(&self.held, &self.mark) {
            self.ended = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let keep = (1..self.mark.len())
            .rev()
            .find(|&length| self.held.ends_with(&self.mark[..length]))
            .unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        std::mem::replace(&mut self.held, rest)
    }

    /// What was held back when the stream ends without its mark.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(chunks: &[&str]) -> (Vec<String>, Until) {
        let mut until = Until::new(b"<end>");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let out = chunks
            .iter()
            .map(|c| text(until.push(c.as_bytes())))
            .collect();
        (out, until)
    }

    #[test]
    fn passes_output_on_at_once() {
        let (out, until) = feed(&["one\n", "two"]);
        assert_eq!(out, ["one\n", "two"]);
        assert!(!until.ended());
    }

    #[test]
    fn finds_a_mark_that_comes_in_pieces() {
        let (out, until) = feed(&["data<e", "n", "d>late"]);
        assert_eq!(out, ["data", "", ""]);
        assert!(until.ended());
    }

    #[test]
    fn gives_back_what_only_looked_like_the_mark() {
        let (out, mut until) = feed(&["a<e", "<en", "x", "<end"]);
        assert_eq!(out, ["a", "<e", "<enx", ""]);
        assert_eq!(until.finish(), b"<end");
    }

    #[test]
    fn drops_what_comes_after_the_mark() {
        let (out, _) = feed(&["<end>", "late"]);
        assert_eq!(out, ["", ""]);
    }
}
