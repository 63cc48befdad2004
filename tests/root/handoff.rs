// SPDX-License-Identifier: GPL-2.0-only
//! Handoff threads by what they do: waking launchers, sending to an LLM endpoint.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::{Pid, gettid};
use scx_gpuaware::identify::{Class, Identify, Source};
use scx_gpuaware::policy::Policy;

use super::place::{Place, identify_until, identify_within, marks_of};
use crate::process::Process;

/// Threads of this process that work until they are told to stop.
pub struct Threads {
    stop: Arc<AtomicBool>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    pub fn new() -> Self {
        Self {
            stop: Arc::default(),
            handles: Vec::new(),
        }
    }

    /// Starts one that does `work` every `period`; returns its TID.
    pub fn start(&mut self, period: Duration, mut work: impl FnMut() + Send + 'static) -> i32 {
        let stop = Arc::clone(&self.stop);
        let (say, said) = channel();
        self.handles.push(std::thread::spawn(move || {
            say.send(gettid().as_raw()).unwrap();
            while !stop.load(Ordering::Relaxed) {
                work();
                std::thread::sleep(period);
            }
        }));
        said.recv().unwrap()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for handle in self.handles.drain(..) {
            let _ = handle.join();
        }
    }
}

fn policy(rules: &str) -> Policy {
    let head = "[class.launch]\nmatch = []\n[class.handoff]\nmatch = ";
    Policy::parse(&format!("{head}[{rules}]\n")).unwrap()
}

/// Class and source of every thread of this process that has one.
fn own_marks(place: &Place) -> BTreeMap<i32, (Class, Source)> {
    let marks = marks_of(&place.pins(), std::process::id() as i32);
    let classes = marks
        .iter()
        .map(|mark| (mark.tid, (mark.class, mark.source)));
    classes.collect()
}

#[test]
fn who_keeps_waking_a_launcher_is_handoff() {
    let Some(place) = Place::new() else { return };
    let mut object = MaybeUninit::uninit();
    let rules = policy("{ wakes = \"launch\" }");
    let mut identify = Identify::start(&rules, place.pins(), &mut object).unwrap();
    let mut threads = Threads::new();
    let (work, worked): (Sender<()>, Receiver<()>) = channel();
    let launcher = threads.start(Duration::ZERO, move || {
        let _ = worked.recv_timeout(Duration::from_millis(200));
    });
    let (often, by_this_thread) = (work.clone(), work.clone());
    let waker = threads.start(Duration::from_millis(10), move || {
        let _ = often.send(());
    });
    let seldom = threads.start(Duration::from_millis(400), move || {
        let _ = work.send(());
    });
    let helper = threads.start(Duration::from_millis(5), || {});
    assert!(!identify_within(
        &mut identify,
        Duration::from_millis(500),
        |_| { own_marks(&place).contains_key(&waker) }
    ));
    place.pins().mark(launcher, Some(Class::Launch)).unwrap();
    let found = identify_until(&mut identify, |_| own_marks(&place).contains_key(&waker));
    assert!(found, "{:?}", own_marks(&place));
    // Whoever identifies wakes launchers that wait for its locks, and is never handoff.
    let mut nr_wakes = 0;
    identify_within(&mut identify, Duration::from_secs(2), |_| {
        for _ in 0..10 {
            nr_wakes += usize::from(by_this_thread.send(()).is_ok());
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    });
    assert!(nr_wakes >= 100, "{nr_wakes}");
    let marks = own_marks(&place);
    assert_eq!(marks[&waker], (Class::Handoff, Source::Wakes));
    assert_eq!(marks[&launcher], (Class::Launch, Source::Mark));
    assert!(
        !marks.contains_key(&seldom) && !marks.contains_key(&helper),
        "{marks:?}"
    );
    assert_eq!(marks.len(), 2, "{marks:?}");
    let evidence = marks_of(&place.pins(), std::process::id() as i32);
    let evidence = evidence.iter().find(|mark| mark.tid == waker).unwrap();
    assert!(
        evidence.evidence.contains(" a second by { wakes"),
        "{evidence:?}"
    );
}

/// Python that maps a file of /dev/shm as vLLM's processes do, and then does `what`.
fn sharing(file: &Path, what: &str) -> Process {
    let script = format!(
        "import mmap, os, sys, time\n\
         file = open(sys.argv[1], 'r+b')\n\
         memory = mmap.mmap(file.fileno(), 4096)\n\
         os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})\n\
         while True: {what}\n"
    );
    let mut command = Command::new("python3");
    command.args(["-c", &script]).arg(file).stdin(Stdio::null());
    Process::start(command)
}

#[test]
fn who_spins_on_memory_of_a_launcher_is_handoff() {
    let Some(place) = Place::new() else { return };
    let mut object = MaybeUninit::uninit();
    let rules = policy("{ spins_with = \"launch\" }");
    let mut identify = Identify::start(&rules, place.pins(), &mut object).unwrap();
    let files = [(); 2].map(|()| {
        let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        file.as_file().set_len(4096).unwrap();
        file
    });
    let [shared, other] = files.each_ref().map(tempfile::NamedTempFile::path);
    // They yield to each other: where nobody else wants the CPU, nothing is switched.
    let engine = sharing(shared, "os.sched_yield()");
    let stranger = sharing(other, "os.sched_yield()");
    let worker = sharing(shared, "time.sleep(0.01)");
    let class_of = |process: &Process| {
        let mut marks = marks_of(&place.pins(), process.pid()).into_iter();
        marks.next().map(|mark| (mark.class, mark.source))
    };
    let found = identify_within(&mut identify, Duration::from_secs(2), |_| {
        class_of(&engine).is_some()
    });
    assert!(!found, "nobody launches");
    place
        .pins()
        .mark(worker.pid(), Some(Class::Launch))
        .unwrap();
    identify_until(&mut identify, |_| class_of(&engine).is_some());
    assert_eq!(class_of(&engine), Some((Class::Handoff, Source::Spins)));
    assert_eq!(class_of(&worker), Some((Class::Launch, Source::Mark)));
    // It spins as much, and would have been found by now.
    identify_within(&mut identify, Duration::from_secs(2), |_| false);
    assert_eq!(class_of(&stranger), None);
    let evidence = marks_of(&place.pins(), engine.pid());
    let expected = "{ spins_with = \"launch\" }";
    assert_eq!(evidence[0].evidence, expected);
}

/// A client thread that keeps sending over `stream`, and a server thread that answers.
pub fn talk<S: Read + Write + Send + 'static>(threads: &mut Threads, client: S, server: S) -> i32 {
    let (mut client, mut server) = (client, server);
    threads.start(Duration::from_millis(1), move || {
        let mut request = [0];
        if server.read_exact(&mut request).is_ok() {
            let _ = server.write_all(b"answer");
        }
    });
    threads.start(Duration::from_millis(20), move || {
        let mut answer = [0; 6];
        if client.write_all(b"x").is_ok() {
            let _ = client.read_exact(&mut answer);
        }
    })
}

/// A client, the server that it is connected to, and the port.
pub fn tcp(address: &str) -> (TcpStream, TcpStream, u16) {
    let listener = TcpListener::bind(address).unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0, port)
}

#[test]
fn who_sends_to_an_endpoint_is_handoff_and_its_server_is_not() {
    let Some(place) = Place::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("llm.sock");
    let v4 = tcp("127.0.0.1:0");
    let v6 = tcp("[::1]:0");
    let other = tcp("127.0.0.1:0");
    // An IPv6 socket that reaches an IPv4 address.
    let mapped_listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mapped_port = mapped_listener.local_addr().unwrap().port();
    let mapped_client = TcpStream::connect(("::ffff:127.0.0.1", mapped_port)).unwrap();
    assert!(mapped_client.local_addr().unwrap().is_ipv6());
    let mapped_server = mapped_listener.accept().unwrap().0;
    let listener = UnixListener::bind(&path).unwrap();
    let unix_client = UnixStream::connect(&path).unwrap();
    let unix_server = listener.accept().unwrap().0;
    let rules = policy(&format!(
        "{{ connects_to = \"127.0.0.1:{}\" }}, {{ connects_to = \"[::1]:{}\" }}, \
         {{ connects_to = \"127.0.0.1:{mapped_port}\" }}, {{ connects_to = \"unix:{}\" }}",
        v4.2,
        v6.2,
        path.display()
    ));
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&rules, place.pins(), &mut object).unwrap();
    let mut threads = Threads::new();
    let mut clients = vec![
        talk(&mut threads, v4.0, v4.1),
        talk(&mut threads, v6.0, v6.1),
        talk(&mut threads, mapped_client, mapped_server),
        talk(&mut threads, unix_client, unix_server),
    ];
    talk(&mut threads, other.0, other.1);
    let found = identify_until(&mut identify, |_| own_marks(&place).len() >= clients.len());
    assert!(found, "{:?}", own_marks(&place));
    identify_within(&mut identify, Duration::from_millis(500), |_| false);
    let marks = own_marks(&place);
    clients.sort_unstable();
    assert_eq!(marks.keys().copied().collect::<Vec<_>>(), clients);
    for mark in marks.values() {
        assert_eq!(*mark, (Class::Handoff, Source::Connects));
    }
}

/// To how many of these tracepoints this process has attached a program.
fn attached(tracepoints: &[&str]) -> usize {
    let fds = std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let infos = fds.filter_map(|fd| std::fs::read_to_string(fd.path()).ok());
    let names = infos.filter_map(|info| {
        let mut lines = info.lines();
        let name = lines.find_map(|line| line.strip_prefix("tp_name:"))?;
        Some(name.trim().to_owned())
    });
    names
        .filter(|name| tracepoints.contains(&name.as_str()))
        .count()
}

#[test]
fn what_no_rule_asks_for_is_switched_off() {
    const DEAR: [&str; 3] = ["sched_waking", "sock_send_length", "task_rename"];
    let Some(place) = Place::new() else { return };
    let mut object = MaybeUninit::uninit();
    let all =
        policy("{ wakes = \"launch\" }, { connects_to = \"127.0.0.1:1\" }, { comm = \"nobody\" }");
    let mut identify = Identify::start(&all, place.pins(), &mut object).unwrap();
    for name in DEAR {
        assert_eq!(attached(&[name]), 1, "{name}");
    }
    identify.follow(&Policy::default()).unwrap();
    assert_eq!(attached(&DEAR), 0);
    assert_eq!(attached(&["task_newtask", "sched_process_exec"]), 2);
    identify.follow(&all).unwrap();
    assert_eq!(attached(&DEAR), 3);
}

#[test]
fn what_is_seen_counts_for_the_right_names_only() {
    let Some(place) = Place::new() else { return };
    let (client, server, port) = tcp("127.0.0.1:0");
    let rule = format!("{{ connects_to = \"127.0.0.1:{port}\", comm = \"client\" }}");
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&policy(&rule), place.pins(), &mut object).unwrap();
    let mut threads = Threads::new();
    let tid = talk(&mut threads, client, server);
    let has_mark = |_: &Identify<'_>| own_marks(&place).contains_key(&tid);
    assert!(!identify_within(
        &mut identify,
        Duration::from_millis(500),
        has_mark
    ));
    std::fs::write(format!("/proc/self/task/{tid}/comm"), "client").unwrap();
    assert!(identify_within(
        &mut identify,
        Duration::from_millis(250),
        has_mark
    ));
}

#[test]
fn an_endpoint_at_any_address_is_also_one_that_another_rule_names() {
    let Some(place) = Place::new() else { return };
    let (mut client, _server, port) = tcp("127.0.0.1:0");
    let rules = policy(&format!(
        "{{ connects_to = \"127.0.0.1:{port}\", comm = \"nobody\" }}, \
         {{ connects_to = \"0.0.0.0:{port}\" }}"
    ));
    let mut object = MaybeUninit::uninit();
    let _identify = Identify::start(&rules, place.pins(), &mut object).unwrap();
    client.write_all(b"x").unwrap();
    let tid = gettid().as_raw();
    assert_eq!(own_marks(&place)[&tid], (Class::Handoff, Source::Connects));
}

#[test]
fn what_is_not_seen_again_is_forgotten() {
    let Some(place) = Place::new() else { return };
    let (mut client, _server, port) = tcp("127.0.0.1:0");
    let rules = format!(
        "[class.launch]\nmatch = []\n[identify]\nexpire_s = 1\n[class.handoff]\n\
         match = [{{ connects_to = \"127.0.0.1:{port}\" }}]\n"
    );
    let rules = Policy::parse(&rules).unwrap();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&rules, place.pins(), &mut object).unwrap();
    let before = Instant::now();
    client.write_all(b"x").unwrap();
    let tid = gettid().as_raw();
    let has_mark = |_: &Identify<'_>| own_marks(&place).contains_key(&tid);
    assert!(identify_within(
        &mut identify,
        Duration::from_millis(200),
        has_mark
    ));
    let forgotten = |_: &Identify<'_>| !own_marks(&place).contains_key(&tid);
    assert!(identify_within(
        &mut identify,
        Duration::from_millis(1500),
        forgotten
    ));
    let elapsed = before.elapsed();
    assert!(elapsed >= Duration::from_secs(1), "{elapsed:?}");
    client.write_all(b"x").unwrap();
    assert!(identify_within(
        &mut identify,
        Duration::from_millis(200),
        has_mark
    ));
}

/// Sends a byte to the port, forks, says its child's PID, and becomes `sleep` when told to.
const CLIENT: &str = "import os, socket, sys, time
socket.create_connection(('127.0.0.1', int(sys.argv[1]))).sendall(b'x')
child = os.fork()
if not child: os.execvp('sleep', ['sleep', '20'])
print(child, flush=True)
sys.stdin.readline()
os.execvp('sleep', ['sleep', '20'])
";

#[test]
fn neither_children_nor_the_next_program_inherit_what_was_seen() {
    let Some(place) = Place::new() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let rules = policy(&format!("{{ connects_to = \"127.0.0.1:{port}\" }}"));
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&rules, place.pins(), &mut object).unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", CLIENT, &port]);
    let mut client = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let pid = client.id() as i32;
    let mut said = String::new();
    let mut stdout = BufReader::new(client.stdout.take().unwrap());
    stdout.read_line(&mut said).unwrap();
    let child: i32 = said.trim().parse().unwrap();
    let marks = |pid| marks_of(&place.pins(), pid).len();
    assert_eq!((marks(pid), marks(child)), (1, 0));
    client.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let gone = identify_until(&mut identify, |_| marks(pid) == 0);
    assert!(gone, "{:?}", marks_of(&place.pins(), pid));
    for pid in [child, pid] {
        nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    client.wait().unwrap();
}
