// SPDX-License-Identifier: GPL-2.0-only
//! The guard rail of a tuning beside production: a number that must not grow too much for too long. The number comes
//! from a command of the user's, from requests to the endpoint that the users ask, or from Prometheus; when the rail is
//! broken is pure.

use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::process;
use crate::tune::goal::Latency;

/// A command that does not answer is no measurement.
const LIMIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);
/// For Prometheus, which nothing interrupts.
const ANSWER: Duration = Duration::from_millis(500);

/// Where the number comes from. Less is better.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// A shell command prints it, as its last word.
    Command(String),
    /// Short requests to an OpenAI endpoint, which `client` sends and times.
    Endpoint {
        client: PathBuf,
        url: String,
        latency: Latency,
    },
    /// A query that has one number as its answer.
    Prometheus { url: String, query: String },
}

impl Metric {
    /// `stop` is asked meanwhile: true ends it, and there is no number.
    ///
    /// # Errors
    /// There is no number above 0, or not in time.
    pub fn ask(&self, stop: &dyn Fn() -> bool) -> Result<Option<f64>> {
        let said = match self {
            Self::Command(command) => {
                let mut shell = Command::new("sh");
                output(shell.args(["-c", command]), "--slo-command", stop)?
            }
            Self::Endpoint { client, url, .. } => {
                let mut client = Command::new(client);
                client
                    .args(["--base-url", url, "--request-rate", "5", "--duration", "1"])
                    .args(["--warmup-requests", "0", "--length-scale", "0.1"])
                    .args(["--drain", "3"])
                    .stderr(Stdio::null());
                output(&mut client, "--url", stop)?
            }
            Self::Prometheus { url, query } => Some((ExitStatus::default(), asked(url, query)?)),
        };
        let Some((status, text)) = said else {
            return Ok(None);
        };
        let number = match self {
            Self::Command(_) => last_word(&text),
            Self::Endpoint { latency, .. } => median(&text, *latency),
            Self::Prometheus { .. } => only_value(&text),
        };
        let is_good = |number: &f64| status.success() && number.is_finite() && *number > 0.0;
        match (number.filter(is_good), self) {
            (Some(number), _) => Ok(Some(number)),
            (None, Self::Command(_)) => bail!(
                "--slo-command: expected a number above 0 as its last word, got {text:?} ({status})"
            ),
            (None, Self::Endpoint { client, url, .. }) => bail!(
                "--url {url}: expected answers, got none ({status}): {} --base-url {url} --request-rate 5 --duration 1 \
                 says why",
                client.display()
            ),
            (None, Self::Prometheus { query, .. }) => {
                bail!("--slo-query {query:?}: expected one number above 0, got {text:?}")
            }
        }
    }
}

fn last_word(text: &str) -> Option<f64> {
    text.split_whitespace().last()?.parse().ok()
}

/// In ms, from what llm_client prints; none where half of the requests were not answered: it is that of the others.
fn median(text: &str, latency: Latency) -> Option<f64> {
    let report: Value = serde_json::from_str(text).ok()?;
    let count = |key: &str| report[key].as_u64();
    if let (Some(offered), Some(completed)) = (count("offered"), count("completed"))
        && 2 * completed <= offered
    {
        return None;
    }
    report[latency.median()].as_f64()
}

/// Of Prometheus's answer to an instant query, a scalar or a vector of one element.
fn only_value(text: &str) -> Option<f64> {
    let answer: Value = serde_json::from_str(text).ok()?;
    let result = answer["data"]["result"].as_array()?;
    let number = match (answer["data"]["resultType"].as_str()?, &result[..]) {
        ("scalar", [_, number]) => number,
        ("vector", [one]) => &one["value"][1],
        _ => return None,
    };
    number.as_str()?.parse().ok()
}

fn asked(url: &str, query: &str) -> Result<String> {
    let config = ureq::Agent::config_builder().timeout_global(Some(ANSWER));
    let agent: ureq::Agent = config.build().into();
    let request = agent.get(format!("{}/api/v1/query", url.trim_end_matches('/')));
    let failed = || format!("--slo-prometheus {url}: cannot ask for {query:?}");
    let mut answer = request.query("query", query).call().with_context(failed)?;
    answer.body_mut().read_to_string().with_context(failed)
}

/// How it ended and what it printed; `None`: `stop` has ended it. `flag` is what it is there for.
fn output(
    command: &mut Command,
    flag: &str,
    stop: &dyn Fn() -> bool,
) -> Result<Option<(ExitStatus, String)>> {
    command.stdin(Stdio::null());
    let deadline = Instant::now() + LIMIT;
    let captured = process::capture(flag, command, |process| {
        loop {
            if let Some(status) = process.ended()? {
                return Ok(Some(status));
            }
            if stop() {
                return Ok(None);
            }
            if Instant::now() > deadline {
                let limit = LIMIT.as_secs();
                bail!("{flag}: expected a number within {limit} s, got none");
            }
            std::thread::sleep(POLL);
        }
    });
    let (status, text) = captured?;
    Ok(status.map(|status| (status, String::from_utf8_lossy(&text).into_owned())))
}

/// Watches one candidate.
#[derive(Debug)]
pub struct Rail {
    /// Above this it is worse than it may be.
    limit: f64,
    patience: Duration,
    worse_since: Option<Duration>,
}

impl Rail {
    /// `usual` is what the old policy has; `worse` the share that it may grow by, for `patience`.
    pub fn new(usual: f64, worse: f64, patience: Duration) -> Self {
        Self {
            limit: usual * (1.0 + worse),
            patience,
            worse_since: None,
        }
    }

    /// Whether it is broken by a value at a time since any start.
    pub fn is_broken(&mut self, value: f64, at: Duration) -> bool {
        if value <= self.limit {
            self.worse_since = None;
            return false;
        }
        let since = *self.worse_since.get_or_insert(at);
        at.saturating_sub(since) >= self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn ask(command: &str, stop: &dyn Fn() -> bool) -> Result<Option<f64>> {
        Metric::Command(command.to_owned()).ask(stop)
    }

    /// Prometheus of the test's own: its address. It answers one question, and returns it.
    fn prometheus(answer: &'static str) -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = [0; 4096];
            let length = stream.read(&mut question).unwrap();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n", answer.len());
            let whole = format!("{head}Connection: close\r\n\r\n{answer}");
            stream.write_all(whole.as_bytes()).unwrap();
            String::from_utf8_lossy(&question[..length]).into_owned()
        });
        (url, answers)
    }

    #[test]
    fn prometheus_is_asked_for_one_number() {
        let one = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1.5,"12.25"]}]}}"#;
        let (url, answers) = prometheus(one);
        let query = "histogram_quantile(0.99, rate(ttft[1m]))".to_owned();
        let metric = Metric::Prometheus { url, query };
        assert_eq!(metric.ask(&|| false).unwrap(), Some(12.25));
        let question = answers.join().unwrap();
        assert!(
            question.starts_with("GET /api/v1/query?query=histogram_quantile(0.99"),
            "{question}"
        );
        let error = metric.ask(&|| false).unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("--slo-prometheus http://127.0.0.1:"),
            "{error}"
        );
    }

    #[test]
    fn an_answer_that_is_no_single_number_is_refused() {
        let vector = |result: &str| {
            format!("{{\"data\":{{\"resultType\":\"vector\",\"result\":[{result}]}}}}")
        };
        let value = r#"{"value":[1,"3"]}"#;
        assert_eq!(only_value(&vector(value)), Some(3.0));
        let scalar = r#"{"data":{"resultType":"scalar","result":[1,"4"]}}"#;
        assert_eq!(only_value(scalar), Some(4.0));
        for bad in ["", &format!("{value},{value}"), r#"{"value":[1,"x"]}"#] {
            assert_eq!(only_value(&vector(bad)), None, "{bad}");
        }
        let (url, _answers) = prometheus(r#"{"data":{"resultType":"vector","result":[]}}"#);
        let query = "up".to_owned();
        let error = Metric::Prometheus { url, query }
            .ask(&|| false)
            .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("--slo-query \"up\": expected one number above 0, got "),
            "{error}"
        );
    }

    #[test]
    fn a_latency_is_the_median_that_the_client_prints() {
        let printed = r#"{"median_ttft_ms": 12.5, "median_tpot_ms": null}"#;
        assert_eq!(median(printed, Latency::Ttft), Some(12.5));
        assert_eq!(median(printed, Latency::Tpot), None);
        let nobody = Metric::Endpoint {
            client: "false".into(),
            url: "http://127.0.0.1:9".to_owned(),
            latency: Latency::Ttft,
        };
        let error = nobody.ask(&|| false).unwrap_err().to_string();
        assert!(error.contains("expected answers, got none"), "{error}");
    }

    #[test]
    fn what_a_command_leaves_running_keeps_nobody_waiting_and_is_gone() {
        let left = ask("sleep 60 & echo $!", &|| false).unwrap().unwrap();
        // A zombie's is empty.
        let command = || std::fs::read(format!("/proc/{left}/cmdline")).unwrap_or_default();
        let mut looks = 0..500;
        while !command().is_empty() && looks.next().is_some() {
            std::thread::sleep(POLL);
        }
        assert!(command().is_empty(), "{left} runs on");
    }

    #[test]
    fn a_rail_breaks_when_it_is_worse_for_so_long_without_a_break() {
        let seconds = Duration::from_secs;
        let mut rail = Rail::new(100.0, 0.1, seconds(5));
        assert!(!rail.is_broken(111.0, seconds(0)));
        assert!(!rail.is_broken(200.0, seconds(4)));
        assert!(!rail.is_broken(109.0, seconds(5)), "it recovered");
        assert!(!rail.is_broken(111.0, seconds(6)));
        assert!(!rail.is_broken(111.0, seconds(10)));
        assert!(rail.is_broken(111.0, seconds(11)));
        assert!(Rail::new(1.0, 0.1, Duration::ZERO).is_broken(1.2, seconds(0)));
    }

    #[test]
    fn a_command_prints_its_number_last() {
        let never = || false;
        assert_eq!(ask("echo ttft 12.5", &never).unwrap(), Some(12.5));
        // More than a pipe takes.
        let much = "head -c 300000 /dev/zero | tr '\\0' x; echo; echo 12.5";
        assert_eq!(ask(much, &never).unwrap(), Some(12.5));
        for bad in ["true", "echo x", "echo -1", "echo 3; exit 1"] {
            let error = ask(bad, &never).unwrap_err().to_string();
            assert!(
                error.starts_with("--slo-command: expected a number above 0"),
                "{bad}: {error}"
            );
        }
        assert_eq!(ask("sleep 60; echo 1", &|| true).unwrap(), None);
    }
}
