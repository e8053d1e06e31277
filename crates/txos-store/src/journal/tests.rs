//! One test for each way in which a journal can break.

use std::{fs, path::PathBuf};

use proptest::prelude::*;
use txos_core::{FileKind, Stamp, TxId};

use super::{
    Journal,
    frame::{self, Found, Frame, Kind, VERSION},
    plan,
    replay::Replay,
    segments::FIRST,
};
use crate::{
    Privilege, StateDir, StoreError,
    plan::{
        Area, Change, Ident, Link, Make, Meta, Move, Patch, PatchBlock, Plan, Put, Remove, Run,
        Times, What, Write, WriteSpec,
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
        durable: true,
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
                block: 512,
                runs: vec![Run { first: 0, hashes: vec![(1, 2), (3, 4)] }],
                rest: 5,
                end: Some(9),
                edge: vec![7, 8],
                tail: Some(6),
            },
        }],
        patches: vec![Patch {
            area: 0,
            path: PathBuf::from("g"),
            id: ident(8),
            before_size: 3,
            after_size: 5,
            block: 512,
            blocks: vec![PatchBlock {
                number: 0,
                start: 3,
                bytes: vec![1, 2],
                before: [1, 2],
                after: [3, 4],
            }],
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
            make: Some(Make {
                what: What::File(vec![1, 2, 3]),
                perm: 0o640,
                owner: Some((1, 2)),
                xattrs: vec![(c"user.y".to_owned(), vec![7])],
                atime: None,
                mtime: Some(Stamp { sec: 8, nsec: 9 }),
            }),
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
    flushed_record(tx, 1, 0)
}

/// A commit record of a segment's life, written when so much was known to be on disk.
fn flushed_record(tx: u64, sequence: u64, flushed: u64) -> Vec<u8> {
    let payload = plan::encode(&sample(tx));
    let (kind, tx) = (Kind::Commit, TxId(tx));
    frame::encode(&Frame { kind, tx, sequence, flushed, payload: &payload, version: VERSION })
}

fn empty(kind: Kind) -> Vec<u8> {
    let (tx, payload) = (TxId(0), &[][..]);
    frame::encode(&Frame { kind, tx, sequence: 1, flushed: 0, payload, version: VERSION })
}

fn header(sequence: u64) -> Vec<u8> {
    let mut bytes = b"txos journal  2\n".to_vec();
    bytes.extend(sequence.to_le_bytes());
    bytes.extend(xxhash_rust::xxh3::xxh3_64(&bytes).to_le_bytes());
    bytes.resize(FIRST as usize, 0);
    bytes
}

/// A state directory, not used in this boot.
fn state() -> (tempfile::TempDir, StateDir) {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path().join("s"), Privilege::Root).unwrap();
    (dir, state)
}

fn replay_of(state: &StateDir) -> Result<Replay, StoreError> {
    let journal = Journal::open(state)?;
    let turn = journal.take()?;
    journal.replay(&turn)
}

/// What a journal whose first segment holds `bytes` says: pending transactions, torn bytes.
fn replayed(bytes: &[u8]) -> (Result<Vec<u64>, StoreError>, u64) {
    let (_dir, state) = state();
    fs::create_dir(state.path().join("journal")).unwrap();
    fs::write(state.path().join("journal/1"), [&header(1), bytes].concat()).unwrap();
    match replay_of(&state) {
        Ok(replay) => (Ok(replay.pending.iter().map(|(_, plan)| plan.tx.0).collect()), replay.torn),
        Err(error) => (Err(error), 0),
    }
}

#[test]
fn a_plan_comes_back() {
    assert_eq!(plan::decode(&plan::encode(&sample(1)), VERSION).unwrap(), sample(1));
}

#[test]
fn whole_records_are_pending_until_a_checkpoint() {
    assert_eq!(replayed(&[record(1), record(2)].concat()).0.unwrap(), [1, 2]);
    let done = [record(1), empty(Kind::Checkpoint), record(2)].concat();
    assert_eq!(replayed(&done).0.unwrap(), [2]);
    let void = [record(1), empty(Kind::Void), record(2)].concat();
    assert_eq!(replayed(&void).0.unwrap(), [1, 2]);
    assert_eq!(replayed(b"").0.unwrap(), [0; 0]);
}

#[test]
fn what_an_earlier_life_of_the_segment_left_does_not_count() {
    let (old, new) = (flushed_record(9, 0, u64::MAX), record(1));
    let (pending, torn) = replayed(&[&new[..], &old].concat());
    assert_eq!((pending.unwrap(), torn), (vec![1], 0));
    assert_eq!(replayed(&old).0.unwrap(), [0; 0]);
}

#[test]
fn the_segment_of_the_higher_sequence_counts() {
    let (_dir, state) = state();
    let journal = state.path().join("journal");
    fs::create_dir(&journal).unwrap();
    fs::write(journal.join("0"), [&header(2)[..], &flushed_record(2, 2, 0)].concat()).unwrap();
    fs::write(journal.join("1"), [&header(1)[..], &record(1)].concat()).unwrap();
    let replay = replay_of(&state).unwrap();
    assert_eq!(replay.pending.iter().map(|(_, plan)| plan.tx.0).collect::<Vec<_>>(), [2]);
}

#[test]
fn what_is_no_journal_is_damage() {
    let opened = |name: &str, bytes: &[u8]| {
        let (_dir, state) = state();
        fs::create_dir(state.path().join("journal")).unwrap();
        fs::write(state.path().join("journal").join(name), bytes).unwrap();
        replay_of(&state).map(|replay| replay.pending.len())
    };
    // A header that is broken, with records behind it.
    let mut broken = [header(1), record(1)].concat();
    broken[16] ^= 1;
    assert!(matches!(opened("1", &broken), Err(StoreError::Damaged { .. })));
    // One of a version to come.
    let mut later = header(1);
    later[14] = b'3';
    let hash = xxhash_rust::xxh3::xxh3_64(&later[..24]);
    later[24..32].copy_from_slice(&hash.to_le_bytes());
    assert!(matches!(opened("0", &later), Err(StoreError::Damaged { .. })));
    // The making of the first segment was interrupted.
    for length in 0..40 {
        assert_eq!(opened("1", &header(1)[..length]).unwrap(), 0, "{length}");
    }
}

#[test]
fn a_journal_of_the_version_before_is_read() {
    const HEADER_1: &[u8] = b"txos journal  1\n";
    let version_1 = |tx: u64| {
        // As version 1 wrote it: a record without anything but its areas.
        let mut payload = Vec::new();
        payload.extend(tx.to_le_bytes());
        payload.extend([7; 16]);
        payload.extend([0; 12]);
        payload.extend([0; 4 * 8]);
        let mut bytes = b"TXJR\x01\0\x01\0".to_vec();
        bytes.extend(tx.to_le_bytes());
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend(payload);
        bytes.extend(xxhash_rust::xxh3::xxh3_64(&bytes).to_le_bytes());
        bytes
    };
    let read = |bytes: &[u8]| {
        let (_dir, state) = state();
        fs::write(state.path().join("journal"), bytes).unwrap();
        let replay = replay_of(&state);
        assert!(state.path().join("journal-1").exists());
        replay.map(|replay| (replay.pending.len(), replay.torn))
    };
    let whole = [HEADER_1, &version_1(1), &version_1(2)].concat();
    assert_eq!(read(&whole).unwrap(), (2, 0));
    assert_eq!(read(&whole[..whole.len() - 1]).unwrap().0, 1);
    assert_eq!(read(HEADER_1).unwrap(), (0, 0));
    let mut broken = whole;
    broken[20] ^= 1;
    assert!(matches!(read(&broken), Err(StoreError::Damaged { .. })));
    assert!(matches!(read(b"something else altogether"), Err(StoreError::Damaged { .. })));
}

/// Blocks had a page each, and nothing said so.
#[test]
fn a_plan_of_version_2_is_read_as_it_was_meant() {
    let mut plan = sample(1);
    plan.writes[0].spec =
        WriteSpec { block: 4096, end: None, edge: vec![], ..plan.writes[0].spec.clone() };
    plan.patches[0].block = 4096;
    let now = plan::encode(&plan);
    // As version 2 wrote it: without the size of blocks, the end and the edge.
    let (write, patch) = (9000u64.to_le_bytes(), 5u64.to_le_bytes());
    let size = 4096u32.to_le_bytes();
    let find = |bytes: &[u8]| now.windows(bytes.len()).position(|window| window == bytes).unwrap();
    let of_write = find(&[&write[..], &size].concat()) + 8;
    let of_patch = find(&[&patch[..], &size].concat()) + 8;
    // One run with two blocks lies between the size and the rest.
    let end = of_write + 4 + 4 + 8 + 4 + 2 * 16 + 8;
    assert_eq!(now[end..end + 5], [0; 5], "no end, and an empty edge");
    let old =
        [&now[..of_write], &now[of_write + 4..end], &now[end + 5..of_patch], &now[of_patch + 4..]]
            .concat();
    assert_eq!(plan::decode(&old, 2).unwrap(), plan);
    assert!(plan::decode(&now, 2).is_err() && plan::decode(&old, VERSION).is_err());
    assert_eq!(plan.patches[0].shape(), crate::plan::Shape::Other, "nothing is folded with it");
}

#[test]
fn a_record_cut_anywhere_at_the_end_is_discarded() {
    let (first, second) = (record(1), record(2));
    for length in 0..second.len() {
        let (pending, torn) = replayed(&[&first[..], &second[..length]].concat());
        assert_eq!(pending.unwrap(), [1]);
        assert!(torn <= length as u64 && (length < 28) == (torn == 0), "{torn} of {length}");
    }
}

#[test]
fn a_tail_of_zeros_or_of_one_bad_byte_is_discarded() {
    let (first, mut second) = (record(1), record(2));
    let (pending, torn) = replayed(&[&first[..], &[0; 500]].concat());
    assert_eq!((pending.unwrap(), torn), (vec![1], 0));
    for at in 0..second.len() {
        second[at] ^= 0x40;
        assert_eq!(replayed(&[&first[..], &second].concat()).0.unwrap(), [1], "byte {at}");
        second[at] ^= 0x40;
    }
}

/// Two records may be written before one flush, and a power cut keep the second alone.
#[test]
fn a_broken_record_before_one_that_was_not_flushed_after_it_is_torn() {
    let (mut first, second) = (record(1), record(2));
    for at in 0..first.len() {
        first[at] ^= 1;
        let (pending, torn) = replayed(&[&first[..], &second].concat());
        assert_eq!((pending.unwrap(), torn > 0), (vec![], true), "byte {at}");
        first[at] ^= 1;
    }
}

#[test]
fn a_broken_record_before_one_that_knew_it_flushed_is_damage() {
    let mut first = record(1);
    let second = flushed_record(2, 1, FIRST + first.len() as u64);
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
    for (at, bytes) in [(4, 4u16), (6, 9), (6, 3)] {
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
        plan::decode(&plan::encode(&plan), VERSION).is_err()
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
        let _ = plan::decode(&bytes, VERSION);
        let _ = plan::decode(&bytes, 1);
    }

    #[test]
    fn no_change_of_a_plan_makes_the_reader_stumble(at: prop::sample::Index, byte: u8) {
        let mut bytes = plan::encode(&sample(1));
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = plan::decode(&bytes, VERSION);
        let _ = plan::decode(&bytes, 1);
        prop_assert!(plan::decode(&bytes[..at], VERSION).is_err());
    }
}
