// SPDX-License-Identifier: GPL-2.0-only
//! Server-sent events out of the pieces that the network delivers. Pure.

/// Bytes of a stream that are no whole event yet.
#[derive(Debug, Default)]
pub struct Events {
    buffer: Vec<u8>,
}

impl Events {
    /// Adds what came and returns the data of the events that are complete now. Comments, which
    /// servers send to keep a connection alive, are no events.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        self.buffer.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some((end, length)) = self.boundary() {
            let event: Vec<u8> = self.buffer.drain(..end + length).take(end).collect();
            let text = String::from_utf8_lossy(&event);
            let data: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix("data:"))
                .map(|data| data.strip_prefix(' ').unwrap_or(data))
                .collect();
            if !data.is_empty() {
                events.push(data.join("\n"));
            }
        }
        events
    }

    /// Where the first event ends, and how long the empty line after it is.
    fn boundary(&self) -> Option<(usize, usize)> {
        let find = |mark: &[u8]| self.buffer.windows(mark.len()).position(|at| at == mark);
        match (find(b"\n\n"), find(b"\r\n\r\n")) {
            (Some(plain), Some(crlf)) if crlf < plain => Some((crlf, 4)),
            (Some(plain), _) => Some((plain, 2)),
            (None, crlf) => Some((crlf?, 4)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_whole_however_they_are_cut() {
        let stream = b"data: {\"a\":1}\n\n: ping\n\ndata: {\"b\":\"\xc3\xa4\"}\n\ndata: [DONE]\n\n";
        for size in 1..stream.len() {
            let mut events = Events::default();
            let seen: Vec<String> = stream
                .chunks(size)
                .flat_map(|piece| events.push(piece))
                .collect();
            assert_eq!(
                seen,
                ["{\"a\":1}", "{\"b\":\"ä\"}", "[DONE]"],
                "cut every {size}"
            );
        }
    }

    #[test]
    fn carriage_returns_are_a_line_end_too() {
        let mut events = Events::default();
        assert_eq!(events.push(b"data:x\r\n\r\ndata: y\n\nrest"), ["x", "y"]);
    }
}
