// SPDX-License-Identifier: GPL-2.0-only
//! The values that keys take: each is in range and in its unit once it is parsed.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Visitor};
use toml::Spanned;

use super::glob::{CgroupGlob, NameGlob, PathGlob};
use super::model::{AUTO_HOLD, Arming, EntryPoints, Hold, Max, Smt};
use super::rule::Endpoint;
use super::spelling::none_of;

/// Longest slice that the policy accepts: a tenth of the shortest wait that anybody notices.
const MAX_SLICE_US: i64 = 100_000;
/// Longest slice of background on a preferred CPU.
const MAX_LEND_US: i64 = 1_000;

/// Longest time without a sighting that the policy accepts: a day.
const MAX_EXPIRE_S: i64 = 86_400;

/// A value and where it stands in the text.
#[derive(Debug, Clone)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Bytes of the text.
    pub span: Range<usize>,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        let span = spanned.span();
        let value = spanned.into_inner();
        Ok(Self { value, span })
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Anything but an array or a table, as TOML has it.
#[derive(Debug, Clone)]
pub enum Scalar {
    /// A whole number.
    Integer(i64),
    /// A number with a point.
    Float(f64),
    /// Text in quotes.
    Text(String),
    /// true or false.
    Bool(bool),
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a single value")
            }

            fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar::Integer(value))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar::Integer(i64::try_from(value).unwrap_or(i64::MAX)))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar::Float(value))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar::Bool(value))
            }

            fn visit_str<E>(self, value: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(value.to_owned()))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::Bool(value) => value.fmt(f),
        }
    }
}

impl Scalar {
    /// The microseconds of a text such as `20ms`, `500 us`, `1s` or `300`.
    fn written_duration_us(&self) -> Option<i64> {
        let Self::Text(text) = self else { return None };
        let text = text.trim();
        let digits = text.find(|char: char| !char.is_ascii_digit() && char != '.');
        let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
        let factor = match unit.trim() {
            "ns" => 0.001,
            "" | "us" | "µs" => 1.0,
            "ms" => 1e3,
            "s" => 1e6,
            _ => return None,
        };
        let us = number.parse::<f64>().ok()? * factor;
        (1.0..1e12).contains(&us).then_some(us as i64)
    }

    fn micros(&self, range: Range<i64>, also: &str) -> Result<Duration, String> {
        let expected = || {
            let last = range.end - 1;
            format!(
                "expected {also}a whole number of microseconds from {} to {last}",
                range.start
            )
        };
        match self {
            Self::Integer(us) if range.contains(us) => Ok(Duration::from_micros(*us as u64)),
            Self::Integer(us) => Err(format!("{us} is out of range: {}", expected())),
            _ => Err(match self.written_duration_us() {
                Some(us) if range.contains(&us) => {
                    format!("{self}: {}: write {us}", expected())
                }
                _ => format!("{self}: {}", expected()),
            }),
        }
    }

    /// A part of a whole, from a text such as `5%`.
    fn share(&self, least: f64, most: f64) -> Result<f64, String> {
        let expected = format!("expected \"{}%\" to \"{}%\"", least * 100.0, most * 100.0);
        let Self::Text(text) = self else {
            let meant = match self {
                Self::Integer(number) => Some(*number as f64),
                Self::Float(share) => Some(round(share * 100.0)),
                _ => None,
            };
            let meant = meant.filter(|percent| (least..=most).contains(&(percent / 100.0)));
            return Err(match meant {
                Some(percent) => format!("{self}: {expected}: write \"{percent}%\""),
                None => format!("{self}: {expected}"),
            });
        };
        text.strip_suffix('%')
            .and_then(|number| number.trim().parse::<f64>().ok())
            .map(|percent| percent / 100.0)
            .filter(|share| (least..=most).contains(share))
            .ok_or_else(|| format!("{text:?}: {expected}"))
    }
}

fn round(percent: f64) -> f64 {
    (percent * 1000.0).round() / 1000.0
}

/// Defines a newtype that is parsed from a [`Scalar`], with its part of the JSON Schema.
macro_rules! scalar {
    ($(#[$doc:meta])* $name:ident($inner:ty), $schema:tt, $parse:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, serde::Deserialize)]
        #[serde(try_from = "Scalar")]
        pub struct $name(pub $inner);

        impl TryFrom<Scalar> for $name {
            type Error = String;

            fn try_from(scalar: Scalar) -> Result<Self, String> {
                let parse: fn(&Scalar) -> Result<$inner, String> = $parse;
                parse(&scalar).map(Self)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

scalar!(
    /// `version`
    Version(i64),
    { "const": 1 },
    |scalar| match scalar {
        Scalar::Integer(1) => Ok(1),
        other => Err(format!("{other} is not supported: expected 1")),
    }
);
scalar!(
    /// true or false
    Flag(bool),
    { "type": "boolean" },
    |scalar| match scalar {
        Scalar::Bool(value) => Ok(*value),
        other => Err(format!("{other}: expected true or false")),
    }
);
scalar!(
    /// Any text.
    Text(String),
    { "type": "string" },
    |scalar| match scalar {
        Scalar::Text(text) => Ok(text.clone()),
        other => Err(format!("{other}: expected text: write \"{other}\"")),
    }
);
scalar!(
    /// How long a task runs before another one's turn.
    SliceUs(Duration),
    { "type": "integer", "minimum": 100, "maximum": MAX_SLICE_US },
    |scalar| scalar.micros(100..MAX_SLICE_US + 1, "")
);
scalar!(
    /// `preferred.hold_us`
    HoldUs(Hold),
    { "oneOf": [{ "const": "auto" }, { "type": "integer", "minimum": 0, "maximum": MAX_SLICE_US }] },
    |scalar| match scalar {
        Scalar::Text(text) if text == "auto" => Ok(AUTO_HOLD),
        other => other
            .micros(0..MAX_SLICE_US + 1, "\"auto\" or ")
            .map(|cap| Hold { cap, share: 1.0 }),
    }
);
scalar!(
    /// `preferred.lend_yields_us`: `None` is "auto", else 0, or long enough for two switches to be a small part of it.
    LendUs(Option<Duration>),
    { "oneOf": [{ "const": "auto" }, { "const": 0 }, { "type": "integer", "minimum": 20, "maximum": MAX_LEND_US }] },
    |scalar| match scalar {
        Scalar::Text(text) if text == "auto" => Ok(None),
        Scalar::Integer(0) => Ok(Some(Duration::ZERO)),
        other => other
            .micros(20..MAX_LEND_US + 1, "\"auto\", 0 or ")
            .map(Some),
    }
);
scalar!(
    /// `preferred.max`
    MaxCpus(Max),
    { "oneOf": [
        { "type": "string", "pattern": "^[0-9.]+ *%$" },
        { "type": "integer", "minimum": 1 }
    ] },
    |scalar| match scalar {
        Scalar::Integer(count) if *count >= 1 => u32::try_from(*count)
            .map(Max::Count)
            .map_err(|_| format!("{count} CPUs: no machine has so many")),
        Scalar::Text(text) if text.contains('%') => scalar.share(0.01, 1.0).map(Max::Percent),
        Scalar::Text(text) if text.parse::<u32>().is_ok() => {
            Err(format!("{text:?}: write {text} for a number of CPUs or \"{text}%\" for a share of them"))
        }
        other => Err(format!(
            "{other}: expected \"1%\" to \"100%\" of the online CPUs, or a number of CPUs, at least 1"
        )),
    }
);
scalar!(
    /// `class.background.min_share`
    MinShare(f64),
    { "type": "string", "pattern": "^[0-9.]+ *%$" },
    |scalar| scalar.share(0.001, 0.5)
);
scalar!(
    /// `guard.max_share`
    MaxShare(f64),
    { "type": "string", "pattern": "^[0-9.]+ *%$" },
    |scalar| scalar.share(0.01, 1.0)
);
scalar!(
    /// `irq.heavy_percent`
    HeavyPercent(f64),
    { "type": "number", "exclusiveMinimum": 0, "maximum": 100 },
    |scalar| {
        let expected = "expected a number of percent above 0, at most 100";
        let percent = match scalar {
            Scalar::Integer(percent) => *percent as f64,
            Scalar::Float(percent) => *percent,
            Scalar::Text(text) => {
                let number = text.trim_end_matches('%').trim();
                return Err(match number.parse::<f64>() {
                    Ok(percent) if percent > 0.0 && percent <= 100.0 => {
                        format!("{text:?}: {expected}: write {number}")
                    }
                    _ => format!("{text:?}: {expected}"),
                });
            }
            Scalar::Bool(value) => return Err(format!("{value}: {expected}")),
        };
        if percent > 0.0 && percent <= 100.0 {
            Ok(percent)
        } else {
            Err(format!("{percent} is out of range: {expected}"))
        }
    }
);
scalar!(
    /// `preferred.smt`
    SmtUse(Smt),
    { "enum": ["whole-core", "shared"] },
    |scalar| match scalar {
        Scalar::Text(text) if text == "whole-core" => Ok(Smt::WholeCore),
        Scalar::Text(text) if text == "shared" => Ok(Smt::Shared),
        Scalar::Text(text) => Err(none_of(text, &["whole-core", "shared"])),
        other => Err(format!("{other}: expected \"whole-core\" or \"shared\"")),
    }
);
scalar!(
    /// `identify.probes`
    Probes(Arming),
    { "enum": ["auto", "always", "off"] },
    |scalar| match scalar {
        Scalar::Text(text) if text == "auto" => Ok(Arming::Auto),
        Scalar::Text(text) if text == "always" => Ok(Arming::Always),
        Scalar::Text(text) if text == "off" => Ok(Arming::Off),
        Scalar::Text(text) => Err(none_of(text, &["auto", "always", "off"])),
        other => Err(format!("{other}: expected \"auto\", \"always\" or \"off\"")),
    }
);
scalar!(
    /// `identify.entry_points`
    EntryPointsOf(EntryPoints),
    { "enum": ["libcuda", "libcudart", "both"] },
    |scalar| match scalar {
        Scalar::Text(text) if text == "libcuda" => Ok(EntryPoints::Libcuda),
        Scalar::Text(text) if text == "libcudart" => Ok(EntryPoints::Libcudart),
        Scalar::Text(text) if text == "both" => Ok(EntryPoints::Both),
        Scalar::Text(text) => Err(none_of(text, &["libcuda", "libcudart", "both"])),
        other => Err(format!("{other}: expected \"libcuda\", \"libcudart\" or \"both\"")),
    }
);
scalar!(
    /// `identify.sweep_us`
    SweepUs(Duration),
    { "type": "integer", "minimum": 1_000, "maximum": 1_000_000 },
    |scalar| scalar.micros(1_000..1_000_001, "")
);
scalar!(
    /// `identify.max_pause_us`
    PauseUs(Duration),
    { "type": "integer", "minimum": 10_000, "maximum": 60_000_000 },
    |scalar| scalar.micros(10_000..60_000_001, "")
);
scalar!(
    /// `identify.expire_s`
    ExpireS(Duration),
    { "type": "integer", "minimum": 0, "maximum": MAX_EXPIRE_S },
    |scalar| match scalar {
        Scalar::Integer(seconds) if (0..=MAX_EXPIRE_S).contains(seconds) => {
            Ok(Duration::from_secs(*seconds as u64))
        }
        other => Err(format!(
            "{other}: expected a whole number of seconds from 0 (never) to {MAX_EXPIRE_S}"
        )),
    }
);
scalar!(
    /// `wakes` and `spins_with` of a rule.
    LaunchClass(()),
    { "const": "launch" },
    |scalar| match scalar {
        Scalar::Text(text) if text == "launch" => Ok(()),
        other => Err(format!("{other}: expected \"launch\", the only class that others are seen working for")),
    }
);
scalar!(
    /// A user id.
    Uid(u32),
    { "type": "integer", "minimum": 0, "maximum": u32::MAX },
    |scalar| match scalar {
        Scalar::Integer(uid) if u32::try_from(*uid).is_ok() => Ok(*uid as u32),
        other => Err(format!("{other}: expected a user id, a number: id -u NAME prints it")),
    }
);
scalar!(
    /// A group id.
    Gid(u32),
    { "type": "integer", "minimum": 0, "maximum": u32::MAX },
    |scalar| match scalar {
        Scalar::Integer(gid) if u32::try_from(*gid).is_ok() => Ok(*gid as u32),
        other => Err(format!(
            "{other}: expected a group id, a number: getent group NAME prints it"
        )),
    }
);
scalar!(
    /// `cgroup` of a rule.
    CgroupTerm(CgroupGlob),
    { "type": "string", "minLength": 1 },
    |scalar| CgroupGlob::new(text_of(scalar)?)
);
scalar!(
    /// `comm` and `cmdline` of a rule.
    NameTerm(NameGlob),
    { "type": "string", "minLength": 1 },
    |scalar| NameGlob::new(text_of(scalar)?)
);
scalar!(
    /// `exe` of a rule.
    PathTerm(PathGlob),
    { "type": "string", "minLength": 1 },
    |scalar| PathGlob::new(text_of(scalar)?)
);
scalar!(
    /// One of `guard.trust_devices`.
    DeviceTerm(PathGlob),
    { "type": "string", "pattern": "^/dev/" },
    |scalar| device_glob(text_of(scalar)?)
);
scalar!(
    /// `connects_to` of a rule.
    EndpointTerm(Endpoint),
    { "type": "string", "minLength": 1 },
    |scalar| text_of(scalar)?.parse()
);

/// A folder with wildcards would have all of /dev looked through, where users may make files.
fn device_glob(text: &str) -> Result<PathGlob, String> {
    let folder = text.rsplit_once('/').map_or("", |(folder, _)| folder);
    if !text.starts_with("/dev/") || folder.contains(['*', '?', '[', '{', '\\']) {
        return Err(format!(
            "{text:?}: expected the path of a device below /dev, with wildcards in its last part only, such as \
             \"/dev/nvidia*\""
        ));
    }
    PathGlob::new(text)
}

fn text_of(scalar: &Scalar) -> Result<&str, String> {
    match scalar {
        Scalar::Text(text) => Ok(text),
        other => Err(format!("{other}: expected text: write \"{other}\"")),
    }
}
