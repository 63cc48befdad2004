// SPDX-License-Identifier: GPL-2.0-only
//! `print!`, `println!` and `eprintln!` for this program: the standard library's panic where nobody reads any more, as
//! after `| head`. A run goes on then, and its exit code counts; any other error of standard output is told at the end.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

/// The first thing that could not be printed, though somebody reads.
static PROBLEM: Mutex<Option<io::Error>> = Mutex::new(None);

macro_rules! print {
    ($($text:tt)*) => { $crate::print::out(::std::format_args!($($text)*)) };
}

macro_rules! println {
    ($($text:tt)*) => { $crate::print::out(::std::format_args!("{}\n", ::std::format_args!($($text)*))) };
}

macro_rules! eprintln {
    ($($text:tt)*) => { $crate::print::say(::std::format_args!("{}\n", ::std::format_args!($($text)*))) };
}

pub fn out(text: Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    let printed = stdout.write_fmt(text).and_then(|()| stdout.flush());
    if let Some(error) = problem_of(printed) {
        let mut problem = PROBLEM.lock().unwrap_or_else(PoisonError::into_inner);
        problem.get_or_insert(error);
    }
}

/// A reader that has seen enough is none.
fn problem_of(printed: io::Result<()>) -> Option<io::Error> {
    let error = printed.err()?;
    (error.kind() != io::ErrorKind::BrokenPipe).then_some(error)
}

/// In one write, so that lines of several threads stay whole.
pub fn say(text: Arguments<'_>) {
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}

/// What could not be printed, if anything.
pub fn problem() -> Option<io::Error> {
    PROBLEM
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_has_gone_is_no_problem_and_a_full_disk_is() {
        assert!(problem_of(Ok(())).is_none());
        assert!(problem_of(Err(io::ErrorKind::BrokenPipe.into())).is_none());
        assert!(problem_of(Err(io::ErrorKind::StorageFull.into())).is_some());
    }
}
