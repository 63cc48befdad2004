// SPDX-License-Identifier: GPL-2.0-only
//! A stage's call of an OpenAI-compatible server: one request at a time, sent and read by the stage's own thread.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::graph::Http;

/// How often a call looks whether the run has ended.
const POLL: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub struct Rpc {
    runtime: Runtime,
    client: Client<HttpConnector, Full<Bytes>>,
    http: Http,
    completions: Uri,
    model: String,
}

impl Rpc {
    /// Asks the server for its first model unless one is named.
    pub fn open(http: &Http) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime for HTTP")?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let mut rpc = Self {
            runtime,
            client,
            http: http.clone(),
            completions: uri(&http.url, "/v1/completions")?,
            model: String::new(),
        };
        rpc.model = match &http.model {
            Some(model) => model.clone(),
            None => rpc.first_model()?,
        };
        Ok(rpc)
    }

    fn first_model(&self) -> Result<String> {
        let uri = uri(&self.http.url, "/v1/models")?;
        let request = Request::get(uri.clone()).body(Full::default())?;
        let list = self
            .runtime
            .block_on(self.exchange(request))
            .with_context(|| format!("cannot ask {uri} for its models: is the server up?"))?;
        let id = list["data"][0]["id"].as_str();
        let id = id.with_context(|| format!("{uri} names no model: name one with http.model"))?;
        Ok(id.to_owned())
    }

    /// Waits for the whole answer.
    pub fn call(&self, number: u64, quit: &AtomicBool) -> Result<()> {
        let body = json!({"model": self.model, "prompt": prompt(number, self.http.prompt_tokens),
            "max_tokens": self.http.max_tokens, "temperature": 0.0, "ignore_eos": true});
        let request = Request::post(self.completions.clone())
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .context("cannot make the request")?;
        let timeout = Duration::from_secs_f64(self.http.timeout_s);
        let answer = self.runtime.block_on(async {
            tokio::select! {
                answer = tokio::time::timeout(timeout, self.exchange(request)) => answer
                    .with_context(|| format!("no answer within {} s", self.http.timeout_s))?,
                () = ended(quit) => bail!("the run has ended"),
            }
        })?;
        if answer["choices"].as_array().is_none_or(Vec::is_empty) {
            bail!("an answer without a choice");
        }
        Ok(())
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Value> {
        let response = self.client.request(request).await.context("not sent")?;
        let status = response.status();
        let body = response.into_body().collect().await;
        let body = body.context("the answer broke off")?.to_bytes();
        if status != StatusCode::OK {
            bail!("{status}: {}", String::from_utf8_lossy(&body));
        }
        serde_json::from_slice(&body).context("the answer is not JSON")
    }
}

async fn ended(quit: &AtomicBool) {
    while !quit.load(Relaxed) {
        tokio::time::sleep(POLL).await;
    }
}

fn uri(url: &str, path: &str) -> Result<Uri> {
    let text = format!("{url}{path}");
    let parsed = text.parse::<Uri>();
    parsed.with_context(|| format!("http.url: expected http://HOST:PORT, got {url:?}"))
}

/// So many tokens of four letters and blanks, another text for each request.
fn prompt(number: u64, tokens: usize) -> String {
    let letter = |place: usize| {
        let mixed = number.wrapping_mul(31).wrapping_add(place as u64 * 7);
        char::from(b'a' + (mixed % 26) as u8)
    };
    let words = (0..tokens).map(|word| {
        let [a, b, c] = [0, 1, 2].map(|place| letter(3 * word + place));
        format!("{a}{b}{c} ")
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_has_its_length_and_its_request() {
        assert_eq!(prompt(5, 64).len(), 256);
        assert_ne!(prompt(5, 64), prompt(6, 64));
        assert_eq!(prompt(5, 64), prompt(5, 64));
    }

    #[test]
    fn a_server_that_is_not_there_is_named() {
        let http = Http {
            // The port of nobody: connections to it are refused.
            url: "http://127.0.0.1:1".to_owned(),
            model: None,
            prompt_tokens: 1,
            max_tokens: 1,
            timeout_s: 1.0,
        };
        let error = format!("{:#}", Rpc::open(&http).unwrap_err());
        assert!(error.contains("http://127.0.0.1:1/v1/models"), "{error}");
    }
}
