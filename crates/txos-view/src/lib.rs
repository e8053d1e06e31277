//! The view of a transaction: namespaces, overlay mounts and the capture FUSE.
