// SPDX-License-Identifier: GPL-2.0-only
//! Classes of cgroups, by glob and by xattr, while folders and tasks come, go and move.

use std::mem::MaybeUninit;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use scx_gpuaware::identify::cgroups::XATTR;
use scx_gpuaware::identify::marks::Mark;
use scx_gpuaware::identify::{Class, Identify, Source};
use scx_gpuaware::policy::Policy;
use scx_gpuaware::proc::mounts::Mounts;

use super::measure::own_cpu_time;
use super::place::{Place, identify_within, marks_of};
use crate::process::{Process, busy_loop};

/// Who needs a class has it by then.
const IN_TIME: Duration = Duration::from_millis(250);

/// A folder of the cgroup v2 hierarchy. Removed when dropped, once it is empty.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(path: PathBuf) -> Self {
        std::fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path)
    }

    pub fn add(&self, process: &Process) {
        add_to(&self.0, process);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Moves the process into the cgroup at `folder`.
pub fn add_to(folder: &Path, process: &Process) {
    std::fs::write(folder.join("cgroup.procs"), process.pid().to_string()).unwrap();
}

/// Where the cgroup v2 hierarchy is mounted.
pub fn hierarchy() -> PathBuf {
    let mounts = Mounts::of_this_process().unwrap();
    mounts.cgroup2().expect("a cgroup v2 hierarchy")
}

fn first_mark(place: &Place, process: &Process) -> Option<Mark> {
    marks_of(&place.pins(), process.pid()).into_iter().next()
}

#[test]
fn no_nesting_leaves_the_class_of_a_cgroup() {
    let Some(place) = Place::new() else { return };
    let name = format!("gpuaware-test-deep-{}", std::process::id());
    let mut nest = vec![Folder::new(hierarchy().join(name))];
    for _ in 0..40 {
        let inner = nest[nest.len() - 1].0.join("n");
        nest.push(Folder::new(inner));
    }
    xattr::set(&nest[0].0, XATTR, b"background").unwrap();
    let process = Process::start(busy_loop());
    nest[nest.len() - 1].add(&process);
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), place.pins(), &mut object).unwrap();
    let class = || first_mark(&place, &process).map(|mark| mark.class);
    let reached = identify_within(&mut identify, IN_TIME, |_| {
        class() == Some(Class::Background)
    });
    assert!(reached, "{:?}", class());
    drop(process);
    while nest.pop().is_some() {}
}

#[test]
fn an_xattr_classifies_children_follows_moves_and_can_be_taken_away() {
    let Some(place) = Place::new() else { return };
    let root = hierarchy();
    let name = format!("gpuaware-test-{}", std::process::id());
    let top = Folder::new(root.join(&name));
    let inner = Folder::new(top.0.join("inner"));
    let process = Process::start(busy_loop());
    inner.add(&process);
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), place.pins(), &mut object).unwrap();
    assert_eq!(first_mark(&place, &process), None);
    // Another scheduler is told of what changes, also where nothing but the task's cgroup does.
    let (mut seen, mut has_class) = (None, false);
    let mut becomes = |class: Option<Class>| {
        let reached = identify_within(&mut identify, IN_TIME, |identify| {
            if let Some(marks) = identify.changed_marks(&mut seen).unwrap() {
                has_class = marks.iter().any(|mark| mark.tgid == process.pid());
            }
            let found = first_mark(&place, &process).map(|mark| mark.class);
            found == class && has_class == class.is_some()
        });
        assert!(reached, "not {class:?}: {:?}", first_mark(&place, &process));
    };
    xattr::set(&top.0, XATTR, b"launch").unwrap();
    becomes(Some(Class::Launch));
    let mark = first_mark(&place, &process).unwrap();
    assert_eq!(mark.source, Source::Cgroup);
    assert_eq!(mark.evidence, format!("/{name} by {XATTR}"));
    xattr::set(&inner.0, XATTR, b"background\n").unwrap();
    becomes(Some(Class::Background));
    add_to(&top.0, &process);
    becomes(Some(Class::Launch));
    add_to(&root, &process);
    becomes(None);
    inner.add(&process);
    becomes(Some(Class::Background));
    xattr::remove(&inner.0, XATTR).unwrap();
    becomes(Some(Class::Launch));
    xattr::set(&top.0, XATTR, b"nonsense").unwrap();
    becomes(None);
    add_to(&root, &process);
    // Folders that come with a tag, have another name, and go.
    let late = Folder::new(inner.0.join("late"));
    xattr::set(&late.0, XATTR, b"handoff").unwrap();
    late.add(&process);
    becomes(Some(Class::Handoff));
    xattr::remove(&late.0, XATTR).unwrap();
    becomes(None);
    drop(process);
    std::thread::sleep(Duration::from_millis(50));
    drop((late, inner, top));
}

#[test]
fn a_glob_holds_for_folders_that_are_made_and_for_those_made_again() {
    let Some(place) = Place::new() else { return };
    let root = hierarchy();
    let name = format!("gpuaware-glob-{}", std::process::id());
    let policy = format!("[class.launch]\nmatch = [{{ cgroup = \"{name}/**\" }}]\n");
    let policy = Policy::parse(&policy).unwrap();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&policy, place.pins(), &mut object).unwrap();
    let process = Process::start(busy_loop());
    for round in 0..2 {
        let top = Folder::new(root.join(&name));
        let inner = Folder::new(top.0.join("inner"));
        inner.add(&process);
        let reached = identify_within(&mut identify, IN_TIME, |_| {
            first_mark(&place, &process).is_some_and(|mark| mark.class == Class::Launch)
        });
        assert!(reached, "round {round}: {:?}", first_mark(&place, &process));
        add_to(&root, &process);
        assert_eq!(first_mark(&place, &process), None, "round {round}");
        drop((inner, top));
        identify_within(&mut identify, IN_TIME, |_| false);
    }
}

#[test]
fn an_xattr_of_a_user_who_is_not_trusted_says_nothing() {
    let Some(place) = Place::new() else { return };
    let top = Folder::new(hierarchy().join(format!("gpuaware-user-{}", std::process::id())));
    let process = Process::start(busy_loop());
    top.add(&process);
    std::os::unix::fs::chown(&top.0, Some(12345), None).unwrap();
    xattr::set(&top.0, XATTR, b"launch").unwrap();
    for (uid, expected) in [(12345, true), (54321, false)] {
        let policy = format!("[guard]\ntrust_uids = [{uid}]\n");
        let policy = Policy::parse(&policy).unwrap();
        let mut object = MaybeUninit::uninit();
        let _identify = Identify::start(&policy, place.pins(), &mut object).unwrap();
        assert_eq!(first_mark(&place, &process).is_some(), expected, "{uid}");
    }
    drop(process);
    std::thread::sleep(Duration::from_millis(50));
    drop(top);
}

#[test]
fn a_cgroup_term_beside_others_holds_below_the_folder_too() {
    let Some(place) = Place::new() else { return };
    let root = hierarchy();
    let name = format!("gpuaware-term-{}", std::process::id());
    let top = Folder::new(root.join(&name));
    let inner = Folder::new(top.0.join("inner"));
    let process = Process::start(busy_loop());
    let rule = format!("{{ comm = \"sh\", cgroup = \"{name}\" }}");
    let policy = Policy::parse(&format!("[class.handoff]\nmatch = [{rule}]\n")).unwrap();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&policy, place.pins(), &mut object).unwrap();
    assert_eq!(first_mark(&place, &process), None);
    inner.add(&process);
    let found = identify_within(&mut identify, IN_TIME, |_| {
        first_mark(&place, &process).is_some_and(|mark| mark.source == Source::Rule)
    });
    assert!(found, "{:?}", first_mark(&place, &process));
    add_to(&root, &process);
    let gone = identify_within(&mut identify, IN_TIME, |_| {
        first_mark(&place, &process).is_none()
    });
    assert!(gone);
    drop(process);
    std::thread::sleep(Duration::from_millis(50));
    drop((inner, top));
}

#[test]
fn cgroups_that_change_in_a_loop_take_a_twentieth_of_a_cpu() {
    // Going through them takes some 10 ms: without a rest that would be a tenth of a CPU or more.
    const MANY: usize = 1000;
    let Some(place) = Place::new() else { return };
    let name = format!("gpuaware-test-many-{}", std::process::id());
    let top = Folder::new(hierarchy().join(name));
    let inner: Vec<_> = (0..MANY)
        .map(|number| Folder::new(top.0.join(number.to_string())))
        .collect();
    xattr::set(&top.0, XATTR, b"background").unwrap();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), place.pins(), &mut object).unwrap();
    let stop = AtomicBool::new(false);
    let share = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mode = std::fs::Permissions::from_mode(0o755);
            while !stop.load(Ordering::Relaxed) {
                std::fs::set_permissions(&top.0, mode.clone()).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let (cpu, start) = (own_cpu_time(), Instant::now());
        identify_within(&mut identify, Duration::from_secs(5), |_| false);
        let share = (own_cpu_time() - cpu).as_secs_f64() / start.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        share
    });
    println!("{:.1} % of a CPU", share * 100.0);
    assert!(share < 0.08, "{:.1} % of a CPU", share * 100.0);
    drop((inner, top));
}
