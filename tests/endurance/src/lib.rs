//! Long tests, each a program with a documented command; none of them is part of `make test`.
//!
//! | program | what it does |
//! |---|---|
//! | `power-cut` | cuts the power of a virtual machine in the middle of transactions, again and again |
//! | `kill-rounds` | kills a random process of txos at a random moment, recovers, checks |
//! | `soak` | an hour of commits, aborts, conflicts and kills at once; looks for leaks |
//!
//! | `system-pause` | commits towards the whole system of a virtual machine, whose processes must see all or nothing |
//!
//! All but the last let transactions lead from one *generation* of a directory to the next (see
//! [`generation`]), so that whatever is left shows by itself whether it is all of one.
//!
//! # What must hold after each power cut
//!
//! - The file systems are whole (`e2fsck -fn`, `xfs_repair -n`), and `txos recover` succeeds.
//! - Both file systems show one and the same generation, wholly: a transaction that spans both is
//!   on both or on neither. Nothing of txos is left but its empty state directory.
//! - That generation is at least the last one whose `txos run` had returned 0, and at most the last
//!   one that was begun.
//!
//! Killing the emulator alone would lose nothing: the host's page cache outlives it. So each disk's
//! writes are logged, and what comes after its last completed flush is kept or lost at random (see
//! [`disk`]).

pub mod disk;
pub mod generation;
pub mod image;
pub mod processes;
pub mod random;
pub mod setup;
pub mod trial;
pub mod vm;
