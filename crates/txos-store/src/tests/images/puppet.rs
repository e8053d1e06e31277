//! Puts an image together out of the very objects of the run: plans know them by inode number and
//! time of birth, so that a copy would not do.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, OpenOptions},
    os::unix::fs::{FileExt, lchown},
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, XattrFlags, linkat, lremovexattr, lsetxattr};
use txos_core::FileKind;

use super::{
    model::{Image, Look, Node},
    recorder::{Recorder, gather_in, look_at},
};

/// Makes the trees at `roots` what `image` says; all objects are in their vaults, or where the
/// image before had them.
pub(super) fn realize(recorder: &Recorder, roots: &[PathBuf], image: &Image) {
    for root in roots {
        gather_in(recorder, root);
    }
    let mut entries: BTreeMap<Node, Vec<(&OsString, Node)>> = BTreeMap::new();
    for ((dir, name), node) in &image.names {
        entries.entry(*dir).or_default().push((name, *node));
    }
    let nowhere = Look::default();
    for root in roots {
        let Some(node) = super::recorder::identify(recorder, root) else { continue };
        let mut pending = vec![(root.clone(), node)];
        let mut dirs = Vec::new();
        while let Some((path, dir)) = pending.pop() {
            for (name, node) in entries.get(&dir).into_iter().flatten() {
                let (path, vault) = (path.join(name), recorder.vault(*node));
                if recorder.nodes[*node].kind == FileKind::Dir {
                    fs::rename(&vault, &path).unwrap();
                    pending.push((path, *node));
                } else {
                    linkat(CWD, &vault, CWD, &path, AtFlags::empty()).unwrap();
                    fill(recorder, &path, *node, image);
                }
            }
            dirs.push((path, dir));
        }
        for (path, dir) in dirs.iter().rev() {
            dress(path, image.looks.get(dir).unwrap_or(&nowhere), false);
        }
    }
}

fn fill(recorder: &Recorder, path: &Path, node: Node, image: &Image) {
    let nowhere = Look::default();
    let look = image.looks.get(&node).unwrap_or(&nowhere);
    match recorder.nodes[node].kind {
        FileKind::File => {
            let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            let want = image.content(node);
            let size = file.metadata().unwrap().len();
            let mut now = vec![0; size as usize];
            file.read_exact_at(&mut now, 0).unwrap();
            if now != want {
                if size != want.len() as u64 {
                    file.set_len(want.len() as u64).unwrap();
                }
                file.write_all_at(&want, 0).unwrap();
            }
            dress(path, look, false);
        }
        kind => dress(path, look, kind == FileKind::Symlink),
    }
}

fn dress(path: &Path, want: &Look, link: bool) {
    let now = look_at(path);
    if now == *want {
        return;
    }
    lchown(path, Some(want.owner.0), Some(want.owner.1)).unwrap();
    if link {
        return;
    }
    super::super::world::chmod(path, want.perm);
    for name in now.xattrs.keys().filter(|name| !want.xattrs.contains_key(*name)) {
        lremovexattr(path, name).unwrap();
    }
    for (name, value) in &want.xattrs {
        lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
    }
}
