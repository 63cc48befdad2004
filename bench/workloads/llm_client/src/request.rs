// SPDX-License-Identifier: GPL-2.0-only
//! One request: sent, its stream read chunk by chunk, each chunk's arrival noted.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::metrics::Outcome;
use crate::plan::Planned;
use crate::sse::Events;

/// Which API is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Endpoint {
    Completions,
    Chat,
}

/// A server and the connections to it.
#[derive(Debug, Clone)]
pub struct Target {
    client: Client<HttpConnector, Full<Bytes>>,
    base_url: String,
    endpoint: Endpoint,
    model: String,
}

impl Target {
    /// Asks the server for its first model unless one is named.
    pub async fn find(base_url: &str, endpoint: Endpoint, model: Option<String>) -> Result<Self> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let mut target = Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            base_url: base_url.trim_end_matches('/').to_owned(),
            endpoint,
            model: String::new(),
        };
        target.model = match model {
            Some(model) => model,
            None => target.first_model().await?,
        };
        Ok(target)
    }

    pub fn model(&self) -> &str {
        &self.model
    }

    async fn first_model(&self) -> Result<String> {
        let uri = self.uri("/v1/models")?;
        let response = self
            .client
            .get(uri.clone())
            .await
            .with_context(|| format!("cannot reach {uri}: is the server up?"))?;
        let body = response.into_body().collect().await?.to_bytes();
        let list: Value =
            serde_json::from_slice(&body).with_context(|| format!("{uri} answers no JSON"))?;
        let id = list["data"][0]["id"].as_str();
        Ok(id
            .with_context(|| format!("{uri} names no model: name one with --model"))?
            .to_owned())
    }

    fn uri(&self, path: &str) -> Result<Uri> {
        let text = format!("{}{path}", self.base_url);
        text.parse().with_context(|| {
            format!(
                "--base-url: expected http://HOST:PORT, got {:?}",
                self.base_url
            )
        })
    }

    fn body(&self, planned: &Planned) -> (&'static str, Value) {
        let mut body = json!({"model": self.model, "stream": true, "temperature": 0.0,
            "ignore_eos": true, "stream_options": {"include_usage": true}});
        let path = match self.endpoint {
            Endpoint::Completions => {
                body["prompt"] = json!(planned.prompt);
                body["max_tokens"] = json!(planned.output_tokens);
                "/v1/completions"
            }
            Endpoint::Chat => {
                body["messages"] = json!([{"role": "user", "content": planned.prompt}]);
                body["max_completion_tokens"] = json!(planned.output_tokens);
                "/v1/chat/completions"
            }
        };
        (path, body)
    }

    /// Sends the request and reads its answer to the end. `began` is the run's first moment.
    pub async fn send(&self, planned: &Planned, began: Instant) -> Outcome {
        let sent = Instant::now();
        let mut outcome = Outcome {
            start_s: sent.duration_since(began).as_secs_f64(),
            ..Outcome::default()
        };
        if let Err(error) = self.exchange(planned, sent, &mut outcome).await {
            outcome.error = format!("{error:#}");
        }
        outcome
    }

    async fn exchange(
        &self,
        planned: &Planned,
        sent: Instant,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let (path, body) = self.body(planned);
        let request = Request::post(self.uri(path)?)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .context("cannot make the request")?;
        let response = self.client.request(request).await.context("not sent")?;
        if response.status() != StatusCode::OK {
            bail!("{}", refusal(response).await);
        }
        read_stream(response, sent, outcome).await
    }
}

async fn refusal(response: Response<Incoming>) -> String {
    let status = response.status();
    let body = response.into_body().collect().await;
    let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned());
    format!("{status}: {}", text.unwrap_or_default())
}

/// A chunk with a choice is a token, whatever its text; the last chunk has the usage instead.
async fn read_stream(
    response: Response<Incoming>,
    sent: Instant,
    outcome: &mut Outcome,
) -> Result<()> {
    let mut body = response.into_body();
    let mut events = Events::default();
    let mut last: Option<Instant> = None;
    let mut chunks = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the stream broke off")?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        for event in events.push(data) {
            if event == "[DONE]" {
                continue;
            }
            let now = Instant::now();
            let chunk: Value =
                serde_json::from_str(&event).with_context(|| format!("not JSON: {event:?}"))?;
            if chunk["choices"].as_array().is_some_and(|c| !c.is_empty()) {
                match last {
                    None => outcome.ttft_s = now.duration_since(sent).as_secs_f64(),
                    Some(last) => outcome.itl_s.push(now.duration_since(last).as_secs_f64()),
                }
                last = Some(now);
                chunks += 1;
            } else if let Some(usage) = chunk.get("usage").filter(|usage| !usage.is_null()) {
                let tokens = |key: &str| usage[key].as_u64().and_then(|n| u32::try_from(n).ok());
                outcome.output_tokens = tokens("completion_tokens").unwrap_or(0);
                outcome.input_tokens = tokens("prompt_tokens").unwrap_or(0);
            }
        }
    }
    if last.is_none() {
        bail!("the stream ended without a token");
    }
    // A server that gives no usage is believed to send a token a chunk.
    if outcome.output_tokens == 0 {
        outcome.output_tokens = chunks;
    }
    Ok(())
}
