//! The `txos` command.

fn main() {}
