use std::{fs, os::fd::AsFd, sync::OnceLock};

use rustix::{
    fs::{fstatfs, fstatvfs},
    io::Errno,
};
use txos_core::Stamp;
use txos_host::attrs_of;

use crate::Result;

/// What tells one file system from another, across reboots where the file system permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FsIdentity {
    /// Universally unique id (`ioctl FS_IOC_GETFSUUID`), where the kernel and the file system
    /// know one.
    pub uuid: Option<[u8; 16]>,
    /// `f_fsid` of `statvfs(3)`.
    pub fsid: u64,
    /// Device number, the same until the next reboot.
    pub dev: u64,
    /// Type (`f_type` of `statfs(2)`).
    pub magic: u64,
    /// Inode number of the directory that is mounted.
    pub root_ino: u64,
    /// Birth time of that directory.
    pub root_birth: Stamp,
}

const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

impl FsIdentity {
    /// Whether its content is gone after a reboot.
    pub(crate) fn is_volatile(&self) -> bool {
        matches!(self.magic, TMPFS | RAMFS)
    }

    /// Whether `found`, looked up later, is this file system with the same directory mounted;
    /// `same_boot` says whether device numbers still mean the same.
    pub(crate) fn is(&self, found: &FsIdentity, same_boot: bool) -> bool {
        self.is_same_file_system(found, same_boot)
            && (self.root_ino, self.root_birth) == (found.root_ino, found.root_birth)
    }

    /// The same, whatever directory of it is mounted.
    pub(crate) fn is_same_file_system(&self, found: &FsIdentity, same_boot: bool) -> bool {
        let file_system = match (self.uuid, found.uuid) {
            (Some(then), Some(now)) => then == now,
            _ if same_boot => self.dev == found.dev,
            _ => self.fsid == found.fsid,
        };
        file_system && self.magic == found.magic
    }
}

/// Identifies the file system whose mounted root, or another directory, is open as `dir`.
pub(crate) fn identity_of(dir: impl AsFd) -> Result<FsIdentity, Errno> {
    let attrs = attrs_of(&dir)?;
    Ok(FsIdentity {
        uuid: uuid_of(&dir),
        fsid: fstatvfs(&dir)?.f_fsid,
        dev: attrs.id.dev,
        magic: fstatfs(&dir)?.f_type as u64,
        root_ino: attrs.id.ino,
        root_birth: attrs.id.birth,
    })
}

/// The kernel's random id of this boot (`random(4)`), or zeros where it is not given.
pub(crate) fn boot_id() -> [u8; 16] {
    static KNOWN: OnceLock<[u8; 16]> = OnceLock::new();
    *KNOWN.get_or_init(read_boot_id)
}

fn read_boot_id() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    id
}

#[allow(unsafe_code)] // rustix has no FS_IOC_GETFSUUID
fn uuid_of(dir: impl AsFd) -> Option<[u8; 16]> {
    use rustix::{
        fs::{Mode, OFlags, openat},
        ioctl::{Getter, ioctl, opcode},
    };

    #[repr(C)]
    struct FsUuid {
        length: u8,
        bytes: [u8; 16],
    }
    const GET: rustix::ioctl::Opcode = opcode::read::<FsUuid>(0x15, 0);

    // The directory may be open as a mere place, on which no ioctl works.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = openat(&dir, c".", flags, Mode::empty()).ok()?;
    // SAFETY: the kernel's struct fsuuid2 (linux/fs.h) has this layout, and GET is its request
    // number; the kernel fills at most this many bytes.
    let uuid = unsafe { ioctl(&readable, Getter::<GET, FsUuid>::new()) }.ok()?;
    (uuid.length == 16 && uuid.bytes != [0; 16]).then_some(uuid.bytes)
}
