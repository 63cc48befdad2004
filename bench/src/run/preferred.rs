// SPDX-License-Identifier: GPL-2.0-only
//! The launcher's CPUs: those that the user or the matrix names; on a host else as many as the last quarter has, those
//! that the scheduler would choose there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::cpus;
use crate::datafile::DataError;

const ISOLATED: &str = "/sys/devices/system/cpu/isolated";

/// Of the CPUs `online`: those of the list `wanted`, or by themselves where that is "auto". `scheduler` is asked for
/// its choice; `None`: it would not be of this machine.
///
/// # Errors
/// There is one CPU, or some of the list are not there.
pub fn preferred(
    wanted: &str,
    online: &BTreeSet<usize>,
    scheduler: Option<PathBuf>,
) -> Result<String, DataError> {
    let quarter = cpus::preferred(online).ok_or_else(|| {
        DataError::Usage(format!(
            "cannot compare on {} CPU: expected at least 2, one for the launcher and one for the rest",
            online.len()
        ))
    })?;
    if wanted == "auto" {
        let Some(scheduler) = scheduler else {
            return Ok(cpus::format_list(&quarter));
        };
        let isolated = isolated(&fs::read_to_string(ISOLATED).unwrap_or_default(), online);
        let chosen = isolated.map_or_else(|| chosen(&scheduler, quarter.len(), online), Ok);
        let chosen = chosen.unwrap_or_else(|why| {
            eprintln!("the launcher's CPUs are the last quarter: {why}");
            quarter
        });
        return Ok(cpus::format_list(&chosen));
    }
    let list = cpus::parse_list(wanted).map_err(DataError::Usage)?;
    if !list.is_subset(online) {
        return Err(DataError::Usage(format!(
            "preferred: expected some of the CPUs {}, got {wanted:?}",
            cpus::format_list(online),
        )));
    }
    Ok(cpus::format_list(&list))
}

/// A host that was booted with `isolcpus` has set them apart for launchers, and no scheduler chooses those. `text` is
/// the kernel's list.
fn isolated(text: &str, online: &BTreeSet<usize>) -> Option<BTreeSet<usize>> {
    let isolated = cpus::parse_list(text).ok()?;
    (isolated.is_subset(online) && isolated.len() < online.len()).then_some(isolated)
}

/// What `scheduler` would prefer for so many launchers; or why nothing is known of that.
fn chosen(
    scheduler: &Path,
    count: usize,
    online: &BTreeSet<usize>,
) -> Result<BTreeSet<usize>, String> {
    let name = scheduler.display();
    let output = Command::new(scheduler)
        .args(["topology", "--json", "--threads", &count.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} topology failed: {}", output.status));
    }
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let list = said["preferred"]["cpus"].as_str();
    let list = list.ok_or_else(|| format!("{name} topology printed something else"))?;
    let chosen = cpus::parse_list(list).map_err(|error| format!("{name} topology: {error}"))?;
    if !chosen.is_subset(online) || chosen.len() >= online.len() {
        return Err(format!(
            "{name} topology prefers CPUs {list}, of {}",
            cpus::format_list(online)
        ));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// On CPUs 0 to 7 with a scheduler that is the shell script `script`.
    fn asked(script: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("scx_gpuaware");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        loop {
            // A file that was just written may be busy for exec while others fork.
            match chosen(&program, 2, &cpus::first(8)) {
                Err(why) if why.contains("Text file busy") => std::thread::yield_now(),
                Err(why) => return why,
                Ok(cpus) => return cpus::format_list(&cpus),
            }
        }
    }

    #[test]
    fn cpus_that_a_boot_has_set_apart_are_the_launchers() {
        let of = |text| isolated(text, &cpus::first(8)).map(|cpus| cpus::format_list(&cpus));
        assert_eq!(of("2-3\n").as_deref(), Some("2-3"));
        for none in ["\n", "", "0-7\n", "9\n"] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn the_scheduler_is_asked_for_as_many_as_the_last_quarter_has() {
        let said = "{\\\"preferred\\\":{\\\"cpus\\\":\\\"2-3\\\",\\\"reason\\\":\\\"x\\\"},\\\"cpus\\\":[]}";
        let script = format!("test \"$*\" = 'topology --json --threads 2' && echo \"{said}\"");
        assert_eq!(asked(&script), "2-3");
        for (list, why) in [
            ("2-9", "prefers CPUs 2-9, of 0-7"),
            ("0-7", "prefers CPUs 0-7"),
        ] {
            let other = script.replace("2-3", list);
            assert!(asked(&other).contains(why), "{}", asked(&other));
        }
        assert!(asked("exit 3").contains("topology failed: exit status: 3"));
        assert!(asked("echo '{}'").contains("printed something else"));
    }

    #[test]
    fn who_names_cpus_has_them_and_else_the_last_quarter_where_nobody_is_asked() {
        let of = |wanted: &str| preferred(wanted, &cpus::first(8), None);
        assert_eq!(of("auto").unwrap(), "6-7");
        assert_eq!(of("1,2").unwrap(), "1-2");
        assert!(matches!(of("8"), Err(DataError::Usage(error)) if error.contains("0-7")));
        let nobody = preferred("auto", &cpus::first(8), Some("/nonexistent/x".into()));
        assert_eq!(nobody.unwrap(), "6-7");
        assert!(preferred("auto", &cpus::first(1), None).is_err());
    }
}
