// SPDX-License-Identifier: GPL-2.0-only
//! Every call of the scheduler's callbacks on this kernel, in order: `record.bpf.c`, attached to the scheduler's own
//! programs.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::rc::Rc;

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{
    Link, MapCore, MapFlags, Object, ObjectBuilder, Program, ProgramType, RingBufferBuilder,
};

use super::words::Call;
use crate::process::repository;

/// Programs of `record.bpf.c`, by their numbers.
const CALLBACKS: [&str; 10] = [
    "select_cpu",
    "enqueue",
    "dispatch",
    "runnable",
    "running",
    "stopping",
    "quiescent",
    "yield",
    "update_idle",
    "cpu_release",
];
/// The kernel keeps so much of a program's name.
const NAME_LENGTH: usize = 15;

/// Calls from its start on.
pub struct Recorder {
    object: Object,
    _links: Vec<Link>,
}

/// The scheduler's program of that name.
fn program_id(name: &str) -> u32 {
    let kept = &name[..name.len().min(NAME_LENGTH)];
    let found = ProgInfoIter::default()
        .filter(|program| program.ty == ProgramType::StructOps && program.name == OsStr::new(kept))
        .map(|program| program.id);
    found
        .max()
        .unwrap_or_else(|| panic!("{name} is not loaded"))
}

fn compile() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("record.o");
    let clang = std::env::var("BPF_CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let status = Command::new(clang)
        .args([
            "-target", "bpf", "-g", "-O2", "-Wall", "-Werror", "-c", "-o",
        ])
        .arg(&object)
        .arg(repository().join("tests/vm/callbacks/record.bpf.c"))
        .status();
    assert!(status.expect("clang").success());
    std::fs::read(object).unwrap()
}

impl Recorder {
    pub fn start() -> Self {
        let mut open = ObjectBuilder::default().open_memory(&compile()).unwrap();
        // They have to be there until the load, and no longer.
        let mut targets = Vec::new();
        for mut program in open.progs_mut() {
            let target = format!("gpuaware_{}", program.name().to_string_lossy());
            let id = program_id(&target);
            let fd = Program::fd_from_id(id).unwrap();
            let set = program.set_attach_target(fd.as_raw_fd(), Some(target.clone()));
            set.unwrap_or_else(|error| panic!("{target}: {error}"));
            targets.push(fd);
        }
        let object = open.load().unwrap();
        drop(targets);
        let attach = |program: libbpf_rs::ProgramMut<'_>| program.attach_trace().unwrap();
        let links = object.progs_mut().map(attach).collect();
        Self {
            object,
            _links: links,
        }
    }

    /// What was called since the last time.
    pub fn take(&self) -> Vec<Call> {
        let calls = Rc::new(RefCell::new(Vec::new()));
        let taken = Rc::clone(&calls);
        let map = self.object.maps().find(|map| map.name() == "calls");
        let mut builder = RingBufferBuilder::new();
        let keep = move |bytes: &[u8]| {
            taken.borrow_mut().push(decode(bytes));
            0
        };
        let map = map.expect("the ring buffer");
        builder.add(&map, keep).unwrap();
        let ring = builder.build().unwrap();
        ring.consume().unwrap();
        assert_eq!(self.lost(), 0, "the ring buffer is too small");
        calls.take()
    }

    fn lost(&self) -> u64 {
        let is_bss = |map: &libbpf_rs::Map<'_>| map.name().to_string_lossy().ends_with(".bss");
        let map = self.object.maps().find(is_bss).expect("variables");
        let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap();
        let value = value.expect("a value");
        u64::from_ne_bytes(value[..8].try_into().unwrap())
    }
}

/// `struct call`
fn decode(bytes: &[u8]) -> Call {
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    Call {
        callback: CALLBACKS[word(0) as usize].to_owned(),
        cpu: word(4) as usize,
        task: i64::from(word(8) as i32),
        flags: u64::from_ne_bytes(bytes[16..24].try_into().unwrap()),
    }
}
