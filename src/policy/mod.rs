// SPDX-License-Identifier: GPL-2.0-only
//! Policy: what an operator wants, from TOML text to validated values.
//!
//! Pure: reads no file and knows no machine. Unknown keys are errors.

pub mod cpuset;

use std::time::Duration;

use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;

use cpuset::CpuSet;

/// Longest slice that the policy accepts: a tenth of the shortest wait that anybody notices.
const MAX_SLICE_US: u64 = 100_000;

/// A validated policy.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Which CPUs launchers prefer.
    pub preferred: Preferred,
    /// Class LAUNCH.
    pub launch: Class,
    /// Class BACKGROUND.
    pub background: Background,
}

/// `[preferred]`
#[derive(Debug, Clone)]
pub struct Preferred {
    /// The CPUs; `None` is "auto".
    pub cpus: Option<CpuSet>,
    /// Longest time that a CPU is held idle for a launcher that sleeps; zero: never.
    pub hold_cap: Duration,
}

/// `[class.launch]`
#[derive(Debug, Clone)]
pub struct Class {
    /// How long a launcher runs before another launcher's turn.
    pub slice: Duration,
    /// Threads that call a CUDA launch function belong to the class.
    pub cuda_launch: bool,
    /// Tasks in cgroups that match one of these, or below, belong to the class.
    pub cgroups: Vec<CgroupGlob>,
}

/// `[class.background]`
#[derive(Debug, Clone)]
pub struct Background {
    /// How long a background task runs while others wait.
    pub slice: Duration,
    /// Part of a CPU that background gets where launchers would leave nothing, 0.001 to 0.5.
    pub min_share: f64,
    /// Tasks in cgroups that match one of these, or below, belong to the class.
    pub cgroups: Vec<CgroupGlob>,
}

/// A glob over cgroup paths relative to the root of the hierarchy, without leading slash.
#[derive(Debug, Clone)]
pub struct CgroupGlob {
    text: String,
    matcher: GlobMatcher,
}

/// Why a policy is refused. The text names the place; the caller adds the file.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// Not TOML, an unknown key or a value of the wrong type.
    #[error("{0}")]
    Syntax(String),
    /// A value that is well-formed but cannot be.
    #[error("{key}: {problem}")]
    Value {
        /// Dotted path of the key.
        key: &'static str,
        /// What is wrong, what was expected.
        problem: String,
    },
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            preferred: Preferred {
                cpus: None,
                hold_cap: AUTO_HOLD_CAP,
            },
            launch: Class {
                slice: Duration::from_micros(20_000),
                cuda_launch: true,
                cgroups: Vec::new(),
            },
            background: Background {
                slice: Duration::from_micros(4_000),
                min_share: 0.05,
                cgroups: Vec::new(),
            },
        }
    }
}

/// `hold_us = "auto"`: long enough for the wait at the end of a decoded token, short enough that
/// what it wastes stays bounded: README's table has the idle time under it.
const AUTO_HOLD_CAP: Duration = Duration::from_micros(2_000);

impl CgroupGlob {
    /// Compiles `text`; `*` stays within one path component, `**` crosses them.
    pub fn new(text: &str) -> Result<Self, String> {
        let glob = GlobBuilder::new(text.trim_matches('/'))
            .literal_separator(true)
            .build()
            .map_err(|error| format!("{text:?} is not a path glob: {}", error.kind()))?;
        Ok(Self {
            text: text.to_owned(),
            matcher: glob.compile_matcher(),
        })
    }

    /// Does the glob match `path`, relative to the root of the hierarchy? `a/**` matches below
    /// `a` and, unlike a file glob, `a` itself: tasks live there too.
    pub fn matches(&self, path: &str) -> bool {
        let path = path.trim_matches('/');
        self.matcher.is_match(path)
            || self
                .text
                .trim_matches('/')
                .strip_suffix("/**")
                .is_some_and(|parent| Self::new(parent).is_ok_and(|glob| glob.matches(path)))
    }

    /// As the operator wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Policy {
    /// Parses and validates a policy.
    ///
    /// # Errors
    /// [`PolicyError`]: text that is not TOML, unknown keys, values out of range.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let file: File = toml::from_str(text)
            .map_err(|error| PolicyError::Syntax(error.to_string().trim_end().to_owned()))?;
        file.validate()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: Option<i64>,
    #[serde(default)]
    preferred: PreferredFile,
    #[serde(default)]
    class: ClassesFile,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PreferredFile {
    cpus: Option<String>,
    hold_us: Option<HoldFile>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "hold_us is \"auto\" or a number of microseconds"
)]
enum HoldFile {
    Word(String),
    Microseconds(u64),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassesFile {
    launch: Option<LaunchFile>,
    background: Option<BackgroundFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LaunchFile {
    slice_us: Option<u64>,
    #[serde(rename = "match")]
    rules: Option<Vec<Rule>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BackgroundFile {
    slice_us: Option<u64>,
    min_share: Option<String>,
    #[serde(rename = "match")]
    rules: Option<Vec<Rule>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    cuda_launch: Option<bool>,
    cgroup: Option<String>,
}

/// What the rules of one class come to.
#[derive(Default)]
struct Rules {
    cuda_launch: bool,
    cgroups: Vec<CgroupGlob>,
}

impl File {
    fn validate(self) -> Result<Policy, PolicyError> {
        let mut policy = Policy::default();
        if let Some(version) = self.version.filter(|&version| version != 1) {
            return Err(value(
                "version",
                format!("{version} is not supported: expected 1"),
            ));
        }
        policy.preferred = self.preferred.validate(policy.preferred)?;
        if let Some(launch) = self.class.launch {
            if let Some(us) = launch.slice_us {
                policy.launch.slice = slice("class.launch.slice_us", us)?;
            }
            if let Some(rules) = launch.rules {
                let rules = rules_of("class.launch.match", rules)?;
                policy.launch.cuda_launch = rules.cuda_launch;
                policy.launch.cgroups = rules.cgroups;
            }
        }
        if let Some(background) = self.class.background {
            policy.background = background.validate(policy.background)?;
        }
        Ok(policy)
    }
}

impl PreferredFile {
    fn validate(self, mut preferred: Preferred) -> Result<Preferred, PolicyError> {
        if let Some(cpus) = self.cpus.filter(|cpus| cpus != "auto") {
            let cpus = cpus.parse().map_err(|error: cpuset::CpuListError| {
                value("preferred.cpus", error.to_string())
            })?;
            preferred.cpus = Some(cpus);
        }
        match self.hold_us {
            Some(HoldFile::Word(word)) if word != "auto" => {
                return Err(value(
                    "preferred.hold_us",
                    format!("{word:?}: expected \"auto\" or a number of microseconds"),
                ));
            }
            Some(HoldFile::Microseconds(us)) if us > MAX_SLICE_US => {
                return Err(value(
                    "preferred.hold_us",
                    format!("{us} is too long: expected at most {MAX_SLICE_US}"),
                ));
            }
            Some(HoldFile::Microseconds(us)) => preferred.hold_cap = Duration::from_micros(us),
            Some(HoldFile::Word(_)) | None => {}
        }
        Ok(preferred)
    }
}

impl BackgroundFile {
    fn validate(self, mut background: Background) -> Result<Background, PolicyError> {
        if let Some(us) = self.slice_us {
            background.slice = slice("class.background.slice_us", us)?;
        }
        if let Some(share) = self.min_share {
            background.min_share = percentage("class.background.min_share", &share)?;
        }
        if let Some(rules) = self.rules {
            let rules = rules_of("class.background.match", rules)?;
            if rules.cuda_launch {
                return Err(value(
                    "class.background.match",
                    "cuda_launch belongs to class.launch: leave it out of its match to treat \
                     launching threads as background"
                        .to_owned(),
                ));
            }
            background.cgroups = rules.cgroups;
        }
        Ok(background)
    }
}

fn value(key: &'static str, problem: String) -> PolicyError {
    PolicyError::Value { key, problem }
}

fn slice(key: &'static str, us: u64) -> Result<Duration, PolicyError> {
    if !(100..=MAX_SLICE_US).contains(&us) {
        return Err(value(
            key,
            format!("{us} is out of range: expected 100 to {MAX_SLICE_US} microseconds"),
        ));
    }
    Ok(Duration::from_micros(us))
}

fn percentage(key: &'static str, text: &str) -> Result<f64, PolicyError> {
    text.strip_suffix('%')
        .and_then(|number| number.trim().parse::<f64>().ok())
        .map(|percent| percent / 100.0)
        .filter(|share| (0.001..=0.5).contains(share))
        .ok_or_else(|| value(key, format!("{text:?}: expected \"0.1%\" to \"50%\"")))
}

fn rules_of(key: &'static str, list: Vec<Rule>) -> Result<Rules, PolicyError> {
    let mut rules = Rules::default();
    for (index, rule) in list.into_iter().enumerate() {
        match (rule.cuda_launch, rule.cgroup) {
            (Some(yes), None) => rules.cuda_launch |= yes,
            (None, Some(glob)) => rules.cgroups.push(
                CgroupGlob::new(&glob)
                    .map_err(|problem| value(key, format!("rule {}: {problem}", index + 1)))?,
            ),
            _ => {
                return Err(value(
                    key,
                    format!(
                        "rule {}: expected exactly one of cuda_launch and cgroup",
                        index + 1
                    ),
                ));
            }
        }
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        Policy::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn empty_policy_is_the_default() {
        let policy = Policy::parse("").unwrap();
        assert!(policy.launch.cuda_launch);
        assert!(policy.preferred.cpus.is_none());
        assert_eq!(policy.preferred.hold_cap, AUTO_HOLD_CAP);
    }

    #[test]
    fn reads_every_key() {
        let policy = Policy::parse(
            r#"
            version = 1
            [preferred]
            cpus = "1,3"
            hold_us = 0
            [class.launch]
            slice_us = 10000
            match = [{ cgroup = "gpu.slice/**" }]
            [class.background]
            slice_us = 2000
            min_share = "10%"
            match = [{ cgroup = "batch" }]
            "#,
        )
        .unwrap();
        assert_eq!(policy.preferred.cpus, Some(CpuSet::new([1, 3])));
        assert_eq!(policy.preferred.hold_cap, Duration::ZERO);
        assert_eq!(policy.launch.slice, Duration::from_millis(10));
        assert!(!policy.launch.cuda_launch);
        assert_eq!(policy.launch.cgroups[0].text(), "gpu.slice/**");
        assert_eq!(policy.background.min_share, 0.1);
        assert!(policy.background.cgroups[0].matches("/batch"));
    }

    #[test]
    fn rejects_unknown_key_with_its_line() {
        let message = refusal("version = 1\n[preferred]\ncpu = \"1\"\n");
        assert!(message.contains("line 3"), "{message}");
        assert!(message.contains("unknown field `cpu`"), "{message}");
        assert!(message.contains("`cpus`"), "{message}");
    }

    #[test]
    fn rejects_values_that_cannot_be() {
        assert!(refusal("version = 2").contains("expected 1"));
        assert!(refusal("[preferred]\ncpus = \"3-1\"").contains("preferred.cpus: range"));
        assert!(refusal("[preferred]\nhold_us = \"long\"").contains("\"auto\""));
        assert!(refusal("[preferred]\nhold_us = 999999").contains("at most"));
        assert!(refusal("[class.launch]\nslice_us = 5").contains("100 to"));
        assert!(refusal("[class.background]\nmin_share = \"5\"").contains("50%"));
        assert!(refusal("[class.launch]\nmatch = [{}]").contains("exactly one"));
        assert!(refusal("[class.launch]\nmatch = [{ cgroup = \"a[\" }]").contains("rule 1"));
        assert!(
            refusal("[class.background]\nmatch = [{ cuda_launch = true }]")
                .contains("class.launch")
        );
    }

    #[test]
    fn cgroup_globs_match_by_component() {
        let glob = CgroupGlob::new("/gpu.slice/*/vllm").unwrap();
        assert!(glob.matches("gpu.slice/a/vllm"));
        assert!(!glob.matches("gpu.slice/a/b/vllm"));
        let below = CgroupGlob::new("gpu.slice/**").unwrap();
        assert!(below.matches("/gpu.slice/a/b"));
        assert!(below.matches("/gpu.slice"));
        assert!(!below.matches("/gpu.slice2"));
    }
}
