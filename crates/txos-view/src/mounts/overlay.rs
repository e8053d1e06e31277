use std::{ffi::CString, os::unix::ffi::OsStrExt, path::Path};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
    mount::mount,
    process::fchdir,
};

use super::{EMPTY, inside, layer_flags};
use crate::{Credentials, Layer, Result, ViewError, ViewSpec};

/// Mounts the overlay of each layer over the capture, parents before children.
///
/// `source` is what the mount table shows as theirs. The working directory is some other one afterwards.
pub(super) fn mount_layers(
    spec: &ViewSpec,
    stable: &Path,
    root: &Path,
    source: &str,
) -> Result<()> {
    for layer in &spec.layers {
        let at = inside(root, &layer.point);
        let options = options(spec, layer, stable)?;
        let flags = layer_flags(spec, layer);
        let mounted = go_to(root, &layer.point)
            .and_then(|()| mount(source, ".", "overlay", flags, Some(options.as_c_str())));
        match mounted {
            Ok(()) => {}
            // A mount that the caller cannot enter (another user's FUSE mount, say) is as closed
            // in the view as it is outside: the capture answers with the same error.
            Err(Errno::ACCESS | Errno::NOENT) if layer.point != Path::new("/") => {}
            Err(errno) => {
                let what = format!("the overlay for {}", layer.point.display());
                return Err(ViewError::mount(what, &at, errno).with_remedy(match errno {
                    Errno::INVAL => {
                        "the file system of the state directory cannot hold an upper layer, or the \
                         kernel lacks an overlay option: set TXOS_STATE to a directory on ext4, \
                         xfs, btrfs or tmpfs, and see `txos doctor`"
                    }
                    Errno::NODEV => "load the overlay module: modprobe overlay",
                    Errno::PERM => "this kernel has no overlay mounts in user namespaces (5.11)",
                    _ => "see `txos doctor`",
                }));
            }
        }
    }
    Ok(())
}

/// Makes `point` below `root` the working directory. mount(2) would follow a link on the way, and an absolute one
/// out of the view that is being put together.
fn go_to(root: &Path, point: &Path) -> std::result::Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Opened each time: the overlay mounted last may lie on it.
    let root = openat(CWD, root, flags, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    fchdir(openat2(root, point, flags, Mode::empty(), resolve)?)
}

/// The mount options. What each is for:
///
/// - `redirect_dir`, so that directories can be renamed; `index`, so that the names of a
///   hard-linked file stay one file; `metacopy`, so that a chmod copies no content; all three need
///   privilege.
/// - `volatile`, because nothing in the upper layer has to survive a crash before the commit
///   flushes it, and the overlay would flush the whole file system when it is unmounted.
/// - `xino=off`: with it on, listing a merged directory looks up each name (false reads).
fn options(spec: &ViewSpec, layer: &Layer, stable: &Path) -> Result<CString> {
    let lower = inside(stable, &layer.point);
    let mut text = b"lowerdir=".to_vec();
    text.extend(escaped(&lower));
    match (&layer.upper, &layer.work) {
        (Some(upper), Some(work)) => {
            for (key, path) in [(",upperdir=", upper), (",workdir=", work)] {
                text.extend(key.as_bytes());
                text.extend(escaped(path));
            }
            text.extend(match spec.credentials {
                Credentials::Privileged => {
                    b",redirect_dir=on,metacopy=on,index=on,xino=off,volatile".as_slice()
                }
                Credentials::User { .. } => b",userxattr,xino=off,volatile".as_slice(),
            });
        }
        // A read-only overlay needs two lower layers.
        _ => {
            text.push(b':');
            text.extend(escaped(&spec.scaffold.join(EMPTY)));
            if let Credentials::User { .. } = spec.credentials {
                text.extend(b",userxattr");
            }
        }
    }
    CString::new(text).map_err(|_| ViewError::step("pass overlay options", Errno::INVAL))
}

/// Escapes what the option parser would take for a separator.
fn escaped(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b':' | b',' | b'\\') {
            bytes.push(b'\\');
        }
        bytes.push(*byte);
    }
    bytes
}
