//! The way back from a shadow object to the stable one.

/// The node id in the value of an `overlay.origin` attribute, as overlayfs writes it for a lower
/// object of the capture.
///
/// The value is `struct ovl_fb` (`fs/overlayfs/overlayfs.h`): version 0, magic 0xfb, length,
/// flags, file handle type, the UUID of the lower file system, and the file handle. FUSE's handle
/// (types 0x81 and 0x82, `fs/fuse/inode.c`) begins with the node id, upper half first, and its
/// generation, which is 0 here.
///
/// `None` for an empty value (overlayfs in a user namespace writes that: it may not decode
/// handles) and for anything else that the capture never gave out.
pub fn parse_origin(value: &[u8]) -> Option<u64> {
    const HEADER: usize = 5 + 16;
    let (&[version, magic, length, flags, kind], _) = value.split_first_chunk::<5>()?;
    let big_endian = flags & 1 != 0;
    let known = version == 0
        && magic == 0xfb
        && usize::from(length) == value.len()
        && big_endian == cfg!(target_endian = "big")
        && matches!(kind, 0x81 | 0x82);
    let handle = value.get(HEADER..)?;
    let word = |index: usize| {
        let bytes = handle.get(index * 4..index * 4 + 4)?;
        bytes.try_into().ok().map(u32::from_ne_bytes)
    };
    let (high, low, generation) = (word(0)?, word(1)?, word(2)?);
    let node = u64::from(high) << 32 | u64::from(low);
    (known && generation == 0 && node != 0).then_some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value() -> Vec<u8> {
        let mut value = vec![0, 0xfb, 33, 0, 0x81];
        value.extend([0; 16]);
        for word in [1u32, 2, 0] {
            value.extend(word.to_ne_bytes());
        }
        value
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn reads_the_node_and_refuses_the_rest() {
        assert_eq!(parse_origin(&value()), Some((1 << 32) + 2));
        assert_eq!(parse_origin(&[]), None);
        for (place, byte) in [(0, 1), (1, 0xfa), (2, 32), (3, 1), (4, 1), (29, 9)] {
            let mut broken = value();
            broken[place] = byte;
            assert_eq!(parse_origin(&broken), None, "byte {place}");
        }
        assert_eq!(parse_origin(&value()[..30]), None);
    }
}
