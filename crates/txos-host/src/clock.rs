//! What a change time can prove.

use std::{io, os::fd::AsFd, sync::OnceLock};

use rustix::{
    fs::{MemfdFlags, fstatfs, memfd_create},
    io::{Errno, pwrite},
};
use txos_core::Stamp;

use crate::attrs_of;

/// How far the change times of a file system can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeClock {
    /// Once a time was looked at, the next change has another time (multigrain timestamps, Linux
    /// 6.13 and later, on file systems that take part and keep nanoseconds).
    Fine,
    /// A change within the same timer tick may have the same time.
    Coarse,
    /// Nothing is known: a network or foreign file system, or one with times of seconds.
    Unknown,
    /// The file system cannot change at all.
    Frozen,
}

/// Two timer ticks at the slowest rate that Linux is built with (100 Hz).
const TICKS: i64 = 20_000_000;

/// The coarsest tick of the file systems with a clock that is known at all.
const SECOND: i64 = 1_000_000_000;

impl ChangeClock {
    /// Whether an object that has the change time `ctime` and was looked at at `now` (real time)
    /// has another change time after any later change.
    ///
    /// A time without nanoseconds may come from a file system that keeps none (ext2 to ext4 with inodes
    /// of 128 bytes), whatever the kernel could do: it proves nothing for a second.
    pub fn proves(self, ctime: Stamp, now: Stamp) -> bool {
        let old = |than: i64| {
            let nanos = now.sec.saturating_sub(ctime.sec).saturating_mul(1_000_000_000);
            nanos.saturating_add(i64::from(now.nsec) - i64::from(ctime.nsec)) > than
        };
        match self {
            ChangeClock::Frozen => true,
            ChangeClock::Unknown => false,
            ChangeClock::Fine | ChangeClock::Coarse if ctime.nsec == 0 => old(SECOND + TICKS),
            ChangeClock::Fine => true,
            ChangeClock::Coarse => old(TICKS),
        }
    }
}

/// The clock of the file system that holds an open object, by its type and, for those that have
/// multigrain timestamps on new kernels, by what this kernel does.
///
/// # Errors
/// What `fstatfs(2)` gives.
pub fn change_clock(fd: impl AsFd) -> Result<ChangeClock, Errno> {
    const EXT: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683e;
    const TMPFS: i64 = 0x0102_1994;
    const OVERLAY: i64 = 0x794c_7630;
    const F2FS: i64 = 0xf2f5_2010;
    const ZFS: i64 = 0x2fc1_2fc1;
    const RAMFS: i64 = 0x8584_58f6;
    const SQUASHFS: i64 = 0x7371_7368;
    const EROFS: i64 = 0xe0f5_e1e2;
    const ISO9660: i64 = 0x9660;
    Ok(match fstatfs(fd)?.f_type & 0xffff_ffff {
        EXT | XFS | BTRFS | TMPFS if multigrain() => ChangeClock::Fine,
        EXT | XFS | BTRFS | TMPFS | OVERLAY | F2FS | ZFS | RAMFS => ChangeClock::Coarse,
        SQUASHFS | EROFS | ISO9660 => ChangeClock::Frozen,
        _ => ChangeClock::Unknown,
    })
}

/// Whether this kernel has multigrain timestamps, found out once by changing a file in memory
/// several times within one timer tick.
pub fn multigrain() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| try_multigrain().unwrap_or(false))
}

fn try_multigrain() -> io::Result<bool> {
    const CHANGES: usize = 16;
    let file = memfd_create(c"txos-clock", MemfdFlags::CLOEXEC)?;
    let mut last = attrs_of(&file)?.ctime;
    for _ in 0..CHANGES {
        pwrite(&file, &[1], 0)?;
        let time = attrs_of(&file)?.ctime;
        if time == last {
            return Ok(false);
        }
        last = time;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_time_proves() {
        let at = |sec, nsec| Stamp { sec, nsec };
        assert!(ChangeClock::Fine.proves(at(5, 1), at(5, 1)));
        // Without nanoseconds it may be a time of whole seconds.
        for clock in [ChangeClock::Fine, ChangeClock::Coarse] {
            assert!(
                !clock.proves(at(5, 0), at(5, 0)) && !clock.proves(at(5, 0), at(6, 20_000_000))
            );
            assert!(clock.proves(at(5, 0), at(6, 20_000_001)));
        }
        assert!(!ChangeClock::Coarse.proves(at(5, 1), at(5, 20_000_001)));
        assert!(ChangeClock::Coarse.proves(at(5, 1), at(5, 20_000_002)));
        assert!(!ChangeClock::Coarse.proves(at(6, 1), at(5, 1)));
        assert!(!ChangeClock::Unknown.proves(at(0, 0), at(1_000_000, 0)));
    }

    #[test]
    fn a_file_in_memory_has_a_clock() {
        let file = memfd_create(c"clock", MemfdFlags::CLOEXEC).unwrap();
        let clock = change_clock(&file).unwrap();
        assert_eq!(clock == ChangeClock::Fine, multigrain());
    }
}
