// SPDX-License-Identifier: GPL-2.0-only
//! Hints of programs, from C and from Python, by those who may.

use std::io::{BufRead, BufReader, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use scx_gpuaware::identify::marks::Pins;
use scx_gpuaware::identify::{Class, Identify, Source};
use scx_gpuaware::policy::Policy;
use tempfile::TempDir;

use super::measure::own_cpu_time;
use super::place::{Place, identify_until, identify_within, marks_of};
use crate::process::{Process, busy_loop, repository};

/// Who needs a class has it by then.
const IN_TIME: Duration = Duration::from_millis(250);
const NOBODY: u32 = 65534;

/// Hints from another thread than the main one what standard input says, line by line.
const PYTHON: &str = "import gpuaware, sys, threading
gpuaware.PINS = sys.argv[1]
def work():
    for line in sys.stdin:
        print(gpuaware.hint(line.strip() or None), flush=True)
thread = threading.Thread(target=work)
thread.start()
thread.join()
";

/// Hints the one class and the other for as long as it lives.
const LOOP: &str = "import gpuaware, sys, time
gpuaware.PINS = sys.argv[1]
while True:
    for what in 'launch', 'handoff':
        assert gpuaware.hint(what)
        time.sleep(0.001)
";

const C: &str = "#include \"gpuaware.h\"
#include <stdio.h>
int main(void)
{
	char line[80];
	while (fgets(line, sizeof(line), stdin)) {
		printf(\"%d\\n\", gpuaware_hint((enum gpuaware_hint_class)(line[0] - '0')));
		fflush(stdout);
	}
	return 0;
}
";

/// A folder with the module, for users who may not read the repository.
fn module() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path());
    let module = folder.path().join("gpuaware.py");
    std::fs::copy(repository().join("hints/gpuaware.py"), &module).unwrap();
    open(&module);
    folder
}

fn open(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A program that hints. Killed when dropped.
struct Program {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a program that hints");
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// With the module where anybody may read it.
    fn python(script: &str, pins: &Pins, module: &TempDir) -> Command {
        let mut command = Command::new("python3");
        command
            .args(["-c", script, pins.dir().to_str().unwrap()])
            .env("PYTHONPATH", module.path())
            .current_dir("/")
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Hints; returns what came of it.
    fn hint(&mut self, what: &str) -> String {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{what}").unwrap();
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn becomes(identify: &mut Identify<'_>, pins: &Pins, pid: Pid, class: Option<Class>) {
    let classes = || -> Vec<_> {
        let marks = marks_of(pins, pid.as_raw());
        marks.iter().map(|mark| (mark.class, mark.source)).collect()
    };
    let expected: Vec<_> = class
        .map(|class| (class, Source::Hint))
        .into_iter()
        .collect();
    let reached = identify_within(identify, IN_TIME, |_| classes() == expected);
    assert!(reached, "not {expected:?}: {:?}", classes());
}

#[test]
fn a_python_thread_hints_and_takes_it_back() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let module = module();
    let mut program = Program::start(Program::python(PYTHON, &pins, &module));
    assert_eq!(program.hint("launch"), "False", "without a scheduler");
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    assert_eq!(program.hint("handoff"), "True");
    becomes(&mut identify, &pins, program.pid(), Some(Class::Handoff));
    assert_eq!(program.hint("launch"), "True");
    becomes(&mut identify, &pins, program.pid(), Some(Class::Launch));
    assert_eq!(program.hint(""), "True");
    becomes(&mut identify, &pins, program.pid(), None);
}

#[test]
fn a_c_program_hints() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let folder = tempfile::tempdir().unwrap();
    let binary = compiled(&folder, C, &pins);
    let mut program = Program::start(Command::new(&binary));
    assert_eq!(program.hint("1"), "-2", "ENOENT without a scheduler");
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    assert_eq!(program.hint("1"), "0");
    becomes(&mut identify, &pins, program.pid(), Some(Class::Launch));
    // What is no class of a hint is none.
    assert_eq!(program.hint("3"), "0");
    becomes(&mut identify, &pins, program.pid(), None);
}

#[test]
fn only_whom_the_policy_lets_may_hint() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mount = pins.dir().parent().unwrap();
    open(mount);
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let module = module();
    let mut command = Program::python(PYTHON, &pins, &module);
    command.uid(NOBODY).gid(NOBODY);
    let mut program = Program::start(command);
    assert_eq!(program.hint("launch"), "False", "only root by default");
    let with = |guard: &str| Policy::parse(&format!("[guard]\n{guard}\n")).unwrap();
    identify.follow(&with("hint_gid = 65534")).unwrap();
    assert_eq!(program.hint("launch"), "True");
    becomes(&mut identify, &pins, program.pid(), Some(Class::Launch));
    let policy = with("hint_gid = 65534\ntrust_uids = [0]");
    identify.follow(&policy).unwrap();
    let refused = |pid: Pid| -> Vec<_> {
        let marks = marks_of(&pins, pid.as_raw()).into_iter();
        marks
            .filter(|mark| mark.class == Class::Background && mark.source == Source::Refused)
            .map(|mark| mark.evidence)
            .collect()
    };
    let pid = program.pid();
    // The hint that stood when the policy changed may have been judged anew.
    let before = identify.sightings().refused;
    assert_eq!(program.hint("handoff"), "True", "it may write");
    let counted = identify_within(&mut identify, IN_TIME, |identify| {
        identify.sightings().refused > before
    });
    assert!(counted, "{:?}", marks_of(&pins, pid.as_raw()));
    assert_eq!(
        refused(pid),
        ["a hint: uid 65534 is not in guard.trust_uids"]
    );
    assert_eq!(identify.sightings().refused, before + 1);
    assert_eq!(program.hint(""), "True");
    becomes(&mut identify, &pins, pid, None);
}

#[test]
fn hints_in_a_loop_take_a_twentieth_of_a_cpu() {
    // Going through them takes milliseconds: fifty times a second that would be more than is allowed.
    const MANY: usize = 5000;
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let sleeper = || std::thread::Builder::new().stack_size(1 << 14);
    let sleepers: Vec<_> = (0..MANY)
        .map(|_| sleeper().spawn(std::thread::park).unwrap())
        .collect();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let module = module();
    let program = Program::start(Program::python(LOOP, &pins, &module));
    let is_hinted = |_: &Identify<'_>| !marks_of(&pins, program.pid().as_raw()).is_empty();
    assert!(identify_until(&mut identify, is_hinted));
    let (cpu, start) = (own_cpu_time(), Instant::now());
    identify_within(&mut identify, Duration::from_secs(5), |_| false);
    let share = (own_cpu_time() - cpu).as_secs_f64() / start.elapsed().as_secs_f64();
    println!("{:.1} % of a CPU", share * 100.0);
    assert!(share < 0.08, "{:.1} % of a CPU", share * 100.0);
    for sleeper in sleepers {
        sleeper.thread().unpark();
        sleeper.join().unwrap();
    }
}

#[test]
fn pins_are_roots_but_for_those_of_hints() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let policy = Policy::parse("[guard]\nhint_gid = 65534\n").unwrap();
    let mut object = MaybeUninit::uninit();
    let _identify = Identify::start(&policy, pins.clone(), &mut object).unwrap();
    let rights = |pin: &Path| {
        let found = std::fs::metadata(pin).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o777)
    };
    for pin in [
        pins.mark_task(),
        pins.rescan_program(),
        pins.texts(),
        pins.marks(),
    ] {
        assert_eq!(rights(&pin), (0, 0, 0o600), "{}", pin.display());
    }
    for pin in [pins.hints(), pins.hint_calls()] {
        assert_eq!(rights(&pin), (0, NOBODY, 0o660), "{}", pin.display());
    }
}

#[test]
fn who_loaded_the_programs_needs_no_pins() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let process = Process::start(busy_loop());
    pins.mark(process.pid(), Some(Class::Launch)).unwrap();
    pins.remove().unwrap();
    assert!(pins.list().is_err());
    let counts = identify.count_marks().unwrap();
    assert!(
        counts.keys().any(|(class, _)| *class == Class::Launch),
        "{counts:?}"
    );
    // Also another group is let in to what is not there any more.
    let policy = Policy::parse("[guard]\nhint_gid = 65534\n").unwrap();
    identify.follow(&policy).unwrap();
    identify.step().unwrap();
    assert_eq!(identify.count_marks().unwrap(), counts);
}

/// Hints of a class for a process: `PID CLASS` a line, of standard input.
const FOR_OTHERS: &str = "#include \"gpuaware.h\"
#include <stdio.h>
int main(void)
{
	int pid, zero = 0, pidfd, ret;
	uint64_t call = 0;
	uint32_t class;
	while (scanf(\"%d %u\", &pid, &class) == 2) {
		pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
		ret = gpuaware_update(GPUAWARE_PINS \"/hints\", &pidfd, &class);
		call++;
		if (!ret)
			ret = gpuaware_update(GPUAWARE_PINS \"/hint_calls\", &zero, &call);
		close(pidfd);
		printf(\"%d\\n\", ret);
		fflush(stdout);
	}
	return 0;
}
";

/// `source` as a program that hints where `pins` are.
fn compiled(folder: &TempDir, source: &str, pins: &Pins) -> PathBuf {
    let (file, binary) = (folder.path().join("hint.c"), folder.path().join("hint"));
    std::fs::write(&file, source).unwrap();
    let status = Command::new("cc")
        .args([
            "-std=c11",
            "-D_GNU_SOURCE",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
        ])
        .args([&binary, &file])
        .arg(format!("-DGPUAWARE_PINS=\"{}\"", pins.dir().display()))
        .arg("-I")
        .arg(repository().join("hints"))
        .status();
    assert!(status.expect("cc").success());
    binary
}

#[test]
fn a_member_of_the_group_speaks_for_trusted_others_and_can_silence_them() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    open(pins.dir().parent().unwrap());
    let policy = Policy::parse("[guard]\nhint_gid = 65534\ntrust_uids = [0]\n").unwrap();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&policy, pins.clone(), &mut object).unwrap();
    let folder = tempfile::tempdir().unwrap();
    open(folder.path());
    let binary = compiled(&folder, FOR_OTHERS, &pins);
    let others = Process::start(busy_loop());
    let pid = Pid::from_raw(others.pid());
    let mut command = Command::new(&binary);
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    let mut member = Program::start(command);
    assert_eq!(member.hint(&format!("{pid} 1")), "0");
    becomes(&mut identify, &pins, pid, Some(Class::Launch));
    assert_eq!(member.hint(&format!("{pid} 0")), "0");
    becomes(&mut identify, &pins, pid, None);
    // For himself, who is not trusted, it is refused.
    assert_eq!(member.hint(&format!("{} 1", member.pid())), "0");
    let own = || marks_of(&pins, member.pid().as_raw());
    let refused = identify_within(&mut identify, IN_TIME, |_| {
        own().iter().any(|mark| mark.source == Source::Refused)
    });
    assert!(refused, "{:?}", own());
}
