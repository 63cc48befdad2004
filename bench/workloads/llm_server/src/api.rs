// SPDX-License-Identifier: GPL-2.0-only
//! The HTTP side: routes, streams of server-sent events, metrics in vLLM's names. What a token is it
//! learns from the detokenizer.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::engine::Gauge;
use crate::protocol::{self, Answer, Api, ChatRequest, CompletionRequest};
use crate::text::{Piece, Request};

pub struct Server {
    pub model: String,
    pub requests: Mutex<Sender<Request>>,
    pub gauge: Gauge,
    pub kv_blocks: u32,
    pub max_model_len: u32,
    pub next_id: AtomicU64,
}

type Shared = State<Arc<Server>>;

/// What a request asks for, whichever API it came by.
struct Wanted {
    prompt: String,
    max_tokens: u32,
    stream: bool,
    include_usage: bool,
}

pub fn router(server: Arc<Server>) -> Router {
    Router::new()
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/models", get(models))
        .route("/health", get(|| async { StatusCode::OK }))
        .route("/metrics", get(metrics))
        .with_state(server)
}

async fn completions(State(server): Shared, Json(body): Json<CompletionRequest>) -> Response {
    let wanted = Wanted {
        prompt: body.prompt,
        max_tokens: body.max_tokens,
        stream: body.stream,
        include_usage: body.stream_options.include_usage,
    };
    server.answer(Api::Completions, wanted).await
}

async fn chat_completions(State(server): Shared, Json(body): Json<ChatRequest>) -> Response {
    let wanted = Wanted {
        prompt: body.prompt(),
        max_tokens: body.max_tokens,
        stream: body.stream,
        include_usage: body.stream_options.include_usage,
    };
    server.answer(Api::Chat, wanted).await
}

async fn models(State(server): Shared) -> Json<Value> {
    let model = json!({"id": server.model, "root": server.model, "object": "model",
        "owned_by": "scx_gpuaware", "max_model_len": server.max_model_len});
    Json(json!({"object": "list", "data": [model]}))
}

async fn metrics(State(server): Shared) -> String {
    let load = *server.gauge.lock().unwrap_or_else(PoisonError::into_inner);
    let used = f64::from(load.used_blocks) / f64::from(server.kv_blocks);
    format!(
        "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running {}\n\
         # TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting {}\n\
         # TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc {used}\n\
         # TYPE vllm:num_preemptions_total counter\nvllm:num_preemptions_total {}\n",
        load.running, load.waiting, load.preemptions
    )
}

impl Server {
    async fn answer(&self, api: Api, wanted: Wanted) -> Response {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let answer = Answer::new(api, id, &self.model);
        let (sender, mut pieces) = unbounded_channel();
        let request = Request {
            id,
            prompt: wanted.prompt,
            max_tokens: wanted.max_tokens.max(1),
            answer: sender,
        };
        let sent = self
            .requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .send(request);
        if sent.is_err() {
            return failure(StatusCode::SERVICE_UNAVAILABLE, "the server is ending");
        }
        let prompt_tokens = match pieces.recv().await {
            Some(Piece::Accepted { prompt_tokens }) => prompt_tokens,
            Some(Piece::Refused(why)) => return failure(StatusCode::BAD_REQUEST, &why),
            _ => return failure(StatusCode::INTERNAL_SERVER_ERROR, "the engine is dead"),
        };
        if wanted.stream {
            stream(answer, pieces, prompt_tokens, wanted.include_usage)
        } else {
            whole(answer, pieces, prompt_tokens).await
        }
    }
}

fn failure(status: StatusCode, message: &str) -> Response {
    (status, Json(protocol::error(message))).into_response()
}

fn stream(
    answer: Answer,
    pieces: UnboundedReceiver<Piece>,
    prompt_tokens: u32,
    include_usage: bool,
) -> Response {
    let events = UnboundedReceiverStream::new(pieces).filter_map(move |piece| {
        let data = match piece {
            Piece::Text { text, last } => answer.chunk(&text, last).to_string(),
            Piece::Usage { completion_tokens } if include_usage => answer
                .usage_chunk(prompt_tokens, completion_tokens)
                .to_string(),
            Piece::Done => "[DONE]".to_owned(),
            _ => return None,
        };
        Some(Ok::<_, Infallible>(Event::default().data(data)))
    });
    Sse::new(events).into_response()
}

async fn whole(
    answer: Answer,
    mut pieces: UnboundedReceiver<Piece>,
    prompt_tokens: u32,
) -> Response {
    let mut text = String::new();
    let mut count = 0;
    while let Some(piece) = pieces.recv().await {
        match piece {
            Piece::Text { text: more, .. } => text += &more,
            Piece::Usage { completion_tokens } => count = completion_tokens,
            _ => {}
        }
    }
    Json(answer.whole(&text, prompt_tokens, count)).into_response()
}
