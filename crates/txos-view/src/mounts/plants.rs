use std::{
    fs,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, StatxFlags, Timespec, Timestamps, statx, utimensat},
    io::Errno,
};

use super::inside;
use crate::{Plant, Result, ViewError, ViewSpec};

/// Writes the plants into the shadow layer. The directories' times are put back, so that the
/// delta of a command that changes nothing stays empty.
pub(super) fn plant(spec: &ViewSpec, root: &Path) -> Result<()> {
    spec.plants.iter().try_for_each(|plant| place(plant, root))
}

fn place(plant: &Plant, root: &Path) -> Result<()> {
    let failed =
        |errno| ViewError::step(format!("put a helper at {}", plant.path.display()), errno);
    let io = |error: std::io::Error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    let at = inside(root, &plant.path);
    let Some(dir) = at.parent() else { return Err(failed(Errno::INVAL)) };
    let times = times_of(dir).map_err(failed)?;
    // A new object, not a change of the host's.
    match fs::remove_file(&at) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o755).open(&at).map_err(io)?;
    std::io::Write::write_all(&mut file, plant.content().as_bytes()).map_err(io)?;
    // Whatever the umask says.
    file.set_permissions(fs::Permissions::from_mode(0o755)).map_err(io)?;
    utimensat(CWD, dir, &times, AtFlags::empty()).map_err(failed)
}

fn times_of(dir: &Path) -> std::result::Result<Timestamps, Errno> {
    let stat = statx(CWD, dir, AtFlags::empty(), StatxFlags::BASIC_STATS)?;
    let time =
        |t: rustix::fs::StatxTimestamp| Timespec { tv_sec: t.tv_sec, tv_nsec: t.tv_nsec.into() };
    Ok(Timestamps { last_access: time(stat.stx_atime), last_modification: time(stat.stx_mtime) })
}
