// SPDX-License-Identifier: GPL-2.0-only
//! `print!`, `println!` and `eprintln!` for this program: the standard library's panic where nobody reads any more, as
//! after `| head`. What else stands in the way of standard output ends the program.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

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
    if let Err(error) = printed
        && error.kind() != ErrorKind::BrokenPipe
    {
        say(format_args!("gpuaware-sim: standard output: {error}\n"));
        std::process::exit(1);
    }
}

pub fn say(text: Arguments<'_>) {
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}
