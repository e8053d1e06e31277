use std::{
    os::unix::ffi::OsStrExt,
    path::{Component, Path},
};

use txos_core::NodeId;

/// Recognizes given paths as a tree is discovered name by name, without ever putting a path
/// together.
#[derive(Debug, Default)]
pub(crate) struct PathWatch {
    walks: Vec<Walk>,
}

#[derive(Debug)]
struct Walk {
    names: Vec<Vec<u8>>,
    /// The directories met on the way, from the root: at most as many as there are names.
    reached: Vec<NodeId>,
}

impl PathWatch {
    pub(crate) fn new<P: AsRef<Path>>(paths: &[P]) -> Self {
        let walk = |path: &P| {
            let normal = |component| match component {
                Component::Normal(name) => Some(name.as_bytes().to_vec()),
                _ => None,
            };
            let names = path.as_ref().components().filter_map(normal).collect();
            Walk { names, reached: vec![NodeId::ROOT] }
        };
        PathWatch { walks: paths.iter().map(walk).collect() }
    }

    /// Whether one of the paths is the root itself.
    pub(crate) fn is_root(&self) -> bool {
        self.walks.iter().any(|walk| walk.names.is_empty())
    }

    /// Whether `name` in `dir` is one of the paths.
    pub(crate) fn is_point(&self, dir: NodeId, name: &[u8]) -> bool {
        self.walks.iter().any(|walk| {
            walk.reached.len() == walk.names.len()
                && walk.reached.last() == Some(&dir)
                && walk.names.last().is_some_and(|last| last == name)
        })
    }

    /// Takes note that `name` in `dir` is the object `node`.
    pub(crate) fn discovered(&mut self, dir: NodeId, name: &[u8], node: NodeId) {
        for walk in &mut self.walks {
            let depth = walk.reached.len();
            if depth < walk.names.len()
                && walk.reached[depth - 1] == dir
                && walk.names[depth - 1] == name
            {
                walk.reached.push(node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_paths() {
        let node = |raw| NodeId::from_raw(raw).unwrap();
        let mut watch = PathWatch::new(&["/var/lib/txos", "/x"]);
        assert!(!watch.is_root() && watch.is_point(node(1), b"x"));
        assert!(!watch.is_point(node(1), b"var"));
        watch.discovered(node(1), b"var", node(5));
        watch.discovered(node(5), b"log", node(6));
        watch.discovered(node(5), b"lib", node(7));
        assert!(watch.is_point(node(7), b"txos") && !watch.is_point(node(6), b"txos"));
        assert!(PathWatch::new(&["/"]).is_root());
    }
}
