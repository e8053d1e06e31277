//! The table of descriptors.

use super::{
    arena::{Arena, DESCRIPTORS},
    raw::{Text, close, die, open, syscall},
};

const KCMP_FILE: usize = 0;

/// A set of descriptors.
pub(super) struct Set([u8; DESCRIPTORS / 8]);

impl Set {
    fn has(&self, fd: i32) -> bool {
        fd >= 0 && (fd as usize) < DESCRIPTORS && self.0[fd as usize / 8] & 1 << (fd % 8) != 0
    }

    /// Adds a descriptor, or takes it out; those beyond what a set can hold are passed over.
    pub(super) fn put(&mut self, fd: i32, in_it: bool) {
        if fd < 0 || fd as usize >= DESCRIPTORS {
            return;
        }
        let (byte, bit) = (&mut self.0[fd as usize / 8], 1 << (fd % 8));
        *byte = if in_it { *byte | bit } else { *byte & !bit };
    }

    /// Its descriptors, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = i32> {
        let bytes = self.0.iter().enumerate().filter(|(_, byte)| **byte != 0);
        bytes.flat_map(|(at, byte)| {
            (0..8).filter(move |bit| *byte & 1 << bit != 0).map(move |bit| at as i32 * 8 + bit)
        })
    }

    /// What is open in a process (`self`, or a number), but for the descriptor that this takes itself.
    pub(super) fn look(&mut self, who: &[u8], buffer: &mut [u8]) {
        self.0.fill(0);
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let dir = open(Text::new().add(b"/proc/").add(who).add(b"/fd").as_bytes(), flags);
        if dir < 0 {
            die(b"its descriptors cannot be read");
        }
        loop {
            // SAFETY: the buffer is valid for its length.
            let length =
                unsafe { syscall!(libc::SYS_getdents64, dir, buffer.as_mut_ptr(), buffer.len()) };
            if length < 0 {
                die(b"its descriptors cannot be read");
            }
            if length == 0 {
                break;
            }
            let mut rest = &buffer[..length as usize];
            // `struct linux_dirent64`: inode, offset, length, type, name.
            while let Some(size) =
                rest.get(16..18).map(|size| usize::from(size[0]) | usize::from(size[1]) << 8)
            {
                let (entry, next) = rest.split_at(size.clamp(19, rest.len()));
                let name = entry[19..].split(|byte| *byte == 0).next().unwrap_or_default();
                let number = name.iter().try_fold(0usize, |value, digit| {
                    digit.is_ascii_digit().then(|| value * 10 + usize::from(digit - b'0'))
                });
                if let Some(number) =
                    number.filter(|number| !name.is_empty() && *number != dir as usize)
                {
                    self.put(number as i32, true);
                }
                rest = next;
            }
        }
        close(dir);
    }
}

/// Looks at the table of the snapshot, in the snapshot.
pub(super) fn look(arena: &mut Arena) {
    arena.files_then.look(b"self", &mut arena.buffer);
    // It has closed its end that is for asking, which is to stay in the program.
    arena.files_then.put(arena.ask[1], true);
}

/// Makes the table that of the snapshot, which was looked at and whose facts are known.
pub(super) fn restore(arena: &mut Arena, snapshot: i32) {
    arena.files_now.look(b"self", &mut arena.buffer);
    let (now, then) = (&arena.files_now, &arena.files_then);
    // Room first.
    now.iter().filter(|fd| !then.has(*fd)).for_each(close);
    let process = reach(snapshot, arena.high, then);
    for fd in then.iter().filter(|fd| !arena.ask.contains(fd)) {
        let cloexec = arena.facts.cloexec.has(fd);
        let flags = if cloexec { libc::O_CLOEXEC } else { 0 };
        // SAFETY: plain numbers; what has the number is the program's, and is to be what it was.
        unsafe {
            let me = syscall!(libc::SYS_getpid);
            let same =
                now.has(fd) && syscall!(libc::SYS_kcmp, me, snapshot, KCMP_FILE, fd, fd) == 0;
            if same {
                syscall!(libc::SYS_fcntl, fd, libc::F_SETFD, i32::from(cloexec));
                continue;
            }
            let fetched = syscall!(libc::SYS_pidfd_getfd, process, fd, 0) as i32;
            if fetched < 0 {
                die(b"a descriptor cannot be fetched from the snapshot");
            }
            if fetched == fd {
                syscall!(libc::SYS_fcntl, fd, libc::F_SETFD, i32::from(cloexec));
            } else {
                syscall!(libc::SYS_dup3, fetched, fd, flags);
                close(fetched);
            }
        }
    }
    close(process);
}

/// A descriptor of the snapshot, at a number that is not wanted.
fn reach(snapshot: i32, high: i32, wanted: &Set) -> i32 {
    // SAFETY: plain numbers.
    unsafe {
        let opened = syscall!(libc::SYS_pidfd_open, snapshot, 0) as i32;
        if opened < 0 {
            die(b"the snapshot cannot be reached");
        }
        let mut lowest = high;
        loop {
            let moved = syscall!(libc::SYS_fcntl, opened, libc::F_DUPFD_CLOEXEC, lowest) as i32;
            if moved < 0 {
                die(b"no descriptor is left");
            }
            if !wanted.has(moved) {
                close(opened);
                return moved;
            }
            close(moved);
            lowest = moved + 1;
        }
    }
}
