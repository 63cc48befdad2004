// SPDX-License-Identifier: GPL-2.0-only
//! Launchers beside neighbours under one scheduler after the other, by the yardsticks that the project measures with:
//! speed over alone, tail, launch time near the GPU, and what neighbours got done of what was possible.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;

use crate::machine::Machine;
use crate::native::{Scheduler, compile_peer};
use crate::report::quantile;
use crate::scenario::{Scenario, Workload};
use crate::setup::Class;
use crate::simulation::{Outcome, Simulation, TaskOutcome};

/// A scheduler's row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub name: String,
    /// Tokens over those of launchers that are alone and pinned near their GPUs.
    pub speed: f64,
    /// 99 of 100 launchers' wakeups waited for no longer.
    pub p99_ns: u64,
    /// Launchers' CPU time on the nodes of their GPUs; `None`: the machine has none.
    pub near: Option<f64>,
    /// What neighbours got done, over what they do alone under EEVDF on the cores that launchers did not use.
    pub work: f64,
    pub idle_cpus: f64,
    pub switches_per_s: f64,
    pub failure: Option<String>,
}

/// With launchers bound to their GPUs' nodes by hand?
const ARMS: [(Scheduler, bool); 8] = [
    (Scheduler::Isolated, false),
    (Scheduler::Gpuaware, false),
    (Scheduler::Gpuaware, true),
    (Scheduler::Eevdf, false),
    (Scheduler::Eevdf, true),
    (Scheduler::Nice, false),
    (Scheduler::Cfs, false),
    (Scheduler::Fifo, false),
];

/// Another project's scheduler.
#[derive(Debug, Clone)]
pub struct Peer {
    pub name: String,
    object: Vec<u8>,
}

impl Peer {
    /// From its BPF source, by whose name it is called.
    pub fn compile(source: &Path) -> Result<Self> {
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self {
            name: name.trim_end_matches(".bpf.c").to_owned(),
            object: compile_peer(source)?,
        })
    }
}

fn launchers(outcome: &Outcome) -> impl Iterator<Item = &TaskOutcome> {
    let tasks = outcome.tasks.iter();
    tasks.filter(|task| task.class == Some(Class::Launch))
}

fn tokens(outcome: &Outcome) -> f64 {
    launchers(outcome).map(|task| task.done).sum::<u64>() as f64
}

fn work_ns(outcome: &Outcome) -> f64 {
    let tasks = outcome.tasks.iter();
    let neighbours = tasks.filter(|task| task.class != Some(Class::Launch));
    neighbours.map(|task| task.work_ns).sum::<u64>() as f64
}

fn near(outcome: &Outcome) -> Option<f64> {
    let with_gpu = || launchers(outcome).filter(|task| task.near_ns.is_some());
    let all: u64 = with_gpu().map(|task| task.cpu_ns).sum();
    let near: u64 = with_gpu().filter_map(|task| task.near_ns).sum();
    (all > 0).then(|| near as f64 / all as f64)
}

/// `alone` has no neighbours, `neighbours` no launchers.
fn row(
    name: String,
    machine: &Machine,
    outcome: &Outcome,
    alone: &Outcome,
    neighbours: &Outcome,
) -> Row {
    let length_ns = outcome.length_ns as f64;
    let launch_ns: u64 = launchers(outcome).map(|task| task.cpu_ns).sum();
    let threads = machine.cpus[0].core.len() as f64;
    let cpus_used = launch_ns as f64 / length_ns * threads;
    let left = (1.0 - cpus_used / machine.nr_cpus() as f64).max(f64::MIN_POSITIVE);
    let mut waits: Vec<u64> = launchers(outcome)
        .flat_map(|task| task.waits_ns.iter().copied())
        .collect();
    waits.sort_unstable();
    let switches: u64 = outcome.tasks.iter().map(|task| task.switches).sum();
    Row {
        name,
        speed: tokens(outcome) / tokens(alone).max(1.0),
        p99_ns: quantile(&waits, 0.99),
        near: near(outcome),
        work: work_ns(outcome) / (work_ns(neighbours) * left),
        idle_cpus: outcome.idle_ns as f64 / length_ns,
        switches_per_s: switches as f64 / length_ns * 1e9,
        failure: outcome.failure.as_ref().map(ToString::to_string),
    }
}

/// A row for each scheduler on `machine`, with scx_gpuaware as `gpuaware` has it, and one for each of `peers`.
pub fn compare(
    machine: &Machine,
    gpuaware: &[u8],
    peers: &[Peer],
    length_ns: u64,
    seed: u64,
) -> Result<Vec<Row>> {
    let run_as = |workload, scheduler, bind: bool, object: &[u8]| {
        let mut scenario = Scenario::named(workload, machine.clone(), scheduler, length_ns, seed);
        if bind {
            scenario.bind_launchers();
        }
        Simulation::with_object(scenario, object)?.run()
    };
    let run = |workload, scheduler: Scheduler, bind| match scheduler {
        Scheduler::Gpuaware => run_as(workload, scheduler, bind, gpuaware),
        other => run_as(workload, scheduler, bind, other.object()),
    };
    let alone = run(Workload::Quiet, Scheduler::Isolated, false)?;
    let neighbours = run(Workload::Neighbours, Scheduler::Eevdf, false)?;
    let mut rows = Vec::new();
    for (scheduler, bind) in ARMS {
        if bind && machine.gpus.is_empty() {
            continue;
        }
        let outcome = run(Workload::Noisy, scheduler, bind)?;
        let bound = if bind { ", bound" } else { "" };
        let name = format!("{scheduler:?}{bound}").to_lowercase();
        rows.push(row(name, machine, &outcome, &alone, &neighbours));
    }
    for peer in peers {
        let outcome = run_as(Workload::Noisy, Scheduler::Peer, false, &peer.object)?;
        let name = peer.name.clone();
        rows.push(row(name, machine, &outcome, &alone, &neighbours));
    }
    Ok(rows)
}

/// For people.
pub fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<16} {:>8} {:>9} {:>9} {:>8} {:>9} {:>11}\n",
        "scheduler", "speed %", "p99 µs", "near %", "work %", "idle CPUs", "switches/s"
    );
    for row in rows {
        let near = row.near.map(|near| format!("{:.1}", 100.0 * near));
        let _ = writeln!(
            text,
            "{:<16} {:>8.1} {:>9.1} {:>9} {:>8.1} {:>9.2} {:>11.0}",
            row.name,
            100.0 * row.speed,
            row.p99_ns as f64 / 1e3,
            near.as_deref().unwrap_or("-"),
            100.0 * row.work,
            row.idle_cpus,
            row.switches_per_s
        );
        if let Some(failure) = &row.failure {
            let _ = writeln!(text, "  FAILED {failure}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(shape: &str, ms: u64) -> Vec<Row> {
        let machine = Machine::parse(shape).unwrap();
        let gpuaware = Scheduler::Gpuaware.object();
        compare(&machine, gpuaware, &[], ms * 1_000_000, 1).unwrap()
    }

    #[test]
    fn schedulers_stand_in_the_order_that_is_known_of_them() {
        let rows = rows("32x4x2x1x2", 400);
        let speed = |name: &str| rows.iter().find(|row| row.name == name).unwrap().speed;
        assert!(rows.iter().all(|row| row.failure.is_none()), "{rows:#?}");
        assert!(speed("isolated") > 0.99, "{rows:#?}");
        assert!(speed("gpuaware") > 0.97, "{rows:#?}");
        assert!(speed("eevdf") < speed("nice"), "{rows:#?}");
        assert!(speed("fifo") < 0.9 * speed("isolated"), "{rows:#?}");
    }

    #[test]
    fn whoever_is_bound_stays_near_its_gpu_and_neighbours_get_what_is_left() {
        let rows = rows("16x2x2x1x2", 300);
        for row in &rows {
            let near = row.near.unwrap();
            assert!((0.0..=1.0).contains(&near), "{row:?}");
            assert!(row.work > 0.5 && row.work < 1.15, "{row:?}");
            if row.name.contains("bound") || row.name == "isolated" {
                assert_eq!(near, 1.0, "{row:?}");
            } else if row.name == "gpuaware" {
                assert!(near > 0.99, "{row:?}");
            }
        }
    }

    /// Launchers as good as alone on their GPUs' nodes, neighbours with what these leave, and nobody binds anything.
    #[test]
    fn on_big_hosts_nobody_needs_to_bind_launchers() {
        for (shape, near) in [
            ("64x8x2x2x4", 0.999),
            ("128x16x2x2x8", 0.999),
            ("512x64x8x2x8", 0.998),
        ] {
            let rows = rows(shape, 400);
            let of = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
            let (unbound, bound) = (of("gpuaware"), of("gpuaware, bound"));
            assert_eq!(unbound.failure, None, "{shape}");
            assert!(unbound.speed >= 0.99, "{shape}: {rows:#?}");
            assert!(unbound.near.unwrap() >= near, "{shape}: {rows:#?}");
            assert!(unbound.work >= 0.97, "{shape}: {rows:#?}");
            assert!(unbound.speed >= 0.95 * bound.speed, "{shape}: {rows:#?}");
            assert!(
                of("eevdf").speed < 0.9 * unbound.speed,
                "{shape}: {rows:#?}"
            );
        }
    }

    /// As scx's own examples are written: sizes of map keys and values, no flags of moves, no timeout of the watchdog.
    const PEER: &str = r#"
        #include <scx/common.bpf.h>
        char _license[] SEC("license") = "GPL";
        UEI_DEFINE(uei);
        struct {
            __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
            __uint(key_size, sizeof(u32));
            __uint(value_size, sizeof(u64));
            __uint(max_entries, 1);
        } counts SEC(".maps");
        void BPF_STRUCT_OPS(peer_enqueue, struct task_struct *p, u64 enq_flags)
        {
            u32 zero = 0;
            u64 *count = bpf_map_lookup_elem(&counts, &zero);
            if (count)
                scx_bpf_dsq_insert_vtime(p, 0, SCX_SLICE_DFL, ++*count, enq_flags);
        }
        void BPF_STRUCT_OPS(peer_dispatch, s32 cpu, struct task_struct *prev)
        {
            scx_bpf_dsq_move_to_local(0);
        }
        s32 BPF_STRUCT_OPS_SLEEPABLE(peer_init)
        {
            return scx_bpf_create_dsq(0, -1);
        }
        void BPF_STRUCT_OPS(peer_exit, struct scx_exit_info *ei)
        {
            UEI_RECORD(uei, ei);
        }
        SCX_OPS_DEFINE(peer_ops, .enqueue = (void *)peer_enqueue, .dispatch = (void *)peer_dispatch,
                       .init = (void *)peer_init, .exit = (void *)peer_exit, .name = "peer");
    "#;

    fn peer(source: &str) -> Result<Peer> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scx_peer.bpf.c");
        std::fs::write(&path, source).unwrap();
        Peer::compile(&path)
    }

    #[test]
    fn a_peer_is_compiled_from_its_own_source_and_has_a_row() {
        let machine = Machine::parse("8x2x1x1x1").unwrap();
        let gpuaware = Scheduler::Gpuaware.object();
        let rows = compare(&machine, gpuaware, &[peer(PEER).unwrap()], 200_000_000, 1).unwrap();
        let last = rows.last().unwrap();
        assert_eq!((last.name.as_str(), &last.failure), ("scx_peer", &None));
        assert!(last.work > 0.5 && last.speed < 0.9, "{rows:#?}");
    }

    #[test]
    fn a_peer_that_asks_for_what_is_not_modelled_is_refused() {
        let asks = PEER.replace("++*count", "scx_bpf_cpuperf_cap(0)");
        let error = peer(&asks).unwrap_err().to_string();
        assert!(
            error.contains("scx_peer.bpf.c") && error.contains("does not have"),
            "{error}"
        );
    }
}
