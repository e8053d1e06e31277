//! Which characters of a foreign text may not reach a person's terminal.

/// Whether a character steers a terminal, breaks a line, or turns the text around it.
pub fn misleading(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}
