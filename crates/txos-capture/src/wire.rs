//! Stable attributes as the kernel is told them.

use rustix::fs::{major, minor};
use txos_core::{Attrs, FileKind};

use crate::{
    IdMap,
    idmap::UNMAPPED,
    proto::{NodeReply, WireAttr},
};

const STAND_IN: (u32, u32) = (0xfff, 0xf_ffff);

/// The device number with which a real character device 0:0 appears in a view, in the `dev_t`
/// encoding of `stat(2)` (major 4095, minor 1048575): overlayfs takes 0:0 for a whiteout. Whoever
/// makes shadow objects real maps it back to 0.
pub const WHITEOUT_STAND_IN: u64 = 0xffff_ffff;

/// How ids and inode numbers of the stable system are told to the kernel.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) uids: IdMap,
    pub(crate) gids: IdMap,
    /// The server's own groups, outside.
    pub(crate) groups: Vec<u32>,
}

impl Wire {
    /// The answer for an object.
    pub(crate) fn node(&self, node: u64, device: u16, attrs: &Attrs) -> NodeReply {
        let times = [attrs.atime, attrs.mtime, attrs.ctime];
        let attr = WireAttr {
            ino: unique_ino(attrs.id.ino, device),
            size: attrs.size,
            blocks: attrs.blocks,
            seconds: times.map(|time| time.sec),
            nanos: times.map(|time| time.nsec),
            mode: attrs.kind.mode_bits() | self.perm(attrs),
            nlink: attrs.nlink,
            uid: self.uids.inside(attrs.uid),
            gid: self.gids.inside(attrs.gid),
            rdev: wire_rdev(attrs.kind, attrs.rdev),
        };
        NodeReply { node, attr }
    }

    /// The permission bits. A user namespace maps none of its user's further groups, so the kernel
    /// would check the bits of the others where those of the group apply: the others are shown
    /// with the group's. An object like that belongs to someone unmapped, so it can't be copied up,
    /// and the bits go nowhere.
    fn perm(&self, attrs: &Attrs) -> u32 {
        let nobody =
            self.uids.inside(attrs.uid) == UNMAPPED && self.gids.inside(attrs.gid) == UNMAPPED;
        if nobody && self.groups.contains(&attrs.gid) {
            (attrs.perm & !0o7) | (attrs.perm >> 3 & 0o7)
        } else {
            attrs.perm
        }
    }
}

/// An inode number that is unique over all devices of the tree: that of the stable object on the
/// root's device, else with the number of the device above it, where it leaves room for that.
pub(crate) fn unique_ino(ino: u64, device: u16) -> u64 {
    const ROOM: u32 = 48;
    if ino >> ROOM == 0 { ino | u64::from(device) << ROOM } else { ino }
}

fn wire_rdev(kind: FileKind, rdev: u64) -> u32 {
    let (major, minor) = match (kind, rdev) {
        (FileKind::CharDevice, 0) => STAND_IN,
        (FileKind::CharDevice | FileKind::BlockDevice, _) => (major(rdev), minor(rdev)),
        _ => return 0,
    };
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

#[cfg(test)]
mod tests {
    use rustix::fs::makedev;

    use super::*;

    #[test]
    fn device_numbers() {
        assert_eq!(WHITEOUT_STAND_IN, makedev(STAND_IN.0, STAND_IN.1));
        assert_eq!(wire_rdev(FileKind::CharDevice, 0), u32::MAX);
        assert_eq!(wire_rdev(FileKind::CharDevice, makedev(1, 3)), 0x103);
        assert_eq!(wire_rdev(FileKind::BlockDevice, makedev(8, 0x101)), 0x10_0801);
        assert_eq!(wire_rdev(FileKind::File, 0), 0);
    }

    #[test]
    fn a_further_group_of_the_user_has_the_groups_bits() {
        let map = || IdMap::parse("1000 1000 1\n").unwrap();
        let wire = Wire { uids: map(), gids: map(), groups: vec![1000, 44] };
        let perm = |uid, gid, perm| {
            let file = tempfile::tempfile().unwrap();
            let attrs = txos_host::attrs_of(&file).unwrap();
            wire.perm(&Attrs { uid, gid, perm, ..attrs })
        };
        assert_eq!(perm(0, 44, 0o640), 0o644);
        assert_eq!(perm(0, 44, 0o4604), 0o4600);
        assert_eq!(perm(0, 45, 0o640), 0o640);
        assert_eq!(perm(1000, 44, 0o640), 0o640);
        assert_eq!(perm(0, 1000, 0o640), 0o640);
    }

    #[test]
    fn inode_numbers() {
        assert_eq!(unique_ino(7, 0), 7);
        assert_ne!(unique_ino(7, 1), 7);
        assert_eq!(unique_ino(1 << 60, 3), 1 << 60);
    }
}
