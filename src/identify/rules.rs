// SPDX-License-Identifier: GPL-2.0-only
//! The rules of a policy as they are judged: what BPF compares itself, what user space has to look
//! up, and in which order. Pure.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use crate::bpf::intf;
use crate::policy::limits::{MAX_CGROUP_RULES, MAX_ENDPOINTS, MAX_RULES, MAX_TRUSTED_UIDS};
use crate::policy::rule::Endpoint;
use crate::policy::{CgroupGlob, PathGlob, Policy, Rule};

use super::class::{Class, Source};

// The policy refuses what the kernel has no room for. Libraries need texts beside rules.
const _: () = {
    use intf::*;
    assert!(MAX_RULES == gpuaware_limits_GPUAWARE_MAX_RULES as usize);
    assert!(MAX_ENDPOINTS == gpuaware_limits_GPUAWARE_MAX_ENDPOINTS as usize);
    assert!(MAX_TRUSTED_UIDS == gpuaware_limits_GPUAWARE_MAX_TRUSTED_UIDS as usize);
    const LIBRARIES: usize = 256;
    assert!(
        MAX_RULES + MAX_CGROUP_RULES + LIBRARIES <= gpuaware_limits_GPUAWARE_MAX_TEXTS as usize
    );
};

/// The rules, numbered in the order of precedence.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    /// What BPF judges, in the order of precedence; its index is the number of the rule.
    pub judged: Vec<Judged>,
    /// Rules by cgroup alone: the first that matches a folder gives it its class.
    pub tags: Vec<(CgroupGlob, Class)>,
    /// Where clients send to; the index is the number of the endpoint.
    pub endpoints: Vec<Endpoint>,
    /// Users whose sightings count; `None`: everybody's.
    pub trusted_uids: Option<Vec<u32>>,
    /// Devices of which a process must have one open for its launches to count; `None`: none.
    pub trusted_devices: Option<Vec<PathGlob>>,
}

/// When to say which rules have matched nobody. A rule with a typing error is quiet: the log has it once, when whom
/// it is for should be there.
#[derive(Debug, Default)]
pub struct Unmatched {
    due: Option<Duration>,
}

impl Unmatched {
    const AFTER: Duration = Duration::from_secs(60);

    /// The rules are others from `now` on.
    pub fn rules_changed(&mut self, now: Duration) {
        self.due = Some(now + Self::AFTER);
    }

    /// Is it time at `now`? It is once for all rules.
    pub fn is_due(&mut self, now: Duration) -> bool {
        self.due.take_if(|due| now >= *due).is_some()
    }
}

/// A rule that is not by cgroup alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// As the policy has it.
    pub rule: Rule,
    /// What it makes of a thread.
    pub class: Class,
    /// Bits of what it must be seen doing: `enum gpuaware_observed`, then endpoints.
    pub needs: u64,
}

impl Rules {
    /// Numbers the rules of `policy`, which has no more than [`crate::policy::limits`] allow.
    pub fn new(policy: &Policy) -> Self {
        let of_classes = [
            (Class::Launch, &policy.launch.rules),
            (Class::Handoff, &policy.handoff.rules),
            (Class::Background, &policy.background.rules),
        ];
        let mut rules = Self {
            trusted_uids: policy.guard.trust_uids.clone(),
            trusted_devices: policy.guard.trust_devices.clone(),
            ..Self::default()
        };
        for (class, list) in of_classes {
            for rule in list {
                match rule.only_cgroup() {
                    Some(glob) => rules.tags.push((glob.clone(), class)),
                    None => {
                        let (rule, needs) = (rule.clone(), rules.needs(rule));
                        rules.judged.push(Judged { rule, class, needs });
                    }
                }
            }
        }
        // What the operator knows comes before what is observed. The sort keeps the order of classes.
        rules.judged.sort_by_key(|judged| judged.needs != 0);
        rules
    }

    fn needs(&mut self, rule: &Rule) -> u64 {
        let mut needs = 0;
        if rule.cuda_launch {
            needs |= u64::from(intf::gpuaware_observed_GPUAWARE_OBSERVED_LAUNCH);
        }
        if rule.wakes_launch {
            needs |= u64::from(intf::gpuaware_observed_GPUAWARE_OBSERVED_WAKES);
        }
        if rule.spins_with_launch {
            needs |= u64::from(intf::gpuaware_observed_GPUAWARE_OBSERVED_SPINS);
        }
        if let Some(endpoint) = &rule.connects_to {
            let key = |endpoint| {
                let wire = wire_endpoint(endpoint);
                (wire.port, wire.address)
            };
            // 0.0.0.0 and [::] are one, as are an IPv4 address and the IPv6 one that it is mapped into.
            let mut known = self.endpoints.iter();
            let known = known.position(|known| key(known) == key(endpoint));
            let number = known.unwrap_or_else(|| {
                self.endpoints.push(endpoint.clone());
                self.endpoints.len() - 1
            });
            let first = u64::from(intf::gpuaware_observed_GPUAWARE_OBSERVED_FIRST_ENDPOINT);
            needs |= first.checked_shl(number as u32).unwrap_or(0);
        }
        needs
    }

    /// Does a rule ask who launches?
    pub fn by_launch(&self) -> bool {
        self.judged.iter().any(|judged| judged.rule.cuda_launch)
    }

    /// Does a rule ask who wakes launchers?
    pub fn by_wakes(&self) -> bool {
        self.judged.iter().any(|judged| judged.rule.wakes_launch)
    }

    /// Does a rule ask who spins on memory of launchers?
    pub fn by_spins(&self) -> bool {
        self.judged
            .iter()
            .any(|judged| judged.rule.spins_with_launch)
    }

    /// Does a rule ask for anything that threads are seen doing?
    pub fn by_sight(&self) -> bool {
        self.judged.iter().any(|judged| judged.needs != 0)
    }

    /// Does a rule ask for names, executables or arguments?
    pub fn by_name(&self) -> bool {
        self.judged.iter().any(Judged::by_name)
    }

    /// Do the sightings of threads of `uid` count?
    pub fn trusts(&self, uid: u32) -> bool {
        let trusted = self.trusted_uids.as_ref();
        trusted.is_none_or(|uids| uids.contains(&uid))
    }

    /// Does a rule ask for cgroups?
    pub fn by_cgroup(&self) -> bool {
        !self.tags.is_empty() || self.judged.iter().any(Judged::by_cgroup)
    }

    /// The rules by which none of `records` has its class, in words.
    pub fn unmatched(&self, records: &[intf::gpuaware_mark_record]) -> Vec<String> {
        // Without a rule the number is 0, which is that of a rule.
        let without = [None, Some(Source::Mark), Some(Source::Hint)];
        let by_rule = records
            .iter()
            .filter(|record| !without.contains(&Source::from_wire(record.source)));
        let matched: HashSet<_> = by_rule.map(|record| record.rule).collect();
        let texts = (0..).zip(self.texts());
        texts
            .filter(|(number, _)| !matched.contains(number))
            .map(|(_, text)| text)
            .collect()
    }

    /// The rules in words, in the order of their numbers; those of [`Rules::tags`] come last.
    pub fn texts(&self) -> Vec<String> {
        let judged = self.judged.iter().map(|judged| judged.rule.to_string());
        let tags = self.tags.iter().map(|(glob, _)| {
            let rule = Rule {
                cgroup: Some(glob.clone()),
                ..Rule::default()
            };
            rule.to_string()
        });
        judged.chain(tags).collect()
    }
}

impl Judged {
    /// Does it ask for names, executables or arguments?
    pub fn by_name(&self) -> bool {
        self.rule.comm.is_some() || self.rule.exe.is_some() || self.rule.cmdline.is_some()
    }

    /// Does it ask for a cgroup, beside other things?
    pub fn by_cgroup(&self) -> bool {
        self.rule.cgroup.is_some()
    }

    /// As BPF has it.
    pub fn wire(&self) -> intf::gpuaware_rule {
        intf::gpuaware_rule {
            needs: self.needs,
            class: self.class.wire(),
            by_name: self.by_name().into(),
            by_cgroup: self.by_cgroup().into(),
            pad: [0; 2],
        }
    }
}

/// As BPF looks it up: TCP addresses are IPv6, IPv4 is mapped into it.
pub fn wire_endpoint(endpoint: &Endpoint) -> intf::gpuaware_endpoint {
    let mut wire = intf::gpuaware_endpoint {
        port: 0,
        address: [0; intf::gpuaware_limits_GPUAWARE_ADDRESS_LEN as usize],
    };
    match endpoint {
        Endpoint::Inet(address) => {
            wire.port = address.port().into();
            if !address.ip().is_unspecified() {
                wire.address[..16].copy_from_slice(&octets(address));
            }
        }
        Endpoint::Unix(path) => {
            let path = path.as_os_str().as_bytes();
            // The last byte is the terminator; the policy refuses longer paths.
            let len = path.len().min(wire.address.len() - 1);
            wire.address[..len].copy_from_slice(&path[..len]);
        }
    }
    wire
}

fn octets(address: &SocketAddr) -> [u8; 16] {
    match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Rules {
        Rules::new(&Policy::parse(text).unwrap())
    }

    #[test]
    fn what_the_operator_knows_comes_before_what_is_observed() {
        let rules = rules(
            "[class.launch]\nmatch = [{ cuda_launch = true }, { comm = \"a*\" }]\n\
             [class.background]\nmatch = [{ exe = \"/bin/b\" }, { cgroup = \"c/**\" }]\n",
        );
        let order: Vec<_> = rules
            .judged
            .iter()
            .map(|judged| (judged.class, judged.needs))
            .collect();
        assert_eq!(
            order,
            [
                (Class::Launch, 0),
                (Class::Background, 0),
                (Class::Launch, 1)
            ]
        );
        assert_eq!(rules.tags.len(), 1);
        assert_eq!(rules.texts()[3], "{ cgroup = \"c/**\" }");
    }

    #[test]
    fn rules_that_nobody_has_a_class_by_are_named() {
        let rules = rules(
            "[class.launch]\nmatch = [{ cuda_launch = true }, { comm = \"a*\" }]\n\
             [class.background]\nmatch = [{ cgroup = \"c/**\" }]\n",
        );
        // SAFETY: plain integers, for which zeros are values.
        let mut record: intf::gpuaware_mark_record = unsafe { std::mem::zeroed() };
        record.source = intf::gpuaware_source_GPUAWARE_SOURCE_UPROBE;
        record.rule = 1;
        let expected = ["{ comm = \"a*\" }", "{ cgroup = \"c/**\" }"];
        assert_eq!(rules.unmatched(&[record]), expected);
        record.rule = 2;
        assert_eq!(rules.unmatched(&[record]).len(), 2);
    }

    #[test]
    fn rules_that_match_nobody_are_named_once_a_minute_after_they_came_into_force() {
        let mut unmatched = Unmatched::default();
        let is_due =
            |unmatched: &mut Unmatched, second| unmatched.is_due(Duration::from_secs(second));
        assert!(!is_due(&mut unmatched, 1_000), "there are no rules yet");
        unmatched.rules_changed(Duration::from_secs(5));
        let said: Vec<_> = (5..500)
            .filter(|&second| is_due(&mut unmatched, second))
            .collect();
        assert_eq!(said, [65]);
        unmatched.rules_changed(Duration::from_secs(500));
        let said: Vec<_> = (500..900)
            .filter(|&second| is_due(&mut unmatched, second))
            .collect();
        assert_eq!(said, [560]);
    }

    #[test]
    fn who_is_marked_by_hand_or_hints_or_has_no_class_matches_no_rule() {
        let rules = rules("[class.launch]\nmatch = [{ comm = \"a*\" }]\n");
        // SAFETY: plain integers, for which zeros are values.
        let mut record: intf::gpuaware_mark_record = unsafe { std::mem::zeroed() };
        for source in [
            intf::gpuaware_source_GPUAWARE_SOURCE_NONE,
            intf::gpuaware_source_GPUAWARE_SOURCE_MARK,
            intf::gpuaware_source_GPUAWARE_SOURCE_HINT,
        ] {
            record.source = source;
            assert_eq!(rules.unmatched(&[record]).len(), 1, "{source}");
        }
        record.source = intf::gpuaware_source_GPUAWARE_SOURCE_RULE;
        assert!(rules.unmatched(&[record]).is_empty());
    }

    #[test]
    fn only_what_rules_ask_for_is_watched() {
        let of = |rules: &Rules| {
            (
                rules.by_launch(),
                rules.by_wakes(),
                rules.by_spins(),
                rules.by_name(),
                rules.by_cgroup(),
            )
        };
        assert_eq!(of(&rules("")), (true, false, false, false, false));
        let all = rules(
            "[class.launch]\nmatch = []\n[class.handoff]\n\
             match = [{ wakes = \"launch\", cgroup = \"c\" }, { spins_with = \"launch\" }, { cmdline = \"*x*\" }]\n",
        );
        assert_eq!(of(&all), (false, true, true, true, true));
    }

    #[test]
    fn endpoints_are_numbered_once() {
        let rules = rules(
            "[class.handoff]\nmatch = [{ connects_to = \"127.0.0.1:80\" }, \
             { connects_to = \"unix:/run/x\", comm = \"a\" }, \
             { connects_to = \"127.0.0.1:80\", exe = \"/bin/b\" }]\n",
        );
        assert_eq!(rules.endpoints.len(), 2);
        let any = "connects_to = \"0.0.0.0:80\" }, { connects_to = \"[::]:80\"";
        let any = Rules::new(
            &Policy::parse(&format!("[class.handoff]\nmatch = [{{ {any} }}]\n")).unwrap(),
        );
        assert_eq!(any.endpoints.len(), 1);
        let needs: Vec<_> = rules.judged.iter().map(|judged| judged.needs).collect();
        let first = u64::from(intf::gpuaware_observed_GPUAWARE_OBSERVED_FIRST_ENDPOINT);
        assert!(
            needs.contains(&first) && needs.contains(&(first << 1)),
            "{needs:?}"
        );
    }

    #[test]
    fn endpoints_are_looked_up_as_mapped_addresses_and_paths() {
        let wire = |text: &str| wire_endpoint(&text.parse().unwrap());
        let v4 = wire("127.0.0.1:8000");
        assert_eq!(v4.port, 8000);
        assert_eq!(v4.address[10..16], [0xff, 0xff, 127, 0, 0, 1]);
        assert_eq!(
            wire("[::1]:8000").address[..16],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
        );
        assert_eq!(wire("0.0.0.0:80").address, [0; 108]);
        let path = wire("unix:/run/llm");
        assert_eq!((path.port, &path.address[..9]), (0, &b"/run/llm\0"[..]));
    }
}
