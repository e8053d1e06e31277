//! What commits have in common, as numbers.

use std::{os::unix::ffi::OsStrExt, path::Path};

use txos_core::ObjectId;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::plan::{Ident, Plan, Shape};

/// Stands for something that a commit reads or writes; equal things have equal keys. Two things
/// that happen to share a key make a commit wait that need not, no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(u64);

const NAMES: u64 = 1;
const LISTINGS: u64 = 2;

impl Key {
    /// An object: its content, attributes and links.
    pub fn object(id: &ObjectId) -> Key {
        object(id.dev, id.ino)
    }

    /// A name, bound or free: an absolute path without symbolic links.
    pub fn name(path: &Path) -> Key {
        Key(xxh3_64_with_seed(path.as_os_str().as_bytes(), NAMES) & !1)
    }

    /// All names in a directory: its absolute path without symbolic links. For readers; creating
    /// two names in one directory does not conflict.
    pub fn listing(dir: &Path) -> Key {
        Key(xxh3_64_with_seed(dir.as_os_str().as_bytes(), LISTINGS) & !1)
    }

    /// As a number, whose lowest bit says that it is a change that commutes with others.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    fn commuting(self) -> Key {
        Key(self.0 | 1)
    }
}

fn object(dev: u64, ino: u64) -> Key {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&dev.to_le_bytes());
    bytes[8..].copy_from_slice(&ino.to_le_bytes());
    Key(xxh3_64(&bytes) & !1)
}

/// What a plan changes: the key of each thing, and how its content changes.
pub(crate) fn of_plan(plan: &Plan) -> Vec<(Key, Shape)> {
    let mut keys = Vec::with_capacity(2 * plan.len() + 2);
    let area = |number: u32| &plan.areas[number as usize];
    let id = |number: u32, id: Ident| (object(area(number).fs.dev, id.ino), Shape::Other);
    // What a pending record makes has no identity until it is made, or another one after a crash:
    // what is done to it later is told by its name.
    let named = |number: u32, path: &Path| Key::name(&area(number).point.join(path));
    for op in &plan.patches {
        keys.push((object(area(op.area).fs.dev, op.id.ino), op.shape()));
        keys.push((named(op.area, &op.path), op.shape()));
    }
    for op in &plan.writes {
        keys.push(id(op.area, op.id));
    }
    for op in plan.file_meta.iter().chain(&plan.dir_meta) {
        keys.push(id(op.area, op.id));
        keys.push((named(op.area, &op.path), Shape::Other));
    }
    let mut name = |number: u32, path: &Path| {
        let path = area(number).point.join(path);
        keys.push((Key::name(&path), Shape::Other));
        if let Some(dir) = path.parent() {
            keys.push((Key::listing(dir).commuting(), Shape::Other));
        }
    };
    for op in &plan.removes {
        name(op.area, &op.path);
    }
    for op in &plan.moves {
        name(op.area, &op.from);
        name(op.area, &op.to);
    }
    for op in &plan.puts {
        name(op.area, &op.to);
    }
    for op in &plan.links {
        name(op.area, &op.from);
        name(op.area, &op.to);
    }
    let removed = plan.removes.iter().map(|op| id(op.area, op.id));
    let moved = plan.moves.iter().map(|op| id(op.area, op.id));
    let put = plan.puts.iter().filter(|op| op.id.ino != 0).map(|op| id(op.area, op.id));
    let linked = plan.links.iter().map(|op| id(op.area, op.id));
    keys.extend(removed.chain(moved).chain(put).chain(linked));
    let displaced = (plan.moves.iter().map(|op| (op.area, op.replaces)))
        .chain(plan.puts.iter().map(|op| (op.area, op.replaces)))
        .chain(plan.links.iter().map(|op| (op.area, op.replaces)));
    keys.extend(displaced.filter_map(|(area, gone)| gone.map(|gone| id(area, gone))));
    keys
}
