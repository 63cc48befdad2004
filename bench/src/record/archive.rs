// SPDX-License-Identifier: GPL-2.0-only
//! All cells of a run in one compressed file, a line of JSON for each: what the repository keeps of a run.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use bzip2::Compression;
use bzip2::read::BzDecoder;
use bzip2::write::BzEncoder;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::workload::Pipeline;

/// Columns of digits: bzip2 makes them a quarter smaller than gzip does.
pub const FILE: &str = "cells.ndjson.bz2";

/// The cells in an archive, in its order.
///
/// # Errors
/// It cannot be read, or a line of it is no cell.
pub fn read<Cell: DeserializeOwned>(file: &Path) -> Result<Vec<Cell>> {
    let open = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let lines = BufReader::new(BzDecoder::new(open)).lines();
    let cell = |(index, line): (usize, std::io::Result<String>)| -> Result<Cell> {
        let place = || format!("{}: line {} (uncompressed)", file.display(), index + 1);
        serde_json::from_str(&line.with_context(place)?).with_context(place)
    };
    lines.enumerate().map(cell).collect()
}

/// Puts the files of cells into a new archive, without what no report shows; `most`, with no more latencies of requests in
/// each.
///
/// # Errors
/// One of them is no cell, or the archive cannot be written.
pub fn write<Cell: DeserializeOwned>(
    archive: &Path,
    cells: &[PathBuf],
    most: Option<usize>,
) -> Result<()> {
    let out =
        File::create(archive).with_context(|| format!("cannot write {}", archive.display()))?;
    let mut out = BzEncoder::new(out, Compression::best());
    for file in cells {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_str::<Cell>(&text)
            .with_context(|| format!("{} is no cell", file.display()))?;
        let mut cell: Value = serde_json::from_str(&text)?;
        if let Some(workload) = cell.pointer_mut("/measurement/workload") {
            trim(workload);
            most.into_iter().for_each(|most| thin(workload, most));
        }
        out.write_all(format!("{cell}\n").as_bytes())?;
    }
    out.finish()
        .with_context(|| format!("cannot write {}", archive.display()))?;
    Ok(())
}

/// Takes away a pipeline's own figures by thread, the numbers of its requests, which are read only where arrivals change on
/// the way, and what a client's seconds and a launcher's tokens have below ten microseconds: most of an archive.
fn trim(workload: &mut Value) {
    let pipeline = serde_json::from_value::<Pipeline>(workload.clone());
    if let (Ok(pipeline), Some(map)) = (pipeline, workload.as_object_mut()) {
        map.remove("threads");
        if !pipeline.has_phases() {
            map.remove("latency_request");
        }
    }
    for key in ["ttfts", "tpots", "e2els", "itls"] {
        if let Some(values) = workload.pointer_mut(&format!("/client/{key}")) {
            each_number(values, &|seconds| (seconds * 1e5).round() / 1e5);
        }
    }
    if let Some(values) = workload.get_mut("token_us") {
        // Ten microseconds are 1 % of such a token at most.
        let rounded = |us: f64| (us / 10.0).round() * 10.0;
        each_number(values, &|us| if us < 1000.0 { us } else { rounded(us) });
    }
}

fn each_number(values: &mut Value, rounded: &impl Fn(f64) -> f64) {
    match values {
        Value::Array(values) => {
            for value in values {
                each_number(value, rounded);
            }
        }
        Value::Number(number) => *values = rounded(number.as_f64().unwrap_or_default()).into(),
        _ => {}
    }
}

/// Leaves the latencies of `most` requests, by a hash of their places: every second would be that of one thread, where
/// two take turns.
fn thin(workload: &mut Value, most: usize) {
    for key in ["latency_us", "latency_request"] {
        let Some(Value::Array(values)) = workload.get_mut(key) else {
            continue;
        };
        let mut places: Vec<usize> = (0..values.len()).collect();
        places.sort_by_key(|&place| (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        places.truncate(most);
        places.sort_unstable();
        *values = places.iter().map(|&place| values[place].clone()).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::neighbour::Neighbour;
    use crate::record::{Cell, RunDir, samples};

    #[test]
    fn a_run_is_read_from_its_archive_as_from_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path()).unwrap();
        // Tokens of less than a millisecond stay as they are.
        for round in 1..=3 {
            let cell = samples::cell(round, "eevdf", Neighbour::Heavy, 3333.3);
            run.write_cell(&cell).unwrap();
        }
        let before = serde_json::to_string(&run.cells().unwrap()).unwrap();
        run.archive(&dir.path().join(FILE), None).unwrap();
        std::fs::remove_dir_all(dir.path().join("cells")).unwrap();
        assert_eq!(
            serde_json::to_string(&run.cells().unwrap()).unwrap(),
            before
        );
    }

    #[test]
    fn latencies_are_thinned_with_the_numbers_of_their_requests() {
        let workload = |last: u64| {
            let requests: Vec<u64> = (1..=last).collect();
            let us: Vec<f64> = requests
                .iter()
                .map(|&request| request as f64 / 2.0)
                .collect();
            serde_json::json!({"latency_us": us, "latency_request": requests, "x": [1, 2, 3]})
        };
        let mut few = workload(4000);
        thin(&mut few, 500);
        let numbers = |key: &str| -> Vec<f64> {
            let values = few[key].as_array().unwrap();
            values.iter().filter_map(Value::as_f64).collect()
        };
        let requests = numbers("latency_request");
        assert_eq!(
            (requests.len(), &few["x"]),
            (500, &serde_json::json!([1, 2, 3]))
        );
        assert!(requests.is_sorted());
        let halves: Vec<f64> = requests.iter().map(|request| request / 2.0).collect();
        assert_eq!(numbers("latency_us"), halves);
        // Of threads that take turns each keeps its share.
        for turn in 0..4 {
            let its = requests
                .iter()
                .filter(|&&request| request as u64 % 4 == turn)
                .count();
            assert!((100..150).contains(&its), "{turn}: {its}");
        }
        let mut all = workload(7);
        thin(&mut all, 7);
        assert_eq!(all, workload(7));
    }

    #[test]
    fn of_a_pipeline_what_reports_read_stays() {
        let after = |phases: serde_json::Value| {
            let stage = serde_json::json!({"arrive": {"phases": phases}});
            let mut workload = serde_json::json!({"workload": "pipeline", "offered": 2, "completed": 2, "failed": 0,
                "unfinished": 0, "seconds": 1.0, "items_per_s": 2.0, "latency_us": [1.0, 2.0], "latency_request": [1, 2],
                "errors": [], "threads": [{"tid": 1}], "launches": 0, "launches_in_all": 0, "threads_detail": [],
                "context_switches": {"voluntary": 0, "involuntary": 0}, "graph": {"stages": [stage]}});
            trim(&mut workload);
            assert_eq!(workload.get("threads"), None);
            workload.get("latency_request").cloned()
        };
        assert_eq!(
            after(serde_json::json!([{}, {}])),
            Some(serde_json::json!([1, 2]))
        );
        assert_eq!(after(serde_json::json!([])), None);
    }

    #[test]
    fn times_are_kept_to_ten_microseconds() {
        let mut workload = serde_json::json!({"client": {"ttfts": [0.012_345_678], "itls": [[0.000_006, 1.5]], "other": 0.123_456_78}});
        trim(&mut workload);
        let expected = serde_json::json!({"client": {"ttfts": [0.01235], "itls": [[1e-5, 1.5]], "other": 0.123_456_78}});
        assert_eq!(workload, expected);
        let mut launcher =
            serde_json::json!({"token_us": [4053.0, 2947.7, 999.4], "seconds": 0.123_456_78});
        trim(&mut launcher);
        let expected =
            serde_json::json!({"token_us": [4050.0, 2950.0, 999.4], "seconds": 0.123_456_78});
        assert_eq!(launcher, expected);
    }

    #[test]
    fn a_broken_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        let cell = serde_json::to_string(&samples::cell(1, "eevdf", Neighbour::None, 1.0)).unwrap();
        let mut out = BzEncoder::new(File::create(&file).unwrap(), Compression::fast());
        out.write_all(format!("{cell}\n{{\n").as_bytes()).unwrap();
        out.finish().unwrap();
        let error = read::<Cell>(&file).unwrap_err().to_string();
        assert!(
            error.ends_with("cells.ndjson.bz2: line 2 (uncompressed)"),
            "{error}"
        );
    }
}
