// SPDX-License-Identifier: GPL-2.0-only
//! The values of a matrix file that have bounds: each knows what it accepts and says so.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::record::neighbour::Neighbour;
use crate::{cpus, kernel_release};

/// TOML tells `3` from `3.0`; people do not.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "expected a number")]
enum Number {
    Whole(i64),
    Real(f64),
}

impl Number {
    /// The number if it is whole and within bounds.
    fn whole(self, low: i64, high: i64) -> Option<u64> {
        match self {
            Self::Whole(value) if (low..=high).contains(&value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    fn value(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Real(value) => value,
        }
    }
}

/// A count of rounds or boots.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "Number")]
pub struct Count(pub u32);

impl TryFrom<Number> for Count {
    type Error = String;

    fn try_from(number: Number) -> Result<Self, String> {
        let count = number
            .whole(1, 1000)
            .and_then(|count| u32::try_from(count).ok());
        count.map(Self).ok_or_else(|| {
            let value = number.value();
            format!("expected a whole number from 1 to 1000, got {value}")
        })
    }
}

/// The bounds of `seconds`, also for the flag of that name.
pub fn check_seconds(value: f64) -> Result<f64, String> {
    if (0.1..=3600.0).contains(&value) {
        Ok(value)
    } else {
        Err(format!("expected seconds from 0.1 to 3600, got {value}"))
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "Number")]
pub struct Seconds(pub f64);

impl TryFrom<Number> for Seconds {
    type Error = String;

    fn try_from(number: Number) -> Result<Self, String> {
        check_seconds(number.value()).map(Self)
    }
}

/// Seconds, or none at all.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "Number")]
pub struct SecondsOrZero(pub f64);

impl TryFrom<Number> for SecondsOrZero {
    type Error = String;

    fn try_from(number: Number) -> Result<Self, String> {
        if number.value() == 0.0 {
            return Ok(Self(0.0));
        }
        check_seconds(number.value()).map(Self)
    }
}

/// MiB of a disk or of memory, at least so many.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "Number")]
pub struct Mib<const LEAST: i64>(pub u64);

impl<const LEAST: i64> TryFrom<Number> for Mib<LEAST> {
    type Error = String;

    fn try_from(number: Number) -> Result<Self, String> {
        number.whole(LEAST, 1 << 20).map(Self).ok_or_else(|| {
            let value = number.value();
            format!("expected whole MiB from {LEAST} to 1048576, got {value}")
        })
    }
}

/// A number above zero: a rate, a latency, a factor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Number")]
pub struct Positive(pub f64);

impl TryFrom<Number> for Positive {
    type Error = String;

    fn try_from(number: Number) -> Result<Self, String> {
        let value = number.value();
        if value > 0.0 && value <= 1e6 {
            Ok(Self(value))
        } else {
            Err(format!(
                "expected a number above 0, at most 1000000, got {value}"
            ))
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Vec<Neighbour>")]
pub struct Neighbours(pub Vec<Neighbour>);

impl TryFrom<Vec<Neighbour>> for Neighbours {
    type Error = &'static str;

    fn try_from(list: Vec<Neighbour>) -> Result<Self, &'static str> {
        if !list.contains(&Neighbour::None) {
            return Err("expected \"none\" among them: its cells are the clean reference");
        }
        if list.iter().collect::<BTreeSet<_>>().len() != list.len() {
            return Err("expected every neighbour once");
        }
        Ok(Self(list))
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Names(pub Vec<String>);

impl TryFrom<Vec<String>> for Names {
    type Error = String;

    fn try_from(list: Vec<String>) -> Result<Self, String> {
        if list.is_empty() || list.iter().collect::<BTreeSet<_>>().len() != list.len() {
            return Err("expected at least one name, every name once".to_owned());
        }
        match list.iter().find(|name| !names_a_file(name)) {
            Some(name) => Err(format!(
                "expected names without a slash, got {name:?}: name the folder of the file with --arms-dir, or include \
                 it in an arm of the others' folder"
            )),
            None => Ok(Self(list)),
        }
    }
}

/// Whether a name can be a part of the name of a cell's file.
pub fn names_a_file(name: &str) -> bool {
    !name.contains(['/', '\0'])
}

/// The lab's kernel: a series, or a path.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Kernel(pub String);

impl TryFrom<String> for Kernel {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        kernel_release::named(&text).map(Self)
    }
}

/// "auto" or a Linux CPU list.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct CpuList(pub String);

impl TryFrom<String> for CpuList {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        cpus::list_or_auto(&text).map(Self)
    }
}
