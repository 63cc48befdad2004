// SPDX-License-Identifier: GPL-2.0-only
//! What is shown of several files.

use super::{legacy, near, off, on};
use crate::analyze::report::Report;
use crate::analyze::{About, analyze};

fn report(labels: &[&str]) -> Report {
    let files = labels.iter().enumerate().map(|(at, label)| {
        let about = About {
            file: format!("{at}.csv"),
            label: (*label).to_owned(),
            tokens: None,
            tokens_per_s: Some(100.0 - 10.0 * at as f64),
        };
        // Each file switches once more than the one before.
        let more: String = (0..at as u64)
            .map(|n| off(50 + 2 * n) + &on(51 + 2 * n))
            .collect();
        analyze(&about, (legacy() + &more).as_bytes()).unwrap()
    });
    Report::new(files.collect())
}

#[test]
fn files_are_compared_with_the_first() {
    let comparison = report(&["base", "cpu"]).comparison.unwrap();
    let sched = &comparison.rows[0];
    assert_eq!(sched.name, "Sched/1K");
    let cpu = sched.arms[1].unwrap();
    near(cpu.figure.value, 750.0);
    near(cpu.times_baseline.unwrap().value, 1.5);
    near(comparison.slowdown_percent[1].unwrap().value, 10.0);
    assert_eq!(comparison.slowdown_percent[0], None);
    assert!(report(&["one"]).comparison.is_none());
}

#[test]
fn per_token_figures_stand_beside_one_another_where_tokens_are_given() {
    let comparison = report(&["base", "cpu"]).comparison.unwrap();
    let row = |name: &str| comparison.rows.iter().find(|row| row.name == name);
    let switches = row("switches per token").unwrap();
    // 2 switches in 40 ms at 100 tokens/s, 3 at 90.
    near(switches.arms[0].unwrap().figure.value, 0.5);
    near(switches.arms[1].unwrap().figure.value, 3.0 / 3.6);
    // cuda_sched_trace does not tell preemptions.
    assert!(row("preemptions per token").is_none());
}

#[test]
fn the_four_questions_of_the_studies_are_named() {
    let text = report(&["noisy", "pinned"]).to_text();
    // 500 switches per 1,000 launches, then 750; 100 tokens/s, then 90.
    for part in ["RQ3:", "RQ4: what is won, if noisy", "-50.0 %", "-10.0 %"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let single = report(&["one"]).to_text();
    for part in ["RQ1:", "RQ2, and RQ3's breakdown"] {
        assert!(single.contains(part), "{part} in {single}");
    }
}

#[test]
fn repeats_give_intervals() {
    let comparison = report(&["a", "a", "a", "b", "b", "b"]).comparison.unwrap();
    assert_eq!(
        comparison.arms.iter().map(|arm| arm.files).sum::<usize>(),
        6
    );
    let slowdown = comparison.slowdown_percent[1].unwrap();
    // Medians 90 and 60 tokens/s.
    near(slowdown.value, 100.0 / 3.0);
    let [low, high] = slowdown.interval.unwrap();
    // A median of three drawn of three is the least one in 7 of 27 draws: 70 against 80 at one end,
    // 50 against 100 at the other, both in 6.7 % of them.
    near(low, 12.5);
    near(high, 50.0);
    assert_eq!(comparison.rows[0].arms[1].unwrap().differs, Some(true));
}

#[test]
fn the_page_is_self_contained_and_safe() {
    let mut report = report(&["a<b", "c"]);
    report.files[0].source.file = "</script><b>".to_owned();
    let page = report.to_html().unwrap();
    for outside in ["http://", "https://", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside} in the page");
    }
    assert_eq!(page.matches("</script>").count(), 1);
    assert!(page.contains("a&lt;b") && !page.contains("<b>"));
    assert!(
        page.matches("<svg").count() >= 8,
        "{}",
        page.matches("<svg").count()
    );
    assert!(page.contains("prefers-color-scheme: dark"));
}

#[test]
fn the_terminal_shows_the_studies_table_and_the_remarks() {
    let text = report(&["base", "cpu"]).to_text();
    for part in [
        "Sched/1K",
        "500.0",
        "750.0",
        "×1.50",
        "main threads",
        "10.0",
    ] {
        let known = part != "main threads";
        assert_eq!(text.contains(part), known, "{part} in {text}");
    }
    let single = report(&["base"]).to_text();
    for part in ["RQ1", "P95", "Bursts", "NET_RX", "7.5 ms", "37.5 %"] {
        assert!(single.contains(part), "{part} in {single}");
    }
}
