// SPDX-License-Identifier: GPL-2.0-only
//! Where log lines go: text for people, or one JSON object a line for programs.

use std::io::{IsTerminal, Write};
use std::time::SystemTime;

use clap::ValueEnum;
use log::kv::{self, Key, Value, VisitSource};
use log::{LevelFilter, Log, Metadata, Record};
use serde_json::Map;
use simplelog::{ColorChoice, ConfigBuilder, TermLogger, TerminalMode};

use super::output::say;

/// `--log-format`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines for people.
    Text,
    /// JSON objects: time, level, message, and the keys of the event.
    Json,
}

/// Ours, and what libbpf says; `verbose` lets everybody in.
const HEARD: [&str; 2] = ["scx_gpuaware", "scx_utils::libbpf_logger"];

/// Starts logging to standard error.
pub fn start(verbose: bool, format: Format) {
    let level = if verbose {
        LevelFilter::Debug
    } else {
        LevelFilter::Info
    };
    // Fails only if a logger is set already, which is fine in tests.
    let _ = match format {
        Format::Text => start_text(verbose, level),
        Format::Json => {
            log::set_boxed_logger(Box::new(Json { verbose })).map(|()| log::set_max_level(level))
        }
    };
}

/// Says why the program ends.
pub fn say_error(error: &anyhow::Error, format: Format) {
    match format {
        Format::Text => say(&format!("scx_gpuaware: error: {error:#}\n")),
        Format::Json => log::error!(event = "error"; "{error:#}"),
    }
}

fn start_text(verbose: bool, level: LevelFilter) -> Result<(), log::SetLoggerError> {
    let mut config = ConfigBuilder::new();
    config
        .set_target_level(LevelFilter::Off)
        .set_location_level(LevelFilter::Off)
        .set_time_level(LevelFilter::Off);
    if !verbose {
        for target in HEARD {
            config.add_filter_allow_str(target);
        }
    }
    let color = if std::io::stderr().is_terminal() {
        ColorChoice::Auto
    } else {
        ColorChoice::Never
    };
    TermLogger::init(level, config.build(), TerminalMode::Stderr, color)
}

struct Json {
    verbose: bool,
}

impl Log for Json {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.verbose
            || HEARD
                .iter()
                .any(|heard| metadata.target().starts_with(heard))
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let line = line(record, now.unwrap_or_default().as_secs_f64());
        // Nobody is left to be told.
        let _ = writeln!(std::io::stderr(), "{line}");
    }

    fn flush(&self) {}
}

/// `seconds` since 1970.
fn line(record: &Record<'_>, seconds: f64) -> serde_json::Value {
    let mut keys = Keys(Map::new());
    keys.0.insert("time".to_owned(), seconds.into());
    let level = record.level().as_str().to_lowercase();
    keys.0.insert("level".to_owned(), level.into());
    keys.0
        .insert("message".to_owned(), record.args().to_string().into());
    // Collecting into a map does not fail.
    let _ = record.key_values().visit(&mut keys);
    keys.0.into()
}

struct Keys(Map<String, serde_json::Value>);

impl<'kvs> VisitSource<'kvs> for Keys {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        let value = match value.to_u64() {
            Some(number) => number.into(),
            None => value.to_string().into(),
        };
        self.0.insert(key.to_string(), value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_its_keys_and_its_text() {
        let keys = [
            ("generation", Value::from(3u64)),
            ("file", Value::from("p.toml")),
        ];
        let record = Record::builder()
            .level(log::Level::Warn)
            .args(format_args!("refused: \"x\"\nmore"))
            .key_values(&keys)
            .build();
        let line = line(&record, 1.5);
        let expected = serde_json::json!({
            "time": 1.5, "level": "warn", "message": "refused: \"x\"\nmore",
            "generation": 3, "file": "p.toml",
        });
        assert_eq!(line, expected);
        assert!(!line.to_string().contains('\n'));
    }
}
