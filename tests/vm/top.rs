// SPDX-License-Identifier: GPL-2.0-only
//! `scx_gpuaware top` on a terminal: tmux's.

use std::process::Command;

use crate::process::{Process, busy_loop, code, eventually, scx_gpuaware};
use crate::tier;

use super::machine::{Scheduler, mark_launch};

/// Green, of launchers, as `tmux capture-pane -e` has it.
const GREEN: &str = "38;5;2m";

/// A terminal with top on it, of a tmux server of its own: one that was told to end still takes a new session, and ends.
/// Closed when dropped.
struct Terminal {
    server: &'static str,
}

impl Terminal {
    fn open(server: &'static str, columns: u32, rows: u32, environment: &str) -> Self {
        let binary = crate::process::program();
        let command = format!(
            "{environment} {} top --interval 0.5; echo ended with $?; stty -a; sleep 600",
            binary.display()
        );
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let size = ["-x", &columns, "-y", &rows];
        let terminal = Self { server };
        terminal.tmux(&[&["new-session", "-d"], &size[..], &[&command]].concat());
        terminal
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        // And a configuration of the test's own.
        command.args(["-u", "-L", self.server, "-f", "/dev/null"]);
        command.args(args);
        command
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = self.command(args).output();
        let output = output.expect("tmux: run make setup");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tmux {args:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn resize(&self, columns: u32, rows: u32) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.tmux(&["resize-window", "-x", &columns, "-y", &rows]);
    }

    fn type_key(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// What is on it now.
    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// What is on it once it has all of `texts`.
    fn shows(&self, texts: &[&str]) -> String {
        let shown = eventually(|| {
            let screen = self.screen();
            texts
                .iter()
                .all(|text| screen.contains(text))
                .then_some(screen)
        });
        shown.unwrap_or_else(|| panic!("not all of {texts:?} in\n{}", self.screen()))
    }

    /// Is anything green?
    fn is_coloured(&self) -> bool {
        self.tmux(&["capture-pane", "-p", "-e"]).contains(GREEN)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}

#[test]
#[ignore = "runs in the lab: make test"]
fn top_fits_every_terminal_and_gives_it_back() {
    tier::in_lab(|| {
        let scheduler = Scheduler::start(&[]);
        let launcher = Process::start(busy_loop());
        mark_launch(launcher.pid());
        let tid = launcher.pid().to_string();

        let terminal = Terminal::open("gpuaware-test-colour", 80, 24, "");
        let everything = ["CPUS", "LOSES/s", &tid, "EVENTS", "q quit"];
        for (columns, rows) in [(80, 24), (132, 50), (40, 12)] {
            terminal.resize(columns, rows);
            // On the smallest there is a line for threads, and none of what it says is at its end.
            let expected = if rows < 24 {
                &["CPUS", "CLASS", &tid, "q quit"][..]
            } else {
                &everything
            };
            let last = eventually(|| {
                let screen = terminal.shows(expected);
                let lines: Vec<_> = screen.lines().map(str::to_owned).collect();
                (lines.len() == rows as usize && lines[rows as usize - 1].starts_with("q quit"))
                    .then_some(())
            });
            assert!(last.is_some(), "{columns} x {rows}:\n{}", terminal.screen());
            assert!(terminal.is_coloured());
        }
        terminal.resize(80, 24);
        terminal.type_key("q");
        let after = terminal.shows(&["ended with 0", "icanon"]);
        let is_given_back = !after.contains("-icanon") && !after.contains("CLASS");
        assert!(is_given_back, "{after}");
        drop(terminal);

        let terminal = Terminal::open("gpuaware-test-plain", 80, 24, "NO_COLOR=1");
        terminal.shows(&everything);
        assert!(!terminal.is_coloured());
        terminal.type_key("C-c");
        terminal.shows(&["ended with 0"]);
        drop(terminal);

        scheduler.stop();
        let output = scx_gpuaware(&["top"]).output().expect("top");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(output.status), 1);
        assert!(error.contains("does not schedule"), "{error}");
    });
}
