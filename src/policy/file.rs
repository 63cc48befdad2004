// SPDX-License-Identifier: GPL-2.0-only
//! The policy file as it is written: what serde reads and the JSON Schema is generated from.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use super::scalar::{
    At, CgroupTerm, DeviceTerm, EndpointTerm, EntryPointsOf, ExpireS, Flag, Gid, HeavyPercent,
    HoldUs, LaunchClass, LendUs, MaxCpus, MaxShare, MinShare, NameTerm, PathTerm, PauseUs, Probes,
    SliceUs, SmtUse, SweepUs, Text, Uid, Version,
};

/// What an operator wants of scx_gpuaware. Every key is optional.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "scx_gpuaware policy")]
pub struct File {
    /// Version of the format: 1.
    pub version: Option<At<Version>>,
    /// Groups of CPUs by label: a Linux list or FastFlow affinity syntax.
    #[serde(default)]
    pub cpusets: CpusetsFile,
    /// Which CPUs launchers prefer.
    #[serde(default)]
    pub preferred: PreferredFile,
    /// CPUs that serve many interrupts.
    #[serde(default)]
    pub irq: IrqFile,
    /// How launching threads are found.
    #[serde(default)]
    pub identify: IdentifyFile,
    /// The classes and who belongs to them.
    #[serde(default)]
    pub class: ClassesFile,
    /// Threads that stay on given CPUs.
    #[serde(default)]
    pub pin: Vec<At<PinFile>>,
    /// Limits to what the classes may take from others.
    #[serde(default)]
    pub guard: GuardFile,
}

/// `[cpusets]`: LABEL = group, and [`FF_AFFINITY`].
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct CpusetsFile(pub BTreeMap<String, At<Text>>);

/// The key of `[cpusets]` that is no label but holds several labelled groups, named after
/// FastFlow's environment variable.
pub const FF_AFFINITY: &str = "ff_affinity";

impl JsonSchema for CpusetsFile {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Cpusets".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "properties": {
                FF_AFFINITY: {
                    "type": "string",
                    "description": "Several labelled groups in one text, as in FastFlow's FF_AFFINITY."
                }
            },
            "additionalProperties": {
                "type": "string",
                "description": "A group of CPUs: a Linux list, or FastFlow syntax such as [0:4:2]rr."
            }
        })
    }
}

/// `[preferred]`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PreferredFile {
    /// "auto", a label of `cpusets` or a group of CPUs.
    pub cpus: Option<At<Text>>,
    /// How many CPUs "auto" takes at most: a share of the online ones, or a number.
    pub max: Option<At<MaxCpus>>,
    /// May another launcher or background use the second thread of a launcher's core?
    pub smt: Option<At<SmtUse>>,
    /// May everybody else use preferred CPUs that nobody needs?
    pub lend: Option<At<Flag>>,
    /// For how long at a time a launch or handoff thread that waits by sched_yield() lends its CPU, microseconds; "auto":
    /// 100 where switches between threads are cheap, else 0.
    pub lend_yields_us: Option<At<LendUs>>,
    /// Longest time that a CPU is held idle for a launcher that sleeps, microseconds.
    pub hold_us: Option<At<HoldUs>>,
}

/// `[irq]`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IrqFile {
    /// Keep preferred CPUs away from IRQ-heavy ones?
    pub avoid: Option<At<Flag>>,
    /// A CPU is IRQ-heavy above this part of its time, percent.
    pub heavy_percent: Option<At<HeavyPercent>>,
    /// Move movable IRQs off the preferred CPUs?
    pub steer: Option<At<Flag>>,
}

/// `[identify]`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdentifyFile {
    /// When launches are probed: "auto", "always" or "off".
    pub probes: Option<At<Probes>>,
    /// Whose functions: "libcuda", the driver's; "libcudart", the runtime's; "both".
    pub entry_points: Option<At<EntryPointsOf>>,
    /// How long one sweep probes, microseconds.
    pub sweep_us: Option<At<SweepUs>>,
    /// Longest pause between two sweeps while a thread could still be new, microseconds.
    pub max_pause_us: Option<At<PauseUs>>,
    /// What was observed is forgotten this long after the last sighting, seconds; 0: never.
    pub expire_s: Option<At<ExpireS>>,
}

/// `[class]`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassesFile {
    /// Threads that feed the GPU.
    #[serde(default)]
    pub launch: ClassFile,
    /// Threads that hand requests over to those.
    #[serde(default)]
    pub handoff: ClassFile,
    /// Everybody else.
    #[serde(default)]
    pub background: BackgroundFile,
}

/// `[class.launch]` and `[class.handoff]`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassFile {
    /// How long a thread runs before another one of the class, microseconds.
    pub slice_us: Option<At<SliceUs>>,
    /// Who belongs to the class: any rule suffices.
    #[serde(rename = "match")]
    pub rules: Option<At<Rules>>,
}

/// `[class.background]`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackgroundFile {
    /// How long a task runs while others wait, microseconds.
    pub slice_us: Option<At<SliceUs>>,
    /// Part of a CPU that background gets where launchers would leave nothing.
    pub min_share: Option<At<MinShare>>,
    /// Who stays background whatever else is found out: any rule suffices.
    #[serde(rename = "match")]
    pub rules: Option<At<Rules>>,
}

/// `[guard]`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuardFile {
    /// Users whose observed marks count; absent: everybody's.
    pub trust_uids: Option<At<Vec<At<Uid>>>>,
    /// Devices of which a process must have one open for its launches to count; absent: none.
    pub trust_devices: Option<At<Vec<At<DeviceTerm>>>>,
    /// Group whose members may hint what their threads do; absent: only root.
    pub hint_gid: Option<At<Gid>>,
    /// Part of all CPUs that launch and handoff together get while others wait.
    pub max_share: Option<At<MaxShare>>,
}

/// `[[pin]]`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["match", "cpus"]))]
pub struct PinFile {
    /// Whom to pin: any rule suffices. The first pin that matches a thread counts.
    #[serde(rename = "match")]
    pub rules: Option<At<Rules>>,
    /// A label, a group of CPUs, or several with `|` between them, which threads take in turn.
    pub cpus: Option<At<Text>>,
}

/// One rule; all its terms must hold.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("minProperties" = 1))]
pub struct RuleFile {
    /// The thread called a CUDA launch function.
    pub cuda_launch: Option<At<Flag>>,
    /// The thread keeps waking threads of this class; only "launch".
    pub wakes: Option<At<LaunchClass>>,
    /// The thread spins on memory that its process shares with one of this class; only "launch".
    pub spins_with: Option<At<LaunchClass>>,
    /// The thread sends to ADDR:PORT or unix:/path.
    pub connects_to: Option<At<EndpointTerm>>,
    /// Glob over the cgroup's path.
    pub cgroup: Option<At<CgroupTerm>>,
    /// Glob over the thread's own name, at most 15 bytes.
    pub comm: Option<At<NameTerm>>,
    /// Glob over the path of the process's executable.
    pub exe: Option<At<PathTerm>>,
    /// Glob over the process's arguments, joined by blanks.
    pub cmdline: Option<At<NameTerm>>,
}

/// One rule, or a list of them.
#[derive(Debug, Default)]
pub struct Rules(Vec<(Option<Range<usize>>, RuleFile)>);

impl At<Rules> {
    /// The rules with their places.
    pub fn list(self) -> Vec<At<RuleFile>> {
        let whole = self.span;
        self.value
            .0
            .into_iter()
            .map(|(span, value)| At {
                value,
                span: span.unwrap_or_else(|| whole.clone()),
            })
            .collect()
    }
}

impl<'de> Deserialize<'de> for Rules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Rules;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rule such as { comm = \"map*\" }, or a list of them in [ ]")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Rules, A::Error> {
                let rule = RuleFile::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Rules(vec![(None, rule)]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Rules, A::Error> {
                let mut rules = Vec::new();
                while let Some(rule) = list.next_element::<At<RuleFile>>()? {
                    rules.push((Some(rule.span), rule.value));
                }
                Ok(Rules(rules))
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

impl JsonSchema for Rules {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Rules".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let rule = generator.subschema_for::<RuleFile>();
        json_schema!({ "oneOf": [rule, { "type": "array", "items": rule }] })
    }
}
