// SPDX-License-Identifier: GPL-2.0-only
//! pipeline, and llm_server where a graph has stages that call one: their command lines, and what makes a report a good
//! one.
//!
//! The arm applies to the pipeline. The server stands for one on another machine, as llm_client does for users: it runs
//! on the CPUs that no arm prefers, before everything else there.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::child::Child;
use super::driver::with_driver;
use super::llm_server::DRAIN_S;
use super::place::Place;
use crate::cpus;
use crate::matrix::Pipeline;
use crate::record;

pub(super) const STARTED: &str = "pipeline: started";
pub(super) const MEASURING: &str = "pipeline: measuring";
/// It goes on until it is released.
pub(super) const MEASURED: &str = "pipeline: measured";
const WARMUP_S: u32 = 1;
/// vLLM's, by which policies name a server: `connects_to`.
const PORT: &str = "8000";

/// Starts the server that the graph calls, if there is one.
pub(super) fn server(workload: &Pipeline, place: Place) -> Result<Option<Child>> {
    let command = server_command(workload, place)?;
    command
        .map(|mut command| Child::start("llm_server", &mut command))
        .transpose()
}

pub(super) fn server_command(workload: &Pipeline, place: Place) -> Result<Option<Command>> {
    let Some(server) = &workload.server else {
        return Ok(None);
    };
    let elsewhere = cpus::others(place.preferred, &cpus::online());
    let share = server.gpu_memory_utilization.to_string();
    let mut line: Vec<OsString> = ["taskset", "-c", &elsewhere, "chrt", "--fifo", "1"]
        .map(OsString::from)
        .into();
    line.push(place.target.join("release/llm_server").into());
    line.extend(["--profile", &server.profile, "--port", PORT].map(OsString::from));
    line.extend(["--gpu-memory-utilization", &share].map(OsString::from));
    with_driver(&line, &place.target.join("lab"), workload.driver).map(Some)
}

/// `address` is the server's, `seed` the round's: all arms get the same items in it.
pub(super) fn command(
    workload: &Pipeline,
    prefix: &[String],
    address: Option<&str>,
    seconds: f64,
    seed: u32,
    place: Place,
) -> Result<Command> {
    let mut line: Vec<OsString> = prefix.iter().map(OsString::from).collect();
    line.push(place.target.join("release/pipeline").into());
    line.push((&workload.graph).into());
    for change in &workload.set {
        line.extend(["--set", change].map(OsString::from));
    }
    if let Some(address) = address {
        line.extend(["--base-url".into(), format!("http://{address}").into()]);
    }
    let words = format!(
        "--duration {seconds} --warmup {WARMUP_S} --drain {DRAIN_S} --seed {seed} --until-eof"
    );
    line.extend(words.split(' ').map(OsString::from));
    line.extend(workload.args.iter().map(OsString::from));
    let mut command = with_driver(&line, &place.target.join("lab"), workload.driver)?;
    command.env("FAKECUDA_DEVICES", workload.gpus.to_string());
    if let Some(kernels) = workload.concurrent_kernels {
        command.env("FAKECUDA_CONCURRENT", kernels.to_string());
    }
    Ok(command)
}

/// Asks the program whether the graph can be run with these changes.
///
/// # Errors
/// In the program's words why not.
pub fn check_graph(workload: &Pipeline, target: &Path) -> Result<(), String> {
    let program = target.join("release/pipeline");
    let mut command = Command::new(&program);
    command.arg(&workload.graph).arg("--check");
    for change in &workload.set {
        command.args(["--set", change]);
    }
    let output = command.output().map_err(|error| {
        let program = program.display();
        format!("cannot run {program}, which make build makes: {error}")
    })?;
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("pipeline: error: ");
    if output.status.success() {
        Ok(())
    } else {
        Err(said.to_owned())
    }
}

pub(super) fn check(report: &record::Pipeline) -> Result<()> {
    let record::Pipeline {
        offered,
        completed,
        errors,
        ..
    } = report;
    if *completed == 0 {
        let why = errors.first().map_or("", String::as_str);
        bail!("none of {offered} items came to an end: {why}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{Program, Workload};
    use crate::workload::child::line;

    #[test]
    fn the_arm_is_put_before_the_pipeline_and_the_server_is_elsewhere() {
        let text = "name = \"p1\"\nprogram = \"pipeline\"\ngraph = \"vectraflow-p1\"\nprofile = \"chat\"\n\
                    gpu_memory_utilization = 0.6\nset = [\"stage.stress.cpu.us=2000\"]\ngpus = 4\nconcurrent_kernels = 1\nargs = [\"--slo-ms\", \"200\"]";
        let workload: Workload = toml::from_str(text).unwrap();
        let Program::Pipeline(pipeline) = workload.program else {
            panic!("not pipeline")
        };
        let place = Place {
            target: Path::new("/t"),
            preferred: "1",
        };
        let prefix = ["nice".to_owned(), "-n".to_owned(), "-5".to_owned()];
        let command = command(&pipeline, &prefix, Some("127.0.0.1:5"), 2.5, 3, place).unwrap();
        assert_eq!(
            line(&command),
            "nice -n -5 /t/release/pipeline vectraflow-p1 --set stage.stress.cpu.us=2000 \
             --base-url http://127.0.0.1:5 --duration 2.5 --warmup 1 --drain 20 --seed 3 --until-eof --slo-ms 200"
        );
        for (name, expected) in [("FAKECUDA_DEVICES", "4"), ("FAKECUDA_CONCURRENT", "1")] {
            let mut set = command.get_envs();
            let value = set
                .find(|(known, _)| *known == name)
                .and_then(|(_, value)| value);
            assert_eq!(value, Some(expected.as_ref()), "{name}");
        }
        let server = line(&server_command(&pipeline, place).unwrap().unwrap());
        assert!(server.starts_with("taskset -c 0"), "{server}");
        assert!(
            server.ends_with(
                "chrt --fifo 1 /t/release/llm_server --profile chat --port 8000 --gpu-memory-utilization 0.6"
            ),
            "{server}"
        );
    }
}
