// SPDX-License-Identifier: GPL-2.0-only
//! `doctor`, and what it has to say when the scheduler cannot start.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::doctor::{Finding, Verdict, examine, gather};

use super::output::print;

/// `doctor`
#[derive(Debug, Args)]
pub struct Doctor {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Where the host's files are.
    #[arg(long, value_name = "PATH", default_value = "/", hide = true)]
    root: PathBuf,
}

/// Prints every finding.
///
/// # Errors
/// There are problems.
pub fn run(args: &Doctor) -> Result<()> {
    let findings = examine(&gather(&args.root));
    if args.json {
        let json = serde_json::to_string_pretty(&findings).context("writing JSON")?;
        print(&format!("{json}\n"))?;
    } else {
        print(&findings.iter().map(line).collect::<String>())?;
    }
    let is_problem = |finding: &&Finding| finding.verdict == Verdict::Problem;
    match findings.iter().filter(is_problem).count() {
        0 => Ok(()),
        1 => bail!("1 problem: scx_gpuaware cannot do its work here"),
        problems => bail!("{problems} problems: scx_gpuaware cannot do its work here"),
    }
}

/// Checks of what keeps any BPF program from being loaded.
pub const OF_BPF: [&str; 4] = ["btf", "privileges", "lockdown", "bpf"];

/// The problems of this host, one or two lines each: for the log when a start fails. `checks`: of these only.
pub fn problems(checks: Option<&[&str]>) -> String {
    let findings = examine(&gather("/".as_ref()));
    let matters = |check| checks.is_none_or(|checks| checks.contains(&check));
    let problems = findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::Problem && matters(finding.check));
    problems.map(line).collect()
}

fn line(finding: &Finding) -> String {
    let verdict = match finding.verdict {
        Verdict::Ok => "ok",
        Verdict::Warning => "warning",
        Verdict::Problem => "problem",
    };
    let mut line = format!("{verdict:<8} {:<14} {}\n", finding.check, finding.found);
    if let Some(remedy) = &finding.remedy {
        let _ = writeln!(line, "{:<23} -> {remedy}", "");
    }
    line
}
