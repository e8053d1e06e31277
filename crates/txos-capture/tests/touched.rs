//! What was touched is compared again, and nothing else is.
#![allow(clippy::unwrap_used)] // Reason: this is a test.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use rustix::fs::{CWD, Mode, OFlags, openat};
use txos_capture::{ValidateOptions, validate, validate_probing, validate_touched};
use txos_core::{
    Attrs, NodeId, Touched, Workset,
    workset::{Bound, Facets, ListingVersion},
};
use txos_host::{Tree, attrs_of, read_listing};

fn open(path: &Path, flags: OFlags) -> std::os::fd::OwnedFd {
    openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

fn attrs(path: &Path) -> Attrs {
    attrs_of(open(path, OFlags::PATH | OFlags::NOFOLLOW)).unwrap()
}

/// A tree of `a`, `d/b`, and no `d/absent`; all of it read, `d` listed.
fn tree() -> (tempfile::TempDir, Workset) {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let at = dir.path();
    fs::create_dir(at.join("d")).unwrap();
    fs::write(at.join("a"), "a").unwrap();
    fs::write(at.join("d/b"), "b").unwrap();
    let mut workset = Workset::new(&attrs(at));
    let mut learn = |dir: NodeId, name: &str, facets| {
        let path = workset.path(dir).strip_prefix("/").unwrap().join(name);
        let (node, _) = workset.learn(&attrs(&at.join(path)));
        workset.bind(dir, name.as_bytes(), Bound::Object(node)).unwrap();
        workset.mark(node, facets);
        node
    };
    let file = Facets::ATTRS | Facets::CONTENT;
    learn(NodeId::ROOT, "a", file);
    let d = learn(NodeId::ROOT, "d", Facets::PERMS | Facets::LISTING);
    learn(d, "b", file);
    workset.bind(d, b"absent", Bound::Absent).unwrap();
    let listing = read_listing(open(&at.join("d"), OFlags::RDONLY | OFlags::DIRECTORY)).unwrap();
    workset.set_listing(d, ListingVersion { hash: listing.hash(), proof: None });
    (dir, workset)
}

type Case = (&'static str, fn(&Path), fn(&Path) -> Touched, usize);

#[test]
fn each_facet_is_found_where_it_was_touched() {
    let cases: &[Case] = &[
        (
            "content",
            |at| fs::write(at.join("a"), "other").unwrap(),
            |at| Touched::Object(attrs(&at.join("a")).id),
            1,
        ),
        (
            "permissions",
            |at| fs::set_permissions(at.join("d"), fs::Permissions::from_mode(0o711)).unwrap(),
            |at| Touched::Object(attrs(&at.join("d")).id),
            1,
        ),
        (
            "an absent name, and the listing",
            |at| fs::write(at.join("d/absent"), "").unwrap(),
            |at| Touched::Name(attrs(&at.join("d")).id, b"absent".to_vec()),
            2,
        ),
        (
            "the listing alone",
            |at| fs::write(at.join("d/new"), "").unwrap(),
            |at| Touched::Name(attrs(&at.join("d")).id, b"new".to_vec()),
            1,
        ),
        (
            "a name that went",
            |at| fs::remove_file(at.join("a")).unwrap(),
            |at| Touched::Name(attrs(at).id, b"a".to_vec()),
            1,
        ),
    ];
    for (what, change, touched, expected) in cases {
        let (dir, workset) = tree();
        let (tree, options) = (Tree::open(dir.path()).unwrap(), ValidateOptions::default());
        let again = |touched: &[Touched]| {
            validate_touched(&workset, &tree, &options, touched.iter(), &[]).len()
        };
        assert_eq!(validate(&workset, &tree, &options).unwrap(), [], "{what}");
        change(dir.path());
        let touched = touched(dir.path());
        assert_eq!(again(std::slice::from_ref(&touched)), *expected, "{what}");
        assert_eq!(validate(&workset, &tree, &options).unwrap().len(), *expected, "{what}");
        assert_eq!(again(&[]), 0, "{what}: nothing was said to be touched");
    }
}

#[test]
fn what_is_open_for_writing_is_suspected() {
    txos_host::ignore_lease_breaks();
    let (dir, workset) = tree();
    let (tree, options) = (Tree::open(dir.path()).unwrap(), ValidateOptions::default());
    let (conflicts, suspects) = validate_probing(&workset, &tree, &options).unwrap();
    assert_eq!((conflicts.len(), suspects.len()), (0, 0));
    let open = fs::OpenOptions::new().write(true).open(dir.path().join("d/b")).unwrap();
    let (conflicts, suspects) = validate_probing(&workset, &tree, &options).unwrap();
    let names: Vec<_> = suspects.iter().map(|node| workset.path(*node)).collect();
    assert_eq!((conflicts.len(), &names[..]), (0, &["/d/b".into()][..]));
    // A later change of it is found although nothing was said to be touched.
    std::io::Write::write_all(&mut &open, b"x").unwrap();
    let found = validate_touched(&workset, &tree, &options, [].iter(), &suspects);
    assert_eq!(found.len(), 1);
}
