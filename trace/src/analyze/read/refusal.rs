// SPDX-License-Identifier: GPL-2.0-only
//! Files that cannot be analysed: why, where, and what has probably become of them.

use super::cells;
use crate::schema::VERSION;

/// A file that cannot be analysed.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// It is no trace.
    #[error(
        "{file}:{line}: not a trace: expected the header of cuda_sched_trace's CSV (`timestamp_ns,event_type,…`), of a CSV by \
         scx_gpuaware trace (`# scx_gpuaware trace {{…}}`) or of NDJSON (`{{\"header\":…}}`), found `{found}`{hint}"
    )]
    NotATrace {
        file: String,
        line: u64,
        found: String,
        /// What has probably become of it.
        hint: String,
    },
    /// Its schema is of another version.
    #[error(
        "{file}:{line}: a trace of schema {found}; this version of scx_gpuaware reads schema {VERSION}: \
         use the version that wrote it, or trace anew"
    )]
    Version { file: String, line: u64, found: u64 },
    /// It has nothing.
    #[error("{file}: no event in it")]
    Empty { file: String },
    /// Most of it is malformed.
    #[error(
        "{file}:{line}: {reason}; {bad} of {lines} lines are malformed: not a trace as its first lines promise it"
    )]
    Malformed {
        file: String,
        line: u64,
        reason: String,
        bad: u64,
        lines: u64,
    },
    /// It cannot be read.
    #[error("{file}: {why}")]
    Io { file: String, why: std::io::Error },
}

/// What has probably become of a trace whose first line this is.
pub fn hint(line: &[u8]) -> String {
    let has = |part: &[u8]| line.windows(part.len()).any(|found| found == part);
    let other_separator = cells::other_separator(line);
    let guess = match line {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "it is UTF-16: save it as UTF-8",
        [0x1f, 0x8b, ..] => "it is compressed: gunzip it first",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "it is compressed: unzstd it first",
        _ if other_separator.is_some() => other_separator.as_deref().unwrap_or_default(),
        _ if has(b"time_ns") && has(b"event") && has(b"tgid") || has(b"# scx_gpuaware trace") => {
            "another tool has dropped or changed the first line: put it back from the trace as it was written"
        }
        _ => return String::new(),
    };
    format!("; {guess}")
}

/// The beginning of a line, fit for a message.
pub fn excerpt(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short.escape_debug().to_string()
}
