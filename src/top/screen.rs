// SPDX-License-Identifier: GPL-2.0-only
//! How the view looks on a terminal. Pure: draws into a frame.
//!
//! Every mark is a character too, so nothing is lost without colour.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Paragraph;

use crate::sched::stats::CpuMetrics;

use super::view::{ClassRates, ThreadRates, View};

/// CPUs in one line of the map: two columns each, and a label.
const CPUS_A_LINE: usize = 32;

/// With colours or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    coloured: bool,
}

impl Theme {
    /// By the value of `NO_COLOR`: any text switches colours off.
    pub fn of(no_color: Option<&str>) -> Self {
        Self {
            coloured: no_color.is_none_or(str::is_empty),
        }
    }

    fn colour(self, colour: Color) -> Style {
        if self.coloured {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }

    fn heading(self) -> Style {
        self.colour(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    fn class(self, name: &str) -> Style {
        match name {
            "launch" => self.colour(Color::Green).add_modifier(Modifier::BOLD),
            "handoff" => self.colour(Color::Yellow),
            _ => Style::new(),
        }
    }
}

/// Draws everything into the frame, whatever its size.
pub fn draw(frame: &mut Frame<'_>, view: &View, theme: Theme) {
    let height = frame.area().height;
    let map = map(view, theme, usize::from(height / 3).max(1));
    let map_height = (map.lines.len() as u16).max(1);
    let threads_height = (view.threads.len() as u16 + 1).min(height / 3).max(2);
    let [title, cpus, classes, threads, events, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(map_height + 2),
        Constraint::Length(5),
        Constraint::Length(threads_height + 1),
        Constraint::Min(2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(title_text(view, theme)), title);
    section(frame, cpus, heading("CPUS", theme), map);
    let head = "CLASS      TASKS  RUN   PREF  OTHER      P50      P99    WORST  TAKES/s  LOSES/s";
    section(
        frame,
        classes,
        heading(head, theme),
        classes_text(view, theme),
    );
    let head = "    TID  NAME             CLASS       SOURCE    CPU    RUN%   WAIT%      WAIT";
    section(
        frame,
        threads,
        heading(head, theme),
        threads_text(view, theme, threads),
    );
    section(frame, events, heading("EVENTS", theme), events_text(view));
    let help = "q quit  L launch H handoff b background k kernel . other  *preferred !IRQ #both";
    frame.render_widget(
        Paragraph::new(Line::styled(help, theme.colour(Color::DarkGray))),
        keys,
    );
}

fn heading(text: &'static str, theme: Theme) -> Line<'static> {
    Line::styled(text, theme.heading())
}

/// A heading with lines below.
fn section<'t>(frame: &mut Frame<'_>, area: Rect, heading: Line<'t>, mut text: Text<'t>) {
    text.lines.insert(0, heading);
    frame.render_widget(Paragraph::new(text), area);
}

fn title_text(view: &View, theme: Theme) -> Text<'_> {
    let metrics = &view.metrics;
    let mut state = vec![
        Span::styled("scx_gpuaware", theme.heading()),
        Span::raw(format!("  policy {}", metrics.policy_generation)),
    ];
    if !metrics.policy_error.is_empty() {
        let style = theme.colour(Color::Red).add_modifier(Modifier::BOLD);
        state.push(Span::styled(" (LAST ONE REFUSED)", style));
    }
    state.push(Span::raw(format!(
        "  probes {}: {} libraries, {} launchers found",
        metrics.probe_state, metrics.libraries, metrics.launchers_found
    )));
    let reason = format!(
        "preferred CPUs {}: {}",
        metrics.preferred_cpus, metrics.preferred_reason
    );
    Text::from(vec![Line::from(state), Line::raw(reason)])
}

/// The CPUs, in at most `room` lines.
fn map(view: &View, theme: Theme, room: usize) -> Text<'_> {
    let cpus: Vec<_> = view.metrics.cpus.iter().collect();
    let nr_lines = cpus.len().div_ceil(CPUS_A_LINE);
    let shown = if nr_lines > room { room - 1 } else { nr_lines };
    let lines = cpus.chunks(CPUS_A_LINE).take(shown).map(|cpus| {
        let first = cpus.first().map_or(0, |(cpu, _)| **cpu);
        let label = Span::raw(format!("{first:>5}  "));
        let cells = cpus.iter().map(|(_, cpu)| cell(cpu, theme));
        Line::from([label].into_iter().chain(cells).collect::<Vec<_>>())
    });
    let mut lines: Vec<_> = lines.collect();
    if shown < nr_lines {
        lines.push(Line::raw(format!(
            "… {} CPUs are not shown: a higher terminal has room for them",
            cpus.len() - shown * CPUS_A_LINE
        )));
    }
    Text::from(lines)
}

fn cell(cpu: &CpuMetrics, theme: Theme) -> Span<'static> {
    let runs = match cpu.runs.as_str() {
        "launch" => 'L',
        "handoff" => 'H',
        "background" => 'b',
        "kthread" => 'k',
        _ => '.',
    };
    let mark = match (cpu.preferred == 1, cpu.irq_heavy == 1) {
        (true, true) => '#',
        (true, false) => '*',
        (false, true) => '!',
        (false, false) => ' ',
    };
    let mut style = theme.class(&cpu.runs);
    if cpu.irq_heavy == 1 {
        style = style.patch(theme.colour(Color::Red));
    }
    if cpu.preferred == 1 {
        style = style.add_modifier(Modifier::UNDERLINED);
    }
    Span::styled(format!("{runs}{mark}"), style)
}

fn classes_text(view: &View, theme: Theme) -> Text<'_> {
    let line = |class: &ClassRates| {
        let numbers = format!(
            "{:>6} {:>4} {:>6.2} {:>6.2} {:>8} {:>8} {:>8} {:>8.0} {:>8.0}",
            class.runnable,
            class.running,
            class.cpus_preferred,
            class.cpus_other,
            time(class.p50),
            time(class.p99),
            time(Some(class.worst).filter(|worst| !worst.is_zero())),
            class.preempts,
            class.preempted
        );
        let name = format!("{:<10}", class.name);
        Line::from(vec![
            Span::styled(name, theme.class(class.name)),
            Span::raw(numbers),
        ])
    };
    Text::from(view.classes.iter().map(line).collect::<Vec<_>>())
}

fn threads_text(view: &View, theme: Theme, area: Rect) -> Text<'_> {
    if view.threads.is_empty() {
        return Text::raw("no thread has a class: nothing has launched GPU work yet");
    }
    let room = usize::from(area.height.saturating_sub(1));
    let fits = view.threads.len() <= room;
    let shown = if fits { room } else { room.saturating_sub(1) };
    let mut lines: Vec<_> = view
        .threads
        .iter()
        .take(shown)
        .map(|it| row(it, theme))
        .collect();
    if !fits {
        lines.push(Line::raw(format!(
            "… and {} more",
            view.threads.len() - shown
        )));
    }
    Text::from(lines)
}

fn row(rates: &ThreadRates, theme: Theme) -> Line<'static> {
    let thread = &rates.thread;
    let class = thread.class.name();
    let cpu = thread
        .cpu
        .map_or_else(|| "-".to_owned(), |cpu| cpu.to_string());
    Line::from(vec![
        Span::raw(format!("{:>7}  {:<15}  ", thread.tid, thread.comm)),
        Span::styled(format!("{class:<10}"), theme.class(class)),
        Span::raw(format!(
            "  {:<8} {cpu:>4} {:>7.1} {:>7.2}  {:>8}",
            thread.source,
            rates.run_percent,
            rates.wait_percent,
            time(rates.wait)
        )),
    ])
}

fn events_text(view: &View) -> Text<'_> {
    let lines = view.events.iter().map(|event| {
        let seconds = event.at.as_secs();
        Line::raw(format!(
            "{:>3}:{:02}  {}",
            seconds / 60,
            seconds % 60,
            event.text
        ))
    });
    Text::from(lines.collect::<Vec<_>>())
}

/// In three digits and a unit.
fn time(duration: Option<Duration>) -> String {
    let Some(duration) = duration else {
        return "-".to_owned();
    };
    let us = duration.as_secs_f64() * 1e6;
    match us {
        ..10.0 => format!("{us:.1} us"),
        ..1e3 => format!("{us:.0} us"),
        ..1e4 => format!("{:.1} ms", us / 1e3),
        ..1e6 => format!("{:.0} ms", us / 1e3),
        _ => format!("{:.1} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests;
