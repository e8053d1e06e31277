//! Extended attributes of a path, without following a symlink.

use std::collections::BTreeMap;
use std::path::Path;

use rustix::fs::{lgetxattr, llistxattr};
use rustix::io::Errno;

/// All attributes that the caller may see, by name.
///
/// # Errors
/// What llistxattr(2) or lgetxattr(2) says; a file system without attributes has none.
pub fn read_all(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Errno> {
    let mut names = vec![0u8; 65536];
    let len = match llistxattr(path, &mut names[..]) {
        Ok(n) => n,
        Err(Errno::OPNOTSUPP) => return Ok(BTreeMap::new()),
        Err(e) => return Err(e),
    };
    let mut all = BTreeMap::new();
    for name in names[..len].split(|&b| b == 0).filter(|n| !n.is_empty()) {
        let mut value = vec![0u8; 65536];
        let n = lgetxattr(path, name, &mut value[..])?;
        value.truncate(n);
        all.insert(name.to_vec(), value);
    }
    Ok(all)
}

/// Whether overlayfs made this attribute for itself.
pub fn is_overlay(name: &[u8]) -> bool {
    name.starts_with(b"trusted.overlay.") || name.starts_with(b"user.overlay.") || is_mark(name)
}

/// Whether this is the name of a copy's original, which an ordinary user's view shows on files that
/// the transaction has changed (a known difference); it never gets into the live tree.
pub fn is_mark(name: &[u8]) -> bool {
    name == b"user.txos.origin"
}

/// A POSIX ACL as the kernel stores it: owner `rwx`, user `uid` with `perm`, group and mask `r-x`,
/// others none. Source: `include/uapi/linux/posix_acl_xattr.h`, version 2.
pub fn acl_with_user(uid: u32, perm: u16) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, NOBODY), (2, perm, uid), (4, 5, NOBODY), (16, perm | 5, NOBODY), (32, 0, NOBODY)];
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(perm.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out
}

/// `cap_net_raw` permitted and effective, as `security.capability` holds it (version 2, see
/// capabilities(7)).
pub fn capability_net_raw() -> Vec<u8> {
    let mut out = (0x0200_0000u32 | 1).to_le_bytes().to_vec();
    out.extend((1u32 << 13).to_le_bytes());
    out.extend([0; 12]);
    out
}
