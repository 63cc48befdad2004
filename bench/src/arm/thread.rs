// SPDX-License-Identifier: GPL-2.0-only
//! What an arm does to single threads of the workload, by their names: `workload.threads`.

use std::time::Duration;

use globset::Glob;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::sched_attr::{Change, Policy, SLICE_US};

/// Which threads, and what is done to them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", default, deny_unknown_fields)]
pub struct ThreadSettings {
    /// A glob that the thread's name must match. The kernel keeps 15 characters of a name.
    pub comm: String,
    /// The CPUs that it may use, a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nice: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// Of `fifo` and `rr`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// How long it wants to run at a time under EEVDF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice_us: Option<u64>,
}

impl ThreadSettings {
    /// What the kernel is told beside the CPUs.
    pub fn change(&self) -> Change {
        Change {
            policy: self.policy,
            nice: self.nice,
            // A real-time policy without a priority is an error of the kernel's.
            priority: self
                .policy
                .filter(|policy| policy.is_realtime())
                .map(|_| self.priority.unwrap_or(1)),
            slice: self.slice_us.map(Duration::from_micros),
        }
    }

    fn mistake(&self) -> Option<String> {
        let Self {
            comm,
            cpus,
            nice,
            policy,
            priority,
            slice_us,
        } = self;
        if comm.is_empty() || Glob::new(comm).is_err() {
            return Some(format!(
                "comm: expected a thread's name, with * for what may differ, got {comm:?}"
            ));
        }
        if cpus.is_none() && nice.is_none() && policy.is_none() && slice_us.is_none() {
            return Some(
                "expected cpus, nice, policy or slice_us beside comm, got none of them".to_owned(),
            );
        }
        if let Some(nice) = nice.filter(|nice| !(-20..=19).contains(nice)) {
            return Some(format!("nice: expected -20 to 19, got {nice}"));
        }
        let realtime = policy.is_some_and(Policy::is_realtime);
        match priority {
            Some(_) if !realtime => {
                return Some("priority: expected with policy = \"fifo\" or \"rr\"".to_owned());
            }
            Some(priority) if !(1..=99).contains(priority) => {
                return Some(format!("priority: expected 1 to 99, got {priority}"));
            }
            _ => {}
        }
        if realtime && (nice.is_some() || slice_us.is_some()) {
            return Some(
                "nice, slice_us: expected without a real-time policy, which has neither".to_owned(),
            );
        }
        let slice_us = slice_us.filter(|slice_us| !SLICE_US.contains(slice_us));
        slice_us.map(|slice_us| {
            let (low, high) = (SLICE_US.start(), SLICE_US.end());
            format!("slice_us: expected {low} to {high}, which the kernel takes, got {slice_us}")
        })
    }
}

impl<'de> Deserialize<'de> for ThreadSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let settings = Self::deserialize(deserializer)?;
        match settings.mistake() {
            Some(mistake) => Err(de::Error::custom(mistake)),
            None => Ok(settings),
        }
    }
}

impl Serialize for ThreadSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ThreadSettings, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn is_written_as_it_is_read() {
        for text in [
            "comm = \"launch-*\"\ncpus = \"1\"",
            "comm = \"e\"\nnice = -10\npolicy = \"batch\"",
            "comm = \"e\"\npolicy = \"fifo\"\npriority = 7",
            "comm = \"e\"\nslice_us = 100",
        ] {
            let settings = read(text).unwrap();
            let json = serde_json::to_string(&settings).unwrap();
            assert_eq!(
                serde_json::from_str::<ThreadSettings>(&json).unwrap(),
                settings
            );
        }
    }

    #[test]
    fn mistakes_say_what_was_expected() {
        for (text, expected) in [
            ("nice = 1", "comm: expected a thread's name"),
            ("comm = \"a[\"\nnice = 1", "comm: expected a thread's name"),
            ("comm = \"a\"", "expected cpus, nice, policy or slice_us"),
            (
                "comm = \"a\"\nnice = 20",
                "nice: expected -20 to 19, got 20",
            ),
            (
                "comm = \"a\"\nnice = 1\npriority = 3",
                "priority: expected with policy",
            ),
            (
                "comm = \"a\"\npolicy = \"rr\"\npriority = 100",
                "priority: expected 1 to 99, got 100",
            ),
            (
                "comm = \"a\"\npolicy = \"rr\"\nnice = 1",
                "nice, slice_us: expected without",
            ),
            (
                "comm = \"a\"\nslice_us = 99",
                "slice_us: expected 100 to 100000",
            ),
            ("comm = \"a\"\npolicy = \"soon\"", "unknown variant `soon`"),
            ("comm = \"a\"\ncpu = \"1\"", "unknown field `cpu`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_real_time_policy_has_a_priority() {
        let change = read("comm = \"a\"\npolicy = \"fifo\"").unwrap().change();
        assert_eq!(
            (change.policy, change.priority),
            (Some(Policy::Fifo), Some(1))
        );
        assert_eq!(
            read("comm = \"a\"\nnice = 3").unwrap().change().priority,
            None
        );
    }
}
