//! The state directory itself.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

use crate::report::Probe;
use crate::scratch::nearest_existing;

const NAME: &str = "state directory";
const REMEDY: &str = "set TXOS_STATE to a private directory of yours on a disk file system";
/// Shadows and staged files live here; less than this is soon used up.
const LITTLE_SPACE: u64 = 256 << 20;

/// Whose is it, who may enter it, and how much room does it have?
pub(super) fn probe(state_dir: &Path, writable: bool) -> Probe {
    let place = nearest_existing(state_dir);
    let space = rustix::fs::statvfs(place).map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    let room = match space {
        Ok(bytes) => format!("{} MiB free", bytes >> 20),
        Err(errno) => format!("free space unknown: {errno}"),
    };
    let shown = state_dir.display();
    if !writable {
        return Probe::missing(NAME, format!("{shown}: not writable for the caller"), REMEDY);
    }
    if place != state_dir {
        return Probe::ok(NAME, format!("{shown}: not there yet, can be made; {room}"));
    }
    match std::fs::metadata(state_dir) {
        Err(error) => Probe::missing(NAME, format!("{shown}: {error}"), REMEDY),
        Ok(meta) if meta.uid() != geteuid().as_raw() => Probe::missing(
            NAME,
            format!("{shown}: belongs to user {}, not to the caller", meta.uid()),
            REMEDY,
        ),
        Ok(meta) if meta.mode() & 0o077 != 0 => Probe::missing(
            NAME,
            format!("{shown}: mode {:04o}, others may enter it", meta.mode() & 0o7777),
            format!("look what they did there, then chmod 700 {shown}"),
        ),
        Ok(_) if space.is_ok_and(|bytes| bytes < LITTLE_SPACE) => Probe::limited(
            NAME,
            format!("{shown}: {room}"),
            "free some space: what a transaction writes is kept there until it commits",
        ),
        Ok(_) => Probe::ok(NAME, format!("{shown}: {room}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Status;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_open_to_others_is_told() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let probe = probe(dir.path(), true);
        assert_eq!(probe.status, Status::Missing);
        assert!(probe.detail.contains("0777"), "{}", probe.detail);
    }

    #[test]
    fn an_absent_one_is_no_fault() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(probe(&dir.path().join("a/b"), true).status, Status::Ok);
        assert!(!dir.path().join("a").exists());
    }
}
