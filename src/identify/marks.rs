// SPDX-License-Identifier: GPL-2.0-only
//! Marks as other processes see them: two pinned BPF objects, one that marks and one that lists.

use std::collections::BTreeMap;
use std::io::Read;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use libbpf_rs::Program;
use nix::errno::Errno;
use serde::Serialize;

use crate::bpf::{intf, text};
use crate::bpffs::{self, Obstacle};
use crate::namespaces;
use crate::proc::mounts::Mounts;
use crate::running;

use super::class::{Class, Source};
use super::evidence::{Evidence, symbol};
use super::programs::run_syscall_program;

/// Where the running scheduler pins its objects.
pub const PIN_DIR: &str = "/sys/fs/bpf/scx_gpuaware";

/// A task that has a class, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// Thread id.
    pub tid: i32,
    /// Process id, as user space calls it.
    pub tgid: i32,
    /// Name of the thread.
    pub comm: String,
    /// What the scheduler treats it as.
    pub class: Class,
    /// Who said so.
    pub source: Source,
    /// Entry point that a uprobe saw; `null` unless `source` is `uprobe`.
    pub symbol: Option<&'static str>,
    /// What speaks for it: a library, a rule, a cgroup, a rate. For people.
    pub evidence: String,
    /// Id of its cgroup: the inode number of the folder.
    pub cgroup_id: u64,
    /// NUMA node of the GPUs that its process has open; `null`: not known, or several.
    pub gpu_node: Option<u32>,
    /// When it was first seen or marked, nanoseconds of CLOCK_MONOTONIC; `null` for cgroup tags.
    pub first_seen_ns: Option<u64>,
    /// Milliseconds since it was first marked; `null` for cgroup tags.
    pub age_ms: Option<u64>,
    /// Milliseconds since it was last seen or marked; `null` for cgroup tags.
    pub last_seen_ms: Option<u64>,
    /// Sightings: of launches in armed windows only, so not their number.
    pub hits: u64,
}

/// Numbers of tasks.
pub type Counts = BTreeMap<(Class, Source), u64>;

/// The pinned objects of one scheduler, or of one test.
#[derive(Debug, Clone)]
pub struct Pins {
    dir: PathBuf,
}

impl Default for Pins {
    fn default() -> Self {
        Self::at(Path::new(PIN_DIR))
    }
}

impl Pins {
    /// Pins below `dir`, which is on a bpffs.
    pub fn at(dir: &Path) -> Self {
        Self {
            dir: dir.to_path_buf(),
        }
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The program that marks a task.
    pub fn mark_task(&self) -> PathBuf {
        self.dir.join("mark_task")
    }

    /// The program that has everything looked at again.
    pub fn rescan_program(&self) -> PathBuf {
        self.dir.join("rescan")
    }

    /// What marks are explained with.
    pub fn texts(&self) -> PathBuf {
        self.dir.join("texts")
    }

    /// What threads say of themselves.
    pub fn hints(&self) -> PathBuf {
        self.dir.join("hints")
    }

    /// Written when there is something new in [`Pins::hints`].
    pub fn hint_calls(&self) -> PathBuf {
        self.dir.join("hint_calls")
    }

    /// The iterator that lists marks.
    pub fn marks(&self) -> PathBuf {
        self.dir.join("marks")
    }

    /// Makes the folder, without what an earlier scheduler that was killed left in it.
    ///
    /// # Errors
    /// No bpffs there, or one that cannot be written to.
    pub fn prepare(&self) -> Result<()> {
        let making = || format!("making {}", self.dir.display());
        let mounts = Mounts::of_this_process().context("reading mounts")?;
        if let Some(obstacle) = bpffs::obstacle(&mounts, &self.dir) {
            return Err(anyhow!("{obstacle}: {}", obstacle.remedy())).with_context(making);
        }
        self.remove()?;
        std::fs::create_dir(&self.dir).with_context(making)
    }

    /// Removes the pins and their folder, if there are any.
    ///
    /// # Errors
    /// The folder is there and cannot be removed.
    pub fn remove(&self) -> Result<()> {
        match std::fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", self.dir.display()))
            }
            _ => Ok(()),
        }
    }

    /// Lists every task that has a class, or was refused one.
    ///
    /// # Errors
    /// No scheduler runs, or not enough rights to read its pins.
    pub fn list(&self) -> Result<Vec<Mark>> {
        let records = self.records()?;
        let now = monotonic_now()?;
        let evidence = Evidence::of(&self.texts());
        let marks = records.iter();
        Ok(marks
            .filter_map(|record| mark_of(record, now, &evidence))
            .collect())
    }

    /// The tasks that have a class, were refused one or launch.
    ///
    /// # Errors
    /// As [`Pins::list`].
    fn records(&self) -> Result<Vec<intf::gpuaware_mark_record>> {
        let path = self.marks();
        let mut bytes = Vec::new();
        std::fs::File::open(&path)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .with_context(|| not_running(&path))?;
        Ok(decode(&bytes))
    }

    /// Marks thread `tid` as `class`; `None` takes the mark away.
    ///
    /// # Errors
    /// No scheduler runs, no such thread, not enough rights.
    pub fn mark(&self, tid: i32, class: Option<Class>) -> Result<()> {
        match self.mark_if_alive(tid, class)? {
            true => Ok(()),
            false => bail!("no thread with TID {tid}"),
        }
    }

    /// The same for a thread that may have ended since it was listed; false if it has.
    ///
    /// # Errors
    /// No scheduler runs, not enough rights.
    pub fn mark_if_alive(&self, tid: i32, class: Option<Class>) -> Result<bool> {
        let path = self.mark_task();
        let program = Program::fd_from_pinned_path(&path)
            .map_err(anyhow::Error::from)
            .with_context(|| not_running(&path))?;
        let class = class.map_or(intf::gpuaware_class_GPUAWARE_CLASS_NONE, Class::wire);
        let errno =
            run_syscall_program(program.as_fd(), &intf::gpuaware_mark_request { tid, class })?;
        match Errno::from_raw(errno) {
            Errno::UnknownErrno if errno == 0 => Ok(true),
            Errno::ESRCH => Ok(false),
            Errno::EOPNOTSUPP => bail!("marking TID {tid}: {OTHER_NUMBERS}"),
            errno => bail!("marking TID {tid}: {errno}"),
        }
    }

    /// Has the scheduler look for libcuda, launching threads and names again, everywhere, now.
    ///
    /// # Errors
    /// No scheduler runs, or not enough rights.
    pub fn rescan(&self) -> Result<()> {
        let path = self.rescan_program();
        let program = Program::fd_from_pinned_path(&path)
            .map_err(anyhow::Error::from)
            .with_context(|| not_running(&path))?;
        // The kernel refuses a context without a size, and the program looks at none.
        run_syscall_program(program.as_fd(), &0u64).map(|_| ())
    }
}

fn not_running(pin: &Path) -> String {
    let shown = pin.display();
    if let Some(namespace) = namespaces::user("/".as_ref()) {
        return format!(
            "opening {shown}: this is root of {namespace}, and only the host's may read it"
        );
    }
    let mounts = Mounts::of_this_process().unwrap_or_default();
    match bpffs::obstacle(&mounts, pin) {
        Some(obstacle @ (Obstacle::Missing | Obstacle::Hidden { .. })) => format!(
            "opening {shown}: scx_gpuaware does not run, or its pins are not seen here: {obstacle}: {}",
            obstacle.remedy()
        ),
        _ if running::role().is_some() => format!(
            "opening {shown}: scx_gpuaware runs, and it is not ready yet or somebody has removed its pins: start it anew"
        ),
        _ => format!(
            "opening {shown}: scx_gpuaware does not run, or this user may not read its pins (try as root)"
        ),
    }
}

/// Runs `know_loader`: from now on BPF uses the numbers of threads and processes of the calling thread's PID
/// namespace.
///
/// # Errors
/// This is a container, and the kernel cannot look its numbers up.
pub fn know_loader(program: BorrowedFd<'_>) -> Result<()> {
    match run_syscall_program(program, &0u64)? {
        0 => Ok(()),
        _ => bail!(OTHER_NUMBERS),
    }
}

/// Linux 6.15 has what it takes.
const OTHER_NUMBERS: &str = "this is a PID namespace, where processes have other numbers than the kernel's: expected Linux 6.15 \
                             or newer, or the host's PID namespace (docker run --pid=host, hostPID: true)";

/// The clock of sightings.
///
/// # Errors
/// The kernel has none.
pub fn monotonic_now() -> Result<Duration> {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .map(Duration::from)
        .context("reading the monotonic clock")
}

/// Decodes what the `list_marks` iterator printed. A truncated record at the end is dropped.
pub(super) fn decode(bytes: &[u8]) -> Vec<intf::gpuaware_mark_record> {
    bytes
        .chunks_exact(size_of::<intf::gpuaware_mark_record>())
        .map(|chunk| {
            // SAFETY: the chunk has the size of the struct, which is plain integers, valid for any
            // bytes; the read tolerates any alignment.
            unsafe { std::ptr::read_unaligned(chunk.as_ptr().cast()) }
        })
        .collect()
}

/// `None`: it launches, but no rule gives it a class.
pub(super) fn reason(record: &intf::gpuaware_mark_record) -> Option<(Class, Source)> {
    let class = Class::from_wire(record.class).unwrap_or(Class::Background);
    Some((class, Source::from_wire(record.source)?))
}

/// `None`: it launches, but no rule gives it a class.
fn mark_of(
    record: &intf::gpuaware_mark_record,
    now: Duration,
    evidence: &Evidence,
) -> Option<Mark> {
    let (class, source) = reason(record)?;
    let is_timed = source != Source::Cgroup;
    let ms_ago =
        |ns: u64| is_timed.then(|| now.saturating_sub(Duration::from_nanos(ns)).as_millis() as u64);
    Some(Mark {
        tid: record.tid,
        tgid: record.tgid,
        comm: text(&record.comm).into_owned(),
        class,
        source,
        symbol: (source == Source::Uprobe).then(|| symbol(record)).flatten(),
        evidence: evidence.in_words(source, record),
        cgroup_id: record.cgroup_id,
        gpu_node: record.gpu_node.checked_sub(1),
        first_seen_ns: is_timed.then_some(record.first_seen_ns),
        age_ms: ms_ago(record.first_seen_ns),
        last_seen_ms: ms_ago(record.last_seen_ns),
        hits: record.hits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(source: u32) -> intf::gpuaware_mark_record {
        let mut comm = [0; 16];
        comm[..4].copy_from_slice(b"eng\xff");
        intf::gpuaware_mark_record {
            tid: 12,
            tgid: 10,
            class: intf::gpuaware_class_GPUAWARE_CLASS_LAUNCH,
            source,
            rule: 0,
            symbol: 2,
            uid: 1000,
            launches: 1,
            rate: 0,
            gpu_node: 2,
            tag_id: 77,
            cgroup_id: 77,
            first_seen_ns: 1_000_000_000,
            last_seen_ns: 2_500_000_000,
            hits: 3,
            comm,
        }
    }

    fn bytes(record: &intf::gpuaware_mark_record) -> Vec<u8> {
        // SAFETY: reads the bytes of a live struct without padding.
        unsafe {
            std::slice::from_raw_parts(
                std::ptr::from_ref(record).cast::<u8>(),
                size_of::<intf::gpuaware_mark_record>(),
            )
        }
        .to_vec()
    }

    fn marks(bytes: &[u8]) -> Vec<Mark> {
        let evidence = Evidence::of(Path::new("/nonexistent/texts"));
        let now = Duration::from_secs(3);
        let records = decode(bytes);
        let marks = records.iter();
        marks
            .filter_map(|record| mark_of(record, now, &evidence))
            .collect()
    }

    #[test]
    fn decodes_records_and_drops_a_truncated_one() {
        let mut stream = bytes(&record(intf::gpuaware_source_GPUAWARE_SOURCE_UPROBE));
        stream.extend(&stream.clone()[..20]);
        let marks = marks(&stream);
        assert_eq!(marks.len(), 1);
        assert_eq!(marks[0].comm, "eng\u{fffd}");
        assert_eq!(marks[0].symbol, Some("cuLaunchKernelEx"));
        assert_eq!(marks[0].age_ms, Some(2000));
        assert_eq!(marks[0].gpu_node, Some(1));
        assert_eq!(marks[0].last_seen_ms, Some(500));
    }

    #[test]
    fn a_cgroup_tag_has_no_age_and_no_symbol() {
        let stream = bytes(&record(intf::gpuaware_source_GPUAWARE_SOURCE_CGROUP));
        let marks = marks(&stream);
        assert_eq!((marks[0].age_ms, marks[0].symbol), (None, None));
        assert_eq!(
            serde_json::to_value(&marks[0]).unwrap()["source"],
            serde_json::json!("cgroup")
        );
    }

    #[test]
    fn who_is_refused_is_background_and_says_why() {
        let mut refused = record(intf::gpuaware_source_GPUAWARE_SOURCE_REFUSED);
        refused.class = intf::gpuaware_class_GPUAWARE_CLASS_NONE;
        let marks = marks(&bytes(&refused));
        assert_eq!(marks[0].class, Class::Background);
        assert!(marks[0].evidence.contains("uid 1000"), "{marks:?}");
    }

    #[test]
    fn nothing_is_pinned_where_no_bpffs_is() {
        let folder = tempfile::tempdir().unwrap();
        let pins = Pins::at(&folder.path().join("pins"));
        let error = format!("{:#}", pins.prepare().unwrap_err());
        assert!(error.contains("no BPF file system"), "{error}");
        assert!(error.contains("mount -t bpf"), "{error}");
        assert!(!pins.dir().exists());
    }

    #[test]
    fn says_that_no_scheduler_runs() {
        let pins = Pins::at(Path::new("/nonexistent/pins"));
        let error = format!("{:#}", pins.list().unwrap_err());
        assert!(error.contains("does not run"), "{error}");
        let error = format!("{:#}", pins.mark(1, Some(Class::Launch)).unwrap_err());
        assert!(error.contains("does not run"), "{error}");
    }
}
