//! What txos says of itself: on standard error, never mixed into the command's own output.

use std::{
    fmt,
    io::{IsTerminal, Write, stderr},
};

use serde::Serialize;
use tracing_subscriber::EnvFilter;
use txos_core::misleading;

pub use txos_contention::text::{printable, shortened};

/// Starts the developer's log, switched on by `TXOS_LOG` (as `TXOS_LOG=debug`).
pub fn start_log() {
    let filter = EnvFilter::try_from_env("TXOS_LOG").unwrap_or_else(|_| EnvFilter::new("off"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    // A second start in one process keeps the first.
    let _ = log.with_ansi(stderr().is_terminal()).try_init();
}

/// Says a line to the user. Where standard error is closed there is nobody to tell.
pub fn say(line: impl fmt::Display) {
    let _ = writeln!(stderr(), "txos: {line}");
}

/// Whether colour is wanted on standard error: a terminal, and `NO_COLOR` not set.
pub fn colour() -> bool {
    stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// A count with its noun: `1 file`, `2 files`.
pub fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// A number of processes.
pub fn processes(number: usize) -> String {
    if number == 1 { "1 process".to_owned() } else { format!("{number} processes") }
}

/// A size for people: three figures and a binary unit.
pub fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} {}", units[0]) } else { format!("{value:.1} {}", units[unit]) }
}

/// A value as JSON, on one line. JSON itself leaves control characters above U+007E as they are, and
/// those that turn text around.
///
/// # Errors
/// If it has no form in JSON.
pub fn json(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(escaped)
}

/// The same, on several lines.
///
/// # Errors
/// As [`json`].
pub fn json_pretty(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(escaped)
}

/// Such characters stand in strings alone, where they may be escaped.
fn escaped(json: String) -> String {
    let steers = |c: char| c != '\n' && misleading(c);
    if !json.contains(steers) {
        return json;
    }
    let mut text = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match steers(c) {
            true => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_steers_no_terminal_and_means_the_same() {
        let text = "a\n\u{1b}[31m\u{9b}2J\u{202e}\u{7f}\u{e9}\u{1f600}\\\"";
        for json in [json(&text).unwrap(), json_pretty(&[text]).unwrap()] {
            assert!(!json.contains(|c: char| c != '\n' && misleading(c)), "{json:?}");
            assert!(json.contains('\u{e9}'), "what is harmless stays as it is");
        }
        assert_eq!(serde_json::from_str::<String>(&json(&text).unwrap()).unwrap(), text);
    }

    #[test]
    fn sizes_and_counts() {
        assert_eq!(size(17), "17 bytes");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(count(1, "file"), "1 file");
        assert_eq!(count(2, "file"), "2 files");
    }
}
