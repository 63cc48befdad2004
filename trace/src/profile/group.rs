// SPDX-License-Identifier: GPL-2.0-only
//! Threads of one kind become a group, so that a host with ten thousand threads is a file of some hundred kilobytes.
//! Pure.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use super::observed::Observed;
use super::{Affinity, Class, Group, Histogram, Policy, WokenBy};

/// So many kinds are told apart at most.
pub const MAX_GROUPS: usize = 256;
/// If there are more, so many of these are for all the small ones.
const COARSE_GROUPS: usize = 64;
/// The coarsest way to tell kinds apart.
const COARSEST: u32 = 6;

/// What threads of one kind have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Kind {
    class: Class,
    kernel: bool,
    policy: Policy,
    nice: i32,
    place: Place,
    /// Logarithms of how long it runs and sleeps.
    pattern: [u32; 2],
    /// Do others end most of its sleeps?
    is_awaited: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Place {
    Anywhere,
    Pinned,
    Within(Vec<u32>),
}

/// Of a mean time: powers of 2, then of 4, 8, …
fn logarithm(histogram: &Histogram, coarseness: u32) -> u32 {
    let mean_ns = histogram.mean_ns().unwrap_or(0);
    (u64::BITS - mean_ns.leading_zeros()) / (coarseness + 1)
}

impl Kind {
    fn of(thread: &Observed, coarseness: u32) -> Self {
        let mut sleep = thread.sleep_alone.clone();
        sleep.merge(&thread.sleep_awaited);
        let awaited = thread.sleep_awaited.count() * 2 > sleep.count();
        let place = match &thread.cpus {
            None => Place::Anywhere,
            Some(cpus) if cpus.len() == 1 => Place::Pinned,
            // At the end a set of CPUs is no reason for a group of its own: all its threads may run anywhere.
            Some(_) if coarseness == COARSEST => Place::Anywhere,
            Some(cpus) => Place::Within(cpus.clone()),
        };
        let is_fine = coarseness < COARSEST;
        Self {
            class: thread.class,
            kernel: thread.kernel,
            policy: thread.policy,
            nice: if is_fine { thread.nice } else { 0 },
            place,
            pattern: match is_fine {
                true => [&thread.run, &sleep].map(|times| logarithm(times, coarseness)),
                false => [0; 2],
            },
            is_awaited: is_fine && awaited,
        }
    }
}

type Kinds<'a> = BTreeMap<Kind, Vec<&'a Observed>>;

fn kinds<'a>(threads: &[&'a Observed], coarseness: u32) -> Kinds<'a> {
    let mut kinds = Kinds::new();
    for &thread in threads {
        let kind = Kind::of(thread, coarseness);
        kinds.entry(kind).or_default().push(thread);
    }
    kinds
}

/// As finely as there is room for: kinds that matter are told apart before those that hardly run.
fn told_apart<'a>(threads: &[&'a Observed]) -> Vec<(Kind, Vec<&'a Observed>)> {
    let mut fine: Vec<_> = kinds(threads, 0).into_iter().collect();
    if fine.len() <= MAX_GROUPS {
        return fine;
    }
    let cpu_ns = |threads: &[&Observed]| threads.iter().map(|thread| thread.cpu_ns).sum::<u64>();
    fine.sort_by_key(|(kind, threads)| (kind.class, Reverse(cpu_ns(threads))));
    let small = fine.split_off(MAX_GROUPS - COARSE_GROUPS);
    let small: Vec<_> = small.into_iter().flat_map(|(_, threads)| threads).collect();
    let ways = (1..=COARSEST).map(|coarseness| kinds(&small, coarseness));
    // The coarsest way always has few enough.
    let coarse = ways.fold(None, |found: Option<Kinds>, kinds| match found {
        Some(found) if found.len() <= COARSE_GROUPS => Some(found),
        _ => Some(kinds),
    });
    fine.extend(coarse.into_iter().flatten());
    fine
}

/// The groups of those threads that ran, and how many did not.
pub fn groups(threads: &[Observed]) -> (Vec<Group>, u64) {
    let (busy, quiet): (Vec<_>, Vec<_>) = threads.iter().partition(|thread| thread.run.count() > 0);
    let found = told_apart(&busy);
    let mut group_of = HashMap::new();
    for (at, (_, threads)) in found.iter().enumerate() {
        let pids = threads.iter().flat_map(|thread| &thread.pids);
        group_of.extend(pids.map(|&pid| (pid, at)));
    }
    let made = found
        .iter()
        .map(|(kind, threads)| group(kind, threads, &group_of));
    let nr_quiet: usize = quiet.iter().map(|thread| thread.pids.len()).sum();
    (made.collect(), nr_quiet as u64)
}

/// The same threads, put together where they are of one kind in all that a group tells: those that have ended may be
/// many.
pub fn condensed(threads: Vec<Observed>) -> Vec<Observed> {
    let mut kinds: BTreeMap<(Kind, Option<Vec<u32>>), Observed> = BTreeMap::new();
    for thread in threads {
        match kinds.entry((Kind::of(&thread, 0), thread.cpus.clone())) {
            Entry::Vacant(entry) => {
                entry.insert(thread);
            }
            Entry::Occupied(mut entry) => entry.get_mut().absorb(thread),
        }
    }
    kinds.into_values().collect()
}

fn group(kind: &Kind, threads: &[&Observed], group_of: &HashMap<i32, usize>) -> Group {
    let sum = |of: fn(&Observed) -> u64| threads.iter().map(|thread| of(thread)).sum();
    let merged = |of: fn(&Observed) -> &Histogram| {
        let mut all = Histogram::default();
        threads.iter().for_each(|thread| all.merge(of(thread)));
        all
    };
    let own = |thread: &&Observed| {
        let cpu = thread.cpus.iter().flatten().next().copied();
        std::iter::repeat_n(cpu.unwrap_or(0), thread.pids.len())
    };
    Group {
        threads: sum(|thread| thread.pids.len() as u64),
        alive_ns: sum(|thread| thread.alive_ns),
        kernel: kind.kernel,
        class: kind.class,
        nice: kind.nice,
        policy: kind.policy,
        affinity: match &kind.place {
            Place::Anywhere => Affinity::All,
            Place::Within(cpus) => Affinity::AnyOf(cpus.clone()),
            Place::Pinned => Affinity::Each(threads.iter().flat_map(own).collect()),
        },
        cpu_ns: sum(|thread| thread.cpu_ns),
        ready_ns: sum(|thread| thread.ready_ns),
        preempted: sum(|thread| thread.preempted),
        yielded: sum(|thread| thread.yielded),
        run: merged(|thread| &thread.run),
        sleep_alone: merged(|thread| &thread.sleep_alone),
        sleep_awaited: merged(|thread| &thread.sleep_awaited),
        wait: merged(|thread| &thread.wait),
        woken_by: woken_by(threads, group_of),
    }
}

fn woken_by(threads: &[&Observed], group_of: &HashMap<i32, usize>) -> WokenBy {
    let mut all = WokenBy::default();
    let mut groups: BTreeMap<usize, u64> = BTreeMap::new();
    for thread in threads {
        all.timer += thread.by_timer;
        all.interrupt += thread.by_interrupt;
        let named: u64 = thread.wakers.iter().map(|(_, count)| count).sum();
        let mut spread = 0;
        for (pid, count) in &thread.wakers {
            // Those that had no room are taken to be as the others.
            let share = match named {
                0 => 0,
                _ => (u128::from(thread.by_others) * u128::from(*count) / u128::from(named)) as u64,
            };
            spread += share;
            match group_of.get(pid) {
                Some(&group) => *groups.entry(group).or_default() += count + share,
                None => all.unknown += count + share,
            }
        }
        all.unknown += thread.by_others - spread;
    }
    all.groups = groups.into_iter().collect();
    all
}

#[cfg(test)]
pub mod tests {
    use super::super::{Count, Cpu, Interrupts, Machine, Profile, VERSION};
    use super::*;

    /// Runs for `run_us` and sleeps for `sleep_us`, `count` times.
    fn thread(pid: i32, run_us: u64, sleep_us: u64, count: u64) -> Observed {
        let times = |us: u64| {
            let mut all = Histogram::default();
            (0..count).for_each(|_| all.add(us * 1000));
            all
        };
        let (run, sleep) = (times(run_us), times(sleep_us));
        Observed {
            pids: vec![pid],
            kernel: false,
            class: Class::Background,
            nice: 0,
            policy: Policy::Normal,
            cpus: None,
            alive_ns: run.sum_ns() + sleep.sum_ns(),
            cpu_ns: run.sum_ns(),
            ready_ns: 0,
            preempted: 0,
            yielded: 0,
            run,
            sleep_alone: sleep,
            sleep_awaited: Histogram::default(),
            wait: Histogram::default(),
            by_timer: count,
            by_interrupt: 0,
            wakers: Vec::new(),
            by_others: 0,
        }
    }

    /// A host with a launcher that two pinned threads wake.
    pub fn sample() -> Profile {
        let mut launcher = thread(1, 3000, 1000, 500);
        launcher.class = Class::Launch;
        launcher.sleep_awaited = std::mem::take(&mut launcher.sleep_alone);
        launcher.by_timer = 0;
        launcher.wakers = vec![(10, 300), (11, 150), (99, 50)];
        let pinned = [10, 11].map(|pid| Observed {
            cpus: Some(vec![pid as u32 - 10]),
            kernel: true,
            ..thread(pid, 2000, 8000, 200)
        });
        let idle = Observed {
            run: Histogram::default(),
            ..thread(12, 1, 1, 1)
        };
        let threads = [vec![launcher, idle], pinned.to_vec()].concat();
        let (groups, quiet_threads) = groups(&threads);
        let cpu = |core| Cpu {
            core,
            llc: 0,
            node: 0,
        };
        Profile {
            schema: VERSION,
            length_ns: 2_000_000_000,
            hz: Some(250),
            machine: Machine {
                cpus: vec![cpu(0), cpu(1)],
                gpus: vec![0],
            },
            interrupts: vec![
                Interrupts {
                    hard: Count(100, 500_000),
                    ..Interrupts::default()
                };
                2
            ],
            quiet_threads,
            missed: 0,
            groups,
        }
    }

    /// All texts that stand in a value, and all names of keys that are no struct's.
    pub fn strings(value: &serde_json::Value) -> Vec<String> {
        match value {
            serde_json::Value::String(text) => vec![text.clone()],
            serde_json::Value::Array(values) => values.iter().flat_map(strings).collect(),
            serde_json::Value::Object(map) => map.values().flat_map(strings).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn threads_of_a_kind_are_a_group_and_who_woke_them_is_one_too() {
        let profile = sample();
        assert_eq!((profile.groups.len(), profile.quiet_threads), (2, 1));
        let [launchers, pinned] = &profile.groups[..] else {
            panic!("{profile:#?}")
        };
        assert_eq!(launchers.class, Class::Launch);
        assert_eq!(launchers.woken_by.groups, [(1, 450)]);
        assert_eq!(launchers.woken_by.unknown, 50);
        assert_eq!(pinned.affinity, Affinity::Each(vec![0, 1]));
        assert_eq!(pinned.run.count(), 400);
        assert_eq!(pinned.run.mean_ns(), Some(2_000_000));
    }

    #[test]
    fn wakers_that_had_no_room_are_taken_to_be_as_the_others() {
        let mut woken = thread(1, 100, 100, 10);
        woken.wakers = vec![(1, 30), (7, 10)];
        woken.by_others = 20;
        let (groups, _) = groups(&[woken]);
        assert_eq!(groups[0].woken_by.groups, [(0, 45)]);
        assert_eq!(groups[0].woken_by.unknown, 15);
    }

    #[test]
    fn what_has_ended_is_put_together_and_means_the_same() {
        let threads: Vec<Observed> = (0..500)
            .map(|pid| Observed {
                cpus: (pid % 2 == 0).then(|| vec![pid as u32 % 4]),
                wakers: vec![(pid / 2, 1)],
                ..thread(pid, 100, 1000 * (1 + pid as u64 % 2), 4)
            })
            .collect();
        let few = condensed(threads.clone());
        assert_eq!(few.len(), 3, "anywhere, and on two CPUs");
        let (mut before, mut after) = (groups(&threads).0, groups(&few).0);
        for group in before.iter_mut().chain(&mut after) {
            if let Affinity::Each(cpus) = &mut group.affinity {
                cpus.sort_unstable();
            }
        }
        assert_eq!(before, after);
    }

    #[test]
    fn ten_thousand_threads_are_few_groups_and_a_small_file() {
        let threads: Vec<Observed> = (0..10_000)
            .map(|pid| {
                let at = pid as u64;
                let mut one = thread(pid, 1 + at % 4000, 1 + at * 7919 % 100_000, 3);
                one.nice = pid % 40 - 20;
                one.class = [Class::Launch, Class::Background][usize::from(pid % 100 > 0)];
                one.cpus = (pid % 3 == 0).then(|| (0..1 + pid as u32 % 60).collect());
                one
            })
            .collect();
        let (made, quiet) = groups(&threads);
        assert!((150..=MAX_GROUPS).contains(&made.len()), "{}", made.len());
        let all: u64 = made.iter().map(|group| group.threads).sum();
        assert_eq!((all, quiet), (10_000, 0));
        let text = Profile {
            groups: made,
            ..sample()
        };
        let bytes = text.text().unwrap().len();
        assert!(bytes < 400_000, "{bytes}");
    }
}
