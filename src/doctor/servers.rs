// SPDX-License-Identifier: GPL-2.0-only
//! Processes that hold GPUs open: where they may run, where they ran, what they brought with them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::policy::cpuset::CpuSet;
use crate::printable::printable;
use crate::proc::{self, Stat, numbers_in};
use crate::topology::Topology;
use crate::topology::pci::{Devices, PciDevice, nvidia_minor};

use super::finding::{Judgement, listed, ok, warning};

/// CPUs that a server's own processes need beside one for each GPU: one for its engine, one for its front end.
const BESIDE_GPUS: usize = 2;

/// A process that holds GPUs open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Server {
    pub pid: u32,
    /// Name of its main thread.
    pub comm: String,
    /// Its cgroup, below the hierarchy's root.
    pub cgroup: PathBuf,
    /// By minor number: `/dev/nvidia3` is 3.
    pub gpus: BTreeSet<u32>,
    /// Online CPUs that it may use.
    pub cpus: CpuSet,
    /// Has it mapped a library of OpenMP without being told how many threads to start?
    pub openmp_unbounded: bool,
    /// Nodes of its GPUs, where all of them are known.
    pub gpu_nodes: BTreeSet<u32>,
    /// How many of its threads ran last on which node.
    pub ran_on: BTreeMap<u32, usize>,
    /// Its memory in kB by node, where its GPUs are all on one of several.
    pub memory_on: BTreeMap<u32, u64>,
}

/// Those of `processes`, on the host below `root` whose CPUs are `topology`.
pub fn gather(
    root: &Path,
    processes: &[PathBuf],
    topology: Option<&Topology>,
    devices: &Devices,
) -> Vec<Server> {
    let Some(topology) = topology else {
        return Vec::new();
    };
    let nodes = nodes(root, topology, devices);
    let has_nodes = (topology.cpus.iter()).any(|cpu| cpu.node != topology.cpus[0].node);
    let server = |process: &PathBuf| {
        let gpus = proc::gpus_open(process);
        if gpus.is_empty() {
            return None;
        }
        let known: Vec<_> = gpus.iter().filter_map(|gpu| nodes.get(gpu)).collect();
        let gpu_nodes: BTreeSet<u32> = match known.len() == gpus.len() {
            true => known.into_iter().copied().collect(),
            false => BTreeSet::new(),
        };
        Some(Server {
            pid: process.file_name()?.to_str()?.parse().ok()?,
            comm: Stat::read(process)?.comm,
            cgroup: proc::cgroup(process).unwrap_or_default(),
            cpus: allowed(process).intersection(&topology.online()),
            openmp_unbounded: has_openmp(process) && !is_told_how_many(process),
            ran_on: ran_on(process, topology),
            // The kernel goes through all its pages for it: only where the answer is judged.
            memory_on: match has_nodes && gpu_nodes.len() == 1 {
                true => memory_on(process),
                false => BTreeMap::new(),
            },
            gpu_nodes,
            gpus,
        })
    };
    processes.iter().filter_map(server).collect()
}

/// The node of each GPU that NVIDIA's driver knows, by minor number.
fn nodes(root: &Path, topology: &Topology, devices: &Devices) -> BTreeMap<u32, u32> {
    let node = |gpu: &PciDevice| {
        let minor = nvidia_minor(root, &gpu.address)?;
        Some((minor, gpu.near_node(topology)?))
    };
    devices.gpus.iter().filter_map(node).collect()
}

fn allowed(process: &Path) -> CpuSet {
    let status = std::fs::read(process.join("status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let list = (status.lines()).find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.and_then(|list| list.trim().parse().ok())
        .unwrap_or_default()
}

fn has_openmp(process: &Path) -> bool {
    let maps = std::fs::read(process.join("maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    ["/libgomp", "/libiomp5", "/libomp"]
        .iter()
        .any(|library| maps.contains(library))
}

fn is_told_how_many(process: &Path) -> bool {
    let environment = std::fs::read(process.join("environ")).unwrap_or_default();
    let mut variables = environment.split(|&byte| byte == 0);
    variables.any(|variable| variable.starts_with(b"OMP_NUM_THREADS="))
}

fn ran_on(process: &Path, topology: &Topology) -> BTreeMap<u32, usize> {
    let tasks = process.join("task");
    let tids: Vec<u32> = numbers_in(&tasks);
    let mut nodes = BTreeMap::new();
    for tid in tids {
        let cpu = Stat::read(&tasks.join(tid.to_string())).and_then(|stat| stat.cpu);
        if let Some(cpu) = cpu.and_then(|cpu| topology.cpu(cpu)) {
            *nodes.entry(cpu.node).or_default() += 1;
        }
    }
    nodes
}

/// As `numa_maps` says it: `7f00 default file=/lib/x anon=4 N0=3 N1=1 kernelpagesize_kB=4`.
fn memory_on(process: &Path) -> BTreeMap<u32, u64> {
    let maps = std::fs::read(process.join("numa_maps")).unwrap_or_default();
    let mut memory = BTreeMap::new();
    for line in String::from_utf8_lossy(&maps).lines() {
        let page_kb = field(line, "kernelpagesize_kB=").unwrap_or(4);
        for word in line.split(' ') {
            if let Some((node, pages)) = word.strip_prefix('N').and_then(|it| it.split_once('='))
                && let (Ok(node), Ok(pages)) = (node.parse(), pages.parse::<u64>())
            {
                *memory.entry(node).or_default() += pages * page_kb;
            }
        }
    }
    memory
}

fn field(line: &str, name: &str) -> Option<u64> {
    let mut words = line.split(' ');
    words.find_map(|word| word.strip_prefix(name)?.parse().ok())
}

fn named(server: &Server) -> String {
    format!("{} ({})", printable(&server.comm), server.pid)
}

/// The check of cpusets: processes of one cgroup share their CPUs.
pub fn judge_cpus(servers: &[Server]) -> Judgement {
    let mut groups: BTreeMap<&Path, Vec<&Server>> = BTreeMap::new();
    for server in servers {
        groups.entry(&server.cgroup).or_default().push(server);
    }
    let short: Vec<_> = (groups.values())
        .filter_map(|group| short_of(group))
        .collect();
    if !short.is_empty() {
        return warning(
            listed(&short),
            "give the container or the cpuset a CPU for each GPU and two more",
        );
    }
    match servers.len() {
        0 => ok("no process holds a GPU open"),
        1 => ok("the process that holds a GPU open has CPUs enough"),
        more => ok(format!(
            "the {more} processes that hold GPUs open have CPUs enough"
        )),
    }
}

fn short_of(group: &[&Server]) -> Option<String> {
    let gpus: BTreeSet<u32> = group
        .iter()
        .flat_map(|server| server.gpus.clone())
        .collect();
    let cpus: BTreeSet<u32> = (group.iter())
        .flat_map(|server| server.cpus.iter())
        .collect();
    let who = match group {
        [one] => named(one),
        [first, rest @ ..] => format!("{} and {} more", named(first), rest.len()),
        [] => return None,
    };
    (cpus.len() < gpus.len() + BESIDE_GPUS).then(|| {
        let plural = if gpus.len() == 1 { "" } else { "s" };
        let (cpus, gpus) = (CpuSet::new(cpus), gpus.len());
        format!("{who}: CPUs {cpus} for {gpus} GPU{plural}")
    })
}

/// The check of OpenMP: each such process starts a thread for each of its CPUs.
pub fn judge_openmp(servers: &[Server], online: usize) -> Judgement {
    let unbounded: Vec<_> = (servers.iter())
        .filter(|server| server.openmp_unbounded)
        .collect();
    let threads: usize = unbounded.iter().map(|server| server.cpus.len()).sum();
    if threads <= online {
        return ok(
            "the processes that hold GPUs open start no more OpenMP threads than there are CPUs",
        );
    }
    let names: Vec<_> = unbounded.into_iter().map(named).collect();
    warning(
        format!(
            "without OMP_NUM_THREADS these may start {threads} OpenMP threads on {online} CPUs: {}",
            listed(&names)
        ),
        "start them with OMP_NUM_THREADS=1, or with as many as each has CPUs of its own",
    )
}

/// The check of nodes.
pub fn judge_nodes(servers: &[Server]) -> Judgement {
    let far: Vec<_> = (servers.iter()).filter_map(far_from_its_gpus).collect();
    if far.is_empty() {
        return ok("no process runs on another node than its GPUs, as far as nodes are known");
    }
    warning(
        listed(&far),
        "start each on its GPUs' node: numactl --cpunodebind, vllm --numa-bind, or the cpuset's CPUs",
    )
}

/// The check of memory: what is copied to and from a GPU.
pub fn judge_memory(servers: &[Server]) -> Judgement {
    let far: Vec<_> = (servers.iter())
        .filter_map(memory_far_from_its_gpus)
        .collect();
    if far.is_empty() {
        return ok(
            "no process has most of its memory on another node than its GPUs, as far as nodes are known",
        );
    }
    warning(
        listed(&far),
        "start each with its memory on its GPUs' node: numactl --membind, vllm --numa-bind, or cpuset.mems; \
         migratepages moves what is there",
    )
}

/// Of one whose GPUs are all on one node: most of its memory is elsewhere.
fn memory_far_from_its_gpus(server: &Server) -> Option<String> {
    let node = only_node(server)?;
    let all: u64 = server.memory_on.values().sum();
    let near = server.memory_on.get(&node).copied().unwrap_or(0);
    (near * 2 < all).then(|| {
        let (far, all) = ((all - near) >> 10, all >> 10);
        let who = named(server);
        format!("{who}: GPU on node {node}, {far} of {all} MiB on others")
    })
}

fn only_node(server: &Server) -> Option<u32> {
    match server.gpu_nodes.len() {
        1 => server.gpu_nodes.first().copied(),
        _ => None,
    }
}

/// Of one whose GPUs are all on one node: most of its threads ran elsewhere.
fn far_from_its_gpus(server: &Server) -> Option<String> {
    let node = only_node(server)?;
    let all: usize = server.ran_on.values().sum();
    let near = server.ran_on.get(&node).copied().unwrap_or(0);
    (near * 2 < all).then(|| {
        format!(
            "{}: GPU on node {node}, {} of {all} threads ran on others",
            named(server),
            all - near
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn server(pid: u32, gpus: &[u32], cpus: impl IntoIterator<Item = u32>) -> Server {
        Server {
            pid,
            comm: "python3".to_owned(),
            gpus: gpus.iter().copied().collect(),
            cpus: CpuSet::new(cpus),
            ..Server::default()
        }
    }

    #[test]
    fn processes_of_one_cgroup_share_the_cpus_that_their_gpus_need() {
        let enough = [server(7, &[0, 1], 0..4)];
        assert_eq!(judge_cpus(&enough).0, Verdict::Ok);
        let short = [server(7, &[0, 1], 0..4), server(8, &[2], 0..4)];
        let (verdict, found, _) = judge_cpus(&short);
        assert_eq!(verdict, Verdict::Warning);
        assert_eq!(found, "python3 (7) and 1 more: CPUs 0-3 for 3 GPUs");
        let mut apart = short.clone();
        apart[1].cgroup = "pod2".into();
        assert_eq!(judge_cpus(&apart).0, Verdict::Ok);
        assert_eq!(judge_cpus(&[]).1, "no process holds a GPU open");
    }

    #[test]
    fn openmp_threads_are_too_many_where_all_processes_together_start_more_than_there_are_cpus() {
        let mut servers = [server(7, &[0], 0..8), server(8, &[1], 0..8)];
        assert_eq!(judge_openmp(&servers, 8).0, Verdict::Ok);
        servers[0].openmp_unbounded = true;
        assert_eq!(judge_openmp(&servers, 8).0, Verdict::Ok);
        servers[1].openmp_unbounded = true;
        let (verdict, found, _) = judge_openmp(&servers, 8);
        assert_eq!(verdict, Verdict::Warning);
        assert!(found.contains("16 OpenMP threads on 8 CPUs"), "{found}");
    }

    #[test]
    fn a_process_is_far_when_most_of_its_threads_ran_on_another_node_than_its_gpus() {
        let mut one = server(7, &[0], 0..8);
        one.gpu_nodes = [1].into();
        one.ran_on = [(0, 5), (1, 4)].into();
        let (verdict, found, _) = judge_nodes(std::slice::from_ref(&one));
        assert_eq!(verdict, Verdict::Warning);
        assert_eq!(
            found,
            "python3 (7): GPU on node 1, 5 of 9 threads ran on others"
        );
        one.ran_on = [(0, 4), (1, 4)].into();
        assert_eq!(judge_nodes(std::slice::from_ref(&one)).0, Verdict::Ok);
        one.ran_on = [(0, 9)].into();
        one.gpu_nodes = [0, 1].into();
        assert_eq!(judge_nodes(&[one]).0, Verdict::Ok, "GPUs on both");
    }

    #[test]
    fn memory_is_far_when_most_of_it_is_on_another_node_than_the_gpus() {
        let mut one = server(7, &[0], 0..8);
        one.gpu_nodes = [1].into();
        one.memory_on = [(0, 5 << 20), (1, 3 << 20)].into();
        let (verdict, found, _) = judge_memory(std::slice::from_ref(&one));
        assert_eq!(verdict, Verdict::Warning);
        assert_eq!(
            found,
            "python3 (7): GPU on node 1, 5120 of 8192 MiB on others"
        );
        one.memory_on = [(1, 3 << 20)].into();
        assert_eq!(judge_memory(std::slice::from_ref(&one)).0, Verdict::Ok);
        one.gpu_nodes = [0, 1].into();
        one.memory_on = [(0, 5 << 20)].into();
        assert_eq!(judge_memory(&[one]).0, Verdict::Ok, "GPUs on both");
    }

    #[test]
    fn what_a_process_holds_and_brings_is_read_from_its_folder() {
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("proc/7");
        std::fs::create_dir_all(&process).unwrap();
        let status = "Name:\tpython3\nCpus_allowed_list:\t0-1,4\n";
        std::fs::write(process.join("status"), status).unwrap();
        assert_eq!(allowed(&process), CpuSet::new([0, 1, 4]));
        let maps = "7f00-7f10 r-xp 0 fe:01 4711 /usr/lib/libgomp.so.1.0.0\n";
        std::fs::write(process.join("maps"), maps).unwrap();
        assert!(has_openmp(&process) && !is_told_how_many(&process));
        std::fs::write(process.join("environ"), "A=1\0OMP_NUM_THREADS=4\0").unwrap();
        assert!(is_told_how_many(&process));
        let maps = "7f0000 default anon=600 N0=100 N1=500 kernelpagesize_kB=4\n\
                    7f8000 bind:1 huge anon=3 N1=3 kernelpagesize_kB=2048\n\
                    7f9000 default file=/usr/lib/N1=x mapped=4 N0=4 kernelpagesize_kB=4\n";
        std::fs::write(process.join("numa_maps"), maps).unwrap();
        let memory = [(0, 104 * 4), (1, 500 * 4 + 3 * 2048)];
        assert_eq!(memory_on(&process), memory.into());
    }
}
