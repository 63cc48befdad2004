// SPDX-License-Identifier: GPL-2.0-only
//! `analyze`: files in, tables, JSON or a page out.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufReader, Write, stdin};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use gpuaware_trace::analyze::figures::Analysis;
use gpuaware_trace::analyze::report::Report;
use gpuaware_trace::analyze::{About, InputError, analyze};

use super::output::{Failure, print};
use super::overwritten::Overwritten;

const READ_AHEAD: usize = 1 << 20;

/// What to analyse, and how to show it.
#[derive(Debug, Args)]
pub struct Analyze {
    /// Traces: our CSV or NDJSON, or cuda_sched_trace's CSV; - reads standard input. LABEL=FILE names one in
    /// tables; files with the same label are repeats. The first label is the baseline.
    #[arg(required = true, value_name = "[LABEL=]FILE")]
    files: Vec<OsString>,
    /// Tokens made while each file was traced, in the order of the files.
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = positive)]
    tokens: Vec<f64>,
    /// Tokens a second of each file, measured elsewhere, in the order of the files; for the slowdown.
    #[arg(long, value_name = "RATE,…", value_delimiter = ',', value_parser = positive)]
    tokens_per_second: Vec<f64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write a page with pictures too, without anything from outside.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Refuse files that are not complete, with exit code 2, instead of saying so in the result.
    #[arg(long)]
    strict: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    let value = text.parse().ok();
    value
        .filter(|value: &f64| value.is_finite() && *value > 0.0)
        .ok_or_else(|| "expected a number above 0, for instance 54.77".to_owned())
}

/// Analyses the files and shows the result.
pub fn run(args: &Analyze) -> Result<(), Failure> {
    let abouts = abouts(args).map_err(Failure::Input)?;
    // Before the work: a file that cannot be written is said at once.
    let page = args.html.as_deref().map(Overwritten::open).transpose();
    let page = page.map_err(Failure::Input)?;
    let mut files = Vec::new();
    for (about, file) in &abouts {
        files.push(analyze_file(about, file, args.strict)?);
    }
    let report = Report::new(files);
    let text = if args.json {
        serde_json::to_string_pretty(&report).context("making JSON")? + "\n"
    } else {
        report.to_text()
    };
    print(&text)?;
    if let (Some(path), Some(mut page)) = (&args.html, page) {
        let html = report.to_html().context("making the page")?;
        page.write_all(html.as_bytes())
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn abouts(args: &Analyze) -> anyhow::Result<Vec<(About, PathBuf)>> {
    for (flag, given) in [
        ("--tokens", args.tokens.len()),
        ("--tokens-per-second", args.tokens_per_second.len()),
    ] {
        if given != 0 && given != args.files.len() {
            bail!(
                "{flag}: expected one number for each of the {} files, found {given}",
                args.files.len()
            );
        }
    }
    let from_stdin = args.files.iter().filter(|file| split(file).1 == "-");
    if from_stdin.count() > 1 {
        bail!("- may be named once: standard input can be read once");
    }
    let about = |(at, name): (usize, &OsString)| {
        let (label, file) = split(name);
        let about = About {
            file: file.to_string_lossy().into_owned(),
            label,
            tokens: args.tokens.get(at).copied(),
            tokens_per_s: args.tokens_per_second.get(at).copied(),
        };
        (about, PathBuf::from(file))
    };
    Ok(args.files.iter().enumerate().map(about).collect())
}

/// Label and file. A name with a `=` that exists as it is, is a file.
fn split(name: &OsStr) -> (String, &OsStr) {
    let bytes = name.as_bytes();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match bytes.iter().position(|&byte| byte == b'=') {
        Some(at @ 1..) if !Path::new(name).exists() => {
            (text(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..]))
        }
        _ => {
            // A path's last part names the file well enough.
            let last = bytes.iter().rposition(|&byte| byte == b'/');
            (text(&bytes[last.map_or(0, |at| at + 1)..]), name)
        }
    }
}

fn analyze_file(about: &About, path: &Path, strict: bool) -> Result<Analysis, Failure> {
    let result = if path == Path::new("-") {
        analyze(about, BufReader::with_capacity(READ_AHEAD, stdin().lock()))
    } else {
        let file = File::open(path)
            .with_context(|| format!("{}: cannot be opened", about.file))
            .map_err(Failure::Input)?;
        analyze(about, BufReader::with_capacity(READ_AHEAD, file))
    };
    let analysis = match result {
        Ok(analysis) => analysis,
        Err(error @ InputError::Io { .. }) if !path.is_dir() => {
            return Err(Failure::Runtime(error.into()));
        }
        Err(error) => return Err(Failure::Input(error.into())),
    };
    if strict && !analysis.source.complete {
        let why = analysis.source.remarks.join("; ");
        return Err(Failure::Input(anyhow!(
            "{}: not complete: {why}",
            about.file
        )));
    }
    Ok(analysis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_told_from_paths() {
        let is = |name: &[u8], label: &str, file: &[u8]| {
            let (found, path) = split(OsStr::from_bytes(name));
            assert_eq!((found.as_str(), path), (label, OsStr::from_bytes(file)));
        };
        is(b"base=runs/a.csv", "base", b"runs/a.csv");
        is(b"runs/a.csv", "a.csv", b"runs/a.csv");
        is(b"-", "-", b"-");
        is(b"=x", "=x", b"=x");
        is(b"a=runs/\xff.csv", "a", b"runs/\xff.csv");
        is(b"runs/\xff.csv", "\u{fffd}.csv", b"runs/\xff.csv");
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("a=b.csv");
        std::fs::write(&odd, "").unwrap();
        is(
            odd.as_os_str().as_bytes(),
            "a=b.csv",
            odd.as_os_str().as_bytes(),
        );
    }

    #[test]
    fn tokens_are_positive_numbers() {
        assert_eq!(positive("54.77"), Ok(54.77));
        for bad in ["0", "-1", "x", "inf", "NaN"] {
            assert!(positive(bad).is_err(), "{bad}");
        }
    }
}
