// SPDX-License-Identifier: GPL-2.0-only
//! The Debian package, on a machine with systemd.

use std::process::Command;

use crate::process::repository;
use crate::tier;

#[test]
#[ignore = "runs in the lab: make test"]
fn installs_runs_upgrades_and_leaves_nothing_behind() {
    tier::in_lab(|| {
        let folder = repository().join("target/debian");
        let files = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let deb = files
            .map(|file| file.path())
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"));
        let deb = deb.unwrap_or_else(|| panic!("no package in {}: run make deb", folder.display()));
        let script = repository().join("packaging/try-deb.sh");
        let output = Command::new(script).arg(deb).output().expect("bash");
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stdout}{stderr}");
        assert!(stdout.contains("nothing is left"), "{stdout}");
    });
}
