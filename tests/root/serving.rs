// SPDX-License-Identifier: GPL-2.0-only
//! An LLM server and its client on a machine where much else goes on: exactly those who launch, hand over
//! and send get a class.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use nix::unistd::gettid;
use scx_gpuaware::identify::marks::Pins;
use scx_gpuaware::identify::{Class, Identify, Source};
use scx_gpuaware::policy::Policy;

use super::place::{Place, identify_within};
use crate::process::{lab_folder, repository};
use crate::tier;

/// `serving.c` at work.
struct Server {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    port: u16,
    api: i32,
    engine: i32,
}

impl Server {
    fn start(folder: &Path) -> Self {
        let program = folder.join("serving");
        let sources =
            ["serving.c", "runtime.c"].map(|name| repository().join("tests/root").join(name));
        let status = Command::new("cc")
            .args(["-O2", "-Wall", "-Werror", "-DRUNTIME", "-pthread", "-o"])
            .arg(&program)
            .args(sources)
            .status();
        assert!(status.expect("cc").success());
        let mut child = Command::new(program)
            .env("LD_LIBRARY_PATH", lab_folder())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        stdout.read_line(&mut said).unwrap();
        let numbers: Vec<i32> = said
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        Self {
            child,
            _stdout: stdout,
            port: numbers[0] as u16,
            api: numbers[1],
            engine: numbers[2],
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends 30 requests a second to `port` until `stop`.
fn send(port: u16, stop: &AtomicBool) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut answer = [0; 2];
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut answer).unwrap();
        std::thread::sleep(Duration::from_millis(33));
    }
}

fn run(name: &str, mut command: Command) {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{name} is missing: {error}"));
    assert!(output.status.success(), "{name}: {output:?}");
}

/// `make -j4` of forty C files.
fn build(folder: &Path) {
    for number in 0..40 {
        let text = "#include <stdio.h>\n#include <stdlib.h>\nint f(void) { return puts(\"\"); }\n";
        std::fs::write(folder.join(format!("{number}.c")), text).unwrap();
    }
    let makefile = "all: $(patsubst %.c,%.o,$(wildcard *.c))\n";
    std::fs::write(folder.join("Makefile"), makefile).unwrap();
    let mut make = Command::new("make");
    make.args(["-s", "-j4", "-C"]).arg(folder);
    run("make", make);
}

fn hackbench() {
    let mut command = Command::new("hackbench");
    command.args(["-g", "4", "-l", "1500"]);
    run("hackbench", command);
}

fn iperf3() {
    // Free again at the end of the statement.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let port = address.unwrap().port().to_string();
    let server = Command::new("iperf3")
        .args(["-s", "-1", "-p", &port])
        .stdout(Stdio::null())
        .spawn();
    let mut server = server.expect("iperf3");
    std::thread::sleep(Duration::from_millis(500));
    let mut client = Command::new("iperf3");
    client.args(["-c", "127.0.0.1", "-p", &port, "-t", "2", "-P", "4"]);
    run("iperf3", client);
    server.wait().unwrap();
}

/// All marks of the machine at some time before `stop`: TID, class, source.
fn marks_until(stop: &AtomicBool, pins: &Pins) -> BTreeSet<(i32, &'static str, String)> {
    let mut seen = BTreeSet::new();
    while !stop.load(Ordering::Relaxed) {
        for mark in pins.list().unwrap() {
            seen.insert((mark.tid, mark.class.name(), mark.source.name()));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    seen
}

#[test]
fn exactly_those_who_launch_hand_over_and_send_get_a_class_beside_much_else() {
    let Some(place) = Place::new() else { return };
    if !tier::program("hackbench") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let policy = format!(
        "[class.handoff]\nmatch = [{{ wakes = \"launch\" }}, {{ connects_to = \"127.0.0.1:{}\" }}]\n",
        server.port
    );
    let policy = Policy::parse(&policy).unwrap();
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&policy, pins.clone(), &mut object).unwrap();
    let stop = AtomicBool::new(false);
    let (senders, seen) = std::thread::scope(|scope| {
        let (say, said) = channel();
        for _ in 0..3 {
            let (say, stop) = (say.clone(), &stop);
            scope.spawn(move || {
                say.send(gettid().as_raw()).unwrap();
                send(server.port, stop);
            });
        }
        let senders: Vec<_> = (0..3).map(|_| said.recv().unwrap()).collect();
        identify_within(&mut identify, Duration::from_secs(1), |_| false);
        let watcher = scope.spawn(|| marks_until(&stop, &pins));
        let others = scope.spawn(|| {
            build(folder.path());
            hackbench();
            iperf3();
        });
        let limit = Duration::from_secs(300);
        let ended = identify_within(&mut identify, limit, |_| others.is_finished());
        stop.store(true, Ordering::Relaxed);
        assert!(ended);
        (senders, watcher.join().unwrap())
    });
    let mut expected = BTreeSet::from([
        (server.engine, Class::Launch.name(), Source::Uprobe.name()),
        (server.api, Class::Handoff.name(), Source::Wakes.name()),
    ]);
    let sends = (Class::Handoff.name(), Source::Connects.name());
    expected.extend(senders.iter().map(|&tid| (tid, sends.0, sends.1.clone())));
    assert_eq!(seen, expected);
}
