// SPDX-License-Identifier: GPL-2.0-only
//! `scx_gpuaware top`: a screen that shows the scheduler that runs.
//!
//! Reads its statistics server, its marks and `/proc`; loads nothing and changes nothing. What is
//! shown follows from two samples (`view`, pure) and how it looks is `screen`'s business (pure).

mod sample;
mod screen;
mod view;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::disable_raw_mode;

use crate::shutdown::Shutdown;
use crate::unread::can_be_written;

use sample::Sampler;
use screen::Theme;
use view::View;

/// Shows the scheduler that runs, looking every `interval`, until a key or `shutdown` ends it.
///
/// # Errors
/// No scheduler runs, it ended meanwhile, or standard output is no terminal.
pub fn run(interval: Duration, shutdown: &Shutdown) -> Result<()> {
    if !std::io::stdout().is_terminal() {
        bail!("top needs a terminal: scx_gpuaware --monitor prints lines");
    }
    let mut sampler = Sampler::connect()?;
    let theme = Theme::of(std::env::var("NO_COLOR").ok().as_deref());
    let mut terminal = ratatui::try_init().context("taking the terminal over")?;
    let ended = show(&mut terminal, &mut sampler, interval, theme, shutdown);
    let restored = ratatui::try_restore().context("giving the terminal back");
    ended.and(restored)
}

/// Restores the terminal as far as that works when nobody reads from it.
pub fn let_go() {
    const LEAVE_THE_SCREEN: &[u8] = b"\x1b[?1049l\x1b[?25h";
    let _ = disable_raw_mode();
    // Not through std's buffer: the thread that is stuck may hold its lock.
    if can_be_written(std::io::stdout(), Duration::ZERO).unwrap_or(false) {
        let _ = nix::unistd::write(std::io::stdout(), LEAVE_THE_SCREEN);
    }
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    sampler: &mut Sampler,
    interval: Duration,
    theme: Theme,
    shutdown: &Shutdown,
) -> Result<()> {
    let started = Instant::now();
    let mut view = View::default();
    let mut next = Duration::ZERO;
    while !shutdown.is_asked() {
        let now = started.elapsed();
        if now >= next {
            view.take(now, sampler.read()?);
            next = now + interval;
        }
        terminal
            .draw(|frame| screen::draw(frame, &view, theme))
            .context("drawing")?;
        // Short, so that a signal ends it soon.
        let wait = next
            .saturating_sub(started.elapsed())
            .min(Duration::from_millis(250));
        if event::poll(wait).context("reading keys")? && quits(&event::read()?) {
            break;
        }
    }
    Ok(())
}

/// A resize needs nothing but the next drawing.
fn quits(event: &Event) -> bool {
    let Event::Key(KeyEvent {
        code,
        modifiers,
        kind: KeyEventKind::Press,
        ..
    }) = event
    else {
        return false;
    };
    let interrupts = *code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL);
    interrupts || matches!(code, KeyCode::Char('q') | KeyCode::Esc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_ctrl_c_quit_and_nothing_else_does() {
        let key = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        assert!(quits(&key(KeyCode::Char('q'), KeyModifiers::NONE)));
        assert!(quits(&key(KeyCode::Esc, KeyModifiers::NONE)));
        assert!(quits(&key(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!quits(&key(KeyCode::Char('c'), KeyModifiers::NONE)));
        assert!(!quits(&Event::Resize(80, 24)));
    }
}
