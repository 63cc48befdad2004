// SPDX-License-Identifier: GPL-2.0-only
//! Running BPF programs that do something once, when user space asks for it.

use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use anyhow::{Context, Result};
use libbpf_rs::{Iter, Link, ProgramMut, libbpf_sys};

/// Runs a `SEC("syscall")` program on `context`; returns the errno that it returned, 0 for none.
pub fn run_syscall_program<T: Copy>(program: BorrowedFd<'_>, context: &T) -> Result<i32> {
    ask_syscall_program(program, &mut { *context })
}

/// The same, for a program that writes into `context`.
pub fn ask_syscall_program<T: Copy>(program: BorrowedFd<'_>, context: &mut T) -> Result<i32> {
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        ctx_in: std::ptr::from_mut(context).cast(),
        ctx_size_in: size_of::<T>() as _,
        ..Default::default()
    };
    // SAFETY: `opts` and the context that it points to live until the call returns; the kernel reads
    // and writes no more than the size of the context, which is plain integers.
    let ret = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut opts) };
    if ret < 0 {
        return Err(std::io::Error::from_raw_os_error(-ret)).context("running the pinned program");
    }
    Ok(-(opts.retval as i32))
}

/// Runs a task iterator that prints nothing.
pub fn run_iterator(program: &ProgramMut<'_>) -> Result<()> {
    let link = program.attach();
    let link = link.context("attaching a task iterator")?;
    read_iterator(&link).map(|_nothing| ())
}

/// Runs the task iterator that `link` attaches; returns what it prints.
pub fn read_iterator(link: &Link) -> Result<Vec<u8>> {
    let mut iterator = Iter::new(link).context("starting a task iterator")?;
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut iterator, &mut bytes).context("going through tasks")?;
    Ok(bytes)
}
