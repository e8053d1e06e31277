//! Where the state directory of a user is.

use std::{env, path::PathBuf};

use rustix::process::geteuid;

use crate::{Result, StoreError};

/// The state directory of the calling user: `$TXOS_STATE`, else `/var/lib/txos` for root and
/// `$XDG_STATE_HOME/txos` or `~/.local/state/txos` for others.
///
/// # Errors
/// [`StoreError::Refused`] if none of the variables is there, or the path is not absolute.
pub fn default_directory() -> Result<PathBuf> {
    let of = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = if let Some(path) = of("TXOS_STATE") {
        path
    } else if geteuid().is_root() {
        PathBuf::from("/var/lib/txos")
    } else if let Some(path) = of("XDG_STATE_HOME") {
        path.join("txos")
    } else if let Some(home) = of("HOME") {
        home.join(".local/state/txos")
    } else {
        let reason = "there is no place for the state directory";
        return Err(StoreError::refused("state directory", reason, "set TXOS_STATE, or HOME"));
    };
    if !path.is_absolute() {
        return Err(StoreError::refused(path, "is no absolute path", "set TXOS_STATE to one"));
    }
    Ok(path)
}
