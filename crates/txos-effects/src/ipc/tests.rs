use super::*;

/// Keys and names of this test process alone.
fn key(of: i32) -> i32 {
    0x7458_0000 | (std::process::id() as i32 & 0xfff) << 4 | of
}

fn all() -> Vec<Object> {
    let name = format!("txos-test-{}", std::process::id());
    let kinds = [
        Kind::Queue(key(1), 8192, vec![(5, Bytes(b"five".to_vec())), (1, Bytes(Vec::new()))]),
        Kind::Semaphores(key(2), vec![3, 0, 7]),
        Kind::Segment(key(3), 5000, Bytes(b"segment".to_vec())),
        Kind::NamedMemory(name.clone(), 9000, Bytes(b"memory".to_vec())),
        Kind::NamedQueue(
            name,
            [4, 32],
            vec![(9, Bytes(b"high".to_vec())), (1, Bytes(b"low".to_vec()))],
        ),
    ];
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    kinds.map(|kind| Object { uid, gid, mode: 0o640, kind }).to_vec()
}

#[test]
fn what_is_made_is_found_with_its_content_and_never_made_twice() {
    let objects = all();
    assert!(in_the_way(&objects).is_empty());
    let failed = publish(&objects);
    // Not every kernel has POSIX queues.
    let made: Vec<_> =
        objects.iter().filter(|o| in_the_way(&objects).contains(o)).cloned().collect();
    let again = publish(&made);
    // `collect` would take what belongs to others here: it is tried from inside a transaction.
    for object in &objects {
        match &object.kind {
            Kind::Queue(key, ..) => sys::queue(*key, 0).map(sys::remove_queue).unwrap(),
            Kind::Semaphores(key, _) => {
                sys::semaphores(*key, 0, 0).map(sys::remove_semaphores).unwrap()
            }
            Kind::Segment(key, ..) => sys::segment(*key, 0, 0).map(sys::remove_segment).unwrap(),
            Kind::NamedQueue(name, ..) => sys::remove_named_queue(name),
            Kind::NamedMemory(name, ..) => {
                std::fs::remove_file(format!("{MEMORY}/{name}")).unwrap()
            }
        }
    }
    assert!(made.len() >= 4, "{failed:?}");
    assert_eq!(again.len(), made.len(), "{again:?}");
}

#[test]
fn bytes_are_written_as_digits() {
    let bytes = Bytes(vec![0, 1, 0xab, 0xff]);
    let text = serde_json::to_string(&bytes).unwrap();
    assert_eq!(text, "\"0001abff\"");
    assert_eq!(serde_json::from_str::<Bytes>(&text).unwrap(), bytes);
    assert!(serde_json::from_str::<Bytes>("\"0\"").is_err());
    assert!(serde_json::from_str::<Bytes>("\"zz\"").is_err());
}
