// SPDX-License-Identifier: GPL-2.0-only
//! What the running scheduler makes of interrupts: a CPU that drowns in them is not preferred, and
//! those that can be moved are kept away from CPUs that are.

use std::time::Duration;

use nix::sys::signal::Signal;
use scx_gpuaware::policy::cpuset::CpuSet;

use crate::process::{Process, code, eventually, within};
use crate::{length, tier};

use super::irq::{affinities, movable};
use super::irq_storm::IrqStorm;
use super::machine::{
    Scheduler, cpu_of, mark_launch, metrics, pin_to, preferred_cpu, preferred_cpus, waker,
};
use super::shared::beside_the_scheduler;

/// A CPU that rests spends 4 % in interrupts where the host is busy: it is taken away inside them. One that drowns is told from
/// that by more than the default.
pub const DROWNING: &str = "[irq]\nheavy_percent = 30\n";
const STEER: &str = "[irq]\nsteer = true\nheavy_percent = 30\n";

/// Waits until `cpu` is in the preferred set, or is not.
fn awaits(cpu: usize, is_preferred: bool, limit: Duration) {
    let cpu = cpu as u32;
    let reached = within(limit, || {
        (preferred_cpus().contains(cpu) == is_preferred).then_some(())
    });
    let now = metrics();
    let loads: Vec<_> = now
        .cpus
        .iter()
        .map(|(cpu, it)| (cpu, it.irq_percent))
        .collect();
    assert!(
        reached.is_some(),
        "CPU {cpu}: preferred is not {is_preferred}, the set {:?} ({}); IRQ-heavy {:?}, percent {loads:?}",
        now.preferred_cpus,
        now.preferred_reason,
        now.irq_heavy_cpus
    );
}

/// Waits until no CPU is heavy with interrupts: those of the guest's boot are in the averages.
fn awaits_calm() {
    let calm = eventually(|| metrics().irq_heavy_cpus.is_empty().then_some(()));
    assert!(calm.is_some(), "IRQ-heavy {:?}", metrics().irq_heavy_cpus);
}

/// A preferred CPU drowns in interrupts: it leaves the set within 5 s, and returns when that is over.
pub fn leaves_and_returns() {
    awaits_calm();
    let cpu = preferred_cpus().iter().last().expect("a preferred CPU") as usize;
    let storm = IrqStorm::on(cpu);
    awaits(cpu, false, Duration::from_secs(5));
    assert!(
        !preferred_cpus().is_empty(),
        "another one is preferred instead"
    );
    drop(storm);
    // The average has to calm down, and ten calm seconds to pass: they begin again whenever the host
    // takes a virtual CPU away inside an interrupt, which then has taken that long.
    awaits(cpu, true, Duration::from_secs(90));
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_cpu_under_an_interrupt_storm_is_not_preferred_until_it_is_over() {
    beside_the_scheduler(DROWNING, |_| leaves_and_returns());
}

/// Of so many times that the launcher, which was confined to CPU 1, may run on CPU 0 as well: how often does it stay?
fn stays(launcher: &Process, times: usize) -> usize {
    let times = (0..times).filter(|_| {
        pin_to(launcher, &[1]);
        std::thread::sleep(Duration::from_millis(50));
        pin_to(launcher, &[0, 1]);
        // In a storm what it has begun takes several times as long.
        std::thread::sleep(Duration::from_millis(200));
        cpu_of(launcher.pid(), launcher.pid().into()) == Some(1)
    });
    times.count()
}

/// Both CPUs are preferred, whatever comes: what a wakeup does is not what user space decides.
#[test]
#[ignore = "runs in the lab: make test"]
fn a_wakeup_avoids_a_preferred_cpu_in_an_interrupt_storm() {
    beside_the_scheduler("[preferred]\ncpus = \"0-1\"\n", |_| {
        // A timer wakes it. A thread of the driver may be on the launcher's CPU itself, which is not idle then.
        let launcher = waker();
        mark_launch(launcher.pid());
        let times = length::of(20, 50);
        let calm = stays(&launcher, times);
        let storm = IrqStorm::on(1);
        std::thread::sleep(Duration::from_secs(2));
        let stormy = stays(&launcher, times);
        let all = format!(
            "it stays {calm}, in a storm {stormy} of {times} times: {:?}",
            metrics().cpus
        );
        drop(storm);
        println!("{all}");
        // In a storm it stays more often where a hypervisor takes CPUs of the host as well.
        assert!(calm * 10 > times * 7 && stormy * 2 < calm, "{all}");
    });
}

/// The programs that see interrupts begin and those that see them end are not attached at one instant.
#[test]
#[ignore = "runs in the lab: make test"]
fn interrupts_while_it_loads_are_over_when_they_are() {
    tier::in_lab(|| {
        for load in 0..length::of(1, 3) {
            let storm = IrqStorm::of_short_ones_on(1);
            let scheduler = Scheduler::start(&[]);
            drop(storm);
            // The average has begun at nothing.
            std::thread::sleep(Duration::from_secs(5));
            let is_calm = eventually(|| {
                let mut cpus = metrics().cpus.into_values();
                cpus.all(|cpu| cpu.irq_percent < 50.0).then_some(())
            });
            assert!(is_calm.is_some(), "load {load}: {:?}", metrics().cpus);
            scheduler.stop();
        }
    });
}

/// Every interrupt that can be moved is kept away from `cpu`, the only one that is preferred.
fn assert_steered_away_from(cpu: usize) {
    let preferred = CpuSet::new([cpu as u32]);
    let movable = movable();
    assert!(!movable.is_empty());
    for (file, affinity) in movable {
        let affinity: CpuSet = affinity.parse().expect("a CPU list");
        assert_eq!(
            affinity.difference(&preferred),
            affinity,
            "{}",
            file.display()
        );
    }
}

#[test]
#[ignore = "runs in the lab: make test"]
fn steered_interrupts_follow_the_preferred_cpus_and_are_restored() {
    tier::in_lab(|| {
        let before = affinities();
        let cpu = preferred_cpu();
        let mut scheduler = Scheduler::with_policy(STEER);
        scheduler
            .process
            .wait_for_line("interrupt affinities changed");
        assert_steered_away_from(cpu);

        awaits_calm();
        let storm = IrqStorm::on(cpu);
        awaits(0, true, Duration::from_secs(20));
        scheduler
            .process
            .wait_for_line("interrupt affinities changed");
        assert_steered_away_from(0);
        drop(storm);
        scheduler.stop();
        assert_eq!(affinities(), before);

        let mut scheduler = Scheduler::with_policy(STEER);
        scheduler
            .process
            .wait_for_line("interrupt affinities changed");
        scheduler.process.signal(Signal::SIGKILL);
        scheduler.process.wait();
        assert_ne!(affinities(), before);
        // One that does not steer puts back what the killed one has changed.
        let scheduler = Scheduler::start(&[]);
        assert_eq!(affinities(), before);
        scheduler.stop();

        let mut scheduler = Scheduler::with_policy(STEER);
        scheduler
            .process
            .wait_for_line("interrupt affinities changed");
        // The kernel throws it out.
        std::fs::write("/proc/sysrq-trigger", "S").expect("sysrq");
        let status = scheduler.process.wait();
        assert_eq!(code(status), 1, "{:#?}", scheduler.process.log);
        assert_eq!(affinities(), before);
    });
}
