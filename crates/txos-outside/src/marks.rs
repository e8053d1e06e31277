//! The group, its marks, and what they do not cover.

use std::{
    collections::HashMap,
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::CWD,
    io::Errno,
};
use txos_host::{attrs_of, mounts};

use crate::{OutsideError, Result, resolve::open_point, sys};

/// What is heard of: names that come and go, contents and attributes that change.
const CHANGES: u64 = libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_MOVED_FROM
    | libc::FAN_MOVED_TO
    | libc::FAN_MODIFY
    | libc::FAN_ATTRIB
    | libc::FAN_ONDIR;

/// `FAN_REPORT_TARGET_FID`: events of names tell the object, too (Linux 5.17).
const TARGET: u32 = 0x1000;

/// File systems that hold nothing that a transaction captures.
const BESIDE: &[&str] = &[
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "devpts",
    "devtmpfs",
    "mqueue",
    "debugfs",
    "tracefs",
    "securityfs",
    "pstore",
    "bpf",
    "configfs",
    "fusectl",
    "binfmt_misc",
    "autofs",
    "efivarfs",
    "rpc_pipefs",
    "nsfs",
    "selinuxfs",
    "hugetlbfs",
    "ramfs",
];

/// File systems that change without this kernel's doing, or that may make who looks wait.
const FOREIGN: &[&str] =
    &["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "virtiofs", "gfs2", "ocfs2"];

/// Groups with marks on all file systems that take them.
#[derive(Debug)]
pub(crate) struct Marks {
    /// Hears of changes.
    pub(crate) group: OwnedFd,
    /// Hears of opens, while a log is kept. There are many of them, and who it was does not matter:
    /// so its events are as small as can be.
    pub(crate) opens: OwnedFd,
    /// By identity, where each is mounted.
    pub(crate) file_systems: HashMap<[u8; 8], PathBuf>,
    /// Devices whose file systems take no marks.
    pub(crate) unwatched: Vec<u64>,
    pub(crate) mount_table: File,
}

impl Marks {
    pub(crate) fn new() -> Result<Marks> {
        let not_granted = |action| move |errno| OutsideError::NotGranted { action, errno };
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_REPORT_FID
            | libc::FAN_REPORT_DFID_NAME
            | libc::FAN_REPORT_PIDFD
            | libc::FAN_UNLIMITED_MARKS
            | TARGET;
        let group = sys::fanotify_init(flags).map_err(not_granted("fanotify_init"))?;
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_REPORT_FID
            | libc::FAN_UNLIMITED_MARKS;
        let opens = sys::fanotify_init(flags).map_err(not_granted("fanotify_init"))?;
        // Opened before the table is read: what is mounted meanwhile is noticed.
        let mount_table =
            File::open("/proc/self/mountinfo").map_err(|error| OutsideError::NotGranted {
                action: "open /proc/self/mountinfo",
                errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
            })?;
        let mut marks = Marks {
            group,
            opens,
            file_systems: HashMap::new(),
            unwatched: Vec::new(),
            mount_table,
        };
        let mut refused = None;
        for mount in mounts::visible()? {
            if BESIDE.contains(&mount.fs_type.as_str()) {
                continue;
            }
            if FOREIGN.contains(&mount.fs_type.as_str()) || mount.fs_type.starts_with("fuse") {
                marks.unwatched.push(mount.dev);
                continue;
            }
            // Some have no device that mountinfo and stat agree on; the object itself is asked.
            let Ok(point) = open_point(&mount.point) else {
                marks.unwatched.push(mount.dev);
                continue;
            };
            let dev = attrs_of(&point).map_or(mount.dev, |attrs| attrs.id.dev);
            match marks.add(&point, &mount.point) {
                Ok(()) => {}
                Err(errno) => {
                    refused = Some(errno);
                    marks.unwatched.push(dev);
                }
            }
        }
        match (marks.file_systems.is_empty(), refused) {
            (true, Some(errno)) => Err(OutsideError::NotGranted { action: "fanotify_mark", errno }),
            (true, None) => Err(OutsideError::NoFileSystem),
            _ => Ok(marks),
        }
    }

    fn add(&mut self, point: &OwnedFd, path: &Path) -> Result<(), Errno> {
        let fsid = sys::fsid(point)?;
        if self.file_systems.contains_key(&fsid) {
            return Ok(());
        }
        let kind = libc::FAN_MARK_FILESYSTEM;
        sys::fanotify_add(&self.group, kind, CHANGES, point, c".").or_else(
            |errno| match errno {
                // A mount of a single file.
                Errno::NOTDIR => {
                    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(point));
                    let path = std::ffi::CString::new(path).map_err(|_| Errno::INVAL)?;
                    sys::fanotify_add(&self.group, kind, CHANGES, CWD, &path)
                }
                errno => Err(errno),
            },
        )?;
        self.file_systems.insert(fsid, path.to_owned());
        Ok(())
    }

    /// Hears of opens, too, or no longer. `false` if that is refused somewhere.
    pub(crate) fn hear_opens(&self, on: bool) -> bool {
        let change = |path: &PathBuf| {
            let kind = libc::FAN_MARK_FILESYSTEM;
            let point = open_point(path)?;
            match on {
                true => sys::fanotify_add(&self.opens, kind, libc::FAN_OPEN, &point, c"."),
                false => sys::fanotify_remove(&self.opens, kind, libc::FAN_OPEN, &point, c"."),
            }
        };
        // All of them, whatever one says.
        self.file_systems.values().map(change).filter(Result::is_err).count() == 0
    }

    /// Whether anything was mounted or unmounted since the last call (`proc_pid_mountinfo(5)`: a poll
    /// tells it once).
    pub(crate) fn mounts_changed(&self) -> bool {
        let mut fds = [PollFd::new(&self.mount_table, PollFlags::PRI)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut fds, Some(&now)) {
            Ok(0) => false,
            Ok(_) => fds[0].revents().intersects(PollFlags::PRI | PollFlags::ERR),
            Err(_) => true,
        }
    }
}
