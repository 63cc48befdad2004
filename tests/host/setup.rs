// SPDX-License-Identifier: GPL-2.0-only
//! `make setup` on a system that is not Debian 12 or 13: what is missing is named, and a build goes on without what it
//! does not need. The system is a folder of stubs, which is all that the script finds.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{code, repository};

/// What the script itself is made of.
const TOOLS: [&str; 5] = ["bash", "head", "mkdir", "sed", "sort"];
const TO_BUILD: [&str; 6] = ["cargo", "cc", "c++", "pkg-config", "clang-19", "python3"];
const TO_TEST: [&str; 16] = [
    "apt-get",
    "bpftool",
    "clang-format-19",
    "file",
    "fio",
    "hackbench",
    "ip",
    "iperf3",
    "modprobe",
    "promtool",
    "qemu-system-x86_64",
    "shellcheck",
    "strace",
    "stress-ng",
    "tmux",
    "virtiofsd",
];

struct System {
    root: tempfile::TempDir,
}

impl System {
    /// One that has these programs, and virtme-ng and nvcc in the user's cache.
    fn with(programs: &[&str]) -> Self {
        let system = Self {
            root: tempfile::tempdir().unwrap(),
        };
        let bin = system.path("bin");
        fs::create_dir(&bin).unwrap();
        for tool in TOOLS {
            let place = |folder: &&str| Path::new(folder).join(tool).exists();
            let folder = ["/usr/bin", "/bin"].iter().find(|folder| place(folder));
            symlink(Path::new(folder.unwrap()).join(tool), bin.join(tool)).unwrap();
        }
        for program in programs {
            system.program(&format!("bin/{program}"), "echo version 20.1.2");
        }
        let setup = fs::read_to_string(repository().join("packaging/setup.sh")).unwrap();
        let pinned = |name: &str| {
            let start = format!("\n{name}=");
            let (_, rest) = setup.split_once(&start).expect("a pinned version");
            rest.lines().next().unwrap().to_owned()
        };
        let cache = system.path("cache/scx_gpuaware");
        let (vng, cuda) = (pinned("virtme_ng_version"), pinned("cuda_version"));
        let venv = format!("venv/lib/python3.12/site-packages/virtme_ng-{vng}.dist-info");
        fs::create_dir_all(cache.join(venv)).unwrap();
        let nvcc = format!("cache/scx_gpuaware/cuda/nvidia/cu{cuda}/bin/nvcc");
        system.program(&nvcc, "");
        let deb = format!("echo cargo-deb {}", pinned("cargo_deb_version"));
        system.program("cache/scx_gpuaware/cargo-deb/bin/cargo-deb", &deb);
        system
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn program(&self, name: &str, script: &str) {
        let file = self.path(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The exit code of `make setup` there, and what it says.
    fn setup(&self, release: &str) -> (i32, String) {
        fs::write(self.path("os-release"), release).unwrap();
        let output = Command::new(self.path("bin/bash"))
            .arg(repository().join("packaging/setup.sh"))
            .env_clear()
            .env("PATH", self.path("bin"))
            .env("OS_RELEASE", self.path("os-release"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("LIBCLANG_PATH", "/lib")
            .output()
            .unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (code(output.status), said)
    }
}

const ELSEWHERE: [&str; 4] = [
    "ID=fedora\nVERSION_ID=43\n",
    "ID=ubuntu\nVERSION_ID=24.04\n",
    "ID=debian\nVERSION_ID=14\n",
    "ID=arch\n",
];

#[test]
fn a_build_goes_on_elsewhere_and_what_tests_need_is_named() {
    for release in ELSEWHERE {
        let (code, said) = System::with(&TO_BUILD).setup(release);
        assert_eq!(code, 0, "{release}: {said}");
        assert!(said.contains("this is not Debian 12 or 13"), "{said}");
        assert!(said.contains("setup: ready"), "{said}");
        for named in [
            "stress-ng: ",
            "rt-tests: ",
            "qemu-system-x86: ",
            "clang-format-19: ",
        ] {
            assert!(
                said.contains(&format!("missing: {named}")),
                "{named}: {said}"
            );
        }
        assert!(
            said.contains("make demo, make test and make lint do not"),
            "{said}"
        );
        assert!(!said.contains("missing: clang-19"), "{said}");
    }
}

#[test]
fn a_cargo_that_is_too_old_is_named_with_the_version_that_is_needed() {
    let system = System::with(&TO_BUILD);
    system.program("bin/cargo", "echo cargo 1.75.0");
    let (code, said) = system.setup(ELSEWHERE[0]);
    assert_ne!(code, 0, "{said}");
    let wanted = "cargo 1.75.0 is too old: install Rust 1.91 or newer";
    assert!(said.contains(wanted), "{said}");
    system.program("bin/cargo", "echo cargo 1.100.0");
    assert_eq!(system.setup(ELSEWHERE[0]).0, 0);
}

#[test]
fn what_a_build_lacks_elsewhere_is_named_and_ends_it() {
    for (without, named) in [
        ("c++", "build-essential"),
        ("clang-19", "clang-19"),
        ("pkg-config", "libelf-dev"),
        ("python3", "python3-venv"),
    ] {
        let others: Vec<&str> = TO_BUILD
            .into_iter()
            .filter(|name| *name != without)
            .collect();
        let (code, said) = System::with(&others).setup(ELSEWHERE[0]);
        assert_eq!(code, 1, "{without}: {said}");
        assert!(
            said.contains(&format!("missing: {named}: ")),
            "{without}: {said}"
        );
        assert!(
            said.contains("setup: error: make build needs these"),
            "{said}"
        );
        assert!(!said.contains("setup: ready"), "{said}");
    }
    let system = System::with(&TO_BUILD);
    system.program("bin/clang-19", "echo clang version 17.0.6");
    let (code, said) = system.setup(ELSEWHERE[0]);
    assert_eq!(code, 1, "an old clang: {said}");
    assert!(said.contains("BPF_CLANG may name a clang >= 18"), "{said}");
    system.program("bin/clang", "echo clang version 21.1.8");
    let (code, said) = system.setup(ELSEWHERE[0]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("export BPF_CLANG=clang takes the clang 21 that is here"),
        "{said}"
    );
}

#[test]
fn nothing_is_said_elsewhere_where_all_is_there() {
    let all = [&TO_BUILD[..], &TO_TEST[..]].concat();
    let (code, said) = System::with(&all).setup(ELSEWHERE[1]);
    assert_eq!(code, 0, "{said}");
    // Of the test's machine, not of the stubs.
    let missing: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("missing: "))
        .collect();
    assert!(
        missing.iter().all(|line| line.contains("systemd: ")),
        "{said}"
    );
    assert!(said.contains("setup: ready"), "{said}");
}

/// With the headers that the build has unpacked. The rest of the scheduler is compiled for arm64 by `make arm64`.
#[test]
fn bpf_compiles_for_arm64() {
    let mut command = Command::new("bash");
    command.arg(repository().join("packaging/arm64.sh"));
    let output = command.arg("bpf").output().expect("bash");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    for source in ["gpuaware", "identify", "trace", "trace_profile"] {
        let source = format!("bpf/{source}.bpf.c");
        assert!(said.contains(&source), "{said}");
    }
}
