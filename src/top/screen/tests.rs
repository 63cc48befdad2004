// SPDX-License-Identifier: GPL-2.0-only
//! The screen at three sizes, with colours and without.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

use super::*;
use crate::identify::Class;
use crate::sched::stats::{ClassMetrics, Metrics};
use crate::top::sample::{Sample, Thread, Times};

/// A busy machine of `nr_cpus`, the last one preferred, CPU 0 IRQ-heavy; three launchers.
fn view(nr_cpus: u32) -> View {
    let cpu = |cpu: u32| CpuMetrics {
        runs: if cpu + 1 == nr_cpus {
            "launch"
        } else {
            "background"
        }
        .to_owned(),
        preferred: u64::from(cpu + 1 == nr_cpus),
        irq_heavy: u64::from(cpu == 0),
        ..CpuMetrics::default()
    };
    let class = ClassMetrics {
        runnable: 2,
        running: 1,
        worst_wait_us: 1500,
        wakeup_waits: vec![1, 0, 3],
        ..ClassMetrics::default()
    };
    let metrics = Metrics {
        cpus: (0..nr_cpus).map(|id| (id, cpu(id))).collect(),
        classes: [("launch".to_owned(), class)].into(),
        preferred_cpus: (nr_cpus - 1).to_string(),
        preferred_reason: "1 thread is runnable".to_owned(),
        policy_generation: 3,
        probe_state: "resting".to_owned(),
        policy_error: "policy.toml:1: error".to_owned(),
        ..Metrics::default()
    };
    let thread = |tid| Thread {
        tid,
        comm: "EngineCore".to_owned(),
        class: Class::Launch,
        source: "uprobe".to_owned(),
        cpu: Some(7),
        times: Times::default(),
    };
    let mut view = View::default();
    let mut sample = Sample {
        metrics,
        threads: Vec::new(),
    };
    view.take(Duration::from_secs(1), sample.clone());
    sample.threads = (4711..4714).map(thread).collect();
    view.take(Duration::from_secs(62), sample);
    view
}

fn drawn(view: &View, width: u16, height: u16, theme: Theme) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, view, theme)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width);
    let cells: Vec<_> = buffer.content.iter().map(|cell| cell.symbol()).collect();
    cells.chunks(width).map(|line| line.concat()).collect()
}

const PLAIN: Theme = Theme { coloured: false };

#[test]
fn everything_is_there_at_80_by_24() {
    let text = lines(&drawn(&view(8), 80, 24, PLAIN)).join("\n");
    for expected in [
        "policy 3 (LAST ONE REFUSED)  probes resting: 0 libraries",
        "preferred CPUs 7: 1 thread is runnable",
        "    0  b!b b b b b b L*",
        "launch         2    1",
        "TAKES/s  LOSES/s",
        "#both",
        "1.5 ms",
        "   4711  EngineCore       launch      uprobe",
        "  1:02  thread 4711 (EngineCore) is launch: uprobe",
        "q quit",
    ] {
        assert!(text.contains(expected), "{expected:?} in\n{text}");
    }
}

#[test]
fn what_does_not_fit_is_counted() {
    let view = view(1024);
    let small = lines(&drawn(&view, 80, 24, PLAIN)).join("\n");
    assert!(small.contains("  192  b b"), "{small}");
    assert!(small.contains("… 800 CPUs are not shown"), "{small}");
    let large = lines(&drawn(&view, 80, 110, PLAIN)).join("\n");
    assert!(large.contains("  992  b b"), "{large}");
    assert!(!large.contains("not shown"), "{large}");
}

#[test]
fn a_large_machine_fits_and_a_larger_terminal_shows_more() {
    let view = view(128);
    let small = lines(&drawn(&view, 80, 24, PLAIN)).join("\n");
    assert!(small.contains("   96  b b"), "{small}");
    let events = |text: &str| text.matches("is launch: uprobe").count();
    let large = lines(&drawn(&view, 132, 50, PLAIN)).join("\n");
    assert!(events(&large) == 3 && large.contains("#both"), "{large}");
}

#[test]
fn a_terminal_of_any_size_is_drawn() {
    for (width, height) in [(1, 1), (40, 10), (20, 3), (300, 100)] {
        let buffer = drawn(&view(1024), width, height, PLAIN);
        assert_eq!((buffer.area.width, buffer.area.height), (width, height));
    }
    drawn(&View::default(), 80, 24, PLAIN);
}

#[test]
fn threads_that_do_not_fit_are_counted() {
    let text = lines(&drawn(&view(8), 80, 12, PLAIN)).join("\n");
    assert!(text.contains("… and "), "{text}");
}

#[test]
fn without_colour_there_is_no_colour_and_the_same_text() {
    let view = view(8);
    let plain = drawn(&view, 80, 24, Theme::of(Some("1")));
    let coloured = drawn(&view, 80, 24, Theme::of(None));
    assert_eq!(lines(&plain), lines(&coloured));
    assert!(
        plain
            .content
            .iter()
            .all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset)
    );
    assert!(coloured.content.iter().any(|cell| cell.fg == Color::Green));
    assert_eq!(Theme::of(Some("")), Theme::of(None));
}
