//! txos under another name: inside a view it stands in for programs that would reach services.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::ExitCode,
};

use txos_effects::services::{ShimPaths, shim_main};

/// Where the view shows what its helpers need.
pub const HELPERS: &str = "/dev/txos";

/// Runs as a helper if txos was called under a helper's name.
///
/// Helpers are the interpreters of the scripts that the view plants, so the kernel passes the
/// script's path, by the name that the caller used, as the first argument (execve(2)).
pub fn main(called_as: &OsStr, arguments: &[OsString]) -> Option<ExitCode> {
    let below = |name: &str| PathBuf::from(HELPERS).join(name);
    let paths = ShimPaths {
        sink: below("requests"),
        systemctl: below("real-systemctl"),
        service: below("real-service"),
    };
    let (name, arguments) = match arguments.split_first() {
        Some((script, rest)) if Path::new(called_as).starts_with(HELPERS) => {
            (script.as_os_str(), rest)
        }
        _ => (called_as, arguments),
    };
    shim_main(name, arguments, &paths).map(ExitCode::from)
}
