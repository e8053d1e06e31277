//! Capture: a read-only FUSE mirror of the stable tree that records what a transaction reads.
