// SPDX-License-Identifier: GPL-2.0-only
//! `scx_gpuaware top` on a terminal.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::{Process, busy_loop, code, scx_gpuaware};
use crate::tier;

use super::machine::{Scheduler, mark_launch};

/// What top writes to a terminal of this size until `keys` are typed, and its exit code.
fn top(columns: u32, rows: u32, environment: &str, keys: &[u8]) -> (String, i32) {
    let binary = env!("CARGO_BIN_EXE_scx_gpuaware");
    let command = format!(
        "stty cols {columns} rows {rows}; {environment} {binary} top --interval 0.5; code=$?; \
         stty -a | grep -c -- -icanon; exit $code"
    );
    // script gives it a terminal, and types what it reads.
    let mut child = Command::new("script")
        .args(["-q", "-e", "-c", &command, "/dev/null"])
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script");
    std::thread::sleep(Duration::from_secs(4));
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(keys).expect("typing");
    let mut bytes = Vec::new();
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_to_end(&mut bytes).expect("its output");
    drop(stdin);
    let status = child.wait().expect("waiting");
    (String::from_utf8_lossy(&bytes).into_owned(), code(status))
}

const ENTER_SCREEN: &str = "\u{1b}[?1049h";
const LEAVE_SCREEN: &str = "\u{1b}[?1049l";
const GREEN: &str = "\u{1b}[38;5;2;";

#[test]
#[ignore = "runs in the lab: make test"]
fn top_shows_the_launcher_and_gives_the_terminal_back() {
    if !tier::vm() {
        return;
    }
    let scheduler = Scheduler::start(&[]);
    let launcher = Process::start(busy_loop());
    mark_launch(launcher.pid());
    for (columns, rows, environment, keys) in [
        (80, 24, "", &b"q"[..]),
        (132, 50, "", b"\x03"),
        (40, 12, "NO_COLOR=1", b"q"),
    ] {
        let (output, code) = top(columns, rows, environment, keys);
        assert_eq!(code, 0, "{output:?}");
        assert!(output.contains(ENTER_SCREEN), "{output:?}");
        let (screen, after) = output
            .rsplit_once(LEAVE_SCREEN)
            .expect("the screen is left");
        assert!(screen.contains("CLASS"), "{screen:?}");
        assert!(screen.contains(&launcher.pid().to_string()), "{screen:?}");
        assert_eq!(screen.contains(GREEN), environment.is_empty(), "{screen:?}");
        assert!(after.contains("0\r\n"), "no line mode: {after:?}");
    }
    scheduler.stop();
    let output = scx_gpuaware(&["top"]).output().expect("top");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(crate::process::code(output.status), 1);
    assert!(error.contains("does not run"), "{error}");
}
