// SPDX-License-Identifier: GPL-2.0-only
//! `analyze`: files in, tables, JSON or a page out.

use std::fs::File;
use std::io::{BufReader, stdin};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use gpuaware_trace::analyze::figures::Analysis;
use gpuaware_trace::analyze::report::Report;
use gpuaware_trace::analyze::{About, InputError, analyze};

use super::output::{Failure, print};

const READ_AHEAD: usize = 1 << 20;

/// What to analyse, and how to show it.
#[derive(Debug, Args)]
pub struct Analyze {
    /// Traces: our CSV or NDJSON, or cuda_sched_trace's CSV; - reads standard input. LABEL=FILE names one in
    /// tables; files with the same label are repeats. The first label is the baseline.
    #[arg(required = true, value_name = "[LABEL=]FILE")]
    files: Vec<String>,
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
    let mut files = Vec::new();
    for about in &abouts {
        files.push(analyze_file(about, args.strict)?);
    }
    let report = Report::new(files);
    if let Some(path) = &args.html {
        let page = report.to_html().context("making the page")?;
        std::fs::write(path, page).with_context(|| format!("writing {}", path.display()))?;
    }
    let text = if args.json {
        serde_json::to_string_pretty(&report).context("making JSON")? + "\n"
    } else {
        report.to_text()
    };
    print(&text)?;
    Ok(())
}

fn abouts(args: &Analyze) -> anyhow::Result<Vec<About>> {
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
    let about = |(at, name): (usize, &String)| {
        let (label, file) = split(name);
        About {
            file: file.to_owned(),
            label: label.to_owned(),
            tokens: args.tokens.get(at).copied(),
            tokens_per_s: args.tokens_per_second.get(at).copied(),
        }
    };
    Ok(args.files.iter().enumerate().map(about).collect())
}

/// Label and file. A name with a `=` that exists as it is, is a file.
fn split(name: &str) -> (&str, &str) {
    let of_path = |path: &str| -> usize {
        // A path's last part names the file well enough.
        path.rfind('/').map_or(0, |at| at + 1)
    };
    match name.split_once('=') {
        Some((label, file)) if !label.is_empty() && !Path::new(name).exists() => (label, file),
        _ => (&name[of_path(name)..], name),
    }
}

fn analyze_file(about: &About, strict: bool) -> Result<Analysis, Failure> {
    let result = if about.file == "-" {
        analyze(about, BufReader::with_capacity(READ_AHEAD, stdin().lock()))
    } else {
        let file = File::open(&about.file)
            .with_context(|| format!("{}: cannot be opened", about.file))
            .map_err(Failure::Input)?;
        analyze(about, BufReader::with_capacity(READ_AHEAD, file))
    };
    let analysis = match result {
        Ok(analysis) => analysis,
        Err(error @ InputError::Io { .. }) if !is_a_folder(about) => {
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

fn is_a_folder(about: &About) -> bool {
    Path::new(&about.file).is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_told_from_paths() {
        assert_eq!(split("base=runs/a.csv"), ("base", "runs/a.csv"));
        assert_eq!(split("runs/a.csv"), ("a.csv", "runs/a.csv"));
        assert_eq!(split("-"), ("-", "-"));
        assert_eq!(split("=x"), ("=x", "=x"));
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("a=b.csv");
        std::fs::write(&odd, "").unwrap();
        let odd = odd.to_str().unwrap();
        assert_eq!(split(odd), ("a=b.csv", odd));
    }

    #[test]
    fn tokens_are_positive_numbers() {
        assert_eq!(positive("54.77"), Ok(54.77));
        for bad in ["0", "-1", "x", "inf", "NaN"] {
            assert!(positive(bad).is_err(), "{bad}");
        }
    }
}
