//! The overlay's file handle of a lower object, as its `origin` attribute holds it.
//!
//! Layout (`fs/overlayfs/overlayfs.h`, `struct ovl_fb`): version (0), magic (0xfb), length of the
//! whole, flags (bit 0: made on a big-endian machine, bit 1: on any), type of the file handle, 16
//! bytes UUID of the lower file system, then the file handle of that type. A FUSE lower gives type
//! 0x81 or 0x82: node id, high half first, and generation, 32 bits each (`fs/fuse/inode.c`,
//! `fuse_encode_fh`); most disk file systems type 1: inode number and generation.

/// What an `origin` attribute says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginMark {
    /// Copied up from the object with this node id.
    Node(u64),
    /// Copied up, but the overlay could not name the object (a view of an ordinary user).
    Anonymous,
}

const MAGIC: u8 = 0xfb;
const FLAG_BIG_ENDIAN: u8 = 1;
const FLAG_ANY_ENDIAN: u8 = 2;
const TYPE_INO32_GEN: u8 = 1;
const TYPE_INO64_GEN: u8 = 0x81;
const TYPE_INO64_GEN_PARENT: u8 = 0x82;

/// Reads the attribute; `None` if it is not of this format.
pub(crate) fn parse(value: &[u8]) -> Option<OriginMark> {
    if value.is_empty() {
        return Some(OriginMark::Anonymous);
    }
    let [version, magic, length, flags, kind, rest @ ..] = value else { return None };
    if *version != 0 || *magic != MAGIC || usize::from(*length) != value.len() {
        return None;
    }
    let foreign = (flags & FLAG_BIG_ENDIAN != 0) != cfg!(target_endian = "big");
    if flags & FLAG_ANY_ENDIAN == 0 && foreign {
        return None;
    }
    let fid = rest.get(16..)?;
    let word = |index: usize| {
        let bytes = fid.get(index * 4..index * 4 + 4)?;
        Some(u64::from(u32::from_ne_bytes(bytes.try_into().ok()?)))
    };
    match *kind {
        TYPE_INO64_GEN | TYPE_INO64_GEN_PARENT => Some(OriginMark::Node(word(0)? << 32 | word(1)?)),
        TYPE_INO32_GEN => Some(OriginMark::Node(word(0)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(kind: u8, words: &[u32]) -> Vec<u8> {
        let mut value = vec![0, MAGIC, 0, u8::from(cfg!(target_endian = "big")), kind];
        value.extend([7; 16]);
        value.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        value[2] = value.len() as u8;
        value
    }

    #[test]
    fn fuse_and_disk_handles() {
        let fuse = handle(0x81, &[0x1, 0x2, 0]);
        assert_eq!(parse(&fuse), Some(OriginMark::Node(0x1_0000_0002)));
        assert_eq!(parse(&handle(0x82, &[0, 9, 0, 0, 1, 0])), Some(OriginMark::Node(9)));
        assert_eq!(parse(&handle(1, &[77, 3])), Some(OriginMark::Node(77)));
        assert_eq!(parse(b""), Some(OriginMark::Anonymous));
    }

    #[test]
    fn damaged_handles_are_not_guessed_at() {
        let good = handle(0x81, &[1, 2, 0]);
        for length in 1..good.len() {
            assert_eq!(parse(&good[..length]), None, "cut to {length}");
        }
        for (at, value) in [(0, 1), (1, 0), (3, good[3] ^ 1), (4, 0x4d)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(parse(&bad), None, "byte {at}");
        }
    }
}
