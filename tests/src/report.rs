//! Reading the report that `--json` writes.

use std::path::Path;

use serde_json::Value;

/// A report of one `txos run`, or of `diff --json`.
#[derive(Debug)]
pub struct Report(pub Value);

impl Report {
    /// Reads it.
    ///
    /// # Panics
    /// If the file is missing or is no JSON.
    #[track_caller]
    pub fn read(path: &Path) -> Report {
        let text = std::fs::read_to_string(path)
            .unwrap_or_else(|e| panic!("no report at {}: {e}", path.display()));
        Report::parse(&text)
    }

    /// The same from text.
    ///
    /// # Panics
    /// If it is no JSON.
    #[track_caller]
    pub fn parse(text: &str) -> Report {
        Report(serde_json::from_str(text).unwrap_or_else(|e| panic!("no JSON ({e}): {text}")))
    }

    /// A text field; empty if it is not there.
    pub fn text(&self, field: &str) -> String {
        match &self.0[field] {
            Value::String(s) => s.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        }
    }

    /// Whether the text occurs in a value of a field of the report; of all of it where the field is "".
    pub fn mentions(&self, field: &str, text: &str) -> bool {
        fn walk(v: &Value, text: &str) -> bool {
            match v {
                Value::String(s) => s.contains(text),
                Value::Array(a) => a.iter().any(|v| walk(v, text)),
                Value::Object(o) => o.values().any(|v| walk(v, text)),
                _ => false,
            }
        }
        walk(if field.is_empty() { &self.0 } else { &self.0[field] }, text)
    }
}
