//! Measures cxlock against parking_lot, std and spin locks.
fn main() {}
