// SPDX-License-Identifier: GPL-2.0-only
//! The classes of tasks, and who says which class a task has.

use clap::ValueEnum;
use serde::Serialize;

use crate::bpf::intf;

/// What a task is to the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Launches GPU work: runs at once, on a preferred CPU.
    Launch,
    /// Hands work to launchers: comes right after them.
    Handoff,
    /// Everybody else: shares fairly.
    Background,
}

/// Who said which class a task has, in order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// `scx_gpuaware mark`.
    Mark,
    /// Its cgroup, by a glob of the policy.
    Cgroup,
    /// Its name, executable or arguments, by a rule of the policy.
    Rule,
    /// The thread itself, by a hint.
    Hint,
    /// It called a CUDA launch function.
    Uprobe,
    /// It keeps waking launchers.
    Wakes,
    /// It spins on memory that it shares with a launcher.
    Spins,
    /// It sends to an LLM endpoint.
    Connects,
    /// Nobody: it was seen doing what a class is given for, or hinted, but its user is not trusted.
    Refused,
}

impl Class {
    /// In a word, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Handoff => "handoff",
            Self::Background => "background",
        }
    }

    pub(crate) fn wire(self) -> u32 {
        match self {
            Self::Launch => intf::gpuaware_class_GPUAWARE_CLASS_LAUNCH,
            Self::Handoff => intf::gpuaware_class_GPUAWARE_CLASS_HANDOFF,
            Self::Background => intf::gpuaware_class_GPUAWARE_CLASS_BACKGROUND,
        }
    }

    pub(super) fn from_wire(class: u32) -> Option<Self> {
        [Self::Launch, Self::Handoff, Self::Background]
            .into_iter()
            .find(|candidate| candidate.wire() == class)
    }
}

impl Source {
    /// In a word, as in JSON.
    pub fn name(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(name)) => name,
            _ => String::new(),
        }
    }

    pub(super) fn from_wire(source: u32) -> Option<Self> {
        match source {
            intf::gpuaware_source_GPUAWARE_SOURCE_MARK => Some(Self::Mark),
            intf::gpuaware_source_GPUAWARE_SOURCE_CGROUP => Some(Self::Cgroup),
            intf::gpuaware_source_GPUAWARE_SOURCE_RULE => Some(Self::Rule),
            intf::gpuaware_source_GPUAWARE_SOURCE_HINT => Some(Self::Hint),
            intf::gpuaware_source_GPUAWARE_SOURCE_UPROBE => Some(Self::Uprobe),
            intf::gpuaware_source_GPUAWARE_SOURCE_WAKES => Some(Self::Wakes),
            intf::gpuaware_source_GPUAWARE_SOURCE_SPINS => Some(Self::Spins),
            intf::gpuaware_source_GPUAWARE_SOURCE_CONNECTS => Some(Self::Connects),
            intf::gpuaware_source_GPUAWARE_SOURCE_REFUSED => Some(Self::Refused),
            _ => None,
        }
    }
}
