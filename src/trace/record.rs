// SPDX-License-Identifier: GPL-2.0-only
//! Records a whole host for the simulator: a run of the tracer, which sees who launches, with the recorder beside it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem::MaybeUninit;
use std::path::Path;

use anyhow::Result;
use gpuaware_trace::outcome::Outcome;
use gpuaware_trace::profile::observed::Observed;
use gpuaware_trace::profile::{Class, Cpu, Interrupts, Machine, Profile, VERSION, group};

use crate::bpf::profile_intf as intf;
use crate::identify::marks::monotonic_now;
use crate::shutdown::Shutdown;
use crate::topology::pci::Devices;
use crate::topology::{SYSFS, Topology};

use super::observed::observed;
use super::recorder::Recorder;
use super::session::{self, Plan};

/// So many threads that have ended are kept one by one.
const MOST_KEPT: usize = 8192;

/// Records until the plan's time is up, or `shutdown` is asked for. `hz` is the kernel's tick, if it is known; `classes`
/// is asked at the end for the threads, by number, that scx_gpuaware has a class for.
///
/// # Errors
/// Not enough rights, a kernel without the BPF features, no sysfs.
pub fn run(
    plan: &Plan,
    hz: Option<u32>,
    classes: impl FnOnce() -> HashMap<i32, Class>,
    shutdown: &Shutdown,
) -> Result<Profile> {
    let topology = Topology::read(Path::new(SYSFS))?;
    let devices = Devices::read(Path::new(SYSFS));
    let mut object = MaybeUninit::uninit();
    let mut recording = Recording {
        recorder: Recorder::load(&mut object)?,
        online: topology.cpus.iter().map(|cpu| cpu.id).collect(),
        start_ns: None,
        length_ns: 0,
        threads: Vec::new(),
    };
    let no_file = |_: &_| Ok(None);
    let mut nr_unseen = 0;
    let mut each_look = |is_last| -> Result<()> {
        match is_last {
            true => nr_unseen = recording.end()?,
            false => recording.look()?,
        }
        Ok(())
    };
    let outcome = session::run(plan, no_file, &mut each_look, shutdown)?;
    let threads = recording.judged(&classes(), &outcome);
    let (groups, nr_quiet) = group::groups(&threads);
    Ok(Profile {
        schema: VERSION,
        length_ns: recording.length_ns.max(1),
        hz,
        machine: machine(&topology, &devices),
        interrupts: recording.interrupts()?,
        quiet_threads: nr_unseen + nr_quiet,
        missed: recording.recorder.missed(),
        groups,
    })
}

fn now_ns() -> Result<u64> {
    Ok(monotonic_now()?.as_nanos() as u64)
}

struct Recording<'a> {
    recorder: Recorder<'a>,
    /// The CPUs of the profile, by their numbers on the host.
    online: Vec<u32>,
    start_ns: Option<u64>,
    length_ns: u64,
    /// Those that have ended, at last all, with their numbers; 0 for those that are put together.
    threads: Vec<(i32, Observed)>,
}

impl Recording<'_> {
    /// Takes the threads that have ended. The first look begins: loading the tracer is not what the host does.
    fn look(&mut self) -> Result<()> {
        if self.start_ns.is_none() {
            let now_ns = now_ns()?;
            self.recorder.begin(now_ns);
            self.start_ns = Some(now_ns);
        }
        self.take_ended()
    }

    fn take_ended(&mut self) -> Result<()> {
        let records = self.recorder.take_ended()?;
        self.add(&records, 0);
        if self.threads.len() > MOST_KEPT {
            let all = std::mem::take(&mut self.threads);
            let all = group::condensed(all.into_iter().map(|(_, thread)| thread).collect());
            self.threads = all.into_iter().map(|thread| (0, thread)).collect();
        }
        Ok(())
    }

    fn add(&mut self, records: &[intf::profile_thread], end_ns: u64) {
        for record in records.iter().filter(is_foreign) {
            let thread = observed(record, end_ns, Class::Background, &self.online);
            self.threads.push((record.tid, thread));
        }
    }

    /// Ends, adds the threads that live, and says how many more there are of which nothing was seen.
    fn end(&mut self) -> Result<u64> {
        self.recorder.end();
        let end_ns = now_ns()?;
        self.length_ns = end_ns - self.start_ns.unwrap_or(end_ns);
        self.take_ended()?;
        let (live, nr_unseen) = self.recorder.live_threads()?;
        self.add(&live, end_ns);
        Ok(nr_unseen)
    }

    /// All threads, each in its class: what scx_gpuaware has said, or what the tracer has seen.
    fn judged(&mut self, classes: &HashMap<i32, Class>, outcome: &Outcome) -> Vec<Observed> {
        let launching = outcome.threads.iter();
        let launching: HashSet<i32> = launching
            .filter(|thread| thread.counters.all_launches() > 0)
            .map(|thread| thread.tid)
            .collect();
        let threads = std::mem::take(&mut self.threads).into_iter();
        let judged = threads.map(|(tid, mut thread)| {
            if tid != 0 && launching.contains(&tid) {
                thread.class = Class::Launch;
            }
            thread.class = classes.get(&tid).copied().unwrap_or(thread.class);
            // A program that was under way as recording ended may have looked at the clock after that.
            let most_ns = self.length_ns * thread.pids.len() as u64;
            thread.alive_ns = thread.alive_ns.min(most_ns);
            thread
        });
        judged.collect()
    }

    /// In the order of the profile's CPUs.
    fn interrupts(&self) -> Result<Vec<Interrupts>> {
        let all = self.recorder.interrupts()?;
        let of = |&cpu: &u32| all.get(cpu as usize).copied().unwrap_or_default();
        Ok(self.online.iter().map(of).collect())
    }
}

/// Is it no thread of this process, which records?
fn is_foreign(record: &&intf::profile_thread) -> bool {
    record.tgid.unsigned_abs() != std::process::id()
}

/// Numbers without gaps in place of the host's, which say more than is needed.
fn machine(topology: &Topology, devices: &Devices) -> Machine {
    let (mut cores, mut nodes) = (BTreeMap::new(), BTreeMap::new());
    let number = |known: &mut BTreeMap<u32, usize>, of: u32| {
        let next = known.len();
        *known.entry(of).or_insert(next)
    };
    let cpus = topology.cpus.iter().map(|cpu| Cpu {
        core: number(&mut cores, cpu.core.iter().next().unwrap_or(cpu.id)),
        llc: cpu.llc,
        node: number(&mut nodes, cpu.node),
    });
    let cpus = cpus.collect();
    let gpus = devices.gpus.iter();
    let gpus = gpus.map(|gpu| gpu.node.and_then(|node| nodes.get(&node)));
    Machine {
        cpus,
        gpus: gpus.map(|node| node.copied().unwrap_or(0)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_numbers_without_gaps() {
        let siblings = [2, 3, 6, 7].map(|cpu| {
            let file = format!("devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            (file, if cpu % 4 == 2 { "2,6\n" } else { "3,7\n" })
        });
        let mut files = vec![
            ("devices/system/cpu/online", "2-3,6-7\n"),
            ("devices/system/cpu/possible", "0-7\n"),
            ("devices/system/node/node4/cpulist", "2-3,6-7\n"),
            ("bus/pci/devices/0000:17:00.0/class", "0x030200\n"),
            ("bus/pci/devices/0000:17:00.0/vendor", "0x10de\n"),
            ("bus/pci/devices/0000:17:00.0/device", "0x2330\n"),
            ("bus/pci/devices/0000:17:00.0/numa_node", "4\n"),
        ];
        files.extend(siblings.iter().map(|(file, text)| (file.as_str(), *text)));
        let root = crate::proc::tests::host(&files);
        let topology = Topology::read(root.path()).unwrap();
        let machine = machine(&topology, &Devices::read(root.path()));
        let cores: Vec<_> = machine.cpus.iter().map(|cpu| cpu.core).collect();
        assert_eq!((cores, machine.gpus), (vec![0, 1, 0, 1], vec![0]));
        assert!(machine.cpus.iter().all(|cpu| (cpu.llc, cpu.node) == (0, 0)));
    }
}
