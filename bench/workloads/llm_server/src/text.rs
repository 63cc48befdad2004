// SPDX-License-Identifier: GPL-2.0-only
//! Tokenizer and detokenizer, each a thread, between the API and the engine. Their vocabulary means
//! nothing; they read every byte of a prompt and write every token's text, as real ones do.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use tokio::sync::mpsc::UnboundedSender;

use crate::engine::Message;
use crate::schedule::Token;

/// Bytes of a token: about what byte-pair encodings reach in English.
const BYTES_PER_TOKEN: usize = 4;
const VOCABULARY: u64 = 151_936;
const SYLLABLES: [&str; 16] = [
    "ta", "ro", "mi", "ne", "sol", "ka", "ve", "lu", "dan", "pe", "fi", "gor", "ha", "es", "tu",
    "bri",
];

/// A request on its way to the tokenizer.
#[derive(Debug)]
pub struct Request {
    pub id: u64,
    pub prompt: String,
    pub max_tokens: u32,
    pub answer: UnboundedSender<Piece>,
}

/// What a client gets of its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// The tokens of the prompt, once they are counted.
    Accepted {
        prompt_tokens: u32,
    },
    Refused(String),
    Text {
        text: String,
        last: bool,
    },
    /// After the last text: how many tokens the answer has.
    Usage {
        completion_tokens: u32,
    },
    Done,
}

/// Those who wait for text, by request.
type Waiting = Arc<Mutex<HashMap<u64, UnboundedSender<Piece>>>>;

/// The token ids of a text.
pub fn tokenize(text: &str) -> Vec<u64> {
    text.as_bytes()
        .chunks(BYTES_PER_TOKEN)
        .map(|bytes| {
            // FNV-1a: every byte counts.
            let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
            hash % VOCABULARY
        })
        .collect()
}

/// The text of a token.
fn detokenize(id: u64, index: u32) -> String {
    let token = (id.wrapping_mul(31) + u64::from(index).wrapping_mul(7919)) % VOCABULARY;
    let syllable = |shift: u32| SYLLABLES[(token >> shift) as usize % SYLLABLES.len()];
    format!(" {}{}", syllable(0), syllable(4))
}

/// Both threads; they end when their senders are gone.
pub struct Threads {
    tokenizer: JoinHandle<()>,
    detokenizer: JoinHandle<()>,
}

impl Threads {
    pub fn start(
        max_model_len: u32,
        requests: Receiver<Request>,
        engine: Sender<Message>,
        tokens: Receiver<Vec<Token>>,
    ) -> Result<Self> {
        let waiting = Waiting::default();
        let (reader, aborts) = (Arc::clone(&waiting), engine.clone());
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(work)
                .with_context(|| format!("cannot start the {name}"))
        };
        Ok(Self {
            tokenizer: spawn(
                "tokenizer",
                Box::new(move || run_tokenizer(max_model_len, &requests, &engine, &waiting)),
            )?,
            detokenizer: spawn(
                "detokenizer",
                Box::new(move || run_detokenizer(&tokens, &aborts, &reader)),
            )?,
        })
    }

    pub fn finish(self) -> Result<()> {
        for thread in [self.tokenizer, self.detokenizer] {
            let name = thread.thread().name().unwrap_or("thread").to_owned();
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("the {name} panicked"))?;
        }
        Ok(())
    }
}

fn run_tokenizer(
    max_model_len: u32,
    requests: &Receiver<Request>,
    engine: &Sender<Message>,
    waiting: &Waiting,
) {
    while let Ok(request) = requests.recv() {
        let prompt_tokens = tokenize(&request.prompt).len() as u32;
        // A client that is gone has no use for any of this.
        if prompt_tokens.saturating_add(request.max_tokens) > max_model_len {
            let why = format!(
                "prompt ({prompt_tokens} tokens) and answer (max_tokens {}) do not fit into the model's {max_model_len} tokens",
                request.max_tokens
            );
            let _ = request.answer.send(Piece::Refused(why));
            continue;
        }
        let _ = request.answer.send(Piece::Accepted { prompt_tokens });
        waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(request.id, request.answer);
        let message = Message::Request {
            id: request.id,
            prompt_tokens,
            max_tokens: request.max_tokens,
        };
        if engine.send(message).is_err() {
            return;
        }
    }
}

fn run_detokenizer(tokens: &Receiver<Vec<Token>>, aborts: &Sender<Message>, waiting: &Waiting) {
    while let Ok(step) = tokens.recv() {
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for Token { id, index, last } in step {
            let text = detokenize(id, index);
            let mut pieces = vec![Piece::Text { text, last }];
            if last {
                let completion_tokens = index;
                pieces.extend([Piece::Usage { completion_tokens }, Piece::Done]);
            }
            let gone = waiting
                .get(&id)
                .is_some_and(|answer| pieces.into_iter().any(|piece| answer.send(piece).is_err()));
            if gone {
                // The engine ends first at shutdown: then there is nothing left to abort.
                let _ = aborts.send(Message::Abort(id));
            }
            if gone || last {
                waiting.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn four_bytes_are_a_token() {
        assert_eq!(tokenize("").len(), 0);
        assert_eq!(tokenize("abcdefghi").len(), 3);
        assert_ne!(tokenize("abcd"), tokenize("abce"));
        assert!(detokenize(7, 3).starts_with(' '));
    }

    #[test]
    fn texts_reach_their_client_and_a_lost_client_is_aborted() {
        let (to_tokenizer, requests) = channel();
        let (engine, engine_gets) = channel();
        let (from_engine, tokens) = channel();
        let threads = Threads::start(100, requests, engine, tokens).unwrap();
        let (answer, mut client) = tokio::sync::mpsc::unbounded_channel();
        let request = |id, prompt: &str, answer| Request {
            id,
            prompt: prompt.to_owned(),
            max_tokens: 5,
            answer,
        };
        to_tokenizer
            .send(request(1, "eight by", answer.clone()))
            .unwrap();
        assert_eq!(
            client.blocking_recv(),
            Some(Piece::Accepted { prompt_tokens: 2 })
        );
        let told = engine_gets.recv().unwrap();
        assert!(
            matches!(
                told,
                Message::Request {
                    id: 1,
                    prompt_tokens: 2,
                    max_tokens: 5
                }
            ),
            "{told:?}"
        );
        let token = |index, last| vec![Token { id: 1, index, last }];
        from_engine.send(token(1, false)).unwrap();
        let text = client.blocking_recv();
        assert!(
            matches!(text, Some(Piece::Text { last: false, .. })),
            "{text:?}"
        );
        drop((client, answer));
        from_engine.send(token(2, false)).unwrap();
        assert!(matches!(engine_gets.recv().unwrap(), Message::Abort(1)));

        let (answer, mut client) = tokio::sync::mpsc::unbounded_channel();
        let long = "x".repeat(400);
        to_tokenizer.send(request(2, &long, answer)).unwrap();
        let refused = client.blocking_recv();
        assert!(matches!(refused, Some(Piece::Refused(_))), "{refused:?}");
        drop((to_tokenizer, from_engine));
        threads.finish().unwrap();
    }
}
