//! Where the state directory is.

use std::{env, path::PathBuf};

use anyhow::{Result, bail};
use rustix::{
    process::geteuid,
    thread::{CapabilitySet, capabilities},
};
use txos_store::{Privilege, StateDir};
use txos_view::Credentials;

/// The state directory of the calling user: `$TXOS_STATE`, else `/var/lib/txos` for root and
/// `$XDG_STATE_HOME/txos` or `~/.local/state/txos` for others.
///
/// # Errors
/// If none of the variables is there, or the path is not absolute.
pub fn directory() -> Result<PathBuf> {
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
        bail!("no place for the state directory: set TXOS_STATE, or HOME");
    };
    if !path.is_absolute() {
        bail!("the state directory {} is not an absolute path: set TXOS_STATE", path.display());
    }
    Ok(path)
}

/// As whom the calling process makes views: with its own privilege where it may mount, else in a
/// user namespace.
pub fn credentials() -> Credentials {
    let may_mount =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    if geteuid().is_root() && may_mount {
        Credentials::Privileged
    } else {
        Credentials::User { uid: geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }
}

/// Opens the state directory of the calling user.
///
/// # Errors
/// If it cannot be made, or must not be trusted.
pub fn open() -> Result<StateDir> {
    let privilege = match credentials() {
        Credentials::Privileged => Privilege::Root,
        Credentials::User { .. } => Privilege::User,
    };
    Ok(StateDir::open(directory()?, privilege)?)
}
