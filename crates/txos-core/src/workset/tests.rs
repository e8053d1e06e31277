use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::{Facet, FileKind, Seen};

fn attrs(ino: u64, kind: FileKind) -> Attrs {
    let time = Stamp { sec: 1_700_000_000 + ino as i64, nsec: 999_999_999 };
    Attrs {
        id: ObjectId { dev: 3 + ino % 2, ino, birth: time },
        kind,
        perm: 0o4755,
        uid: 1,
        gid: 2,
        nlink: 1,
        rdev: 0,
        size: ino << 33,
        blocks: 9,
        mtime: time,
        ctime: time,
        atime: Stamp::default(),
    }
}

fn root() -> Attrs {
    attrs(2, FileKind::Dir)
}

fn judged(workset: &Workset, dir: NodeId, name: &[u8], now: Option<&Attrs>) -> Option<Finding> {
    let to = workset.bound(dir, name).unwrap();
    match workset.judge_binding(&Binding { dir, name, to }, now) {
        Judgement::Holds => None,
        Judgement::Broken(finding) => Some(finding),
    }
}

#[test]
fn nodes_are_stable_and_links_share_one() {
    let mut workset = Workset::new(&root());
    let (file, new) = workset.learn(&attrs(7, FileKind::File));
    assert!(new && file.raw() == 2);
    assert_eq!(workset.learn(&attrs(7, FileKind::File)), (file, false));
    workset.bind(NodeId::ROOT, b"a", Bound::Object(file)).unwrap();
    workset.bind(NodeId::ROOT, b"b", Bound::Object(file)).unwrap();
    assert_eq!(workset.path(file), PathBuf::from("/a"));
    let mut later = attrs(7, FileKind::File);
    later.id.birth.nsec = 0;
    assert_ne!(workset.learn(&later).0, file, "another life of the inode is another object");
    assert_eq!(workset.attrs(file), Some(attrs(7, FileKind::File)));
    assert_eq!(NodeId::from_raw(0), None);
    assert_eq!(NodeId::from_raw(1 << 32), None);
    assert!(!workset.knows(NodeId::from_raw(99).unwrap()));
}

#[test]
fn the_first_binding_stands() {
    let mut workset = Workset::new(&root());
    let (file, _) = workset.learn(&attrs(7, FileKind::File));
    workset.bind(NodeId::ROOT, b"n", Bound::Absent).unwrap();
    assert_eq!(workset.bind(NodeId::ROOT, b"n", Bound::Object(file)), Err(Bound::Absent));
    assert_eq!(workset.bind(NodeId::ROOT, b"n", Bound::Absent), Ok(()));
    assert_eq!(workset.stats().names, 1);
}

#[test]
fn rules_of_names() {
    let mut workset = Workset::new(&root());
    let then = attrs(7, FileKind::File);
    let (file, _) = workset.learn(&then);
    workset.mark(file, Facets::ATTRS);
    workset.bind(NodeId::ROOT, b"f", Bound::Object(file)).unwrap();
    workset.bind(NodeId::ROOT, b"none", Bound::Absent).unwrap();
    let judge = |name: &[u8], now| judged(&workset, NodeId::ROOT, name, now);
    let finding = |facet, seen| Some(Finding { facet, seen });
    assert_eq!(judge(b"f", Some(&then)), None);
    assert_eq!(judge(b"none", None), None);
    assert_eq!(judge(b"f", None), finding(Facet::Binding, Seen::Removed));
    assert_eq!(judge(b"none", Some(&then)), finding(Facet::Binding, Seen::Created));
    let other = attrs(9, FileKind::File);
    assert_eq!(judge(b"f", Some(&other)), finding(Facet::Binding, Seen::Replaced));
    let read = Attrs { atime: Stamp { sec: 1, nsec: 1 }, ..then };
    assert_eq!(judge(b"f", Some(&read)), None, "an access is no change");
    let changes = [
        Attrs { perm: 0o644, ..then },
        Attrs { uid: 9, ..then },
        Attrs { gid: 9, ..then },
        Attrs { size: 1, ..then },
        Attrs { mtime: Stamp::default(), ..then },
        Attrs { ctime: Stamp::default(), ..then },
    ];
    for now in &changes {
        assert_eq!(judge(b"f", Some(now)), finding(Facet::Attrs, Seen::Changed));
    }
}

#[test]
fn rules_of_directories() {
    let mut workset = Workset::new(&root());
    let then = attrs(8, FileKind::Dir);
    let (dir, _) = workset.learn(&then);
    workset.mark(dir, Facets::PERMS);
    workset.bind(NodeId::ROOT, b"d", Bound::Object(dir)).unwrap();
    let touched = Attrs { ctime: Stamp::default(), mtime: Stamp::default(), nlink: 5, ..then };
    assert_eq!(judged(&workset, NodeId::ROOT, b"d", Some(&touched)), None);
    let chmod = Attrs { perm: 0o700, ..touched };
    let finding = judged(&workset, NodeId::ROOT, b"d", Some(&chmod)).unwrap();
    assert_eq!(finding, Finding { facet: Facet::Perms, seen: Seen::Changed });
    workset.mark(dir, Facets::ATTRS);
    assert_eq!(judged(&workset, NodeId::ROOT, b"d", Some(&touched)), None, "times do not count");
    assert!(judged(&workset, NodeId::ROOT, b"d", Some(&chmod)).is_some());
    workset.mark(dir, Facets::RELAXED);
    assert_eq!(judged(&workset, NodeId::ROOT, b"d", Some(&chmod)), None);
    assert!(judged(&workset, NodeId::ROOT, b"d", None).is_some(), "its name is not relaxed");
    workset.bind(dir, b"x", Bound::Absent).unwrap();
    assert_eq!(judged(&workset, dir, b"x", Some(&then)), None);
}

#[test]
fn listings_prove_themselves_by_times() {
    let mut workset = Workset::new(&root());
    let then = root();
    assert!(!workset.listing_unmoved(NodeId::ROOT, &then));
    let proof = Some((then.ctime, then.mtime));
    workset.set_listing(NodeId::ROOT, ListingVersion { hash: 1, proof });
    workset.set_listing(NodeId::ROOT, ListingVersion { hash: 2, proof: None });
    assert_eq!(workset.listing(NodeId::ROOT).unwrap().hash, 1, "the first one stands");
    assert!(workset.listing_unmoved(NodeId::ROOT, &then));
    assert!(!workset.listing_unmoved(NodeId::ROOT, &Attrs { mtime: Stamp::default(), ..then }));
}

#[test]
fn memory_stays_below_300_bytes_an_object() {
    let mut workset = Workset::new(&root());
    for number in 0..150_000u64 {
        let (node, _) = workset.learn(&attrs(number + 10, FileKind::File));
        let name = format!("a-file-name-of-usual-length-{number}");
        workset.bind(NodeId::ROOT, name.as_bytes(), Bound::Object(node)).unwrap();
        workset.mark(node, Facets::ATTRS);
        if number % 3 == 0 {
            workset.set_chunk(node, 0, number);
        }
    }
    let stats = workset.stats();
    let each = stats.bytes / stats.objects;
    println!("{each} bytes an object");
    assert!(each <= 300, "{each}");
}

/// What a test does to a workset.
#[derive(Clone, Debug)]
enum Step {
    Bind { dir: usize, name: u8, object: Option<(u64, bool)> },
    Mark { node: usize, facets: u16 },
    List { node: usize, hash: u64, proven: bool },
    Xattrs { node: usize, hash: u64 },
    Chunk { node: usize, number: u32, hash: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (any::<usize>(), any::<u8>(), proptest::option::of((10..60u64, any::<bool>())))
            .prop_map(|(dir, name, object)| Step::Bind { dir, name, object }),
        (any::<usize>(), any::<u16>()).prop_map(|(node, facets)| Step::Mark { node, facets }),
        (any::<usize>(), any::<u64>(), any::<bool>()).prop_map(|(node, hash, proven)| Step::List {
            node,
            hash,
            proven
        }),
        (any::<usize>(), any::<u64>()).prop_map(|(node, hash)| Step::Xattrs { node, hash }),
        (any::<usize>(), any::<u32>(), any::<u64>()).prop_map(|(node, number, hash)| Step::Chunk {
            node,
            number,
            hash
        }),
    ]
}

/// Runs steps, and keeps the bindings in a plain map beside the workset.
fn run(steps: &[Step]) -> (Workset, HashMap<(NodeId, Vec<u8>), Bound>) {
    let mut workset = Workset::new(&root());
    let mut model = HashMap::new();
    for step in steps {
        let pick = |workset: &Workset, at: usize| {
            let count = workset.stats().objects as usize;
            NodeId::from_raw((at % count) as u64 + 1).unwrap()
        };
        match *step {
            Step::Bind { dir, name, object } => {
                let dir = pick(&workset, dir);
                let name = vec![name; usize::from(name) % 5 + 1];
                let to = object.map_or(Bound::Absent, |(ino, is_dir)| {
                    let kind = if is_dir { FileKind::Dir } else { FileKind::File };
                    Bound::Object(workset.learn(&attrs(ino, kind)).0)
                });
                let known = model.get(&(dir, name.clone())).copied();
                let expected = known.filter(|first| *first != to).map_or(Ok(()), Err);
                assert_eq!(workset.bind(dir, &name, to), expected);
                model.entry((dir, name)).or_insert(to);
            }
            Step::Mark { node, facets } => {
                let node = pick(&workset, node);
                workset.mark(node, Facets::from_bits_truncate(facets));
            }
            Step::List { node, hash, proven } => {
                let proof = proven.then(|| (root().ctime, root().mtime));
                let node = pick(&workset, node);
                workset.set_listing(node, ListingVersion { hash, proof });
            }
            Step::Xattrs { node, hash } => workset.set_xattrs(pick(&workset, node), hash),
            Step::Chunk { node, number, hash } => {
                workset.set_chunk(pick(&workset, node), number, hash);
            }
        }
    }
    (workset, model)
}

proptest! {
    #[test]
    fn bindings_are_a_map_and_survive_storage(steps in proptest::collection::vec(step(), 0..200)) {
        let (workset, model) = run(&steps);
        let bytes = workset.encode();
        let stored = Workset::decode(&bytes);
        let stored = stored.unwrap();
        prop_assert_eq!(stored.encode(), bytes);
        for set in [&workset, &stored] {
            for ((dir, name), to) in &model {
                prop_assert_eq!(set.bound(*dir, name), Some(*to));
            }
            prop_assert_eq!(set.stats().names as usize, model.len());
            let (order, starts) = set.by_directory();
            for node in set.nodes() {
                let range = starts[node.index()] as usize..starts[node.index() + 1] as usize;
                for index in &order[range] {
                    prop_assert_eq!(set.binding(*index).unwrap().dir, node);
                }
                prop_assert_eq!(set.find(&set.attrs(node).unwrap().id), Some(node));
                prop_assert!(set.path(node).is_absolute());
            }
        }
    }

    #[test]
    fn damage_is_found(
        steps in proptest::collection::vec(step(), 0..40),
        place in any::<prop::sample::Index>(),
        bit in 0..8u8,
        cut in any::<prop::sample::Index>(),
    ) {
        let (workset, _) = run(&steps);
        let bytes = workset.encode();
        let mut flipped = bytes.clone();
        flipped[place.index(bytes.len())] ^= 1 << bit;
        prop_assert!(Workset::decode(&flipped).is_err());
        prop_assert!(Workset::decode(&bytes[..cut.index(bytes.len())]).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic(body in proptest::collection::vec(any::<u8>(), 0..400)) {
        // With a header and a checksum that fit, so that the content is looked at.
        let mut bytes = b"txosws\0\x02".to_vec();
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes.extend(xxh3_64(&body).to_le_bytes());
        let _ = Workset::decode(&bytes);
    }
}

#[test]
fn each_kind_of_damage_has_its_name() {
    let bytes = Workset::new(&root()).encode();
    assert_eq!(Workset::decode(b"").unwrap_err(), DecodeError::Magic);
    let mut other = bytes.clone();
    other[7] += 1;
    assert_eq!(Workset::decode(&other).unwrap_err(), DecodeError::Magic);
    assert_eq!(Workset::decode(&bytes[..bytes.len() - 1]).unwrap_err(), DecodeError::Length);
    let mut flipped = bytes.clone();
    flipped[20] ^= 1;
    assert_eq!(Workset::decode(&flipped).unwrap_err(), DecodeError::Checksum);
    let mut empty = b"txosws\0\x02".to_vec();
    empty.extend(0u64.to_le_bytes());
    empty.extend(xxh3_64(b"").to_le_bytes());
    assert_eq!(Workset::decode(&empty).unwrap_err(), DecodeError::Content);
}
