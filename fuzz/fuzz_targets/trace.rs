// SPDX-License-Identifier: GPL-2.0-only
//! Traces in all formats that are read: analysed, beside themselves, and shown in every form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use gpuaware_trace::analyze::report::Report;
use gpuaware_trace::analyze::{About, analyze};

fuzz_target!(|bytes: &[u8]| {
    let about = |label: &str| About {
        file: "trace".to_owned(),
        label: label.to_owned(),
        tokens: Some(100.0),
        tokens_per_s: Some(50.0),
    };
    match analyze(&about("one"), bytes) {
        Ok(analysis) => {
            let other = analyze(&about("other"), bytes).expect("the same again");
            for files in [vec![analysis.clone()], vec![analysis, other]] {
                let report = Report::new(files);
                let text = report.to_text();
                assert!(
                    !text.contains(|c: char| c != '\n' && c.is_control()),
                    "{text:?}"
                );
                let _ = report.to_html().expect("a page");
                let _ = serde_json::to_string(&report).expect("JSON");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
