// SPDX-License-Identifier: GPL-2.0-only
//! Match rules: which threads belong to a class or to a pin. All terms of a rule must hold; of a
//! list of rules any one suffices.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use super::glob::{CgroupGlob, NameGlob, PathGlob};

/// One rule.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rule {
    /// It called a CUDA launch function.
    pub cuda_launch: bool,
    /// It keeps waking threads of class LAUNCH.
    pub wakes_launch: bool,
    /// It spins on memory that it shares with a process of class LAUNCH.
    pub spins_with_launch: bool,
    /// It sends to this address.
    pub connects_to: Option<Endpoint>,
    /// Its cgroup.
    pub cgroup: Option<CgroupGlob>,
    /// Its own name, at most 15 bytes.
    pub comm: Option<NameGlob>,
    /// The executable of its process.
    pub exe: Option<PathGlob>,
    /// The arguments of its process, joined by blanks.
    pub cmdline: Option<NameGlob>,
}

/// Where a client connects to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// TCP.
    Inet(SocketAddr),
    /// A Unix-domain socket.
    Unix(PathBuf),
}

/// What is known of a thread without having watched it.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadFacts<'a> {
    /// Cgroup path relative to the root of the hierarchy; `None`: it is not known, and no glob matches.
    pub cgroup: Option<&'a str>,
    /// The thread's own name.
    pub comm: &'a str,
    /// The executable of its process.
    pub exe: &'a str,
    /// The arguments of its process, joined by blanks.
    pub cmdline: &'a str,
}

impl Rule {
    /// The terms that the rule has, in the order of the documentation, as TOML has them.
    pub fn values(&self) -> Vec<(&'static str, toml::Value)> {
        let text = |text: Option<String>| text.map(toml::Value::from);
        let glob = |glob: Option<&str>| text(glob.map(str::to_owned));
        [
            ("cuda_launch", self.cuda_launch.then_some(true.into())),
            ("wakes", self.wakes_launch.then_some("launch".into())),
            (
                "spins_with",
                self.spins_with_launch.then_some("launch".into()),
            ),
            (
                "connects_to",
                text(self.connects_to.as_ref().map(Endpoint::to_string)),
            ),
            ("cgroup", glob(self.cgroup.as_ref().map(CgroupGlob::text))),
            ("comm", glob(self.comm.as_ref().map(NameGlob::text))),
            ("exe", glob(self.exe.as_ref().map(PathGlob::text))),
            ("cmdline", glob(self.cmdline.as_ref().map(NameGlob::text))),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)))
        .collect()
    }

    /// Names of the terms that the rule has.
    pub fn terms(&self) -> Vec<&'static str> {
        self.values().into_iter().map(|(name, _)| name).collect()
    }

    /// The cgroup glob, if that is all that it asks for.
    pub fn only_cgroup(&self) -> Option<&CgroupGlob> {
        (self.terms() == ["cgroup"])
            .then_some(self.cgroup.as_ref())
            .flatten()
    }

    /// Does it ask for nothing that a user cannot give to a program of his own? Names and arguments are at will, and
    /// executables that may lie anywhere.
    pub fn only_names(&self) -> bool {
        let exe = self.exe.as_ref().map(PathGlob::text);
        let anywhere = exe.is_none_or(|path| path.starts_with('*'));
        self.cgroup.is_none() && !self.needs_watching() && anywhere
    }

    /// Do the terms hold that need no watching? A rule that has none of them holds.
    pub fn static_terms_hold(&self, thread: &ThreadFacts<'_>) -> bool {
        self.cgroup
            .as_ref()
            .is_none_or(|glob| thread.cgroup.is_some_and(|cgroup| glob.matches(cgroup)))
            && self.names_hold(thread)
    }

    /// Do the terms hold that ask for names, executables and arguments?
    pub fn names_hold(&self, thread: &ThreadFacts<'_>) -> bool {
        self.comm
            .as_ref()
            .is_none_or(|glob| glob.matches(thread.comm))
            && self
                .exe
                .as_ref()
                .is_none_or(|glob| glob.matches(thread.exe))
            && self
                .cmdline
                .as_ref()
                .is_none_or(|glob| glob.matches(thread.cmdline))
    }

    /// Must the thread be watched to tell?
    pub fn needs_watching(&self) -> bool {
        self.cuda_launch
            || self.wakes_launch
            || self.spins_with_launch
            || self.connects_to.is_some()
    }

    /// Does it certainly match whatever `other` matches? Every term of it covers one of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        fn term<T>(ours: &Option<T>, theirs: &Option<T>, covers: impl Fn(&T, &T) -> bool) -> bool {
            match (ours, theirs) {
                (None, _) => true,
                (Some(ours), Some(theirs)) => covers(ours, theirs),
                (Some(_), None) => false,
            }
        }
        (!self.cuda_launch || other.cuda_launch)
            && (!self.wakes_launch || other.wakes_launch)
            && (!self.spins_with_launch || other.spins_with_launch)
            && term(&self.connects_to, &other.connects_to, Endpoint::covers)
            && term(&self.cgroup, &other.cgroup, CgroupGlob::covers)
            && term(&self.comm, &other.comm, NameGlob::covers)
            && term(&self.exe, &other.exe, PathGlob::covers)
            && term(&self.cmdline, &other.cmdline, NameGlob::covers)
    }
}

impl fmt::Display for Rule {
    /// As TOML's inline table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms: Vec<_> = self
            .values()
            .into_iter()
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        write!(f, "{{ {} }}", terms.join(", "))
    }
}

impl Endpoint {
    /// Is whoever sends to `other` seen sending to this too? An address of zeros, of IPv4 or IPv6, is
    /// every address with the port.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Inet(ours), Self::Inet(theirs)) if ours.ip().is_unspecified() => {
                ours.port() == theirs.port()
            }
            _ => self == other,
        }
    }
}

/// Of `sun_path`, less its terminator.
const MAX_SOCKET_PATH: usize = 107;

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected ADDR:PORT such as \"127.0.0.1:8000\" or \"[::1]:8000\", or \
                        \"unix:/path\"";
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') {
                return Err(format!(
                    "{text:?}: the path of a socket is absolute: {expected}"
                ));
            }
            if path.len() > MAX_SOCKET_PATH {
                return Err(format!(
                    "{text:?}: the path of a socket has at most {MAX_SOCKET_PATH} bytes, got {}: write the one that \
                     programs connect to",
                    path.len()
                ));
            }
            return Ok(Self::Unix(path.into()));
        }
        if let Some(port) = text.strip_prefix("localhost:") {
            return Err(format!(
                "{text:?} is a name, not an address: write \"127.0.0.1:{port}\", and a second rule \
                 with \"[::1]:{port}\" if the client uses IPv6"
            ));
        }
        let address: SocketAddr = text.parse().map_err(|_| format!("{text:?}: {expected}"))?;
        if address.port() == 0 {
            return Err(format!("{text:?}: port 0 is nobody's: {expected}"));
        }
        Ok(Self::Inet(address))
    }
}

impl TryFrom<String> for Endpoint {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comm(glob: &str) -> Rule {
        Rule {
            comm: Some(NameGlob::new(glob).unwrap()),
            ..Rule::default()
        }
    }

    fn cgroup(glob: &str) -> Option<CgroupGlob> {
        Some(CgroupGlob::new(glob).unwrap())
    }

    #[test]
    fn all_terms_of_a_rule_must_hold() {
        let rule = Rule {
            cgroup: cgroup("batch/**"),
            ..comm("map*")
        };
        let mut thread = ThreadFacts {
            cgroup: Some("/batch/job"),
            comm: "mapper-3",
            ..ThreadFacts::default()
        };
        assert!(rule.static_terms_hold(&thread));
        thread.cgroup = Some("other");
        assert!(!rule.static_terms_hold(&thread));
        thread.cgroup = None;
        let anywhere = Rule {
            cgroup: cgroup("**"),
            ..Rule::default()
        };
        assert!(!anywhere.static_terms_hold(&thread) && comm("map*").static_terms_hold(&thread));
    }

    #[test]
    fn fewer_and_wider_terms_cover() {
        let narrow = Rule {
            cgroup: cgroup("batch/**"),
            ..comm("mapper*")
        };
        assert!(comm("map*").covers(&narrow));
        assert!(!narrow.covers(&comm("map*")));
        assert!(!comm("map*").covers(&Rule {
            comm: None,
            ..narrow.clone()
        }));
        let launch = Rule {
            cuda_launch: true,
            ..Rule::default()
        };
        assert!(launch.covers(&Rule {
            cuda_launch: true,
            ..narrow
        }));
    }

    #[test]
    fn endpoints_are_addresses_or_socket_paths() {
        for text in ["127.0.0.1:8000", "[::1]:8000", "unix:/run/llm.sock"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        let refusal = |text: &str| text.parse::<Endpoint>().unwrap_err();
        assert!(refusal("localhost:8000").contains("127.0.0.1:8000"));
        assert!(refusal("unix:run/llm").contains("absolute"));
        assert!(refusal("127.0.0.1").contains("ADDR:PORT"));
        assert!(refusal("127.0.0.1:0").contains("port 0"));
        let path = |length: usize| format!("unix:/{}", "s".repeat(length - 1));
        assert!(path(MAX_SOCKET_PATH).parse::<Endpoint>().is_ok());
        let too_long = refusal(&path(MAX_SOCKET_PATH + 1));
        assert!(
            too_long.contains("at most 107 bytes, got 108"),
            "{too_long}"
        );
    }

    #[test]
    fn a_port_at_every_address_covers_each() {
        let covers = |ours: &str, theirs: &str| {
            let endpoint = |text: &str| text.parse::<Endpoint>().unwrap();
            endpoint(ours).covers(&endpoint(theirs))
        };
        for any in ["0.0.0.0:80", "[::]:80"] {
            for each in ["10.0.0.1:80", "[::1]:80", "0.0.0.0:80", "[::]:80"] {
                assert!(covers(any, each), "{any} {each}");
            }
            assert!(!covers(any, "10.0.0.1:81") && !covers(any, "unix:/80"));
            assert!(!covers("10.0.0.1:80", any));
        }
    }

    #[test]
    fn prints_as_it_is_written_in_a_policy() {
        let rule = Rule {
            cuda_launch: true,
            cgroup: cgroup("gpu.slice/**"),
            ..Rule::default()
        };
        assert_eq!(
            rule.to_string(),
            "{ cuda_launch = true, cgroup = \"gpu.slice/**\" }"
        );
    }
}
