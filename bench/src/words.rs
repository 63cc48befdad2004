// SPDX-License-Identifier: GPL-2.0-only
//! Figures in words, as people read them.

use std::time::Duration;

/// "7 min 20 s", "45 s".
pub fn in_words(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, seconds) => format!("{minutes} min {seconds:02} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_durations_in_words() {
        assert_eq!(in_words(Duration::from_millis(45_400)), "45 s");
        assert_eq!(in_words(Duration::from_secs(440)), "7 min 20 s");
    }
}
