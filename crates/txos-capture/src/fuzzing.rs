//! What the fuzzer `capture_requests` calls, and in short the test below: requests as they might come
//! from the FUSE device. The kernel forms them, but names, offsets and sizes in them are a member's.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use crate::{
    CaptureSpec,
    mirror::Mirror,
    proto::{Reply, Request},
};

/// A small tree, made once for each process.
fn tree() -> &'static Path {
    static TREE: OnceLock<PathBuf> = OnceLock::new();
    TREE.get_or_init(|| {
        let root = std::env::temp_dir().join(format!("txos-fuzz-{}", std::process::id()));
        let made = fs::create_dir_all(root.join("dir/sub"))
            .and_then(|()| fs::write(root.join("file"), vec![b'f'; 5000]))
            .and_then(|()| fs::write(root.join("dir/a"), "a"))
            .and_then(|()| symlink("dir/a", root.join("link")));
        assert!(made.is_ok() || root.join("link").is_symlink(), "no tree: {made:?}");
        root
    })
}

/// Requests one after the other: kind, node and length of the rest, a byte each, then the rest.
///
/// # Panics
/// If an answer is not as the kernel takes it: its length, and no body beside an error.
pub fn requests(mut bytes: &[u8]) {
    let spec = CaptureSpec { root: tree().to_owned(), ..CaptureSpec::default() };
    let Ok(mirror) = Mirror::new(spec) else { return };
    mirror.begin_recording();
    let mut reply = Reply::default();
    while let [kind, node, length, rest @ ..] = bytes {
        let Some((body, rest)) = rest.split_at_checked(usize::from(*length)) else { break };
        let mut request = Vec::with_capacity(40 + body.len());
        request.extend((40 + body.len() as u32).to_ne_bytes());
        request.extend(u32::from(*kind).to_ne_bytes());
        request.extend(77u64.to_ne_bytes());
        request.extend(u64::from(*node).to_ne_bytes());
        request.extend([0; 8]);
        request.extend(std::process::id().to_ne_bytes());
        request.extend([0; 4]);
        request.extend(body);
        if let Some(request) = Request::parse(&request)
            && mirror.answer(&request, &mut reply)
        {
            judge(reply.as_bytes());
        }
        bytes = rest;
    }
    // A request that is cut short is none.
    let _ = Request::parse(bytes).map(|request| mirror.answer(&request, &mut reply));
}

fn judge(answer: &[u8]) {
    let word = |at: usize| {
        let bytes = answer.get(at..at + 4).and_then(|word| word.first_chunk::<4>());
        bytes.map(|word| u32::from_ne_bytes(*word))
    };
    assert_eq!(word(0), Some(answer.len() as u32), "the length of an answer");
    assert_eq!(word(8), Some(77), "whose answer it is");
    let error = word(4).map_or(0, |error| error as i32);
    assert!((-4095..=0).contains(&error), "error {error}");
    assert!(error == 0 || answer.len() == 16, "an error has no body");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_requests_are_answered_or_refused(
            requests in proptest::collection::vec(
                (0u8..60, 0u8..8, proptest::collection::vec(any::<u8>(), 0..60)), 0..12),
        ) {
            let bytes = |(kind, node, body): &(u8, u8, Vec<u8>)| {
                [&[*kind, *node, body.len() as u8][..], body].concat()
            };
            super::requests(&requests.iter().flat_map(bytes).collect::<Vec<u8>>());
        }
    }
}
