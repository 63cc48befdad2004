// SPDX-License-Identifier: GPL-2.0-only
//! From the text of a trace to events, one at a time: which format it is, what is wrong with it and
//! where. Owns no counting of what happened.

mod cells;
mod legacy;
mod lines;
mod native;
mod parsed;
mod refusal;

use std::io::BufRead;

use serde::Serialize;

use super::event::{Event, Names};
use crate::schema::{CSV_HEADER_PREFIX, End, Header};
#[cfg(test)]
pub use legacy::HEADER as LEGACY_HEADER;
use lines::{Found, Lines};
pub use parsed::Counter;
use parsed::Parsed;
pub use refusal::InputError;
use refusal::{excerpt, hint};

/// Problems that are named; the others are counted.
const MAX_NAMED: usize = 5;
/// Lines that a quoted name may have.
const MAX_CONTINUATIONS: usize = 4;
/// So few bad lines are never a reason to give up.
const TOLERATED: u64 = 20;
/// Of a whole file no more than this part may be bad: a tool that writes numbers in another way spoils one kind of
/// row, and what is left looks like a trace.
const MOST_BAD_ONE_IN: u64 = 10;
/// Rows that follow one another are closer than that.
const FARTHEST_NS: u64 = 86_400_000_000_000;
/// No duration, in nanoseconds, and no count is larger: a hundred days. A garbled one would drown the sums of a file.
const LARGEST: u64 = 1 << 53;

/// The formats that are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// cuda_sched_trace's CSV, 16 or 19 columns.
    LegacyCsv,
    /// Ours.
    Csv,
    /// Ours.
    Ndjson,
}

/// What the reader gives.
#[derive(Debug)]
pub enum Item {
    /// Something happened.
    Event(Event),
    /// Another run begins in the same file: times start anew.
    Restart,
}

/// A line that could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// What there is to say about the file itself.
#[derive(Debug, Default)]
pub struct Facts {
    /// Lines that could not be understood.
    pub malformed: u64,
    /// The first of them.
    pub problems: Vec<Problem>,
    /// The last line, where it has no end.
    pub cut_at: Option<u64>,
    /// Records of a kind that this version does not know.
    pub unknown_kinds: u64,
    /// Runs in the file.
    pub runs: u64,
    /// Our header, of the first run.
    pub header: Option<Header>,
    /// Our ends, one a run that was not cut short.
    pub ends: Vec<End>,
    /// The summary of cuda_sched_trace, where it is in the file.
    pub counters: Vec<(Counter, u64)>,
}

/// A trace that is read.
#[derive(Debug)]
pub struct Reader<R> {
    file: String,
    lines: Lines<R>,
    format: Format,
    columns: native::Columns,
    legacy_columns: legacy::Columns,
    /// The line that told the format, to be read again.
    first: bool,
    rows: u64,
    /// Time of the row before, in this run.
    before_ns: Option<i64>,
    facts: Facts,
}

impl<R: BufRead> Reader<R> {
    /// Finds out which format `input` has; `file` is its name for messages.
    ///
    /// # Errors
    /// It is no trace, or cannot be read.
    pub fn open(file: &str, input: R) -> Result<Self, InputError> {
        let mut reader = Self {
            file: file.to_owned(),
            lines: Lines::new(input),
            format: Format::LegacyCsv,
            columns: native::Columns::default(),
            legacy_columns: legacy::Columns::default(),
            first: true,
            rows: 0,
            before_ns: None,
            facts: Facts {
                runs: 1,
                ..Facts::default()
            },
        };
        loop {
            let found = reader.step()?;
            if found == Found::Nothing {
                return Err(InputError::Empty {
                    file: file.to_owned(),
                });
            }
            let text = reader.lines.text();
            if text.trim_ascii().is_empty() {
                continue;
            }
            let Some(format) = format_of(text) else {
                return Err(InputError::NotATrace {
                    file: file.to_owned(),
                    line: reader.lines.number(),
                    found: excerpt(text),
                    hint: hint(text),
                });
            };
            reader.format = format;
            return Ok(reader);
        }
    }

    fn step(&mut self) -> Result<Found, InputError> {
        let found = self.lines.advance();
        self.io(found)
    }

    fn io<T>(&self, result: std::io::Result<T>) -> Result<T, InputError> {
        result.map_err(|why| InputError::Io {
            file: self.file.clone(),
            why,
        })
    }

    /// The next event, or `None` at the end.
    ///
    /// # Errors
    /// The file cannot be read, is mostly malformed, or goes on in another version.
    pub fn next(&mut self, names: &mut Names) -> Result<Option<Item>, InputError> {
        loop {
            let found = if std::mem::take(&mut self.first) {
                Found::Line
            } else {
                self.step()?
            };
            match found {
                Found::Nothing => return self.finish().map(|()| None),
                Found::TooLong => self.bad("longer than 64 KiB".to_owned())?,
                Found::Cut => self.cut(names),
                Found::Line if self.lines.text().trim_ascii().is_empty() => {}
                Found::Line => {
                    self.append_quoted_lines()?;
                    match self.parse(names) {
                        Err(reason) => self.bad(reason)?,
                        Ok(parsed) => {
                            if let Some(item) = self.take(parsed)? {
                                return Ok(Some(item));
                            }
                        }
                    }
                }
            }
        }
    }

    fn append_quoted_lines(&mut self) -> Result<(), InputError> {
        for _ in 0..MAX_CONTINUATIONS {
            let quoted = self.format == Format::Csv && !self.lines.text().starts_with(b"#");
            if !quoted || !cells::goes_on(self.lines.text()) {
                break;
            }
            let found = self.lines.append();
            if self.io(found)? != Found::Line {
                break;
            }
        }
        Ok(())
    }

    fn parse(&mut self, names: &mut Names) -> Result<Parsed, String> {
        let text = self.lines.text();
        let parsed = match self.format {
            Format::LegacyCsv => legacy::parse(text, &mut self.legacy_columns, names),
            Format::Csv => native::parse_csv(text, &mut self.columns, names),
            Format::Ndjson => native::parse_json(text, names),
        }?;
        let largest = parsed.largest();
        if largest > LARGEST {
            return Err(format!(
                "{largest} is out of range: expected durations and counts up to {LARGEST}"
            ));
        }
        if let Parsed::Event(event) = &parsed {
            // One row with a garbled time would make all that follow come too late.
            let before_ns = self.before_ns.unwrap_or(event.time_ns);
            if event.time_ns.abs_diff(before_ns) > FARTHEST_NS {
                return Err("its time is more than a day away from the row before".to_owned());
            }
            self.before_ns = Some(event.time_ns);
        }
        Ok(parsed)
    }

    fn take(&mut self, parsed: Parsed) -> Result<Option<Item>, InputError> {
        match parsed {
            Parsed::Event(event) => {
                self.rows += 1;
                return Ok(Some(Item::Event(event)));
            }
            Parsed::Header(header) => {
                let again = self.facts.header.is_some();
                self.facts.header.get_or_insert(*header);
                return Ok(again.then(|| self.restart()));
            }
            // The first header is at the beginning, or after the tracer's log.
            Parsed::Restart => return Ok((self.rows > 0).then(|| self.restart())),
            Parsed::End(end) => self.facts.ends.push(*end),
            Parsed::Counted(counter, count) => self.facts.counters.push((counter, count)),
            Parsed::UnknownKind => self.facts.unknown_kinds += 1,
            Parsed::Nothing => {}
            Parsed::OtherVersion(found) => {
                return Err(InputError::Version {
                    file: self.file.clone(),
                    line: self.lines.number(),
                    found,
                });
            }
        }
        Ok(None)
    }

    fn restart(&mut self) -> Item {
        self.before_ns = None;
        self.facts.runs += 1;
        Item::Restart
    }

    /// A last line without its end may lack digits: only our own end can be trusted there.
    fn cut(&mut self, names: &mut Names) {
        let is_end = self.format != Format::LegacyCsv;
        match is_end.then(|| self.parse(names)) {
            Some(Ok(Parsed::End(end))) => self.facts.ends.push(*end),
            _ => self.facts.cut_at = Some(self.lines.number()),
        }
    }

    fn bad(&mut self, reason: String) -> Result<(), InputError> {
        self.facts.malformed += 1;
        if self.facts.problems.len() < MAX_NAMED {
            self.facts.problems.push(Problem {
                line: self.lines.number(),
                reason,
            });
        }
        if self.facts.malformed > TOLERATED && self.facts.malformed > self.rows {
            return Err(self.mostly_malformed());
        }
        Ok(())
    }

    fn mostly_malformed(&self) -> InputError {
        let first = self.facts.problems.first();
        InputError::Malformed {
            file: self.file.clone(),
            line: first.map_or(0, |problem| problem.line),
            reason: first.map_or_else(String::new, |problem| problem.reason.clone()),
            bad: self.facts.malformed,
            lines: self.lines.number(),
        }
    }

    fn finish(&self) -> Result<(), InputError> {
        let bad = self.facts.malformed;
        let too_many = bad > TOLERATED && bad > self.rows / MOST_BAD_ONE_IN;
        if too_many || self.rows == 0 && bad > 0 {
            return Err(self.mostly_malformed());
        }
        if self.rows > 0 {
            return Ok(());
        }
        Err(InputError::Empty {
            file: self.file.clone(),
        })
    }

    /// Which format it is.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Lines and bytes read so far.
    pub fn read(&self) -> (u64, u64) {
        (self.lines.number(), self.lines.bytes())
    }

    /// What there is to say about the file itself.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }
}

fn format_of(line: &[u8]) -> Option<Format> {
    if line.starts_with(CSV_HEADER_PREFIX.as_bytes()) {
        return Some(Format::Csv);
    }
    if line.starts_with(native::NDJSON_HEADER_START.as_bytes()) {
        return Some(Format::Ndjson);
    }
    // A file that was split has no header; its rows are told by their form.
    legacy::parse(line, &mut legacy::Columns::default(), &mut Names::default())
        .is_ok()
        .then_some(Format::LegacyCsv)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::VERSION;

    const ROW: &str = "9,syncEnter,1,1,a,3,,,,,,,,,,\n";

    fn read(text: &str) -> Result<(u64, Facts), InputError> {
        let mut names = Names::default();
        let mut reader = Reader::open("t.csv", text.as_bytes())?;
        let mut rows = 0;
        while let Some(item) = reader.next(&mut names)? {
            rows += u64::from(matches!(item, Item::Event(_)));
        }
        Ok((rows, reader.facts))
    }

    fn error(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn a_file_that_is_no_trace_is_named_with_its_line() {
        let found = error("\n\nname,age\nx,3\n");
        assert!(found.starts_with("t.csv:3: not a trace"), "{found}");
        assert!(found.contains("`name,age`"), "{found}");
        for (text, part) in [
            ("time_ns,event,cpu,tid,tgid,comm\n", "put it back"),
            (
                "\"# scx_gpuaware trace {\"\"schema\"\":1\"\n",
                "put it back",
            ),
            (
                "timestamp_ns;event_type;pid;tid;comm;cpu;grid_x\n",
                "separated by `;`",
            ),
        ] {
            assert!(error(text).contains(part), "{}", error(text));
        }
        assert!(!found.contains("put it back"), "{found}");
        assert!(error("\u{7f}ELF\u{2}\u{1}").contains("not a trace"));
        assert_eq!(error(""), "t.csv: no event in it");
        assert_eq!(
            error(&format!("{LEGACY_HEADER}\n")),
            "t.csv: no event in it"
        );
    }

    #[test]
    fn malformed_lines_are_counted_and_the_first_are_named() {
        let text = format!("{LEGACY_HEADER}\n{ROW}nonsense\n{ROW}9,x\n{ROW}");
        let (rows, facts) = read(&text).unwrap();
        assert_eq!((rows, facts.malformed), (3, 2));
        assert_eq!(facts.problems[0].line, 3);
        assert_eq!(facts.problems[1].line, 5);
    }

    #[test]
    fn durations_and_counts_that_cannot_be_are_bad_rows() {
        let irq = |ns: u64| format!("9,softirqExit,1,1,a,3,,,,,,,,,,,3,NET_RX,{ns}\n");
        let lost = |count: u64| format!("9,lost,0,0,,0,,,,,,,,,,,,,{count}\n");
        for row in [irq(u64::MAX), irq(LARGEST + 1), lost(u64::MAX)] {
            let (rows, facts) = read(&format!("{LEGACY_HEADER}\n{ROW}{row}{ROW}")).unwrap();
            assert_eq!((rows, facts.malformed), (2, 1), "{row}");
            let reason = &facts.problems[0].reason;
            assert!(reason.contains("out of range"), "{reason}");
        }
        let (rows, facts) = read(&format!("{LEGACY_HEADER}\n{ROW}{}", irq(LARGEST))).unwrap();
        assert_eq!((rows, facts.malformed), (2, 0));
    }

    #[test]
    fn a_file_that_is_mostly_malformed_is_refused() {
        let text = format!("{LEGACY_HEADER}\n{ROW}{}", "9,x\n".repeat(30));
        let found = error(&text);
        assert!(found.starts_with("t.csv:3: expected 16"), "{found}");
        assert!(found.contains("21 of 23 lines"), "{found}");
    }

    #[test]
    fn a_file_of_which_one_kind_of_row_is_spoilt_is_refused() {
        let of = |bad: usize, good: usize| {
            let text = format!(
                "{LEGACY_HEADER}\n{}{}",
                ROW.repeat(good),
                "9,x\n".repeat(bad)
            );
            read(&text).map(|(rows, _)| rows)
        };
        assert_eq!(of(20, 100).unwrap(), 100);
        assert_eq!(of(25, 300).unwrap(), 300);
        let found = of(40, 300).unwrap_err().to_string();
        assert!(found.starts_with("t.csv:302: expected 16"), "{found}");
        assert!(found.contains("40 of 341 lines"), "{found}");
    }

    #[test]
    fn a_last_line_without_its_end_is_not_trusted() {
        let text = format!("{ROW}9,softirqExit,1,1,a,3,,,,,,,,,,,3,NET_RX,45");
        let (rows, facts) = read(&text).unwrap();
        assert_eq!((rows, facts.cut_at), (1, Some(2)));
    }

    #[test]
    fn a_header_in_the_middle_begins_another_run() {
        let text = format!("Attached x\n{LEGACY_HEADER}\n{ROW}{LEGACY_HEADER}\n{ROW}");
        let (rows, facts) = read(&text).unwrap();
        assert_eq!((rows, facts.runs, facts.malformed), (2, 2, 0));
    }

    #[test]
    fn a_row_with_a_garbled_time_is_left_out() {
        let far = ROW.replace('9', "9000000000000000009");
        let (rows, facts) = read(&format!("{ROW}{far}{ROW}")).unwrap();
        assert_eq!((rows, facts.malformed), (2, 1));
        assert_eq!(facts.problems[0].line, 2);
    }

    #[test]
    fn another_version_is_refused_wherever_it_begins() {
        let found = error("{\"header\":{\"schema\":9}}\n");
        assert!(found.starts_with("t.csv:1: a trace of schema 9"), "{found}");
        // Two traces in one file, the second by a later version: what follows cannot be read.
        let ours = format!(
            "{CSV_HEADER_PREFIX}{}\n{}\n1000,launch,0,1,1,a{}\n",
            serde_json::json!({"schema": VERSION, "program": "0", "clock": "CLOCK_MONOTONIC",
                "start_ns": 0, "start_unix_ns": 0, "kernel": "6.18", "scheduler": null, "cpus": 2,
                "target": "a", "launches": {"mode": "all"}}),
            crate::schema::COLUMNS.join(","),
            ",".repeat(crate::schema::COLUMNS.len() - 6),
        );
        assert_eq!(read(&ours).unwrap().0, 1);
        let found = error(&format!(
            "{ours}{CSV_HEADER_PREFIX}{{\"schema\":9}}\n9,launch,x\n"
        ));
        assert!(found.starts_with("t.csv:4: a trace of schema 9"), "{found}");
    }

    #[test]
    fn the_older_and_the_newer_header_of_cuda_sched_trace_may_follow_one_another() {
        let older = LEGACY_HEADER
            .strip_suffix(",irq_num,irq_name,duration_ns")
            .unwrap();
        let irq = "9,softirqExit,1,1,a,3,,,,,,,,,,,3,NET_RX,45\n";
        let (rows, facts) = read(&format!("{older}\n{ROW}{LEGACY_HEADER}\n{ROW}{irq}")).unwrap();
        assert_eq!((rows, facts.runs, facts.malformed), (3, 2, 0));
        let (rows, facts) = read(&format!("{LEGACY_HEADER}\n{irq}{older}\n{ROW}")).unwrap();
        assert_eq!((rows, facts.runs, facts.malformed), (2, 2, 0));
    }
}
