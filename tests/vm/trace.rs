// SPDX-License-Identifier: GPL-2.0-only
//! The tracer beside a sched_ext scheduler, and on a cgroup.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use gpuaware_trace::schema::{Header, Kind, Line, Reason, Record};
use nix::sys::signal::Signal;

use crate::process::{
    Process, busy_loop, busy_loops, code, eventually, gpu_launch, lab_folder, scx_gpuaware,
};
use crate::tier;

use super::machine::{Cgroup, loaded, nr_cpus, pin};
use super::shared::beside_the_scheduler;

/// Queues of scx_gpuaware, without the LLC's number: bpf/dsq.bpf.h.
const DSQ_BACKGROUND: u64 = 0x5_0000;

/// `scx_gpuaware trace` with these arguments, its events in `file`.
fn tracer(args: &str, file: &Path) -> Command {
    let mut command = scx_gpuaware(&["trace", "--format", "ndjson"]);
    command
        .args(args.split_whitespace())
        .arg("-o")
        .arg(file)
        .env("LD_LIBRARY_PATH", lab_folder());
    command
}

/// Starts the tracer while `busy` ones stand still: the kernel verifies it, which takes long enough. It says that it
/// probes a libcuda when tracing has begun.
fn start_beside<'a>(
    busy: impl Iterator<Item = &'a Process> + Clone,
    flags: &str,
    file: &Path,
) -> Process {
    let signal = |signal| busy.clone().for_each(|process| process.signal(signal));
    signal(Signal::SIGSTOP);
    let mut tracer = Process::start(tracer(flags, file));
    tracer.wait_for_line("probing");
    signal(Signal::SIGCONT);
    tracer
}

fn read(file: &Path) -> (Header, Vec<Record>) {
    let text = std::fs::read_to_string(file).expect("a trace");
    let (mut header, mut records) = (None, Vec::new());
    for line in text.lines() {
        match serde_json::from_str(line).expect("a line of the schema") {
            Line::Header(found) => header = Some(found),
            Line::Record(record) => records.push(*record),
            Line::End(end) => assert_eq!(end.lost.len(), 0, "{end:?}"),
        }
    }
    (header.expect("a header"), records)
}

#[test]
#[ignore = "runs in the lab: make test"]
fn switches_have_class_queue_and_slice_under_a_sched_ext_scheduler() {
    beside_the_scheduler("", |_| {
        let neighbours = busy_loops(nr_cpus());
        let hog = Process::start(busy_loop());
        // A graph for a token: the tracer keeps up beside it.
        let mut workload = gpu_launch("--profile graph --duration 100");
        workload.stdout(Stdio::null());
        let workload = Process::start(workload);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace.ndjson");
        let flags = format!("--pid {} --pid {} --duration 3", hog.pid(), workload.pid());
        let busy = neighbours.iter().chain([&hog]);
        let mut tracer = start_beside(busy, &flags, &file);
        assert_eq!(code(tracer.wait()), 0);
        let (header, records) = read(&file);
        let name = header.scheduler.expect("a scheduler");
        assert!(name.starts_with("gpuaware"), "{name}");
        let switches: Vec<_> = records
            .iter()
            .filter(|record| matches!(record.event, Kind::SwitchIn | Kind::SwitchOut))
            .collect();
        for (name, pid) in [("hog", hog.pid()), ("workload", workload.pid())] {
            let any = switches.iter().any(|record| record.tgid == pid);
            assert!(any, "{} switches, none of the {name}", switches.len());
        }
        for record in &switches {
            let class = record.sched_class.expect("a class");
            assert_eq!(class.as_str(), "ext", "{record:?}");
        }
        // One that nobody marks waits in the queue of the background, and comes out of it with a slice.
        let waited: Vec<_> = switches
            .iter()
            .filter(|record| record.tgid == hog.pid() && record.event == Kind::SwitchIn)
            .filter(|record| record.reason == Some(Reason::Preempted))
            .collect();
        assert!(waited.len() > 10, "{}", waited.len());
        let of_background = |record: &&&&Record| {
            let queue = record.dsq.map(|dsq| dsq & !0xffff);
            queue == Some(DSQ_BACKGROUND)
        };
        let nr_of_background = waited.iter().filter(of_background).count();
        assert!(
            nr_of_background * 2 > waited.len(),
            "{nr_of_background} of {}: {:?}",
            waited.len(),
            waited[0]
        );
        assert!(
            waited
                .iter()
                .all(|record| (1..=20_000_000).contains(&record.slice_ns.unwrap_or(0))),
            "{:?}",
            waited[0]
        );
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_peers_switches_are_traced_as_ours() {
    tier::in_lab(|| {
        let Some(program) = tier::peer("scx_cosmos") else {
            return;
        };
        let mut peer = Process::start(Command::new(program));
        let attached = eventually(|| loaded().filter(|name| name.starts_with("cosmos")));
        let name = attached.unwrap_or_else(|| panic!("{}", peer.log.join("\n")));
        let _neighbours = busy_loops(nr_cpus());
        let mut workload = gpu_launch("--profile eager --duration 100");
        workload.stdout(Stdio::null());
        let workload = Process::start(workload);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace.ndjson");
        let flags = format!(
            "--pid {} --duration 3 --window-ms 50 --every-ms 500",
            workload.pid()
        );
        let mut tracer = Process::start(tracer(&flags, &file));
        assert_eq!(code(tracer.wait()), 0);
        let (header, records) = read(&file);
        assert_eq!(header.scheduler.as_deref(), Some(name.as_str()));
        let count = |kind: Kind| records.iter().filter(|record| record.event == kind).count();
        assert!(count(Kind::Launch) > 10, "{}", count(Kind::Launch));
        let ins: Vec<_> = records
            .iter()
            .filter(|record| record.event == Kind::SwitchIn)
            .collect();
        assert!(ins.len() > 100, "{}", ins.len());
        for record in &ins {
            assert_eq!(record.sched_class.expect("a class").as_str(), "ext");
            assert!(record.wait_ns <= record.duration_ns, "{record:?}");
        }
        let of_its_queues = ins.iter().filter(|record| record.dsq.is_some()).count();
        assert!(
            of_its_queues * 2 > ins.len(),
            "{of_its_queues} of {}",
            ins.len()
        );
        peer.signal(Signal::SIGINT);
        peer.wait();
        assert_eq!(loaded(), None);
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_cgroup_is_traced_with_what_is_in_it_below_it_and_moved_into_it() {
    tier::in_lab(|| {
        let group = Cgroup::new("traced.slice");
        let below = Cgroup::new("traced.slice/below");
        // All on one CPU, so that each of them is switched.
        let spinner = || {
            let process = Process::start(busy_loop());
            pin(&process, 0);
            process
        };
        let [outside, deep, late] = [(); 3].map(|()| spinner());
        // Its main thread launches nothing. A graph for a token: the tracer keeps up beside them.
        let mut several = gpu_launch("--profile graph --duration 60");
        several.stdout(Stdio::null());
        let several = Process::start(several);
        // This one's libcuda is probed.
        let mut inside = gpu_launch("--profile graph --duration 60");
        inside.stdout(Stdio::null());
        let inside = Process::start(inside);
        std::thread::sleep(Duration::from_secs(1));
        group.add(&inside);
        below.add(&deep);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace.ndjson");
        let busy = [&outside, &deep, &late, &several].into_iter();
        let mut tracer = start_beside(busy, "--cgroup traced.slice --duration 4", &file);
        std::thread::sleep(Duration::from_secs(1));
        group.add(&late);
        group.add(&several);
        assert_eq!(code(tracer.wait()), 0);
        let (header, records) = read(&file);
        assert!(header.target.starts_with("cgroup "), "{}", header.target);
        let traced: BTreeSet<i32> = records
            .iter()
            .filter(|record| record.event == Kind::SwitchIn)
            .map(|record| record.tgid)
            .collect();
        assert_eq!(
            traced,
            BTreeSet::from([inside.pid(), deep.pid(), late.pid(), several.pid()]),
            "not {}",
            outside.pid()
        );
        let launching = |record: &Record| {
            record.tgid == several.pid()
                && record.tid != several.pid()
                && record.event == Kind::SwitchIn
        };
        assert!(
            records.iter().any(launching),
            "all threads of who is moved in"
        );
        let first = |pid: i32| records.iter().find(|record| record.tgid == pid).unwrap();
        assert!(first(late.pid()).time_ns > first(inside.pid()).time_ns + 500_000_000);
        drop((outside, inside, deep, late));
        drop((below, group));
    });
}
