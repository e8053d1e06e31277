//! Where the state directory is.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};
use rustix::{
    process::geteuid,
    thread::{CapabilitySet, capabilities},
};

use txos_store::{Privilege, StateDir};
use txos_view::Credentials;

use crate::verbs::helper::HELPERS;

/// As whom the calling process makes views: with its own privilege where it may mount, else in a
/// user namespace.
pub fn credentials() -> Credentials {
    let may_mount =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    if geteuid().is_root() && may_mount && !in_user_namespace() {
        Credentials::Privileged
    } else {
        Credentials::User { uid: geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }
}

/// Whether the user ids of this process are not those of the machine: its root may then mount no more
/// than an ordinary user. Source: user_namespaces(7).
fn in_user_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let fields: Vec<&str> = map.split_ascii_whitespace().collect();
    !fields.is_empty() && fields != ["0", "0", "4294967295"]
}

/// Opens the state directory of the calling user.
///
/// # Errors
/// If it cannot be made, or must not be trusted.
pub fn open() -> Result<StateDir> {
    open_at(&txos_store::default_directory()?)
}

/// Opens the state directory of the calling user, if there is one.
///
/// # Errors
/// If it must not be trusted.
pub fn open_if_there() -> Result<Option<StateDir>> {
    let path = txos_store::default_directory()?;
    match path.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_inside() => Ok(None),
        _ => open_at(&path).map(Some),
    }
}

/// Whether this process is inside a transaction.
fn is_inside() -> bool {
    Path::new(HELPERS).exists()
}

/// Opens a state directory of the calling user.
///
/// # Errors
/// As [`open`].
pub fn open_at(path: &Path) -> Result<StateDir> {
    // A state directory made inside would be the transaction's own.
    ensure!(
        !is_inside(),
        "this is inside a transaction: what txos keeps is not seen here; ask from outside"
    );
    let privilege = match credentials() {
        Credentials::Privileged => Privilege::Root,
        Credentials::User { .. } => Privilege::User,
    };
    Ok(StateDir::open(path, privilege)?)
}

/// Where an ordinary user is likely to write; see [`txos_view::plan_layers`].
pub fn likely_places() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let mut places: Vec<PathBuf> = ["HOME", "TMPDIR", "XDG_RUNTIME_DIR"]
        .into_iter()
        .filter_map(variable)
        .filter(|path| path.is_absolute())
        .collect();
    places.extend(std::env::current_dir().ok());
    places.extend(["/tmp", "/var/tmp"].map(PathBuf::from));
    places
}

/// The absolute paths that a command's words name, alone, behind an option's sign or in a script: where an
/// ordinary user means to write besides [`likely_places`].
pub fn named_places(words: &[OsString]) -> Vec<PathBuf> {
    /// Of a long list of files the first ones do: they hardly lie in that many directories.
    const MOST: usize = 64;
    let ends = |byte: &u8| b" \t\n'\"=:;,|&<>(){}".contains(byte);
    let parts = words.iter().flat_map(|word| word.as_bytes().split(ends));
    let named = parts.filter(|part| part.len() > 1 && part[0] == b'/');
    named.take(MOST).map(|part| PathBuf::from(OsStr::from_bytes(part))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_named_alone_in_options_and_in_scripts() {
        let words = ["sh", "-c", "echo x >/srv/a/f; cd '/opt/b'", "--to=/data/c", "d/e", "/"];
        let found = named_places(&words.map(OsString::from));
        assert_eq!(found, ["/srv/a/f", "/opt/b", "/data/c"].map(PathBuf::from));
    }
}
