//! What the fuzzer `call_arguments` calls, and in short the test below: the arguments of calls that the
//! filter asks about, and the memory that they point to. All of it is a member's.

use super::{
    describe, hidden, locks,
    target::{Peer, Target},
};
use crate::sys::Notified;

/// The calls whose arguments are read. What would write to the target is not among them: the target is
/// the fuzzer itself.
const CALLS: [&str; 24] = [
    "connect",
    "sendto",
    "sendmsg",
    "sendmmsg",
    "socket",
    "socketpair",
    "clone",
    "unshare",
    "ioctl",
    "mount",
    "move_mount",
    "umount2",
    "pivot_root",
    "fsopen",
    "open_tree",
    "fspick",
    "mount_setattr",
    "delete_module",
    "syslog",
    "bpf",
    "keyctl",
    "fcntl",
    "setxattr",
    "setxattrat",
];

/// A call (a byte), its six arguments (a byte that says what it is, and eight), four places of
/// addresses in memory (a byte where, a byte of what), and the memory.
///
/// # Panics
/// If something could steer a terminal.
pub fn call_arguments(bytes: &[u8]) {
    let Some((head, memory)) = bytes.split_at_checked(1 + 6 * 9 + 4 * 2) else { return };
    let mut memory = memory.to_vec();
    // Where it lies is known before it is filled in: it does not move any more.
    let base = memory.as_ptr().addr() as u64;
    let within = |offset: u64| base.wrapping_add(offset);
    for place in head[1 + 6 * 9..].chunks_exact(2) {
        let (at, address) = (usize::from(place[0]), within(u64::from(place[1])));
        if let Some(word) = memory.get_mut(at..at + 8) {
            word.copy_from_slice(&address.to_ne_bytes());
        }
    }
    let mut args = [0; 6];
    for (arg, bytes) in args.iter_mut().zip(head[1..].chunks_exact(9)) {
        let value = bytes[1..].first_chunk::<8>().map_or(0, |word| u64::from_ne_bytes(*word));
        *arg = if bytes[0] & 1 == 0 { value } else { within(value % 512) };
    }
    let call = CALLS[usize::from(head[0]) % CALLS.len()];
    let target = Target::of_own(Notified { id: 0, pid: std::process::id(), nr: 0, arch: 0, args });
    let mut told = vec![describe::detail(call, &args, &target), target.text(args[0])];
    for peer in target.peers(call) {
        match peer {
            Peer::Net(address) => told.push(address.to_string()),
            Peer::Local(path) => told.push(path),
            Peer::Other => {}
        }
    }
    match call {
        "fcntl" => locks::fuzz(args, &target),
        "setxattr" | "setxattrat" => {
            let _ = hidden::answer(call, &args, &target, "user.txos.origin");
        }
        _ => {}
    }
    for line in told {
        assert!(!line.chars().any(char::is_control), "a control character: {line:?}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_arguments_are_read_or_refused(
            call: u8,
            args in proptest::collection::vec((any::<u8>(), any::<u64>()), 6),
            places in proptest::collection::vec(any::<u8>(), 8),
            memory in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut bytes = vec![call];
            for (kind, value) in args {
                bytes.push(kind);
                bytes.extend(value.to_ne_bytes());
            }
            bytes.extend(places);
            bytes.extend(memory);
            super::call_arguments(&bytes);
        }
    }
}
