// SPDX-License-Identifier: GPL-2.0-only
//! `scx_gpuaware doctor` on this machine and on recorded ones.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::process::{code, repository, scx_gpuaware};

fn doctor(root: Option<&Path>) -> (i32, Vec<Value>) {
    let mut args = vec!["doctor", "--json"];
    if let Some(root) = root {
        args.extend(["--root", root.to_str().unwrap()]);
    }
    let output = scx_gpuaware(&args).output().expect("starting scx_gpuaware");
    let findings = serde_json::from_slice(&output.stdout).unwrap();
    (code(output.status), findings)
}

fn verdict<'f>(findings: &'f [Value], check: &str) -> &'f str {
    let finding = findings.iter().find(|finding| finding["check"] == check);
    finding
        .and_then(|finding| finding["verdict"].as_str())
        .unwrap()
}

#[test]
fn exit_code_says_whether_there_are_problems() {
    let (code, findings) = doctor(None);
    let is_problem = findings
        .iter()
        .any(|finding| finding["verdict"] == "problem");
    assert_eq!(code, i32::from(is_problem), "{findings:#?}");
    for finding in &findings {
        let has_remedy = finding["remedy"].is_string();
        assert_eq!(has_remedy, finding["verdict"] != "ok", "{finding}");
    }
    let has_sched_ext = Path::new("/sys/kernel/sched_ext").exists();
    assert!(has_sched_ext || verdict(&findings, "sched_ext") == "problem");
}

#[test]
fn a_host_without_files_has_problems_and_no_failure() {
    let root = tempfile::tempdir().unwrap();
    let (code, findings) = doctor(Some(root.path()));
    assert_eq!(code, 1);
    for check in ["sched_ext", "btf", "bpffs", "config", "privileges"] {
        assert_eq!(verdict(&findings, check), "problem", "{check}");
    }
}

#[test]
fn isolated_cpus_are_found_on_the_command_line_by_their_flags() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("proc")).unwrap();
    for (parameter, expected) in [
        ("isolcpus=1", "problem"),
        ("isolcpus=managed_irq,domain,1", "problem"),
        ("isolcpus=managed_irq,1", "ok"),
        ("isolcpus=nohz,1", "ok"),
    ] {
        let line = format!("quiet {parameter}\n");
        std::fs::write(root.path().join("proc/cmdline"), line).unwrap();
        let found = doctor(Some(root.path())).1;
        assert_eq!(verdict(&found, "isolcpus"), expected, "{parameter}");
    }
}

/// In a user namespace of its own, and those of `flags`; `None`: there are none here, which is said.
fn in_namespaces(flags: &'static [&str]) -> Option<impl Fn(&[&str]) -> Output> {
    let inside = move |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user"]).args(flags);
        command.arg(scx_gpuaware(&[]).get_program()).args(args);
        command.output().expect("unshare")
    };
    if inside(&["--version"]).status.success() {
        return Some(inside);
    }
    crate::tier::skip("no user namespaces here");
    None
}

#[test]
fn the_root_of_a_user_namespace_is_told_that_it_is_no_root_of_the_host() {
    let Some(inside) = in_namespaces(&[]) else {
        return;
    };
    let findings: Vec<Value> =
        serde_json::from_slice(&inside(&["doctor", "--json"]).stdout).unwrap();
    assert_eq!(verdict(&findings, "privileges"), "problem");
    let map = ["--map", "/sys/fs/bpf/x"];
    for args in [
        &["trace", "--duration", "1"][..],
        &["feed", map[0], map[1]],
        &[],
    ] {
        let output = inside(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(output.status), 1, "{said}");
        assert!(
            said.contains("error: ") && said.contains("a user namespace"),
            "{said}"
        );
    }
}

#[test]
fn a_cgroup_namespace_is_told() {
    if !std::fs::read_to_string("/proc/self/mounts")
        .unwrap()
        .contains(" cgroup2 ")
    {
        crate::tier::skip("no cgroup v2 hierarchy here");
        return;
    }
    let Some(inside) = in_namespaces(&["--cgroup"]) else {
        return;
    };
    let findings: Vec<Value> =
        serde_json::from_slice(&inside(&["doctor", "--json"]).stdout).unwrap();
    assert_eq!(verdict(&findings, "cgroup2"), "warning");
    let found = findings
        .iter()
        .find(|finding| finding["check"] == "cgroup2");
    let found = found.unwrap()["found"].as_str().unwrap();
    assert!(found.contains("in a cgroup namespace"), "{found}");
}

#[test]
fn every_check_is_documented() {
    let manual = std::fs::read_to_string(repository().join("docs/doctor.md")).unwrap();
    for finding in doctor(None).1 {
        let check = finding["check"].as_str().unwrap();
        assert!(manual.contains(&format!("| `{check}` |")), "{check}");
    }
}

#[test]
fn a_scheduler_that_cannot_start_says_what_the_doctor_says() {
    if Path::new("/sys/kernel/sched_ext").exists() {
        // It would start.
        return;
    }
    let output = scx_gpuaware(&[]).output().unwrap();
    assert_eq!(code(output.status), 1);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let (doctor, error) = said.split_once("scx_gpuaware: error: ").expect("an error");
    assert!(
        doctor.starts_with("scx_gpuaware: doctor says of this host:\nproblem"),
        "{said}"
    );
    assert!(
        doctor.contains("-> boot a kernel with CONFIG_SCHED_CLASS_EXT=y"),
        "{said}"
    );
    assert!(!error.is_empty(), "{said}");

    let output = scx_gpuaware(&["--log-format", "json"]).output().unwrap();
    assert_eq!(code(output.status), 1);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let events: Vec<Value> = (said.lines())
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let [doctor, error] = &events[..] else {
        panic!("two events are expected: {said}");
    };
    assert_eq!(
        (&doctor["event"], &doctor["level"]),
        (&"doctor".into(), &"warn".into())
    );
    assert!(
        doctor["problems"]
            .as_str()
            .unwrap()
            .contains("CONFIG_SCHED_CLASS_EXT")
    );
    assert_eq!(
        (&error["event"], &error["level"]),
        (&"error".into(), &"error".into())
    );
}
