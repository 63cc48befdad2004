// SPDX-License-Identifier: GPL-2.0-only
//! A profile as JSON and back. What a file says is checked before anybody works with it: it may come from a stranger.

use serde::Deserialize;
use thiserror::Error;

use super::{
    Affinity, Bucket, Count, Group, Histogram, MAX_CPUS, MAX_THREADS, NR_BUCKETS, Profile, VERSION,
};

/// A longer recording than a day is none.
const MAX_LENGTH_NS: u64 = 86_400_000_000_000;

/// Why a text is no profile.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// With line and column.
    #[error("expected a profile that scx_gpuaware trace --record-profile wrote: {0}")]
    Json(serde_json::Error),
    /// Of another version.
    #[error("schema: expected {VERSION}, got {0}: another version of scx_gpuaware wrote it")]
    Schema(u32),
    /// A value that cannot be.
    #[error("{key}: expected {expected}")]
    Value {
        /// Where: `groups[3].nice`.
        key: String,
        /// What should stand there.
        expected: String,
    },
}

/// All that is read before the version is known to be ours.
#[derive(Deserialize)]
struct Versioned {
    schema: u32,
}

fn check(
    holds: bool,
    key: impl Into<String>,
    expected: impl Into<String>,
) -> Result<(), ProfileError> {
    match holds {
        true => Ok(()),
        false => Err(ProfileError::Value {
            key: key.into(),
            expected: expected.into(),
        }),
    }
}

impl Profile {
    /// Reads what [`Profile::text`] wrote.
    ///
    /// # Errors
    /// No JSON, another schema, an unknown or a missing key, a value that cannot be.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let Versioned { schema } = serde_json::from_str(text).map_err(ProfileError::Json)?;
        if schema != VERSION {
            return Err(ProfileError::Schema(schema));
        }
        let profile: Self = serde_json::from_str(text).map_err(ProfileError::Json)?;
        profile.check()?;
        Ok(profile)
    }

    /// As JSON, a line for each group.
    ///
    /// # Errors
    /// None that could be named.
    pub fn text(&self) -> Result<String, serde_json::Error> {
        let empty = Self {
            groups: Vec::new(),
            ..self.clone()
        };
        let head = serde_json::to_string(&empty)?;
        let head = head.strip_suffix("]}").unwrap_or(&head);
        let groups: Vec<String> = self
            .groups
            .iter()
            .map(serde_json::to_string)
            .collect::<Result<_, _>>()?;
        Ok(format!("{head}\n{}\n]}}\n", groups.join(",\n")))
    }

    fn check(&self) -> Result<(), ProfileError> {
        check(
            (1..=MAX_LENGTH_NS).contains(&self.length_ns),
            "length_ns",
            "up to a day",
        )?;
        let is_tick = self.hz.is_none_or(|hz| (1..=100_000).contains(&hz));
        check(is_tick, "hz", "ticks a second, 1 to 100000, or null")?;
        let (cpus, gpus) = (&self.machine.cpus, &self.machine.gpus);
        let some = (1..=MAX_CPUS).contains(&cpus.len());
        check(some, "machine.cpus", format!("1 to {MAX_CPUS} CPUs"))?;
        for (at, cpu) in cpus.iter().enumerate() {
            let fit = [cpu.core, cpu.llc, cpu.node]
                .iter()
                .all(|&it| it < cpus.len());
            let expected = "core, llc and node below the number of CPUs";
            check(fit, format!("machine.cpus[{at}]"), expected)?;
        }
        let is_node = |node: &usize| cpus.iter().any(|cpu| cpu.node == *node);
        let fit = gpus.iter().all(is_node) && gpus.len() <= MAX_CPUS;
        check(fit, "machine.gpus", "nodes of CPUs")?;
        let each = self.interrupts.len() == cpus.len();
        check(each, "interrupts", "one entry for each CPU")?;
        for (at, own) in self.interrupts.iter().enumerate() {
            let fit = |Count(count, ns)| count <= self.length_ns / 1000 && ns <= self.length_ns;
            let fit = [own.hard, own.soft, own.timer, own.ipi]
                .into_iter()
                .all(fit);
            let expected = "at most one a microsecond, and no more time than length_ns";
            check(fit, format!("interrupts[{at}]"), expected)?;
        }
        for (at, group) in self.groups.iter().enumerate() {
            group.check(&format!("groups[{at}]"), self)?;
        }
        let threads = self
            .groups
            .iter()
            .fold(0, |sum: u64, it| sum.saturating_add(it.threads));
        let expected = format!("at most {MAX_THREADS} threads in all, got {threads}");
        check(threads <= MAX_THREADS, "groups", expected)
    }
}

impl Group {
    fn check(&self, key: &str, profile: &Profile) -> Result<(), ProfileError> {
        let at = |name: &str| format!("{key}.{name}");
        check(self.threads > 0, at("threads"), "1 or more")?;
        let lived = profile.length_ns.saturating_mul(self.threads);
        let expected = "at most length_ns for each thread";
        check(self.alive_ns <= lived, at("alive_ns"), expected)?;
        check((-20..=19).contains(&self.nice), at("nice"), "-20 to 19")?;
        let nr_cpus = profile.machine.cpus.len();
        let (list, is_full) = match &self.affinity {
            Affinity::All => (&[][..], true),
            Affinity::AnyOf(list) => (&list[..], !list.is_empty()),
            Affinity::Each(list) => (&list[..], list.len() as u64 == self.threads),
        };
        let fit = is_full && list.iter().all(|&cpu| (cpu as usize) < nr_cpus);
        let expected = "CPUs of the machine, of \"each\" one for every thread";
        check(fit, at("affinity"), expected)?;
        for (name, histogram) in [
            ("run", &self.run),
            ("sleep_alone", &self.sleep_alone),
            ("sleep_awaited", &self.sleep_awaited),
            ("wait", &self.wait),
        ] {
            histogram.check(&at(name))?;
        }
        check(self.run.count() > 0, at("run"), "one run or more")?;
        let fit = self
            .woken_by
            .groups
            .iter()
            .all(|(group, _)| *group < profile.groups.len());
        check(fit, at("woken_by.groups"), "numbers of groups of the file")?;
        let counts = self.woken_by.groups.iter().map(|(_, count)| *count);
        let woken = counts.fold(0, u64::saturating_add);
        let fit = woken <= self.sleep_awaited.count();
        check(
            fit,
            at("woken_by.groups"),
            "at most as many as sleep_awaited",
        )
    }
}

impl Histogram {
    fn check(&self, key: &str) -> Result<(), ProfileError> {
        let numbers: Vec<u32> = self.0.iter().map(|bucket| bucket.0).collect();
        let in_order = numbers.windows(2).all(|two| two[0] < two[1]);
        let known = numbers.iter().all(|&number| number < NR_BUCKETS);
        let expected = format!("buckets 0 to {} in their order", NR_BUCKETS - 1);
        check(in_order && known, key, expected)?;
        for bucket in &self.0 {
            let Bucket(number, count, mean_ns) = *bucket;
            let least = bucket.least_ns();
            let most = bucket.most_ns().unwrap_or(MAX_LENGTH_NS);
            let fit =
                (1..=u64::from(u32::MAX)).contains(&count) && (least..=most).contains(&mean_ns);
            let expected =
                format!("bucket {number} with a count and a mean of {least} to {most} ns");
            check(fit, key, expected)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::group::tests::{sample, strings};
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let profile = sample();
        let text = profile.text().unwrap();
        assert_eq!(Profile::parse(&text).unwrap(), profile);
        assert_eq!(text.lines().count(), profile.groups.len() + 2, "{text}");
    }

    #[test]
    fn another_schema_is_refused_before_its_keys_are_read() {
        let error = Profile::parse("{\"schema\": 7, \"flavour\": 1}").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("expected 1, got 7"), "{text}");
        assert!(Profile::parse("[]").is_err() && Profile::parse("").is_err());
    }

    #[test]
    fn there_is_no_place_for_names() {
        let text = sample().text().unwrap();
        let named = text.replace("\"nice\":0", "\"comm\":\"python3\",\"nice\":0");
        let error = Profile::parse(&named).unwrap_err().to_string();
        assert!(
            error.contains("`comm`") && error.contains("line 2 column"),
            "{error}"
        );
        let known = [
            "launch",
            "handoff",
            "background",
            "normal",
            "idle",
            "real_time",
            "all",
            "any_of",
            "each",
        ];
        let value = serde_json::from_str(&text).unwrap();
        for word in strings(&value) {
            assert!(known.contains(&word.as_str()), "{word}");
        }
    }

    proptest! {
        /// Somebody's edits: it is read as something that is written the same again, or refused.
        #[test]
        fn whatever_stands_in_a_file_is_read_or_refused(at in 0.0..1.0, gone in 0..40_usize, new in "[-0-9,\\]}{\\[\"a-z:]{0,9}") {
            let text = sample().text().unwrap();
            let from = (at * text.len() as f64) as usize;
            let to = (from + gone).min(text.len());
            let edited = format!("{}{new}{}", &text[..from], &text[to..]);
            if let Ok(profile) = Profile::parse(&edited) {
                prop_assert_eq!(Profile::parse(&profile.text().unwrap()).unwrap(), profile);
            }
        }
    }

    #[test]
    fn values_that_cannot_be_are_refused_by_key() {
        let text = sample().text().unwrap();
        for (from, to, key) in [
            (
                "\"nice\":0",
                "\"nice\":40",
                "groups[0].nice: expected -20 to 19",
            ),
            ("\"hz\":250", "\"hz\":0", "hz: expected ticks"),
            ("[22,", "[40,", "groups[0].run: expected buckets"),
            ("\"each\":[0,1]", "\"each\":[0]", "affinity: expected CPUs"),
            (
                "\"each\":[0,1]",
                "\"each\":[0,9]",
                "affinity: expected CPUs",
            ),
            ("[1,450]", "[1,501]", "at most as many as sleep_awaited"),
            (
                "[100,500000]",
                "[9000000,1]",
                "interrupts[0]: expected at most",
            ),
            ("\"node\":0", "\"node\":9", "machine.cpus[0]: expected core"),
            (
                "\"threads\":1,",
                "\"threads\":999999999,",
                "at most 100000000 threads",
            ),
        ] {
            assert!(text.contains(from), "{from}: {text}");
            let error = Profile::parse(&text.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(key), "{to}: {error}");
        }
    }
}
