//! Unified diffs of small text files.

use std::{fmt::Write, fs, path::Path};

use similar::TextDiff;
use txos_core::FileKind;
use txos_host::Tree;

use super::{Change, ChangeKind, Delta, relative};
use crate::names::{escape, shown};

/// Files beyond this size are not shown as text, in bytes.
const LIMIT: u64 = 256 * 1024;

impl Delta {
    /// Unified diffs of the files that are created, modified, replaced or removed, as far as both
    /// versions are UTF-8 text of at most 256 KiB; of others nothing. To be called before the delta
    /// is staged. Control characters other than tabs are written as names are.
    pub fn unified(&self, tree: &Tree) -> String {
        let mut text = String::new();
        for change in self.changes.iter().filter(|change| change.object == FileKind::File) {
            let before = match change.kind {
                ChangeKind::Created => Some(String::new()),
                _ => read(&tree.at().join(relative(&change.path))),
            };
            let after = match change.kind {
                ChangeKind::Removed => Some(String::new()),
                ChangeKind::Created | ChangeKind::Modified | ChangeKind::Replaced => {
                    self.shadow_of(change).and_then(|shadow| read(&shadow))
                }
                _ => continue,
            };
            if let (Some(before), Some(after)) = (before, after) {
                one(&mut text, change, &before, &after);
            }
        }
        text
    }

    /// The shadow object of a change, as an absolute path.
    fn shadow_of(&self, change: &Change) -> Option<std::path::PathBuf> {
        let draft = self
            .drafts
            .iter()
            .filter(|draft| change.path.starts_with(&draft.point))
            .max_by_key(|draft| draft.point.as_os_str().len())?;
        let rel = change.path.strip_prefix(&draft.point).ok()?;
        let written = draft.writes.iter().find(|write| write.rel.as_deref() == Some(rel));
        Some(match written {
            Some(write) => write.source.clone(),
            None => draft.upper.join(rel),
        })
    }
}

fn read(path: &Path) -> Option<String> {
    let meta = fs::symlink_metadata(path).ok()?;
    if !meta.is_file() || meta.len() > LIMIT {
        return None;
    }
    let text = String::from_utf8(fs::read(path).ok()?).ok()?;
    (!text.contains('\0')).then_some(text)
}

fn one(text: &mut String, change: &Change, before: &str, after: &str) {
    let name = shown(&change.path);
    let old = if change.kind == ChangeKind::Created {
        "/dev/null".to_owned()
    } else {
        format!("a{name}")
    };
    let new = if change.kind == ChangeKind::Removed {
        "/dev/null".to_owned()
    } else {
        format!("b{name}")
    };
    let diff = TextDiff::from_lines(before, after);
    let mut unified = diff.unified_diff();
    let body = unified.context_radius(3).header(&old, &new).to_string();
    for line in body.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (line, ""),
        };
        let plain = line.split('\t').map(escape_line).collect::<Vec<_>>().join("\t");
        let _ = write!(text, "{plain}{end}");
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

/// Control characters as in names; a backslash of the text stays as it is.
fn escape_line(line: &str) -> String {
    line.split('\\').map(|part| escape(part.as_bytes())).collect::<Vec<_>>().join("\\")
}
