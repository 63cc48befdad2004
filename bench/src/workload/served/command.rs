// SPDX-License-Identifier: GPL-2.0-only
//! The command lines of genuine servers and clients. Pure.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::vllm;
use crate::cpus;
use crate::matrix::{Client, Requests, Served, Server};
use crate::workload::llm_server;
use crate::workload::place::Place;

/// What the clients write into the folder that they are given.
pub const VLLM_BENCH_RESULT: &str = "vllm-bench.json";
pub const AIPERF_RESULT: &str = "profile_export.jsonl";

/// The server on 127.0.0.1; `None`: it runs already.
///
/// # Errors
/// A program or a driver that the matrix asks for is not there.
pub fn server(
    served: &Served,
    prefix: &[String],
    port: u16,
    place: Place,
) -> Result<Option<Command>> {
    let (program, mut words) = match &served.server {
        Server::Endpoint { .. } => return Ok(None),
        Server::Vllm {
            gpu_memory_utilization: share,
            instead,
        } => {
            let mut line = Line(vec!["serve".into(), vllm::model(&served.model)?]);
            line.flag("--gpu-memory-utilization", share);
            // Each cell has the prompts of those before, and is not to be faster for it.
            if !served
                .args
                .iter()
                .any(|word| word.contains("prefix-caching"))
            {
                line.word("--no-enable-prefix-caching");
            }
            if instead.is_some() {
                vllm::ARGUMENTS.iter().for_each(|word| line.word(word));
            }
            let program = match instead {
                Some(_) => vllm::with_plugin()?,
                None => vllm::program(),
            };
            (program, line.0)
        }
        Server::LlamaCpp => {
            let words = ["--model", &served.model].map(OsString::from);
            ("llama-server".into(), words.to_vec())
        }
    };
    let port = port.to_string();
    words.extend(["--host", "127.0.0.1", "--port", &port].map(OsString::from));
    words.extend(served.args.iter().map(OsString::from));
    let line: Vec<OsString> = prefix.iter().map(OsString::from).collect();
    let line = [line, vec![program], words].concat();
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]);
    if let Server::Vllm {
        instead: Some(launches),
        ..
    } = &served.server
    {
        vllm::launch_instead(&mut command, launches, &place.target.join("lab"))?;
    }
    Ok(Some(command))
}

/// The client, which writes its results into `folder` or, if it is ours, to stdout. As in all workloads that
/// serve it stands for users on other machines: it runs on the CPUs that no arm prefers, before everybody else.
pub fn client(
    served: &Served,
    base_url: &str,
    seconds: f64,
    seed: u32,
    place: Place,
    folder: &Path,
) -> Result<Command> {
    // A server calls a model as it was told to load it.
    let model = vllm::model(&served.model)?;
    let words = match served.client {
        Client::Llm => llm_client(served, &model, base_url, seconds, seed, place),
        Client::VllmBench => vllm_bench(served, &model, base_url, seconds, seed, folder),
        Client::Aiperf => aiperf(served, &model, base_url, seconds, seed, folder),
    };
    let mut command = Command::new("taskset");
    command.args([
        "-c",
        &cpus::others(place.preferred, &cpus::online()),
        "chrt",
        "--fifo",
        "1",
    ]);
    if served.client != Client::Llm {
        // Theirs say on stdout how far they are, which is listened for on stderr.
        command.args(["sh", "-c", "exec \"$@\" >&2", "sh"]);
    }
    command.args(words).env("PYTHONUNBUFFERED", "1");
    Ok(command)
}

fn llm_client(
    served: &Served,
    model: &OsStr,
    base_url: &str,
    seconds: f64,
    seed: u32,
    place: Place,
) -> Vec<OsString> {
    let asked = &served.requests;
    let mut line = Line(vec![place.target.join("release/llm_client").into()]);
    line.flag("--base-url", base_url);
    line.flag("--model", model.display());
    line.flag("--request-rate", asked.request_rate);
    line.flag("--length-scale", asked.length_scale);
    line.flag("--warmup-requests", asked.warmup_requests);
    line.flag("--duration", seconds);
    line.flag("--drain", llm_server::DRAIN_S);
    line.flag("--seed", seed);
    for objective in objectives(asked) {
        line.flag("--goodput", objective);
    }
    line.0
}

fn vllm_bench(
    served: &Served,
    model: &OsStr,
    base_url: &str,
    seconds: f64,
    seed: u32,
    folder: &Path,
) -> Vec<OsString> {
    let asked = &served.requests;
    let mut line = Line(vec![vllm::program(), "bench".into(), "serve".into()]);
    line.flag("--backend", "openai");
    line.flag("--base-url", base_url);
    line.flag("--endpoint", "/v1/completions");
    line.flag("--model", model.display());
    if let Some(tokenizer) = &served.tokenizer {
        line.flag("--tokenizer", tokenizer);
    }
    line.flag("--dataset-name", "random");
    line.flag("--random-input-len", asked.input_tokens);
    line.flag("--random-output-len", asked.output_tokens);
    line.word("--ignore-eos");
    line.flag("--num-prompts", asked.count(seconds));
    line.flag("--num-warmups", asked.warmup_requests);
    line.flag("--request-rate", asked.request_rate);
    line.flag("--seed", seed);
    line.word("--disable-tqdm");
    line.word("--save-result");
    line.word("--save-detailed");
    line.flag("--result-dir", folder.display());
    line.flag("--result-filename", VLLM_BENCH_RESULT);
    let objectives = objectives(asked);
    if !objectives.is_empty() {
        line.word("--goodput");
        objectives.iter().for_each(|objective| line.word(objective));
    }
    line.0
}

fn aiperf(
    served: &Served,
    model: &OsStr,
    base_url: &str,
    seconds: f64,
    seed: u32,
    folder: &Path,
) -> Vec<OsString> {
    let asked = &served.requests;
    let mut line = Line(["aiperf", "profile"].map(OsString::from).to_vec());
    line.flag("--model", model.display());
    if let Some(tokenizer) = &served.tokenizer {
        line.flag("--tokenizer", tokenizer);
    }
    line.flag("--url", base_url);
    line.flag("--endpoint-type", "completions");
    line.word("--streaming");
    line.flag("--synthetic-input-tokens-mean", asked.input_tokens);
    line.flag("--synthetic-input-tokens-stddev", 0);
    line.flag("--output-tokens-mean", asked.output_tokens);
    line.flag("--output-tokens-stddev", 0);
    line.flag("--extra-inputs", "ignore_eos:true");
    line.flag("--request-count", asked.count(seconds));
    if asked.warmup_requests > 0 {
        line.flag("--warmup-request-count", asked.warmup_requests);
    }
    line.flag("--request-rate", asked.request_rate);
    line.flag("--random-seed", seed);
    line.flag("--ui-type", "none");
    line.flag("--output-artifact-dir", folder.display());
    line.0
}

/// As `vllm bench serve` takes them.
fn objectives(asked: &Requests) -> Vec<String> {
    let objectives = [("ttft", asked.slo_ttft_ms), ("tpot", asked.slo_tpot_ms)];
    objectives
        .into_iter()
        .filter_map(|(name, ms)| Some(format!("{name}:{}", ms?)))
        .collect()
}

/// Words of a command line.
struct Line(Vec<OsString>);

impl Line {
    fn word(&mut self, word: &str) {
        self.0.push(word.into());
    }

    fn flag(&mut self, flag: &str, value: impl std::fmt::Display) {
        self.word(flag);
        self.word(&value.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{Program, Workload};
    use crate::workload::child::line;

    fn served(text: &str) -> Served {
        let text = format!("name = \"a\"\nrequest_rate = 4\n{text}");
        match toml::from_str::<Workload>(&text).unwrap().program {
            Program::Served(served) => served,
            _ => panic!("not a genuine server"),
        }
    }

    fn place() -> Place<'static> {
        Place {
            target: Path::new("/t"),
            preferred: "1",
        }
    }

    fn server_line(served: &Served, prefix: &[String]) -> String {
        let command = server(served, prefix, 9, place()).unwrap();
        line(&command.expect("a server of its own")).replace(&vllm_program(), "vllm")
    }

    fn client_line(served: &Served) -> String {
        let out = Path::new("/out");
        let command = client(served, "http://127.0.0.1:9", 2.5, 3, place(), out).unwrap();
        line(&command).replace(&vllm_program(), "vllm")
    }

    /// Wherever it is on this machine.
    fn vllm_program() -> String {
        vllm::program().to_string_lossy().into_owned()
    }

    #[test]
    fn the_arm_is_put_before_the_server() {
        let prefix = ["nice", "-n", "-10"].map(str::to_owned);
        let vllm =
            served("program = \"vllm\"\nmodel = \"Qwen/Qwen3-0.6B\"\nargs = [\"--enforce-eager\"]");
        assert_eq!(
            server_line(&vllm, &prefix),
            "nice -n -10 vllm serve Qwen/Qwen3-0.6B --gpu-memory-utilization 0.9 --no-enable-prefix-caching --host 127.0.0.1 --port 9 --enforce-eager"
        );
        let llama =
            served("program = \"llama_server\"\nmodel = \"/m.gguf\"\nargs = [\"-c\", \"4096\"]");
        assert_eq!(
            server_line(&llama, &[]),
            "llama-server --model /m.gguf --host 127.0.0.1 --port 9 -c 4096"
        );
        let url = served("program = \"endpoint\"\nmodel = \"m\"\nbase_url = \"http://h:1\"");
        assert!(server(&url, &[], 9, place()).unwrap().is_none());
    }

    #[test]
    fn our_client_asks_any_server() {
        let text = client_line(&served(
            "program = \"llama_server\"\nmodel = \"m\"\nslo_ttft_ms = 200",
        ));
        assert!(
            text.ends_with(
                "chrt --fifo 1 /t/release/llm_client --base-url http://127.0.0.1:9 --model m --request-rate 4 \
                 --length-scale 1 --warmup-requests 4 --duration 2.5 --drain 20 --seed 3 --goodput ttft:200"
            ),
            "{text}"
        );
    }

    #[test]
    fn vllm_bench_saves_every_request() {
        let text = client_line(&served(
            "program = \"vllm\"\nmodel = \"m\"\nclient = \"vllm_bench\"\nslo_ttft_ms = 200\nslo_tpot_ms = 20",
        ));
        assert!(
            text.ends_with(
                "vllm bench serve --backend openai --base-url http://127.0.0.1:9 --endpoint /v1/completions --model m \
                 --dataset-name random --random-input-len 256 --random-output-len 128 --ignore-eos --num-prompts 10 \
                 --num-warmups 4 --request-rate 4 --seed 3 --disable-tqdm --save-result --save-detailed \
                 --result-dir /out --result-filename vllm-bench.json --goodput ttft:200 tpot:20"
            ),
            "{text}"
        );
        assert!(text.contains("sh -c exec \"$@\" >&2 sh vllm"), "{text}");
    }

    #[test]
    fn aiperf_is_told_its_number_of_requests() {
        let text = client_line(&served(
            "program = \"endpoint\"\nmodel = \"m\"\nbase_url = \"http://h:1\"\nclient = \"aiperf\"\ntokenizer = \"/tok\"",
        ));
        assert!(
            text.ends_with(
                "aiperf profile --model m --tokenizer /tok --url http://127.0.0.1:9 --endpoint-type completions --streaming \
                 --synthetic-input-tokens-mean 256 --synthetic-input-tokens-stddev 0 --output-tokens-mean 128 \
                 --output-tokens-stddev 0 --extra-inputs ignore_eos:true --request-count 10 --warmup-request-count 4 \
                 --request-rate 4 --random-seed 3 --ui-type none --output-artifact-dir /out"
            ),
            "{text}"
        );
    }
}
