// SPDX-License-Identifier: GPL-2.0-only
//! The guest's console and QEMU's complaints: keeps the last lines and sees a panic in them. Pure.

use std::collections::VecDeque;

const KEPT_LINES: usize = 60;
const SHOWN_LINES: usize = 40;

/// What every boot prints first and nobody asks for.
const BOOT_NOISE: [&str; 4] = [
    "BIOS-e820:",
    "BIOS-provided",
    "KASLR using",
    "] Command line:",
];

/// The last lines of the console.
#[derive(Debug, Default)]
pub struct Console {
    lines: VecDeque<String>,
    panicked: bool,
    /// The first oops is about an int3, and its code is still to come.
    at_int3: bool,
    stale_int3: bool,
}

impl Console {
    /// Takes one line without its end.
    pub fn push(&mut self, line: &str) {
        let line = line.trim_end_matches(['\r', '\n']);
        if line.is_empty() || BOOT_NOISE.iter().any(|noise| line.contains(noise)) {
            return;
        }
        self.panicked |= line.contains("Kernel panic - not syncing");
        self.at_int3 |= line.contains("int3: 0000 [#1]");
        if self.at_int3
            && let Some((_, code)) = line.split_once("Code: ")
        {
            self.at_int3 = false;
            self.stale_int3 = met_what_is_not_int3(code);
        }
        if self.lines.len() == KEPT_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line.to_owned());
    }

    pub fn panicked(&self) -> bool {
        self.panicked
    }

    /// The first oops is about an int3 that memory no longer held: one that the kernel had written while it
    /// patched its code, and that the emulation ran from a translation older than the patch.
    pub fn stale_int3(&self) -> bool {
        self.stale_int3
    }

    /// The last lines, indented to stand below an error message; empty when there were none.
    pub fn tail(&self) -> String {
        let skip = self.lines.len().saturating_sub(SHOWN_LINES);
        let lines: Vec<_> = self
            .lines
            .iter()
            .skip(skip)
            .map(|line| format!("\n  | {line}"))
            .collect();
        if lines.is_empty() {
            return String::new();
        }
        format!("\nlast lines of the guest's console:{}", lines.concat())
    }
}

/// Is the byte before the marked one, where an oops met an int3, another instruction?
fn met_what_is_not_int3(code: &str) -> bool {
    code.split_once(" <")
        .and_then(|(before, _)| before.split(' ').next_back())
        .is_some_and(|byte| byte != "cc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_a_stale_int3_from_one_in_the_code() {
        let after = |lines: &[&str]| {
            let mut console = Console::default();
            for line in lines {
                console.push(line);
            }
            console.stale_int3()
        };
        let oops = "[  608.3] Oops: int3: 0000 [#1] SMP NOPTI";
        let patched = "[  608.3] Code: 00 00 00 e9 <f6> 03 00 00 4d";
        assert!(after(&[oops, patched]));
        let in_the_code = "[  608.3] Code: 00 00 00 cc <f6> 03 00 00 4d";
        assert!(!after(&[oops, in_the_code]));
        assert!(!after(&[oops, in_the_code, patched]));
        assert!(!after(&[
            oops,
            "[  608.3] Code: Unable to access opcode bytes at 0x0."
        ]));
        assert!(!after(&[
            "[  608.3] Oops: invalid opcode: 0000 [#1] SMP NOPTI",
            patched
        ]));
        assert!(!after(&[
            "[  608.3] Oops: int3: 0000 [#2] SMP NOPTI",
            patched
        ]));
    }

    #[test]
    fn sees_a_panic() {
        let mut console = Console::default();
        console.push("[    2.1] sysrq: Trigger a crash\r");
        assert!(!console.panicked());
        console.push("[    2.2] Kernel panic - not syncing: sysrq triggered crash\r");
        assert!(console.panicked());
        assert!(console.tail().ends_with("sysrq triggered crash"));
    }

    #[test]
    fn keeps_only_the_last_lines() {
        let mut console = Console::default();
        for n in 0..1000 {
            console.push(&format!("line {n}"));
        }
        let tail = console.tail();
        assert!(
            tail.contains("line 999") && tail.contains("line 960") && !tail.contains("line 959")
        );
    }

    #[test]
    fn leaves_out_what_every_boot_prints() {
        let mut console = Console::default();
        console.push("[    0.0] BIOS-e820: [mem 0x0000000000000000-0x000000000009fbff] usable");
        console.push("Poking KASLR using RDRAND RDTSC...");
        assert_eq!(console.tail(), "");
    }

    #[test]
    fn says_nothing_when_nothing_was_printed() {
        assert_eq!(Console::default().tail(), "");
    }
}
