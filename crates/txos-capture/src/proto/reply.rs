use rustix::io::Errno;

const HEADER: usize = 16;
/// How long the kernel may keep an answer that never expires, in seconds (a hundred years).
const FOREVER: u64 = 100 * 365 * 24 * 3600;

/// `struct fuse_attr`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WireAttr {
    pub(crate) ino: u64,
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    /// Access, modification, change.
    pub(crate) seconds: [i64; 3],
    pub(crate) nanos: [u32; 3],
    pub(crate) mode: u32,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
}

/// What stands for an object in replies that name one. The kernel may keep it for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeReply {
    pub(crate) node: u64,
    pub(crate) attr: WireAttr,
}

/// The fields of `struct fuse_kstatfs` that mean something here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireStatfs {
    pub(crate) blocks: u64,
    pub(crate) free: u64,
    pub(crate) available: u64,
    pub(crate) files: u64,
    pub(crate) files_free: u64,
    pub(crate) block_size: u32,
    pub(crate) fragment_size: u32,
    pub(crate) name_max: u32,
}

/// A reply that is being put together, in a buffer that its worker uses again.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    bytes: Vec<u8>,
}

impl Reply {
    /// Forgets what the buffer held.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(HEADER, 0);
    }

    /// Bytes in the body so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - HEADER
    }

    /// The bytes for the device, once finished.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Fills in the header. An error has no body.
    pub(crate) fn finish(&mut self, unique: u64, outcome: Result<(), Errno>) {
        let error = match outcome {
            Ok(()) => 0,
            Err(errno) => {
                self.clear();
                -errno.raw_os_error()
            }
        };
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[4..8].copy_from_slice(&error.to_ne_bytes());
        self.bytes[8..16].copy_from_slice(&unique.to_ne_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_ne_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_ne_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_ne_bytes());
    }

    /// Room for `size` bytes of a file at the end.
    pub(crate) fn room(&mut self, size: usize) -> &mut [u8] {
        let start = self.bytes.len();
        self.bytes.resize(start + size, 0);
        &mut self.bytes[start..]
    }

    /// `struct fuse_attr_out`.
    pub(crate) fn attr(&mut self, reply: &NodeReply) {
        self.u64(FOREVER);
        self.u64(0);
        self.wire_attr(&reply.attr);
    }

    /// `struct fuse_attr_out` that the kernel must not keep.
    pub(crate) fn passing_attr(&mut self, attr: &WireAttr) {
        self.u64(0);
        self.u64(0);
        self.wire_attr(attr);
    }

    /// `struct fuse_entry_out` of an object.
    pub(crate) fn entry(&mut self, reply: &NodeReply) {
        self.u64(reply.node);
        self.u64(0); // generation
        self.u64(FOREVER);
        self.u64(FOREVER);
        self.u64(0); // nanoseconds of both
        self.wire_attr(&reply.attr);
    }

    /// `struct fuse_entry_out` of a name that is absent, which the kernel may keep for ever.
    pub(crate) fn absent(&mut self) {
        self.u64(0);
        self.u64(0);
        self.u64(FOREVER);
        self.room(104);
    }

    fn wire_attr(&mut self, attr: &WireAttr) {
        [attr.ino, attr.size, attr.blocks].into_iter().for_each(|part| self.u64(part));
        attr.seconds.into_iter().for_each(|part| self.u64(part as u64));
        attr.nanos.into_iter().for_each(|part| self.u32(part));
        [attr.mode, attr.nlink, attr.uid, attr.gid, attr.rdev]
            .into_iter()
            .for_each(|part| self.u32(part));
        self.u32(4096); // block size
        self.u32(0); // flags
    }

    /// `struct fuse_dirent`: `next` is where a listing goes on after this name.
    pub(crate) fn dirent(&mut self, ino: u64, next: u64, kind: u32, name: &[u8]) {
        self.u64(ino);
        self.u64(next);
        self.u32(name.len() as u32);
        self.u32(kind);
        self.bytes(name);
        self.room(name.len().next_multiple_of(8) - name.len());
    }

    /// The size of a `struct fuse_dirent` with a name of this length.
    pub(crate) fn dirent_size(name: usize) -> usize {
        24 + name.next_multiple_of(8)
    }

    /// The `struct fuse_entry_out` of `struct fuse_direntplus` that says nothing of the object.
    pub(crate) fn no_entry(&mut self) {
        self.room(128);
    }

    /// `struct fuse_kstatfs`.
    pub(crate) fn statfs(&mut self, statfs: &WireStatfs) {
        for part in [statfs.blocks, statfs.free, statfs.available, statfs.files, statfs.files_free]
        {
            self.u64(part);
        }
        for part in [statfs.block_size, statfs.name_max, statfs.fragment_size] {
            self.u32(part);
        }
        self.room(28);
    }
}
