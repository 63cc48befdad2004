// SPDX-License-Identifier: GPL-2.0-only
//! The lab: a virtual machine with a sched_ext kernel over this machine's file system.
//!
//! Owns choosing and fetching the kernel, the machine's command line (virtme-ng over QEMU), the
//! guest's set-up, and the machine's life: output, exit code, time limit, panic, clean-up. Does not
//! know what is run in it.
//!
//! The guest sees this machine's files at the same paths: read-only, except for `rw_dirs` (written
//! through to this machine) and `/tmp`, `/var/tmp`, `/etc`, `/run` (writable, gone afterwards).

mod accel;
mod console;
mod debian;
mod files;
mod guest;
pub mod hostload;
mod kernel;
mod machine;
mod mainloop;
mod options;
mod pace;
mod session;
mod spec;
mod stream;
mod tools;
mod vcpus;

use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::interrupt;
use crate::watchdog;

pub use options::Options;
pub use spec::{DiskDriver, Lab};

/// Gets the kernel that `wanted` names without booting it; says why there is none.
pub fn prepare(wanted: &str) -> Result<()> {
    kernel::obtain(wanted).map(drop)
}

impl Lab {
    /// Boots the machine, runs `command` in it as root in this process's working directory and
    /// streams its stdout and stderr to this process's.
    ///
    /// Returns the command's exit code (128 + N when signal N killed it), [`TIMED_OUT`] when
    /// the time limit was reached, 128 + N when SIGINT, SIGTERM or SIGHUP told this process to stop. An
    /// error is a lab that could not do its work: no kernel, no QEMU, a guest that panicked.
    pub fn run(&self, command: &[String]) -> Result<u8> {
        ensure!(!command.is_empty(), "the lab needs a command to run");
        let tools = tools::Tools::find()?;
        let kernel = kernel::obtain(&self.kernel)?;
        let accel = accel::choose(&tools, &kernel)?;
        interrupt::check()?;
        session::run(self, command, &tools, &kernel, accel)
    }
}

/// Boots the lab and runs the command.
pub fn main(options: &Options) -> Result<ExitCode> {
    watchdog::start()?;
    interrupt::watch()?;
    let lab = match options.lab() {
        Ok(lab) => lab,
        Err(error) => {
            eprintln!("gpuaware-bench: error: {error:#}");
            return Ok(ExitCode::from(2));
        }
    };
    let mut restarts = options.restarts();
    loop {
        match lab.run(options.command()) {
            Err(error) if restarts > 0 && error.is::<session::Fault>() => {
                eprintln!("lab: {error}\nlab: that is the machine's fault: starting again");
                restarts -= 1;
            }
            ended => return ended.map(ExitCode::from),
        }
    }
}
