// SPDX-License-Identifier: GPL-2.0-only
//! Which CPUs are preferred, and why, on recorded machines.

use std::path::Path;
use std::time::Duration;

use scx_gpuaware::policy::cpuset::CpuSet;
use scx_gpuaware::policy::{Max, Smt};
use scx_gpuaware::topology::Topology;
use scx_gpuaware::topology::capacity::Kind;
use scx_gpuaware::topology::choose::{Choice, PreferredRules, choose};
use scx_gpuaware::topology::demand::Demand;
use scx_gpuaware::topology::irq_load::{IrqLoad, IrqRules, IrqTime, IrqVerdict, IrqVerdicts};
use scx_gpuaware::topology::pci::Devices;

use crate::sysfs::{machine, unfold};

/// A machine and what changes on it.
struct Machine {
    topology: Topology,
    devices: Devices,
    irq: IrqVerdicts,
    rules: PreferredRules,
}

impl Machine {
    fn recorded(name: &str) -> Self {
        Self::read(machine(name).path())
    }

    fn read(root: &Path) -> Self {
        Self {
            topology: Topology::read(root).unwrap(),
            devices: Devices::read(root),
            irq: IrqVerdicts::default(),
            rules: PreferredRules::default(),
        }
    }

    fn within(mut self, allowed: &str) -> Self {
        self.topology = self.topology.within(&set(allowed));
        self
    }

    fn max(mut self, max: Max) -> Self {
        self.rules.max = max;
        self
    }

    fn heavy(mut self, cpus: &str) -> Self {
        let verdict = IrqVerdict {
            load_percent: 12.3,
            heavy: true,
        };
        self.irq = set(cpus).iter().map(|cpu| (cpu, verdict)).collect();
        self
    }

    fn choose(&self, launch: u32, previous: Option<&str>) -> Choice {
        let demand = Demand { launch, handoff: 0 };
        let previous = previous.map(set);
        choose(
            &self.topology,
            &self.devices,
            &self.irq,
            demand,
            &self.rules,
            previous.as_ref(),
        )
    }

    /// The preferred CPUs for some launchers, chosen afresh.
    fn cpus(&self, launch: u32) -> String {
        self.choose(launch, None).cpus.to_string()
    }

    /// The same after an earlier choice.
    fn after(&self, previous: &str, launch: u32) -> String {
        self.choose(launch, Some(previous)).cpus.to_string()
    }
}

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// Why `cpu` is preferred, or why not.
fn reason(choice: &Choice, cpu: u32) -> &str {
    let row = choice.rows.iter().find(|row| row.cpu == cpu);
    &row.expect("a row for every online CPU").reason
}

#[test]
fn laptop_gives_a_whole_core_far_from_cpu_0() {
    let laptop = Machine::recorded("laptop-4c8t");
    assert_eq!(laptop.topology.nr_llcs, 1);
    assert_eq!(laptop.devices.gpus.len(), 2);
    assert!(laptop.devices.nics.is_empty(), "Wi-Fi does not count");
    let choice = laptop.choose(1, None);
    assert_eq!(choice.cpus, set("3,7"));
    assert_eq!(choice.reason, "2 CPUs for 1 thread");
    assert_eq!(reason(&choice, 7), "whole core 3,7");
    assert_eq!(reason(&choice, 6), "as good, but not needed for 1 thread");
    assert_eq!(reason(&choice, 4), "same core as CPU 0");
    assert!(reason(&choice, 0).starts_with("CPU 0, where interrupts"));
    // A quarter of eight CPUs is one core, whatever the demand.
    let choice = laptop.choose(4, None);
    assert_eq!(choice.cpus, set("3,7"));
    assert_eq!(
        choice.reason,
        "2 CPUs for 4 threads: preferred.max allows no more"
    );
    assert_eq!(
        reason(&choice, 6),
        "as good, but preferred.max allows no more"
    );
}

#[test]
fn desktop_spreads_over_caches_and_stops_at_a_quarter() {
    let desktop = Machine::recorded("desktop-24c-1gpu");
    assert_eq!(desktop.topology.nr_llcs, 8);
    assert_eq!(desktop.cpus(1), "23,47");
    assert_eq!(desktop.cpus(3), "17,20,23,41,44,47");
    let most = "8,11,14,17,20,23,32,35,38,41,44,47";
    assert_eq!(desktop.cpus(6), most);
    assert_eq!(desktop.cpus(100), most);
}

#[test]
fn server_spreads_launchers_over_the_nodes_of_its_gpus() {
    let server = Machine::recorded("server-128t-8gpu-4nic");
    assert_eq!(server.devices.gpus.len(), 8, "not the server's VGA chip");
    assert_eq!(server.devices.nics.len(), 4, "not the port without a link");
    assert_eq!(server.cpus(1), "63,127");
    assert_eq!(server.cpus(2), "31,63,95,127");
    let choice = server.choose(8, None);
    assert_eq!(choice.cpus, set("28-31,60-63,92-95,124-127"));
    assert_eq!(
        reason(&choice, 28),
        "near 4 GPUs on node 0; whole core 28,92"
    );
    assert_eq!(server.cpus(40), "24-31,56-63,88-95,120-127");
}

#[test]
fn server_with_one_gpu_stays_on_its_node_while_it_can() {
    let mut server = Machine::recorded("server-128t-8gpu-4nic").max(Max::Percent(1.0));
    server.devices.gpus.truncate(1);
    let choice = server.choose(8, None);
    assert_eq!(choice.cpus, set("24-31,88-95"));
    assert_eq!(
        reason(&choice, 31),
        "near GPU 0000:10:00.0 on node 0; whole core 31,95"
    );
    assert_eq!(reason(&choice, 63), "node 1, the nearest GPU is on node 0");
    // Then the other node, and CPU 0 last of all.
    assert_eq!(server.cpus(33), "1-31,62-63,65-95,126-127");
    assert_eq!(server.cpus(64), "0-127");
}

#[test]
fn gpus_get_cpus_by_their_number_on_each_node() {
    let mut server = Machine::recorded("server-128t-8gpu-4nic");
    // Three on node 0, one on node 1.
    server.devices.gpus.remove(3);
    server.devices.gpus.truncate(4);
    assert_eq!(server.cpus(4), "29-31,63,93-95,127");
}

#[test]
fn chiplets_near_the_gpu_come_first_then_the_same_package() {
    let chiplets = Machine::recorded("chiplet-2s-16llc");
    assert_eq!(chiplets.topology.nr_llcs, 16);
    assert_eq!(chiplets.cpus(1), "17,65");
    assert_eq!(chiplets.cpus(2), "14,17,62,65");
    assert_eq!(chiplets.cpus(6), "12-17,60-65");
    // The node of the network card is next among equally distant ones.
    let choice = chiplets.choose(7, None);
    assert_eq!(choice.cpus, set("5,12-17,53,60-65"));
    let words = "node 5, the nearest GPU is on node 2; no network card on its node";
    assert_eq!(reason(&choice, 33), words);
}

#[test]
fn performance_cores_come_before_efficiency_cores() {
    let hybrid = Machine::recorded("hybrid-6p8e");
    let kinds = |kind| {
        hybrid
            .topology
            .cpus
            .iter()
            .filter(|it| it.kind == kind)
            .count()
    };
    assert_eq!(kinds(Kind::Performance), 12);
    assert_eq!(kinds(Kind::Efficiency), 8);
    let choice = hybrid.choose(2, None);
    assert_eq!(choice.cpus, set("4-5,8-9"), "the two that boost highest");
    assert_eq!(reason(&choice, 9), "whole performance core 8-9");
    assert_eq!(reason(&choice, 11), "96 % as fast as the fastest");
    assert_eq!(reason(&choice, 19), "efficiency core");
    // Even the core of CPU 0 is worth more than an efficiency core.
    let all = hybrid.max(Max::Count(12));
    assert_eq!(all.cpus(6), "0-11");
    // A quarter is five CPUs: two cores, and one CPU over.
    assert_eq!(all.max(Max::Percent(0.25)).cpus(3), "4-5,8-9,19");
}

#[test]
fn capacities_tell_big_from_little_arm_cores() {
    let spark = Machine::recorded("hybrid-arm-10p10e");
    let little = |id| spark.topology.cpu(id).unwrap().kind == Kind::Efficiency;
    assert!((0..5).chain(10..15).all(little));
    assert!(!(5..10).chain(15..20).any(little));
    assert_eq!(spark.cpus(1), "19", "the fastest of the big ones");
    assert_eq!(spark.cpus(2), "9,19", "one for each cache");
    assert_eq!(spark.cpus(5), "8-9,17-19");
}

#[test]
fn kernel_names_of_hybrid_cores_win_over_frequencies() {
    let tree = "devices/system/cpu/online = 0-3
                devices/system/cpu/possible = 0-3
                devices/system/cpu/cpu{0-1}/topology/thread_siblings_list = 0-1
                devices/system/cpu/cpu{2}/topology/thread_siblings_list = 2
                devices/system/cpu/cpu{3}/topology/thread_siblings_list = 3
                devices/system/cpu/cpu{0-3}/cpu_capacity = 1024
                devices/system/cpu/cpu{0-1}/cpufreq/cpuinfo_max_freq = 5200000
                devices/system/cpu/cpu{2-3}/cpufreq/cpuinfo_max_freq = 4600000";
    let kind_of_3 = |more: &str| {
        let root = unfold(&format!("{tree}\n{more}"));
        Topology::read(root.path()).unwrap().cpu(3).unwrap().kind
    };
    assert_eq!(kind_of_3(""), Kind::Performance);
    assert_eq!(kind_of_3("devices/cpu_atom/cpus = 2-3"), Kind::Efficiency);
    let types = "devices/system/cpu/types/intel_atom_1/cpulist = 2-3";
    assert_eq!(kind_of_3(types), Kind::Efficiency);
}

#[test]
fn offline_cpus_are_out_of_the_question() {
    let half = Machine::recorded("offline-cpu0-node0");
    assert_eq!(half.topology.online(), set("4-20"));
    assert_eq!(half.topology.offline, set("0-3,21-23"));
    assert_eq!(half.topology.nr_cpu_ids, 192);
    assert_eq!(half.cpus(1), "20");
    assert_eq!(half.cpus(9), "17-20", "a quarter of 17");
    // What went offline in the meantime is replaced.
    assert_eq!(half.after("22", 1), "20");
}

#[test]
fn container_gets_a_quarter_of_its_own_cpus() {
    let job = Machine::recorded("container-cpuset-0-5").within("0-5");
    let choice = job.choose(1, None);
    assert_eq!(choice.cpus, set("3"));
    assert_eq!(choice.rows.len(), 32);
    assert_eq!(
        reason(&choice, 31),
        "not among the CPUs that this process may use"
    );
    assert_eq!(job.max(Max::Percent(0.5)).cpus(3), "2-3,5");
}

#[test]
fn container_takes_a_core_that_it_has_whole() {
    let container = Machine::recorded("server-128t-8gpu-4nic").within("3-6,70");
    let choice = container.choose(1, None);
    assert_eq!(
        choice.cpus,
        set("6,70"),
        "one core, though a quarter is one CPU"
    );
    assert_eq!(reason(&choice, 3), "CPU 67 of its core is out of reach");
}

#[test]
fn machine_of_one_core_prefers_it() {
    let root = unfold(
        "devices/system/cpu/online = 0-1
         devices/system/cpu/possible = 0-1
         devices/system/cpu/cpu{0-1}/topology/thread_siblings_list = 0-1",
    );
    let choice = Machine::read(root.path()).choose(3, None);
    assert_eq!(choice.cpus, set("0-1"));
    assert!(reason(&choice, 1).contains("although: same core as CPU 0"));
}

#[test]
fn grows_without_moving_and_shrinks_to_one_core() {
    let desktop = Machine::recorded("desktop-24c-1gpu");
    let mut previous = desktop.cpus(1);
    for launchers in 2..=6 {
        let grown = desktop.after(&previous, launchers);
        assert_eq!(set(&previous).difference(&set(&grown)), CpuSet::default());
        assert_eq!(set(&grown).len(), 2 * launchers as usize);
        previous = grown;
    }
    for launchers in (1..=5).rev() {
        let shrunk = desktop.after(&previous, launchers);
        assert_eq!(set(&shrunk).difference(&set(&previous)), CpuSet::default());
        assert_eq!(set(&shrunk).len(), 2 * launchers as usize);
        previous = shrunk;
    }
    assert_eq!(desktop.after(&previous, 0).split(',').count(), 2);
}

#[test]
fn shrinking_leaves_the_nodes_of_the_gpus_balanced() {
    let server = Machine::recorded("server-128t-8gpu-4nic");
    let shrunk = server.after("28-31,60-63,92-95,124-127", 2);
    assert_eq!(shrunk, "31,63,95,127");
}

#[test]
fn previous_set_stays_unless_another_is_clearly_better() {
    let desktop = Machine::recorded("desktop-24c-1gpu");
    assert_eq!(desktop.after("2,26", 1), "2,26", "as good");
    assert_eq!(desktop.after("1,2,25,26", 2), "1-2,25-26", "the same cache");
    assert_eq!(desktop.after("0,24", 1), "23,47", "CPU 0");
    let hybrid = Machine::recorded("hybrid-6p8e");
    assert_eq!(hybrid.after("17", 1), "8-9", "an efficiency core");
    let server = Machine::recorded("server-128t-8gpu-4nic");
    assert_eq!(server.after("5,69", 1), "5,69");
    let mut far = server;
    far.devices.gpus.truncate(4);
    assert_eq!(far.after("63,127", 1), "31,95", "the GPU's node");
}

#[test]
fn half_a_core_of_the_previous_set_is_no_unit() {
    let desktop = Machine::recorded("desktop-24c-1gpu");
    assert_eq!(desktop.after("2", 1), "23,47");
}

#[test]
fn heavy_core_leaves_as_a_whole_and_returns() {
    let desktop = Machine::recorded("desktop-24c-1gpu");
    let home = desktop.choose(2, None).home;
    assert_eq!(home, set("20,23,44,47"));
    let stormy = desktop.heavy("47");
    let choice = stormy.choose(2, Some(&home.to_string()));
    assert_eq!(choice.cpus, set("20,22,44,46"));
    assert_eq!(choice.home, home);
    assert_eq!(
        reason(&choice, 22),
        "stands in for CPU 23,47; whole core 22,46"
    );
    assert_eq!(
        reason(&choice, 47),
        "interrupts take 12.3 % of its time; CPU 22,46 stands in until that is over"
    );
    assert!(reason(&choice, 23).starts_with("CPU 47 of its core: interrupts take 12.3 %"));
    let mut calm = stormy;
    calm.irq = IrqVerdicts::default();
    assert_eq!(calm.after(&choice.home.to_string(), 2), "20,23,44,47");
}

#[test]
fn heavy_cpu_is_not_chosen_afresh() {
    let desktop = Machine::recorded("desktop-24c-1gpu").heavy("21-23");
    let choice = desktop.choose(1, None);
    assert_eq!(choice.cpus, set("20,44"));
    assert_eq!(choice.home, choice.cpus);
    // Nor later, once it is quiet: there is nothing to return to.
    let calm = Machine::recorded("desktop-24c-1gpu");
    assert_eq!(calm.after(&choice.home.to_string(), 1), "20,44");
}

#[test]
fn interrupts_everywhere_or_ignored_move_nobody() {
    let stormy = Machine::recorded("laptop-4c8t").heavy("0-7");
    let choice = stormy.choose(1, Some("3,7"));
    assert_eq!(choice.cpus, set("3,7"));
    assert!(reason(&choice, 3).contains("although: interrupts take 12.3 %"));
    let mut indifferent = Machine::recorded("laptop-4c8t").heavy("3");
    indifferent.rules.irq_avoid = false;
    assert_eq!(indifferent.after("3,7", 1), "3,7");
}

#[test]
fn cpu_0_stands_in_when_nothing_else_is_left() {
    let pair = "devices/system/cpu/online = 0-1
                devices/system/cpu/possible = 0-1
                devices/system/cpu/cpu{0}/topology/thread_siblings_list = 0
                devices/system/cpu/cpu{1}/topology/thread_siblings_list = 1";
    let machine = Machine::read(unfold(pair).path()).heavy("1");
    assert_eq!(machine.after("1", 1), "0");
}

/// Ten seconds of calm, a storm on CPU 47, calm again; chosen every second as the scheduler would.
#[test]
fn storm_on_a_preferred_cpu_is_left_in_5_s_and_forgotten_after_the_dwell() {
    let mut desktop = Machine::recorded("desktop-24c-1gpu");
    let mut load = IrqLoad::new(IrqRules::new(desktop.rules.irq_heavy_percent));
    let mut home = desktop.choose(1, None).home;
    let mut soft_ns = 0;
    let mut changes = Vec::new();
    for second in 0..60 {
        soft_ns += if (10..20).contains(&second) {
            80_000_000
        } else {
            5_000_000
        };
        let quiet = IrqTime::default();
        let times = (0..48).map(|cpu| match cpu {
            47 => (cpu, IrqTime { soft_ns, ..quiet }),
            _ => (cpu, quiet),
        });
        load.observe(Duration::from_secs(second), times);
        desktop.irq = load.verdicts();
        let choice = desktop.choose(1, Some(&home.to_string()));
        home = choice.home;
        let cpus = choice.cpus.to_string();
        if changes.last().is_none_or(|(_, last)| *last != cpus) {
            changes.push((second, cpus));
        }
    }
    let [(_, first), (left, stand_in), (returned, last)] = &changes[..] else {
        panic!("{changes:?}");
    };
    assert_eq!((first.as_str(), last.as_str()), ("23,47", "23,47"));
    assert_eq!(stand_in, "22,46");
    assert!((11..=15).contains(left), "{changes:?}");
    assert!((30..=35).contains(returned), "{changes:?}");
}

#[test]
fn best_cpus_rank_first_and_second_threads_last() {
    let hybrid = Machine::recorded("hybrid-6p8e");
    assert_eq!(hybrid.choose(3, None).ranked, [8, 4, 19, 9, 5]);
    let stormy = Machine::recorded("laptop-4c8t").max(Max::Count(6));
    let stormy = stormy.heavy("1-2");
    let choice = stormy.choose(2, Some("1-2,5-6"));
    assert_eq!(choice.ranked, [3, 0, 7, 4], "CPU 0 is a stand-in");
}

#[test]
fn shared_cores_give_single_cpus_and_stack_last() {
    let mut laptop = Machine::recorded("laptop-4c8t").max(Max::Percent(0.5));
    laptop.rules.smt = Smt::Shared;
    assert_eq!(laptop.cpus(1), "7");
    assert_eq!(laptop.cpus(3), "5-7");
    assert_eq!(
        laptop.cpus(4),
        "3,5-7",
        "a sibling before the core of CPU 0"
    );
}

#[test]
fn handoff_threads_count_like_launchers() {
    let desktop = Machine::recorded("desktop-24c-1gpu");
    let demand = Demand {
        launch: 1,
        handoff: 2,
    };
    let irq = IrqVerdicts::default();
    let Machine {
        topology,
        devices,
        rules,
        ..
    } = &desktop;
    let choice = choose(topology, devices, &irq, demand, rules, None);
    assert_eq!(choice.cpus, set("17,20,23,41,44,47"));
}

#[test]
fn max_as_a_count_is_in_cpus_but_one_core_is_always_chosen() {
    let desktop = Machine::recorded("desktop-24c-1gpu").max(Max::Count(5));
    assert_eq!(desktop.cpus(9), "20,23,44,47");
    assert_eq!(desktop.max(Max::Count(1)).cpus(9), "23,47");
}

#[test]
fn named_cpus_are_used_as_they_are() {
    let mut laptop = Machine::recorded("laptop-4c8t").heavy("0");
    laptop.rules.cpus = Some(set("0-1,5"));
    let choice = laptop.choose(9, Some("3,7"));
    assert_eq!(choice.cpus, set("0-1,5"));
    assert_eq!(choice.reason, "named by the operator");
    assert!(reason(&choice, 0).starts_with("named by the operator; although: interrupts"));
    assert_eq!(reason(&choice, 5), "named by the operator");
    assert_eq!(reason(&choice, 7), "the operator named 0-1,5");
}
