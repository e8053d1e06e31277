//! Text that comes from others, made fit for people's eyes.

use txos_core::misleading;

/// Text that may come from a file name or a program, with control characters, and those that turn text
/// around, escaped so that it cannot command the terminal.
pub fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escape = misleading(c);
            let plain = (!escape).then_some(c);
            let escaped = escape.then(|| c.escape_default());
            plain.into_iter().chain(escaped.into_iter().flatten())
        })
        .collect()
}

/// The beginning of a command line, for messages that name it beside other things.
pub fn shortened(command: &str) -> String {
    const ENOUGH: usize = 200;
    match command.char_indices().nth(ENOUGH) {
        Some((end, _)) => format!("{}…", &command[..end]),
        None => command.to_owned(),
    }
}

/// What a process runs, as far as messages name it.
pub fn command_of(process: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    shortened(&words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_commands_are_shortened_between_characters() {
        assert_eq!(shortened("äöü"), "äöü");
        assert_eq!(shortened(&"ä".repeat(201)), format!("{}…", "ä".repeat(200)));
    }

    #[test]
    fn control_characters_cannot_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
    }
}
