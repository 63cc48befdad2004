// SPDX-License-Identifier: GPL-2.0-only
//! The OpenAI API as JSON: completions and chat completions, streamed, with usage. Types only.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{Value, json};

/// `POST /v1/completions`; keys that mean nothing here are accepted and ignored, as sampling is.
#[derive(Debug, Deserialize)]
pub struct CompletionRequest {
    pub prompt: String,
    #[serde(default = "default_max_tokens")]
    pub max_tokens: u32,
    #[serde(default)]
    pub stream: bool,
    #[serde(default)]
    pub stream_options: StreamOptions,
}

/// `POST /v1/chat/completions`
#[derive(Debug, Deserialize)]
pub struct ChatRequest {
    pub messages: Vec<ChatMessage>,
    #[serde(default = "default_max_tokens", alias = "max_completion_tokens")]
    pub max_tokens: u32,
    #[serde(default)]
    pub stream: bool,
    #[serde(default)]
    pub stream_options: StreamOptions,
}

#[derive(Debug, Deserialize)]
pub struct ChatMessage {
    pub role: String,
    pub content: Content,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Debug, Deserialize)]
pub struct ContentPart {
    #[serde(default)]
    pub text: String,
}

#[derive(Debug, Default, Deserialize)]
pub struct StreamOptions {
    #[serde(default)]
    pub include_usage: bool,
}

/// vLLM's default for completions.
fn default_max_tokens() -> u32 {
    16
}

impl ChatRequest {
    /// The messages as a chat template would write them.
    pub fn prompt(&self) -> String {
        let mut prompt = String::new();
        for message in &self.messages {
            prompt += &format!("<|{}|>\n", message.role);
            match &message.content {
                Content::Text(text) => prompt += text,
                Content::Parts(parts) => prompt.extend(parts.iter().map(|part| part.text.as_str())),
            }
            prompt.push('\n');
        }
        prompt + "<|assistant|>\n"
    }
}

/// Which of the two APIs an answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    Completions,
    Chat,
}

/// What every chunk of one answer begins with.
#[derive(Debug, Clone)]
pub struct Answer {
    pub api: Api,
    pub id: u64,
    pub model: String,
    pub created: u64,
}

impl Answer {
    pub fn new(api: Api, id: u64, model: &str) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            api,
            id,
            model: model.to_owned(),
            created: since.map_or(0, |since| since.as_secs()),
        }
    }

    /// A streamed token.
    pub fn chunk(&self, text: &str, last: bool) -> Value {
        let finish = last.then_some("length");
        let choice = match self.api {
            Api::Completions => {
                json!({"index": 0, "text": text, "logprobs": null, "finish_reason": finish})
            }
            Api::Chat => {
                json!({"index": 0, "delta": {"content": text}, "logprobs": null, "finish_reason": finish})
            }
        };
        self.envelope(true, json!([choice]), Value::Null)
    }

    /// The chunk after the last token, which has no choice.
    pub fn usage_chunk(&self, prompt_tokens: u32, completion_tokens: u32) -> Value {
        self.envelope(true, json!([]), usage(prompt_tokens, completion_tokens))
    }

    /// The whole answer at once.
    pub fn whole(&self, text: &str, prompt_tokens: u32, completion_tokens: u32) -> Value {
        let choice = match self.api {
            Api::Completions => {
                json!({"index": 0, "text": text, "logprobs": null, "finish_reason": "length"})
            }
            Api::Chat => {
                json!({"index": 0, "message": {"role": "assistant", "content": text},
                    "logprobs": null, "finish_reason": "length"})
            }
        };
        self.envelope(
            false,
            json!([choice]),
            usage(prompt_tokens, completion_tokens),
        )
    }

    fn envelope(&self, streamed: bool, choices: Value, usage: Value) -> Value {
        let (prefix, object) = match (self.api, streamed) {
            (Api::Completions, _) => ("cmpl", "text_completion"),
            (Api::Chat, true) => ("chatcmpl", "chat.completion.chunk"),
            (Api::Chat, false) => ("chatcmpl", "chat.completion"),
        };
        let mut value = json!({"id": format!("{prefix}-{}", self.id), "object": object,
            "created": self.created, "model": self.model, "choices": choices});
        if !usage.is_null() {
            value["usage"] = usage;
        }
        value
    }
}

fn usage(prompt_tokens: u32, completion_tokens: u32) -> Value {
    json!({"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens})
}

/// An error as the API reports it.
pub fn error(message: &str) -> Value {
    json!({"error": {"message": message, "type": "BadRequestError", "param": null, "code": 400}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_spellings_of_the_chat_limit_and_both_forms_of_content() {
        let chat: ChatRequest = serde_json::from_str(
            r#"{"model":"m","max_completion_tokens":7,"temperature":0.0,
            "messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"user","content":"ho"}]}"#,
        )
        .unwrap();
        assert_eq!(chat.max_tokens, 7);
        assert_eq!(chat.prompt(), "<|user|>\nhi\n<|user|>\nho\n<|assistant|>\n");
        assert!(!chat.stream && !chat.stream_options.include_usage);
    }

    #[test]
    fn chunks_have_the_fields_that_clients_read() {
        let answer = Answer::new(Api::Completions, 9, "m");
        assert_eq!(answer.chunk("a", false)["choices"][0]["text"], "a");
        assert!(answer.chunk("a", false)["choices"][0]["finish_reason"].is_null());
        assert!(answer.chunk("a", false).get("usage").is_none());
        let usage = answer.usage_chunk(3, 4);
        assert_eq!(usage["choices"], json!([]));
        assert_eq!(usage["usage"]["total_tokens"], 7);
        let chat = Answer::new(Api::Chat, 9, "m");
        let chunk = chat.chunk("a", true);
        assert_eq!(chunk["choices"][0]["delta"]["content"], "a");
        assert_eq!(chunk["choices"][0]["finish_reason"], "length");
        assert_eq!(
            chat.whole("t", 1, 2)["choices"][0]["message"]["content"],
            "t"
        );
    }
}
