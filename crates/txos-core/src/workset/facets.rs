use bitflags::bitflags;

bitflags! {
    /// The facets of one object that were read, and the marks of how.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Facets: u16 {
        /// Mode and owners of a directory that was walked through.
        const PERMS = 1;
        /// What `stat(2)` shows; for anything but a directory, read with the name.
        const ATTRS = 1 << 1;
        /// The names of a directory.
        const LISTING = 1 << 2;
        /// The bytes of a file.
        const CONTENT = 1 << 3;
        /// The target of a symbolic link.
        const LINK = 1 << 4;
        /// The extended attributes.
        const XATTRS = 1 << 5;
        /// Mark: times cannot prove the content that was read, its hashes must.
        const HASHED = 1 << 6;
        /// Mark: given to the kernel before anybody asked for it.
        const SPECULATIVE = 1 << 7;
        /// Mark: lies where the user said that reads need not be validated.
        const RELAXED = 1 << 8;
    }
}
