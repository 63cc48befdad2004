// SPDX-License-Identifier: GPL-2.0-only
//! A round of work that failed. That is no reason to end: no descriptor or no memory was free, say, and the next round
//! finds some.

use std::time::Duration;

use anyhow::Result;
use log::warn;

/// How long the next round waits for what is missing.
const PAUSE: Duration = Duration::from_secs(1);

/// What the log has said of the last round.
#[derive(Debug, Default)]
pub struct Trouble {
    said: String,
}

impl Trouble {
    /// How long to wait after a round. An error is logged, once for as many rounds as end with the same one.
    pub fn wait_after(&mut self, round: Result<Duration>) -> Duration {
        match round {
            Ok(wait) => {
                self.said.clear();
                wait
            }
            Err(error) => {
                let text = format!("{error:#}");
                if text != self.said {
                    warn!("identification goes on with what it knows, and tries again: {text}");
                    self.said = text;
                }
                PAUSE
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn an_error_is_said_once_until_there_is_none() {
        let mut trouble = Trouble::default();
        let short = Duration::from_millis(3);
        assert_eq!(trouble.wait_after(Ok(short)), short);
        let full = || Err(anyhow!("no file").context("looking"));
        assert_eq!(trouble.wait_after(full()), PAUSE);
        assert_eq!(trouble.said, "looking: no file");
        assert_eq!(trouble.wait_after(full()), PAUSE);
        assert_eq!(trouble.wait_after(Ok(short)), short);
        assert_eq!(trouble.said, "");
    }
}
