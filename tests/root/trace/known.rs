// SPDX-License-Identifier: GPL-2.0-only
//! The program of known behaviour, `known.c`, run under the tracer; what it says of itself beside
//! what the tracer recorded.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use gpuaware_trace::schema::{
    CSV_END_PREFIX, CSV_HEADER_PREFIX, End, Header, Kind, Reason, Record,
};
use serde::Deserialize;

use crate::process::{code, lab_folder, repository, scx_gpuaware};

/// What the program counted of one of its phases.
#[derive(Debug, Deserialize)]
pub struct Phase {
    pub phase: String,
    pub tid: i32,
    pub from_ns: u64,
    pub to_ns: u64,
    /// Time runnable and not running, as the kernel has it.
    pub wait_ns: u64,
    /// Time that a host took from the CPU.
    pub steal_ns: u64,
    /// Switches away because it waited, as getrusage(2) counts them.
    pub nvcsw: u64,
    /// All others.
    pub nivcsw: u64,
    /// Calls of sched_yield during which it was switched away from.
    pub yields_switched: u64,
    /// Time in sleeps, with some 20 us of each on a slow machine to fall asleep and to return.
    pub asleep_ns: u64,
    /// Sleeps that took twice as long as asked for or longer: a host that comes late, say.
    pub late_sleeps: u64,
    /// Time woken and not running.
    pub waited_ns: u64,
    /// Datagrams sent, time in sending them, and runs of NET_RX on its CPU by the kernel's count.
    pub datagrams: u64,
    pub sending_ns: u64,
    pub net_rx: u64,
    /// From, to, what the kernel counted in between: a call of sched_yield and switches away, or blocks
    /// that were read and interrupts of devices.
    pub spans: Vec<(u64, u64, u64)>,
    /// The thread that woke it, in the phase that has one.
    pub waker_tid: i32,
}

/// A trace file and what the program said.
pub struct Traced {
    pub header: Header,
    pub records: Vec<Record>,
    pub end: End,
    pub phases: Vec<Phase>,
    /// What the tracer said on standard error.
    pub log: String,
}

impl Traced {
    pub fn phase(&self, name: &str) -> &Phase {
        let found = self.phases.iter().find(|phase| phase.phase == name);
        found.unwrap_or_else(|| panic!("no phase {name}: {:#?}", self.phases))
    }

    /// Records of the phase's thread within the phase.
    pub fn within(&self, phase: &Phase) -> impl Iterator<Item = &Record> {
        let (tid, within) = (phase.tid, phase.from_ns..phase.to_ns);
        self.records
            .iter()
            .filter(move |record| record.tid == tid && within.contains(&record.time_ns))
    }

    pub fn count(&self, phase: &Phase, kind: Kind) -> u64 {
        let of_kind = self.within(phase).filter(|record| record.event == kind);
        of_kind.count() as u64
    }

    /// Switches away from the phase's thread for this reason.
    pub fn switches(&self, phase: &Phase, reason: Reason) -> u64 {
        let records = self.within(phase);
        let matching = records
            .filter(|record| record.event == Kind::SwitchOut && record.reason == Some(reason));
        matching.count() as u64
    }

    /// Time off the CPU for this reason. Of a switch back that the kernel did not show the time is the mean of the others.
    pub fn off_ns(&self, phase: &Phase, reason: Reason) -> u64 {
        let back = self
            .within(phase)
            .filter(|record| record.event == Kind::SwitchIn && record.reason == Some(reason));
        let shown: Vec<u64> = back.filter_map(|record| record.duration_ns).collect();
        let (away, back) = (self.switches(phase, reason), shown.len() as u64);
        let missed = self.end.missed;
        assert!(away.abs_diff(back) <= missed, "{away} {back} {missed}");
        shown.iter().sum::<u64>() * away / back.max(1)
    }

    /// `counted = records + lost` for every kind, and every record is in its place.
    pub fn assert_consistent(&self) {
        for kind in Kind::ALL {
            let records = self.records.iter().filter(|record| record.event == kind);
            let lost = self.end.lost.get(&kind).copied().unwrap_or_default();
            let counted = self.end.counted[&kind];
            assert_eq!(records.count() as u64 + lost, counted, "{kind:?}");
        }
        let times: Vec<_> = self.records.iter().map(|record| record.time_ns).collect();
        assert!(times.is_sorted(), "records are in order of time");
    }
}

/// The compiled program.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = PROGRAM.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("known");
        let lab = format!("-L{}", lab_folder().display());
        compile(
            &[&lab, "-l:libcuda.so.1"],
            &["known.c", "known_switches.c", "known_irqs.c"],
            &path,
        );
        (folder, path)
    });
    path
}

fn compile(flags: &[&str], sources: &[&str], out: &Path) {
    let status = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(out)
        .args(
            sources
                .iter()
                .map(|source| repository().join("tests/root/trace").join(source)),
        )
        .args(flags)
        .status()
        .expect("running cc");
    assert!(status.success(), "compiling {sources:?}");
}

/// A program whose calls into libcuda nest, and its libcuda, in this folder.
pub fn nested(folder: &Path) -> PathBuf {
    let (library, program) = (folder.join("libcuda.so.1"), folder.join("nested"));
    let source = &["nested.c"];
    let soname = "-Wl,-soname,libcuda.so.1";
    compile(&["-DLIBCUDA", "-shared", "-fPIC", soname], source, &library);
    compile(
        &[&format!("-L{}", folder.display()), "-l:libcuda.so.1"],
        source,
        &program,
    );
    program
}

/// `scx_gpuaware trace FLAGS -o FILE -- known PHASES`.
pub fn command(flags: &str, file: &Path, phases: &str) -> Command {
    let mut command = scx_gpuaware(&["trace"]);
    command
        .args(flags.split_whitespace())
        .arg("-o")
        .arg(file)
        .arg("--")
        .arg(program())
        .args(phases.split_whitespace())
        // On a disk.
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .env("LD_LIBRARY_PATH", lab_folder())
        .stdout(Stdio::piped());
    command
}

/// Runs these phases under the tracer with `--format csv` and these flags.
pub fn trace(flags: &str, phases: &str) -> Traced {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.csv");
    let output = command(&format!("--format csv {flags}"), &file, phases)
        .output()
        .expect("starting scx_gpuaware");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(output.status), 0, "{log}");
    let phases = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    read(&file, phases, log)
}

/// Reads a complete trace file.
pub fn read(file: &Path, phases: Vec<Phase>, log: String) -> Traced {
    let text = std::fs::read_to_string(file).unwrap();
    let first = text.lines().next().unwrap();
    let last = text.lines().last().unwrap();
    let header = first.strip_prefix(CSV_HEADER_PREFIX).expect("a header");
    let end = last.strip_prefix(CSV_END_PREFIX).expect("an end");
    let mut reader = csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    Traced {
        header: serde_json::from_str(header).unwrap(),
        records: reader.deserialize().map(Result::unwrap).collect(),
        end: serde_json::from_str(end).unwrap(),
        phases,
        log,
    }
}
