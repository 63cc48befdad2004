// SPDX-License-Identifier: GPL-2.0-only
//! Seconds, as flags take them.

use std::time::Duration;

/// Of a hundredth to a day.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let expected = || "expected seconds, for instance 1 or 0.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| expected())?;
    if !(0.01..=86_400.0).contains(&seconds) {
        return Err(expected());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_positive_seconds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(seconds("0").is_err());
        assert!(seconds("-1").is_err());
        assert!(seconds("x").is_err());
    }
}
