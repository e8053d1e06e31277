//! The whole way, over real overlays: what a commit leaves must be what the same operations leave
//! natively.

mod cases;
mod closed;
mod crash;
mod disks;
mod failures;
mod figures;
mod images;
mod outside;
mod random;
mod refused;
mod small;
mod world;
