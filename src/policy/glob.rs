// SPDX-License-Identifier: GPL-2.0-only
//! Globs of match rules: over cgroup paths, file paths and names; and which glob leaves nothing
//! to another.

use globset::{GlobBuilder, GlobMatcher};

/// Longest name of a thread that the kernel keeps, bytes.
const MAX_COMM: usize = 15;

#[derive(Debug, Clone)]
struct Glob {
    text: String,
    matcher: GlobMatcher,
}

/// A glob over cgroup paths relative to the root of the hierarchy, without leading slash.
#[derive(Debug, Clone)]
pub struct CgroupGlob {
    glob: Glob,
    /// `a` of `a/**`.
    top: Option<GlobMatcher>,
}

/// A glob over absolute file paths.
#[derive(Debug, Clone)]
pub struct PathGlob(Glob);

/// A glob over a name or a command line; `*` matches blanks and slashes too.
#[derive(Debug, Clone)]
pub struct NameGlob(Glob);

impl Glob {
    fn new(text: &str, pattern: &str, by_component: bool, what: &str) -> Result<Self, String> {
        if pattern.is_empty() {
            return Err(format!(
                "empty {what}: expected a glob such as {}",
                example(what)
            ));
        }
        let glob = GlobBuilder::new(pattern)
            .literal_separator(by_component)
            .build()
            .map_err(|error| format!("{text:?} is not a {what}: {}", error.kind()))?;
        Ok(Self {
            text: text.to_owned(),
            matcher: glob.compile_matcher(),
        })
    }

    /// What every match begins with.
    fn literal_start(&self) -> &str {
        let pattern = self.matcher.glob().glob();
        &pattern[..pattern.find(META).unwrap_or(pattern.len())]
    }

    /// `Some("a/")` for `a/**` and, where `*` crosses everything, `Some("a")` for `a*`.
    fn open_ended(&self, tail: &str) -> Option<&str> {
        let start = self.matcher.glob().glob().strip_suffix(tail)?;
        (!start.contains(META)).then_some(start)
    }

    /// All that it matches, if that is a single text.
    fn literal(&self) -> Option<&str> {
        let pattern = self.matcher.glob().glob();
        (!pattern.contains(META)).then_some(pattern)
    }

    fn is_equal(&self, other: &Self) -> bool {
        self.matcher.glob().glob() == other.matcher.glob().glob()
    }
}

/// systemd writes `-` and others within a name as `\x2d`. In a glob the backslash would stand for nothing but the
/// `x` after it, so it is made to stand for itself.
fn literal_escapes(pattern: &str) -> String {
    let mut literal = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('\\') {
        literal += before;
        let is_hex = |at: usize| after.as_bytes().get(at).is_some_and(u8::is_ascii_hexdigit);
        let next = after.chars().next();
        if next == Some('x') && is_hex(1) && is_hex(2) {
            literal += "\\\\";
            rest = after;
        } else {
            literal.push('\\');
            literal.extend(next);
            rest = &after[next.map_or(0, char::len_utf8)..];
        }
    }
    literal + rest
}

const META: [char; 5] = ['*', '?', '[', '{', '\\'];

fn example(what: &str) -> &'static str {
    match what {
        "cgroup glob" => "\"gpu.slice/**\"",
        "path glob" => "\"/usr/bin/python3*\"",
        _ => "\"EngineCore*\"",
    }
}

impl CgroupGlob {
    /// Compiles `text`; `*` stays within one path component, `**` crosses them. What systemd has escaped,
    /// such as `\x2d`, stands for itself.
    ///
    /// # Errors
    /// Why `text` is no glob.
    pub fn new(text: &str) -> Result<Self, String> {
        let glob = |pattern| Glob::new(text, pattern, true, "cgroup glob");
        let pattern = literal_escapes(text.trim_matches('/'));
        let pattern = pattern.as_str();
        let top = match pattern.strip_suffix("/**") {
            Some(top) if !top.is_empty() => Some(glob(top)?.matcher),
            _ => None,
        };
        let glob = glob(pattern)?;
        Ok(Self { glob, top })
    }

    /// Does the glob match `path`, relative to the root of the hierarchy? `a/**` matches below
    /// `a` and, unlike a file glob, `a` itself: tasks live there too.
    pub fn matches(&self, path: &str) -> bool {
        let path = path.trim_matches('/');
        self.glob.matcher.is_match(path) || self.top.as_ref().is_some_and(|top| top.is_match(path))
    }

    /// As the operator wrote it.
    pub fn text(&self) -> &str {
        &self.glob.text
    }

    /// Does it certainly match whatever `other` matches?
    pub fn covers(&self, other: &Self) -> bool {
        if let Some(path) = other.glob.literal() {
            return self.matches(path);
        }
        let start = self.glob.open_ended("**");
        self.glob.is_equal(&other.glob)
            || start.is_some_and(|start| other.glob.literal_start().starts_with(start))
    }
}

impl PathGlob {
    /// Compiles `text`; `*` stays within one path component, `**` crosses them.
    ///
    /// # Errors
    /// Why `text` is no glob over absolute paths.
    pub fn new(text: &str) -> Result<Self, String> {
        if !text.is_empty() && !text.starts_with(['/', '*', '{', '?', '[']) {
            return Err(format!(
                "{text:?} matches no path: expected an absolute one such as \"/usr/bin/{text}\" or \
                 \"**/{text}\""
            ));
        }
        Glob::new(text, text, true, "path glob").map(Self)
    }

    /// Does the glob match `path`?
    pub fn matches(&self, path: &str) -> bool {
        self.0.matcher.is_match(path)
    }

    /// As the operator wrote it.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Does it certainly match whatever `other` matches?
    pub fn covers(&self, other: &Self) -> bool {
        if let Some(path) = other.0.literal() {
            return self.matches(path);
        }
        let start = self.0.open_ended("**");
        self.0.is_equal(&other.0)
            || start.is_some_and(|start| other.0.literal_start().starts_with(start))
    }
}

impl NameGlob {
    /// Compiles `text`.
    ///
    /// # Errors
    /// Why `text` is no glob.
    pub fn new(text: &str) -> Result<Self, String> {
        Glob::new(text, text, false, "glob").map(Self)
    }

    /// Does the glob match `name`?
    pub fn matches(&self, name: &str) -> bool {
        self.0.matcher.is_match(name)
    }

    /// As the operator wrote it.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Does it certainly match whatever `other` matches?
    pub fn covers(&self, other: &Self) -> bool {
        if let Some(name) = other.0.literal() {
            return self.matches(name);
        }
        let start = self.0.open_ended("*");
        self.0.is_equal(&other.0)
            || start.is_some_and(|start| other.0.literal_start().starts_with(start))
    }

    /// What the kernel leaves of it, if it is longer than any thread's name.
    pub fn cut_to_comm(&self) -> Option<String> {
        let start = self.0.literal_start();
        if start.len() <= MAX_COMM {
            return None;
        }
        let mut end = MAX_COMM;
        while !start.is_char_boundary(end) {
            end -= 1;
        }
        Some(start[..end].to_owned())
    }
}

macro_rules! from_string {
    ($($glob:ident),*) => {$(
        impl TryFrom<String> for $glob {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                Self::new(&text)
            }
        }

        impl PartialEq for $glob {
            fn eq(&self, other: &Self) -> bool {
                self.text() == other.text()
            }
        }
    )*};
}
from_string!(CgroupGlob, PathGlob, NameGlob);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_globs_match_by_component() {
        let glob = CgroupGlob::new("/gpu.slice/*/vllm").unwrap();
        assert!(glob.matches("gpu.slice/a/vllm"));
        assert!(!glob.matches("gpu.slice/a/b/vllm"));
        let below = CgroupGlob::new("gpu.slice/**").unwrap();
        assert!(below.matches("/gpu.slice/a/b"));
        assert!(below.matches("/gpu.slice"));
        assert!(!below.matches("/gpu.slice2"));
        assert!(CgroupGlob::new("**").unwrap().matches("a/b"));
    }

    #[test]
    fn what_systemd_has_escaped_stands_for_itself() {
        let folder = r"system.slice/system-vllm\x2dserver.slice/vllm\x2dserver@0.service";
        for glob in [
            folder,
            r"system.slice/system-vllm\x2dserver.slice/**",
            r"system.slice/*\x2dserver.slice/*",
            r"system.slice/system-vllm\\x2dserver.slice/vllm\\x2dserver@?.service",
            r"{other,system}.slice/system-vllm\x2dserver.slice/**",
        ] {
            assert!(CgroupGlob::new(glob).unwrap().matches(folder), "{glob}");
        }
        let escaped = CgroupGlob::new(r"a\x2db/\*\xzz").unwrap();
        assert!(
            escaped.matches(r"a\x2db/*xzz"),
            "other backslashes escape as in any glob"
        );
        assert!(!escaped.matches("a-b/*xzz"));
        assert!(CgroupGlob::new(r"a\").is_err());
    }

    #[test]
    fn name_globs_match_across_blanks_and_slashes() {
        let glob = NameGlob::new("*vllm serve*").unwrap();
        assert!(glob.matches("/usr/bin/python3 -m vllm serve --port 8000"));
        assert!(!glob.matches("vllm bench"));
    }

    #[test]
    fn path_globs_are_absolute() {
        assert!(
            PathGlob::new("/opt/*/bin/server")
                .unwrap()
                .matches("/opt/x/bin/server")
        );
        assert!(
            PathGlob::new("**/python3*")
                .unwrap()
                .matches("/usr/bin/python3.11")
        );
        assert!(PathGlob::new("python3").unwrap_err().contains("**/python3"));
    }

    #[test]
    fn covers_only_what_it_certainly_matches() {
        let cgroup = |a: &str, b: &str| {
            CgroupGlob::new(a)
                .unwrap()
                .covers(&CgroupGlob::new(b).unwrap())
        };
        assert!(cgroup("gpu.slice/**", "gpu.slice/a/*"));
        assert!(cgroup("gpu.slice/**", "/gpu.slice"));
        assert!(cgroup("**", "anything/[ab]"));
        assert!(!cgroup("gpu.slice/**", "gpu.slice2/a"));
        assert!(!cgroup("gpu.slice/*", "gpu.slice/a/b"));
        let name = |a: &str, b: &str| NameGlob::new(a).unwrap().covers(&NameGlob::new(b).unwrap());
        assert!(name("map*", "mapper"));
        assert!(name("*", "?x"));
        assert!(!name("map*", "ma*"));
        assert!(!name("m?p*", "map*"));
    }

    #[test]
    fn covers_a_text_without_wildcards_if_it_matches_it() {
        let name = |a: &str, b: &str| NameGlob::new(a).unwrap().covers(&NameGlob::new(b).unwrap());
        assert!(name("{source,sink}*", "source0"));
        assert!(name("*worker*", "worker1"));
        assert!(name("m?p", "map"));
        assert!(!name("{source,sink}*", "map0"));
        assert!(!name("map", "map*"));
        assert!(!name("*worker*", "worker\\1?"), "not one text");
        let path = |a: &str, b: &str| PathGlob::new(a).unwrap().covers(&PathGlob::new(b).unwrap());
        assert!(path("/usr/bin/*", "/usr/bin/python3"));
        assert!(path("**/python3*", "/usr/bin/python3.11"));
        assert!(!path("/usr/*", "/usr/bin/python3"));
        let cgroup = |a: &str, b: &str| {
            CgroupGlob::new(a)
                .unwrap()
                .covers(&CgroupGlob::new(b).unwrap())
        };
        assert!(cgroup("gpu.slice/*", "/gpu.slice/a/"));
        assert!(cgroup("*.slice/**", "gpu.slice"));
        assert!(!cgroup("gpu.slice/*", "gpu.slice"));
        assert!(!cgroup("gpu.slice", "gpu.slice/a"));
    }

    #[test]
    fn knows_the_names_that_no_thread_can_have() {
        let cut = |text: &str| NameGlob::new(text).unwrap().cut_to_comm();
        assert_eq!(
            cut("EngineCoreProcess_0").as_deref(),
            Some("EngineCoreProce")
        );
        assert_eq!(cut("EngineCore*"), None);
        assert_eq!(cut("exactly15bytes_"), None);
    }

    #[test]
    fn names_what_is_no_glob() {
        assert!(CgroupGlob::new("a[").unwrap_err().contains("cgroup glob"));
        assert!(NameGlob::new("").unwrap_err().contains("EngineCore*"));
        assert!(CgroupGlob::new("/").unwrap_err().contains("gpu.slice"));
    }
}
