//! One test for each way in which a journal can break.

use std::{fs, path::PathBuf};

use proptest::prelude::*;
use txos_core::{FileKind, Stamp, TxId};

use super::{
    Journal,
    frame::{self, Found, Frame, Kind},
    plan,
};
use crate::{
    Privilege, StateDir, StoreError,
    plan::{
        Area, Change, Ident, Link, Meta, Move, Plan, Put, Remove, Run, Times, Write, WriteSpec,
    },
    sys::FsIdentity,
};

fn ident(ino: u64) -> Ident {
    Ident { ino, birth: Stamp { sec: 5, nsec: 6 } }
}

fn sample(tx: u64) -> Plan {
    let times = Times {
        atime: Some(Stamp { sec: -1, nsec: 2 }),
        mtime: Some(Change { before: Stamp::default(), after: Stamp { sec: 3, nsec: 4 } }),
        natural: true,
    };
    let meta = Meta {
        area: 0,
        path: PathBuf::from("dir"),
        id: ident(9),
        kind: FileKind::Dir,
        owner: Some(Change { before: (0, 1), after: (2, 3) }),
        perm: Some(Change { before: 0o644, after: 0o755 }),
        xattrs: vec![(c"user.x".to_owned(), Change { before: None, after: Some(vec![0, 1]) })],
        times: Some(times),
    };
    Plan {
        tx: TxId(tx),
        boot: [7; 16],
        made: Stamp { sec: 1, nsec: 2 },
        areas: vec![Area {
            point: PathBuf::from("/"),
            fs: FsIdentity {
                uuid: Some([3; 16]),
                fsid: 1,
                dev: 2,
                magic: 3,
                root_ino: 2,
                root_birth: Stamp::default(),
            },
            stage: PathBuf::from("/var/lib/txos/tx/1"),
        }],
        writes: vec![Write {
            area: 0,
            path: PathBuf::from("f"),
            id: ident(1),
            source: PathBuf::from("layers/0/upper/f"),
            spec: WriteSpec {
                before_size: 1,
                after_size: 9000,
                runs: vec![Run { first: 0, hashes: vec![(1, 2), (3, 4)] }],
                rest: 5,
                tail: Some(6),
            },
        }],
        file_meta: vec![],
        removes: vec![Remove { area: 0, path: PathBuf::from("r"), id: ident(2), dir: true }],
        moves: vec![Move {
            area: 0,
            from: PathBuf::from("a"),
            to: PathBuf::from("b"),
            id: ident(3),
            dir: false,
            slot: Some(PathBuf::from("stage/m0")),
            replaces: Some(ident(4)),
        }],
        puts: vec![Put {
            area: 0,
            staged: PathBuf::from("layers/0/upper/p"),
            to: PathBuf::from("p"),
            id: ident(5),
            dir: false,
            replaces: None,
        }],
        links: vec![Link {
            area: 0,
            from: PathBuf::from("b"),
            to: PathBuf::from("c"),
            id: ident(6),
            slot: PathBuf::from("stage/m1"),
            replaces: None,
        }],
        dir_meta: vec![meta],
    }
}

fn record(tx: u64) -> Vec<u8> {
    let payload = plan::encode(&sample(tx));
    frame::encode(&Frame { kind: Kind::Commit, tx: TxId(tx), payload: &payload })
}

/// A state directory whose journal holds `bytes`, and what replaying gives.
fn replayed(bytes: &[u8]) -> (Result<Vec<u64>, StoreError>, u64) {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path().join("s"), Privilege::Root).unwrap();
    let bytes = &[&super::HEADER[..], bytes].concat()[..];
    fs::write(state.path().join("journal"), bytes).unwrap();
    let mut journal = Journal::open(&state).unwrap();
    match journal.replay() {
        Ok(replay) => {
            journal.cut_torn(&replay).unwrap();
            let left = fs::metadata(state.path().join("journal")).unwrap().len();
            assert_eq!(left + replay.torn, bytes.len() as u64);
            (Ok(replay.pending.keys().map(|id| id.0).collect()), replay.torn)
        }
        Err(error) => (Err(error), 0),
    }
}

#[test]
fn a_plan_comes_back() {
    assert_eq!(plan::decode(&plan::encode(&sample(1))).unwrap(), sample(1));
}

#[test]
fn whole_records_are_pending_until_done() {
    let done = |tx| frame::encode(&Frame { kind: Kind::Done, tx: TxId(tx), payload: &[] });
    assert_eq!(replayed(&[record(1), record(2)].concat()).0.unwrap(), [1, 2]);
    assert_eq!(replayed(&[record(1), record(2), done(1)].concat()).0.unwrap(), [2]);
    assert_eq!(replayed(b"").0.unwrap(), [0; 0]);
}

#[test]
fn a_file_that_is_no_journal_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path().join("s"), Privilege::Root).unwrap();
    let path = state.path().join("journal");
    let replay = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        Journal::open(&state).unwrap().replay()
    };
    assert!(matches!(replay(&record(1)), Err(StoreError::Damaged { .. })));
    assert!(matches!(replay(&[b'x'; 100]), Err(StoreError::Damaged { .. })));
    let mut header = *super::HEADER;
    header[4] ^= 1;
    assert!(matches!(replay(&header), Err(StoreError::Damaged { .. })));
    for length in 0..super::HEADER.len() {
        assert!(replay(&super::HEADER[..length]).unwrap().pending.is_empty());
    }
}

#[test]
fn a_record_cut_anywhere_at_the_end_is_discarded() {
    let (first, second) = (record(1), record(2));
    for length in 0..second.len() {
        let (pending, torn) = replayed(&[&first[..], &second[..length]].concat());
        assert_eq!((pending.unwrap(), torn), (vec![1], length as u64));
    }
}

#[test]
fn a_tail_of_zeros_or_of_one_bad_byte_is_discarded() {
    let (first, mut second) = (record(1), record(2));
    let (pending, torn) = replayed(&[&first[..], &[0; 500]].concat());
    assert_eq!((pending.unwrap(), torn), (vec![1], 500));
    for at in 0..second.len() {
        second[at] ^= 0x40;
        assert_eq!(replayed(&[&first[..], &second].concat()).0.unwrap(), [1], "byte {at}");
        second[at] ^= 0x40;
    }
}

#[test]
fn a_broken_record_before_a_whole_one_is_damage() {
    let (mut first, second) = (record(1), record(2));
    for at in 0..first.len() {
        first[at] ^= 1;
        let (pending, _) = replayed(&[&first[..], &second].concat());
        assert!(matches!(pending, Err(StoreError::Damaged { .. })), "byte {at}");
        first[at] ^= 1;
    }
}

/// A frame whose checksum is right but whose `at` bytes are other ones.
fn forged(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut record = record(1);
    record[at..at + bytes.len()].copy_from_slice(bytes);
    let body = record.len() - 8;
    let checksum = xxhash_rust::xxh3::xxh3_64(&record[..body]);
    record[body..].copy_from_slice(&checksum.to_le_bytes());
    record
}

#[test]
fn other_versions_and_kinds_are_refused() {
    for (at, bytes) in [(4, 2u16), (6, 9), (6, 3)] {
        let (pending, _) = replayed(&forged(at, &bytes.to_le_bytes()));
        assert!(matches!(pending, Err(StoreError::Damaged { .. })), "{bytes} at {at}");
    }
}

#[test]
fn two_ids_in_one_record_are_damage() {
    let (pending, _) = replayed(&forged(8, &2u64.to_le_bytes()));
    assert!(matches!(pending, Err(StoreError::Damaged { .. })));
}

#[test]
fn plans_that_lead_elsewhere_are_refused() {
    let refused = |change: fn(&mut Plan)| {
        let mut plan = sample(1);
        change(&mut plan);
        plan::decode(&plan::encode(&plan)).is_err()
    };
    assert!(refused(|plan| plan.puts[0].to = PathBuf::from("../x")));
    assert!(refused(|plan| plan.puts[0].to = PathBuf::from("/x")));
    assert!(refused(|plan| plan.areas[0].point = PathBuf::from("x")));
    assert!(refused(|plan| plan.removes[0].area = 1));
    assert!(refused(|plan| plan.areas.clear()));
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_stumble(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert_eq!(frame::decode(&bytes), Found::Broken);
        let _ = plan::decode(&bytes);
    }

    #[test]
    fn no_change_of_a_plan_makes_the_reader_stumble(at: prop::sample::Index, byte: u8) {
        let mut bytes = plan::encode(&sample(1));
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = plan::decode(&bytes);
        prop_assert!(plan::decode(&bytes[..at]).is_err());
    }
}
