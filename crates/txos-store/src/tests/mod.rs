//! The whole way, over real overlays: what a commit leaves must be what the same operations leave
//! natively.

mod cases;
mod crash;
mod figures;
mod outside;
mod random;
mod refused;
mod world;
