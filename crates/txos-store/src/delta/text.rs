//! The delta as a person wants to read it.

use std::fmt::{self, Write};

use txos_core::FileKind;

use super::{AttrChange, Change, ChangeKind, Delta};
use crate::names::shown;

impl fmt::Display for Delta {
    /// One line a change, sorted by path; names are written so that no control character reaches
    /// the terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for change in &self.changes {
            writeln!(f, "{change}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match &self.kind {
            ChangeKind::Created => "created",
            ChangeKind::Modified => "modified",
            ChangeKind::Replaced => "replaced",
            ChangeKind::Removed => "removed",
            ChangeKind::Renamed { .. } => "renamed",
            ChangeKind::Linked { .. } => "linked",
            ChangeKind::Metadata => "metadata",
        };
        write!(f, "{verb:<9} {}", shown(&self.path))?;
        if self.object == FileKind::Dir {
            f.write_char('/')?;
        }
        match &self.kind {
            ChangeKind::Renamed { from } => write!(f, " (was {})", shown(from))?,
            ChangeKind::Linked { to } => write!(f, " (also {})", shown(to))?,
            _ => {}
        }
        match (self.size_before, self.size_after) {
            (Some(before), Some(after)) if before != after => {
                write!(f, " {before} -> {after} bytes")?
            }
            (None, Some(after)) => write!(f, " {after} bytes")?,
            _ => {}
        }
        for attr in &self.attrs {
            match attr {
                AttrChange::Mode { before, after } => {
                    write!(f, ", mode {before:04o} -> {after:04o}")?
                }
                AttrChange::Owner { before, after } => {
                    write!(f, ", owner {}:{} -> {}:{}", before.0, before.1, after.0, after.1)?;
                }
                AttrChange::Modified { .. } => f.write_str(", time")?,
                AttrChange::Xattr { name, set: true } => write!(f, ", sets {name}")?,
                AttrChange::Xattr { name, set: false } => write!(f, ", removes {name}")?,
            }
        }
        Ok(())
    }
}
