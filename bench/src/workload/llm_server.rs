// SPDX-License-Identifier: GPL-2.0-only
//! llm_server with llm_client: their command lines, and what makes their reports good ones.
//!
//! The arm applies to the server. The client stands for users on other machines: it runs on the CPUs
//! that no arm prefers, before everything else there, so that what it measures is the server.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::driver::with_driver;
use super::place::Place;
use crate::cpus;
use crate::matrix::LlmServer;
use crate::record::{LlmClient, LlmServing};

pub(super) const LISTENING: &str = "llm_server: listening on ";
pub(super) const MEASURING: &str = "llm_client: measuring";
/// What open answers get after the last request; what takes longer has failed.
pub(super) const DRAIN_S: f64 = 20.0;

pub(super) fn server(workload: &LlmServer, prefix: &[String], target: &Path) -> Result<Command> {
    let mut line: Vec<OsString> = prefix.iter().map(OsString::from).collect();
    line.push(target.join("release/llm_server").into());
    let share = workload.gpu_memory_utilization.to_string();
    line.extend(["--profile", &workload.profile, "--port", "0"].map(OsString::from));
    line.extend(["--gpu-memory-utilization", &share].map(OsString::from));
    if let Some(sync) = workload.sync {
        line.extend(["--sync", sync.name()].map(OsString::from));
    }
    line.extend(workload.args.iter().map(OsString::from));
    with_driver(&line, &target.join("lab"), workload.driver)
}

/// `seed` is the round's: all arms get the same requests in it.
pub(super) fn client(
    workload: &LlmServer,
    address: &str,
    seconds: f64,
    seed: u32,
    place: Place,
) -> Command {
    let mut command = Command::new("taskset");
    command
        .args([
            "-c",
            &cpus::others(place.preferred, &cpus::online()),
            "chrt",
            "--fifo",
            "1",
        ])
        .arg(place.target.join("release/llm_client"))
        .args(["--base-url", &format!("http://{address}")])
        .args(["--request-rate", &workload.request_rate.to_string()])
        .args(["--length-scale", &workload.length_scale.to_string()])
        .args(["--warmup-requests", &workload.warmup_requests.to_string()])
        .args(["--duration", &seconds.to_string()])
        .args(["--drain", &DRAIN_S.to_string()])
        .args(["--seed", &seed.to_string()]);
    if let Some(places) = workload.max_concurrency {
        command.args(["--max-concurrency", &places.to_string()]);
    }
    let objectives = [
        ("ttft", workload.slo_ttft_ms),
        ("tpot", workload.slo_tpot_ms),
    ];
    for (name, ms) in objectives {
        if let Some(ms) = ms {
            command.args(["--goodput", &format!("{name}:{ms}")]);
        }
    }
    command
}

pub(super) fn check(report: &LlmServing) -> Result<()> {
    let LlmClient {
        offered, completed, ..
    } = report.client;
    if completed == 0 {
        let why = report.client.errors.first().map_or("", String::as_str);
        bail!("none of {offered} requests was answered: {why}");
    }
    if report.client.itls.iter().all(Vec::is_empty) {
        bail!("no answer had a second token: raise length_scale");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{Program, Workload};
    use crate::workload::child::line;

    #[test]
    fn the_arm_is_put_before_the_server_and_not_before_the_client() {
        let text = "name = \"c\"\nprogram = \"llm_server\"\nprofile = \"chat\"\nrequest_rate = 8\n\
                    max_concurrency = 1\ngpu_memory_utilization = 0.75\nsync = \"yield\"\nslo_tpot_ms = 20\nlength_scale = 0.2";
        let workload: Workload = toml::from_str(text).unwrap();
        let Program::LlmServer(llm) = workload.program else {
            panic!("not llm_server")
        };
        let prefix = ["nice".to_owned(), "-n".to_owned(), "-10".to_owned()];
        assert_eq!(
            line(&server(&llm, &prefix, Path::new("/t")).unwrap()),
            "nice -n -10 /t/release/llm_server --profile chat --port 0 --gpu-memory-utilization 0.75 --sync yield"
        );
        let place = Place {
            target: Path::new("/t"),
            preferred: "1",
        };
        let client = line(&client(&llm, "127.0.0.1:5", 2.5, 3, place));
        assert!(client.starts_with("taskset -c 0"), "{client}");
        assert!(
            client.ends_with(
                "chrt --fifo 1 /t/release/llm_client --base-url http://127.0.0.1:5 --request-rate 8 \
                 --length-scale 0.2 --warmup-requests 4 --duration 2.5 --drain 20 --seed 3 --max-concurrency 1 --goodput tpot:20"
            ),
            "{client}"
        );
    }
}
