// SPDX-License-Identifier: GPL-2.0-only
//! Versions of kernels as their names say them: series, release numbers, and what follows from them. Pure.

/// Whether `text` can name a series (`6.18`) or one release of it (`6.18.15`).
pub fn is_series(text: &str) -> bool {
    let parts: Vec<_> = text.split('.').collect();
    let numeric = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    matches!(parts.len(), 2 | 3) && parts.iter().all(numeric)
}

/// A kernel as people name one: a series, or the path of an image, which has a slash in it.
///
/// # Errors
/// It is neither; what was expected.
pub fn named(text: &str) -> Result<String, String> {
    if text.contains('/') || is_series(text) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "expected a series such as 6.18, or a path with a slash in it, got {text:?}"
    ))
}

/// The numbers that a version starts with: `6.18.15+deb13-cloud-amd64` -> 6, 18, 15.
pub fn release_numbers(version: &str) -> Vec<u32> {
    let end = version
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(version.len());
    version[..end]
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect()
}

/// Whether the scheduler of this version is EEVDF, which took CFS's place in Linux 6.6.
pub fn has_eevdf(version: &str) -> bool {
    release_numbers(version) >= vec![6, 6]
}

/// Whether threads may ask EEVDF for a slice of their own (`sched_setattr`, Linux 6.12).
pub fn has_custom_slice(version: &str) -> bool {
    release_numbers(version) >= vec![6, 12]
}

/// Whether a version belongs to a series. To what is none, such as `v6.12`, nothing belongs.
pub fn in_series(version: &str, series: &str) -> bool {
    let (numbers, series) = (release_numbers(version), release_numbers(series));
    series.len() > 1 && numbers.starts_with(&series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_a_series_from_other_words() {
        assert!(is_series("6.18") && is_series("7.0") && is_series("6.18.15"));
        assert!(
            !is_series("6") && !is_series("newest") && !is_series("6.") && !is_series("6.18-rc1")
        );
    }

    #[test]
    fn matches_whole_numbers_of_a_series() {
        assert!(in_series("6.18.15+deb13-cloud-amd64", "6.18"));
        assert!(in_series("6.18.15+deb13-cloud-amd64", "6.18.15"));
        assert!(!in_series("6.1.8", "6.18") && !in_series("6.18.15", "6.1"));
        assert!(!in_series(".fetch-x", "6.18") && !in_series(".lock", "6.18"));
        for none in ["", "6", "v6.18", "newest"] {
            assert!(!in_series("6.18.15", none), "{none}");
        }
    }

    #[test]
    fn a_kernel_is_named_by_its_series_or_its_path() {
        for text in ["6.18", "6.18.15", "./vmlinuz", "/boot/vmlinuz-6.1"] {
            assert_eq!(named(text).as_deref(), Ok(text));
        }
        for text in ["", "6", "v6.12", "newest", "6.18-rc1", "vmlinuz"] {
            let error = named(text).unwrap_err();
            assert!(error.ends_with(&format!("got {text:?}")), "{error}");
        }
    }

    #[test]
    fn knows_since_when_there_is_eevdf() {
        assert!(has_eevdf("6.6.1") && has_eevdf("6.18") && has_eevdf("7.0"));
        assert!(has_custom_slice("6.18.15") && !has_custom_slice("6.6.1"));
        assert!(!has_eevdf("6.1.0-50-cloud-amd64") && !has_eevdf("5.15.3") && !has_eevdf("6.5"));
    }
}
