//! The kernel model: the parts of Linux 2.6.16 whose locks the paper's workloads contend for.
//!
//! Everything here is guest code: its state is in simulated memory, its accesses cost cycles, and
//! its critical regions go through `region`, where the three kernels differ. It is a model, not a
//! port: each region does the loads and stores that matter for sharing (counts, links, flags) and
//! charges the rest of its work as arithmetic.

pub mod audit;
pub mod aware;
pub mod block;
pub mod dcache;
pub mod inode;
pub mod irq;
pub mod journal;
pub mod layout;
pub mod map;
pub mod page;
pub mod prio;
pub mod process;
pub mod rcu;
pub mod region;
pub mod sched;
pub mod site;
pub mod slab;
pub mod system;
pub mod time;
pub mod vfs;
pub mod wait;
