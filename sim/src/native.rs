// SPDX-License-Identifier: GPL-2.0-only
//! A natively compiled scheduler, loaded: each has its own copy of every variable. Finds its symbols, compares its
//! layouts with ours, and gives it the simulator's functions. Compiles scx_gpuaware from another folder than the one
//! that this program was built with, so that a change is tried without building anything else.

use std::ffi::{CStr, c_void};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{ProtFlags, mprotect};
use nix::unistd::{SysconfVar, sysconf};

use crate::abi::{Env, Kfunc, LAYOUT, Ops};

/// Which scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Scheduler {
    /// scx_gpuaware: bpf/gpuaware.bpf.c
    Gpuaware,
    /// One queue for the machine, first in, first out
    Fifo,
    /// The kernel's own, without tuning
    Eevdf,
    /// The kernel's own before Linux 6.6, without tuning
    Cfs,
    /// EEVDF, launchers with nice -10
    Nice,
    /// EEVDF, each launcher pinned to a core of its own, which nobody else uses
    Isolated,
    /// Somebody else's source: `compile_peer()`
    #[value(skip)]
    Peer,
}

/// scx_gpuaware, whose basic blocks are counted.
pub const METERED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/gpuaware-metered.so"));

impl Scheduler {
    /// Its shared object, of those that were built in.
    pub fn object(self) -> &'static [u8] {
        match self {
            Self::Gpuaware => include_bytes!(concat!(env!("OUT_DIR"), "/gpuaware.so")),
            Self::Fifo => include_bytes!(concat!(env!("OUT_DIR"), "/fifo.so")),
            Self::Eevdf | Self::Nice | Self::Isolated => {
                include_bytes!(concat!(env!("OUT_DIR"), "/eevdf.so"))
            }
            Self::Cfs => include_bytes!(concat!(env!("OUT_DIR"), "/cfs.so")),
            Self::Peer => &[],
        }
    }
}

/// Its source, with scx_gpuaware's in it.
const GPUAWARE: &str = "schedulers/gpuaware.bpf.c";

/// As in build.rs.
const METERED_FLAGS: [&str; 3] = [
    "-DSIM_METERED",
    "-fsanitize-coverage=bb,no-prune,trace-pc-guard",
    "shim/meter.c",
];

/// The shared object of `source`, a path below `sim/`, with scx_gpuaware as it is in `bpf`, by `more` flags than build.rs
/// has.
fn compile(source: &str, bpf: &Path, more: &[&str]) -> Result<Vec<u8>> {
    let bpf = bpf
        .canonicalize()
        .with_context(|| bpf.display().to_string())?;
    ensure!(
        bpf.join("gpuaware.bpf.c").is_file(),
        "{}: expected a folder with gpuaware.bpf.c, as bpf/ of a checkout",
        bpf.display()
    );
    let refused = format!("{source} with {}", bpf.display());
    run_clang(Path::new(source), &bpf, more, &refused)
}

/// Another project's scheduler, from its own checkout.
pub fn compile_peer(source: &Path) -> Result<Vec<u8>> {
    let source = source
        .canonicalize()
        .with_context(|| source.display().to_string())?;
    let folder = source.parent().context("a file is in a folder")?;
    // Its warnings are its own.
    let refused = format!(
        "{} asks for what the model does not have (docs/simulator.md)",
        source.display()
    );
    run_clang(&source, folder, &["-w"], &refused)
}

/// The shared object of `source`, which is below `sim/` or absolute, with headers of `include`. `refused` is what the
/// error says if the compiler does not take it.
fn run_clang(source: &Path, include: &Path, more: &[&str], refused: &str) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir().context("making a folder for the object")?;
    let object = folder.path().join("scheduler.so");
    let mut command = Command::new(env!("SIM_CLANG"));
    command.args(env!("SIM_CFLAGS").split(' ')).arg("-Ishim");
    command.arg("-I").arg(include).arg("-o").arg(&object);
    command.arg(source).arg("shim/runtime.c").args(more);
    let status = command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .context(concat!(
            env!("SIM_CLANG"),
            ": set BPF_CLANG or run make setup"
        ))?;
    ensure!(status.success(), "{refused}: {status}");
    std::fs::read(&object).with_context(|| object.display().to_string())
}

/// scx_gpuaware as it is in `bpf`.
pub fn compile_gpuaware(bpf: &Path, metered: bool) -> Result<Vec<u8>> {
    let more: &[&str] = if metered { &METERED_FLAGS } else { &[] };
    compile(GPUAWARE, bpf, more)
}

/// The same in a tenth of the time, for runs that are over sooner than a compiler that optimizes.
#[cfg(test)]
pub fn compile_quickly(bpf: &Path) -> Result<Vec<u8>> {
    compile(GPUAWARE, bpf, &["-O0", "-g0"])
}

/// A program that looks at none of its arguments.
pub type Handler = unsafe extern "C" fn() -> i32;

/// Programs at `irq_handler_entry` and `irq_handler_exit`.
#[derive(Debug, Clone, Copy)]
pub struct Handlers {
    pub entry: Handler,
    pub exit: Handler,
}

impl Handlers {
    /// Those of scx_gpuaware.
    pub fn of(native: &Native) -> Result<Self> {
        Ok(Self {
            entry: native.symbol("time_irq_entry")?,
            exit: native.symbol("time_irq_exit")?,
        })
    }
}

/// A loaded scheduler.
pub struct Native {
    library: Library,
    /// The dynamic loader knows a copy by this file's number too: nobody else gets it while it is loaded.
    _file: File,
}

impl Native {
    /// Loads a copy of a scheduler's shared object and fills in the functions that it calls, which `kfuncs` has by
    /// name.
    pub fn load(object: &[u8], kfuncs: &[(&str, *const c_void)]) -> Result<Self> {
        // The dynamic loader tells copies apart by their inodes.
        let file = memfd_create(c"gpuaware-sim", MFdFlags::MFD_CLOEXEC).context("memfd_create")?;
        let mut file = File::from(file);
        file.write_all(object)
            .context("writing the scheduler's object")?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // SAFETY: build.rs made this object; all that its constructors do is number its basic blocks.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }
            .context("loading the scheduler's object")?;
        let native = Self {
            library,
            _file: file,
        };
        native.expect_layout("sim_layout", LAYOUT)?;
        native.fill_in(kfuncs)?;
        Ok(native)
    }

    /// The address of a function or variable of the scheduler; `T` is a pointer to what it is.
    pub fn symbol<T: Copy>(&self, name: &str) -> Result<T> {
        // SAFETY: the caller names the type; what is shared is checked by expect_layout().
        let symbol = unsafe { self.library.get::<T>(name.as_bytes()) };
        symbol
            .map(|symbol| *symbol)
            .with_context(|| format!("the scheduler has no {name}"))
    }

    /// Compares the numbers at `name`, which end with 0, with `expected`.
    pub fn expect_layout(&self, name: &str, expected: &[u64]) -> Result<()> {
        let layout: *const u64 = self.symbol(name)?;
        for (at, &expected) in expected.iter().chain(&[0]).enumerate() {
            // SAFETY: the numbers end with the first 0, and none before it differed.
            let found = unsafe { *layout.add(at) };
            ensure!(
                found == expected,
                "{name}[{at}] is {found} in C and {expected} in Rust"
            );
        }
        Ok(())
    }

    fn fill_in(&self, kfuncs: &[(&str, *const c_void)]) -> Result<()> {
        let mut entry: *const Kfunc = self.symbol("sim_kfuncs")?;
        loop {
            // SAFETY: the table ends with an entry without a name.
            let kfunc = unsafe { &*entry };
            if kfunc.name.is_null() {
                return Ok(());
            }
            // SAFETY: a string literal of the object.
            let name = unsafe { CStr::from_ptr(kfunc.name) }.to_string_lossy();
            let Some((_, function)) = kfuncs.iter().find(|(found, _)| *found == name) else {
                bail!("the scheduler calls {name}, which the simulator does not have");
            };
            // SAFETY: the slot is a variable of the object; shim/sim/env.h has the function's type.
            unsafe { *kfunc.slot = *function };
            // SAFETY: this was not the last entry.
            entry = unsafe { entry.add(1) };
        }
    }

    pub fn env(&self) -> Result<*const Env> {
        self.symbol("sim_env")
    }

    /// The struct_ops, which user space may change until the scheduler is attached.
    pub fn ops(&self) -> Result<*mut Ops> {
        let ops: *const *mut Ops = self.symbol("sim_ops")?;
        // SAFETY: SCX_OPS_DEFINE() defines it, once.
        Ok(unsafe { *ops })
    }

    /// Writes to `const volatile` variables, as user space does before the load.
    pub fn set_rodata<T: Copy>(&self, name: &str, values: &[T]) -> Result<()> {
        let first: *mut T = self.symbol(name)?;
        let page = sysconf(SysconfVar::PAGE_SIZE)?.context("no page size")? as usize;
        let start = first as usize & !(page - 1);
        let length = first as usize + size_of_val(values) - start;
        let address = std::ptr::NonNull::new(start as *mut c_void).context("a null address")?;
        // SAFETY: these pages hold the object's constants, which nothing but the scheduler reads.
        unsafe {
            mprotect(
                address,
                length,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            )
        }
        .with_context(|| format!("making {name} writable"))?;
        for (at, value) in values.iter().enumerate() {
            // SAFETY: the caller knows how long the array is.
            unsafe { first.add(at).write(*value) };
        }
        Ok(())
    }
}
