//! Making outside what was left inside.

use super::{Kind, MEMORY, Object, sys};
use rustix::fs::{Gid, Mode, Uid, fchmod, fchown};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Made anew, or not at all.
const NEW: i32 = libc::IPC_CREAT | libc::IPC_EXCL | 0o600;

/// Whether somebody uses the key or the name.
pub(super) fn exists(kind: &Kind) -> bool {
    let found = match kind {
        Kind::Queue(key, ..) => sys::queue(*key, 0).map(drop),
        Kind::Semaphores(key, _) => sys::semaphores(*key, 0, 0).map(drop),
        Kind::Segment(key, ..) => sys::segment(*key, 0, 0).map(drop),
        Kind::NamedQueue(name, ..) => sys::named_queue(name, libc::O_RDONLY, None).map(drop),
        Kind::NamedMemory(name, ..) => fs::symlink_metadata(place(name)).map(drop),
    };
    // What may not be looked at is there.
    !matches!(found, Err(error) if [libc::ENOENT, libc::ENOSYS].contains(&error.raw_os_error().unwrap_or(0)))
}

fn place(name: &str) -> PathBuf {
    PathBuf::from(MEMORY).join(name)
}

pub(super) fn make(object: &Object) -> io::Result<()> {
    let owner = (object.uid, object.gid, object.mode);
    match &object.kind {
        Kind::Queue(key, limit, messages) => {
            let id = sys::queue(*key, NEW)?;
            let fill = || {
                sys::set_queue(id, owner, *limit)?;
                messages.iter().try_for_each(|(kind, text)| sys::put_message(id, *kind, &text.0))
            };
            fill().inspect_err(|_| sys::remove_queue(id))
        }
        Kind::Semaphores(key, values) => {
            let count = i32::try_from(values.len()).map_err(io::Error::other)?;
            let id = sys::semaphores(*key, count, NEW)?;
            let fill = || sys::set_values(id, values).and_then(|()| sys::set_semaphores(id, owner));
            fill().inspect_err(|_| sys::remove_semaphores(id))
        }
        Kind::Segment(key, size, content) => {
            let size = usize::try_from(*size).map_err(io::Error::other)?;
            let id = sys::segment(*key, size, NEW)?;
            let fill = || {
                let content = &content.0[..content.0.len().min(size)];
                let fill = |bytes: &mut [u8]| bytes[..content.len()].copy_from_slice(content);
                sys::with_segment(id, size, false, fill)?;
                sys::set_segment(id, owner)
            };
            fill().inspect_err(|_| sys::remove_segment(id))
        }
        Kind::NamedQueue(name, limits, messages) => {
            let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
            let queue = sys::named_queue(name, flags, Some(*limits))?;
            let fill = || {
                let put =
                    |(priority, text): &(u32, super::Bytes)| sys::send(&queue, *priority, &text.0);
                messages.iter().try_for_each(put)?;
                give(&queue, owner)
            };
            fill().inspect_err(|_| sys::remove_named_queue(name))
        }
        Kind::NamedMemory(name, size, content) => {
            let path = place(name);
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&path)?;
            let mut fill = || {
                file.write_all(&content.0)?;
                File::set_len(&file, *size)?;
                give(&file, owner)
            };
            fill().inspect_err(|_| drop(fs::remove_file(&path)))
        }
    }
}

fn give(object: impl AsFd, (uid, gid, mode): (u32, u32, u32)) -> io::Result<()> {
    fchown(&object, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    Ok(fchmod(&object, Mode::from_raw_mode(mode))?)
}
