// SPDX-License-Identifier: GPL-2.0-only
//! gpu_launch: its command line, and what makes its report a good one.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::driver::with_driver;
use crate::matrix::{self, Gpus};
use crate::record::GpuLaunch;

/// What gpu_launch prints on stderr just before its measured window.
pub(super) const MEASURING: &str = "gpu_launch: measuring";
/// And just after. It goes on launching until it is released.
pub(super) const MEASURED: &str = "gpu_launch: measured";

pub(super) fn check(report: &GpuLaunch) -> Result<()> {
    if report.failures > 0 {
        bail!("{} of {} launches failed", report.failures, report.launches);
    }
    if report.tokens == 0 {
        bail!("gpu_launch finished no token");
    }
    Ok(())
}

pub(super) fn command(
    workload: &matrix::GpuLaunch,
    prefix: &[String],
    seconds: f64,
    target: &Path,
) -> Result<Command> {
    let lab = target.join("lab");
    let mut line: Vec<OsString> = prefix.iter().map(OsString::from).collect();
    line.push(lab.join("gpu_launch").into());
    line.extend(["--profile", &workload.profile, "--profiles"].map(OsString::from));
    line.push(lab.join("profiles").into());
    let warmup = workload.warmup_tokens.to_string();
    let seconds = seconds.to_string();
    line.extend(["--duration", &seconds, "--warmup-tokens", &warmup].map(OsString::from));
    line.extend(["--until-eof", "yes"].map(OsString::from));
    if let Some(sync) = workload.sync {
        line.extend(["--sync", sync.name()].map(OsString::from));
    }
    let gpus = (workload.gpus != Gpus::default()).then(|| workload.gpus.to_string());
    if let Some(gpus) = &gpus {
        line.extend(["--gpus", gpus].map(OsString::from));
    }
    line.extend(workload.args.iter().map(OsString::from));
    let mut command = with_driver(&line, &lab, workload.driver)?;
    if let (Gpus::Count(_), Some(count)) = (workload.gpus, gpus) {
        command.env("FAKECUDA_DEVICES", count);
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::arm::WorkloadSettings;
    use crate::matrix::Program;
    use crate::record::WorkloadReport;
    use crate::workload::{Place, Running};

    fn workload() -> matrix::Workload {
        toml::from_str("name = \"q\"\nprofile = \"qwen3\"\nsync = \"spin\"\ngpus = 2\nargs = [\"--idle-threads\", \"1\"]").unwrap()
    }

    fn fake(dir: &Path, script: &str) -> Running {
        let lab = dir.join("lab");
        fs::create_dir_all(&lab).unwrap();
        let program = lab.join("gpu_launch");
        // Through a shell, because a file that was just written may still be busy for exec.
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let settings = WorkloadSettings {
            prefix: vec!["sh".to_owned()],
            ..WorkloadSettings::default()
        };
        let place = Place {
            target: dir,
            preferred: "1",
        };
        Running::start(&workload(), &settings, 0.1, 1, place, None).unwrap()
    }

    #[test]
    fn builds_the_command_line() {
        let prefix = ["taskset".to_owned(), "-c".to_owned(), "1".to_owned()];
        let Program::GpuLaunch(launch) = workload().program else {
            panic!("gpu_launch is the default")
        };
        let command = command(&launch, &prefix, 2.5, Path::new("/t")).unwrap();
        let line: Vec<_> = command
            .get_args()
            .map(|arg| arg.to_string_lossy())
            .collect();
        assert_eq!(command.get_program(), "taskset");
        let emulated = (OsStr::new("FAKECUDA_DEVICES"), Some(OsStr::new("2")));
        assert!(command.get_envs().any(|set| set == emulated));
        assert_eq!(
            line.join(" "),
            "-c 1 /t/lab/gpu_launch --profile qwen3 --profiles /t/lab/profiles --duration 2.5 --warmup-tokens 5 --until-eof yes --sync spin --gpus 2 --idle-threads 1"
        );
    }

    #[test]
    fn reads_the_report_of_a_run() {
        let dir = tempfile::tempdir().unwrap();
        let mut running = fake(
            dir.path(),
            r#"printf 'gpu_launch: hello \377\n' >&2; echo "gpu_launch: measuring" >&2
            echo "gpu_launch: measured" >&2; cat
            echo '{"workload":"gpu_launch","tokens":1,"seconds":1,"tokens_per_s":1,"launches":9,"failures":0,"token_us":[5],
            "context_switches":{"voluntary":1,"involuntary":0},"threads_detail":[]}'"#,
        );
        running.wait_until_measuring().unwrap();
        running.wait_until_measured(0.1).unwrap();
        let (WorkloadReport::GpuLaunch(report), None) = running.report().unwrap() else {
            panic!("not gpu_launch's")
        };
        assert_eq!(report.launches, 9);
    }

    #[test]
    fn gives_the_last_words_of_one_that_fails() {
        let dir = tempfile::tempdir().unwrap();
        let mut running = fake(
            dir.path(),
            "echo 'gpu_launch: CUDA_ERROR_NO_DEVICE' >&2; exit 1",
        );
        let error = running.wait_until_measuring().unwrap_err().to_string();
        assert_eq!(
            error,
            "gpu_launch ended before it had measured (exit status: 1): gpu_launch: CUDA_ERROR_NO_DEVICE"
        );
    }

    #[test]
    fn failed_launches_fail_the_cell() {
        let dir = tempfile::tempdir().unwrap();
        let mut running = fake(
            dir.path(),
            r#"echo "gpu_launch: measuring" >&2; echo "gpu_launch: measured" >&2
            echo '{"workload":"gpu_launch","tokens":1,"seconds":1,"tokens_per_s":1,"launches":9,"failures":2,"token_us":[5],
            "context_switches":{"voluntary":1,"involuntary":0},"threads_detail":[]}'"#,
        );
        running.wait_until_measuring().unwrap();
        running.wait_until_measured(0.1).unwrap();
        assert_eq!(
            running.report().unwrap_err().to_string(),
            "2 of 9 launches failed"
        );
    }
}
