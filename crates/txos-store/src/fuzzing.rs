//! What the fuzzers of `fuzz/` call, and in short the tests below: every reader of bytes that a crash,
//! a damaged disk or a command in a transaction may have left.
//!
//! A reader may refuse, and must not panic, nor take memory that the bytes do not account for; and
//! what it accepts must mean the same when it is written and read again. Each function panics
//! where that is not so.

use std::{ffi::CString, path::Path};

use crate::{
    delta::marks,
    journal::{
        frame::{self, Found},
        legacy, plan,
    },
    keep, names,
    plan::Patch,
    state::last_meta,
};

/// A segment of the journal from any place on, and what its records hold.
pub fn records(bytes: &[u8]) {
    let whole = frame::any(bytes).filter_map(|found| match found {
        Found::Frame(frame, _) => Some(frame),
        _ => None,
    });
    for record in whole {
        if record.version == frame::VERSION {
            let again = frame::encode(&record);
            assert!(matches!(frame::decode(&again), Found::Frame(same, _) if same == record));
        }
        plans(record.payload);
    }
}

/// The payload of a commit record.
pub fn plans(bytes: &[u8]) {
    for version in 1..=frame::VERSION {
        let Ok(decoded) = plan::decode(bytes, version) else { continue };
        // Whoever goes on with it looks at all of it.
        let _ = (decoded.paths(), crate::small::of_plan(&decoded));
        let _: Vec<_> = decoded.patches.iter().map(Patch::shape).collect();
        let again = plan::decode(&plan::encode(&decoded), frame::VERSION);
        assert!(again.is_ok_and(|again| again == decoded), "read differently when written again");
    }
}

/// The payload of a record that waits for a decision.
pub fn prepared(bytes: &[u8]) {
    keep::fuzz(bytes, frame::VERSION);
}

/// A journal of version 1.
pub fn first_journal(bytes: &[u8]) {
    let _ = legacy::replay(Path::new("/journal-1"), bytes);
}

/// What is known of a transaction, as lines of JSON.
pub fn meta(bytes: &[u8]) {
    if let Some(meta) = last_meta(bytes)
        && let Ok(mut again) = serde_json::to_vec(&meta)
    {
        again.push(b'\n');
        assert!(last_meta(&again).is_some(), "written and not read again");
    }
}

/// The extended attributes of a shadow object: for each the length of its name and of its value, one
/// byte each, then these.
pub fn overlay_attributes(mut bytes: &[u8]) {
    let mut set = txos_host::XattrSet::new();
    while let [name, value, rest @ ..] = bytes {
        let Some((name, rest)) = rest.split_at_checked(usize::from(*name)) else { break };
        let Some((value, rest)) = rest.split_at_checked(usize::from(*value)) else { break };
        if let Ok(name) = CString::new(name) {
            set.insert(name, value.to_vec());
        }
        bytes = rest;
    }
    for prefix in ["trusted.overlay.", "user.overlay."] {
        let count = set.len();
        let (marks, shown) = marks::part(set.clone(), prefix);
        assert!(shown.len() + marks.own.len() >= count, "an attribute got lost");
    }
}

/// A name as a report shows it.
pub fn shown_names(bytes: &[u8]) {
    let shown = names::escape(bytes);
    assert!(!shown.chars().any(char::is_control), "a control character in a report");
    assert_eq!(names::unescape(&shown).as_deref(), Some(bytes));
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = names::unescape(text);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use txos_core::{FileKind, Stamp, TxId};

    use super::*;
    use crate::{
        journal::frame::{Frame, Kind},
        plan::{Area, Change, Ident, Make, Meta, Move, PatchBlock, Plan, Put, Remove, Times, What},
        sys::FsIdentity,
    };

    /// A plan with something of most kinds.
    fn some_plan() -> Plan {
        let mut plan = Plan::new(TxId(7), true, Stamp { sec: 1, nsec: 2 });
        let fs = FsIdentity {
            uuid: Some([3; 16]),
            fsid: 4,
            dev: 5,
            magic: 6,
            root_ino: 2,
            root_birth: Stamp::default(),
        };
        plan.areas.push(Area { point: "/".into(), fs, stage: "/stage".into() });
        let id = Ident { ino: 12, birth: Stamp { sec: 3, nsec: 4 } };
        let block = PatchBlock {
            number: 0,
            start: 1,
            bytes: b"abc".to_vec(),
            before: [1, 2],
            after: [3, 4],
        };
        plan.patches.push(Patch {
            area: 0,
            path: "f".into(),
            id,
            before_size: 10,
            after_size: 10,
            block: 512,
            blocks: vec![block],
        });
        plan.removes.push(Remove { area: 0, path: "g".into(), id, dir: false });
        plan.moves.push(Move {
            area: 0,
            from: "a".into(),
            to: "b".into(),
            id,
            dir: true,
            slot: Some(".aside".into()),
            replaces: Some(id),
        });
        let make = Make {
            what: What::File(b"new".to_vec()),
            perm: 0o644,
            owner: Some((1, 2)),
            xattrs: vec![(c"user.x".to_owned(), b"v".to_vec())],
            atime: None,
            mtime: Some(Stamp { sec: 9, nsec: 0 }),
        };
        plan.puts.push(Put {
            area: 0,
            staged: "".into(),
            to: "n".into(),
            id,
            dir: false,
            replaces: None,
            make: Some(make),
        });
        plan.dir_meta.push(Meta {
            area: 0,
            path: "d".into(),
            id,
            kind: FileKind::Dir,
            owner: Some(Change { before: (0, 0), after: (1, 1) }),
            perm: Some(Change { before: 0o755, after: 0o700 }),
            xattrs: vec![(c"user.y".to_owned(), Change { before: None, after: Some(vec![1]) })],
            times: Some(Times { atime: None, mtime: None, natural: true }),
        });
        plan
    }

    /// Bytes that were good, a few of them changed, perhaps cut.
    fn damaged(good: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
        let length = good.len();
        let changes = proptest::collection::vec((0..length, any::<u8>()), 0..4);
        (changes, 0..=length).prop_map(move |(changes, cut)| {
            let mut bytes = good.clone();
            changes.into_iter().for_each(|(at, byte)| bytes[at] = byte);
            bytes.truncate(length - cut / 8);
            bytes
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            for read in [records, plans, prepared, first_journal, meta, overlay_attributes, shown_names] {
                read(&bytes);
            }
        }

        #[test]
        fn damaged_plans_are_read_or_refused(bytes in damaged(plan::encode(&some_plan()))) {
            plans(&bytes);
        }

        #[test]
        fn damaged_records_are_never_misread(
            bytes in damaged(frame::encode(&Frame {
                kind: Kind::Commit,
                tx: TxId(7),
                sequence: 1,
                flushed: 0,
                payload: &plan::encode(&some_plan()),
                version: frame::VERSION,
            })),
        ) {
            records(&bytes);
            if let Found::Frame(frame, _) = frame::decode(&bytes) {
                prop_assert_eq!(plan::decode(frame.payload, frame.version).ok(), Some(some_plan()));
            }
        }
    }
}
