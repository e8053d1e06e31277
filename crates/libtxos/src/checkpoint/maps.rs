//! The mappings of a process (proc_pid_maps(5)), and making those of this one what they were.

use super::{
    arena::Arena,
    raw::{Text, close, die, open, read, syscall},
};

/// One mapping.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    offset: u64,
    inode: u64,
    device: u64,
    /// `PROT_*`.
    pub(super) protection: i32,
    pub(super) shared: bool,
    /// A part of it had to be made anew without its file: all of its content is its own now.
    pub(super) remade: bool,
    kind: u8,
}

const ORDINARY: u8 = 0;
/// A stack that grows by itself.
const STACK: u8 = 1;
/// The kernel's own.
const KERNEL: u8 = 2;

impl Mapping {
    /// Whether it is the kernel's, which nobody can change.
    pub(super) fn is_kernels(&self) -> bool {
        self.kind == KERNEL
    }

    fn offset_at(&self, address: u64) -> u64 {
        if self.inode == 0 { 0 } else { self.offset + (address - self.start) }
    }

    /// Whether both show the same object in the same way at an address that both hold.
    fn is_like(&self, other: &Mapping, address: u64) -> bool {
        self.inode == other.inode
            && self.device == other.device
            && self.shared == other.shared
            && self.offset_at(address) == other.offset_at(address)
    }
}

/// Reads the mappings of the process `who` (`self`, or a number) into `into`; gives how many.
pub(super) fn look(who: &[u8], into: &mut [Mapping], buffer: &mut [u8]) -> usize {
    let fd = open(Text::new().add(b"/proc/").add(who).add(b"/maps").as_bytes(), libc::O_RDONLY);
    if fd < 0 {
        die(b"its mappings cannot be read");
    }
    let (mut count, mut held) = (0, 0);
    loop {
        let length = read(fd, &mut buffer[held..]);
        if length < 0 {
            die(b"its mappings cannot be read");
        }
        held += length as usize;
        let mut begin = 0;
        while let Some(end) = buffer[begin..held].iter().position(|byte| *byte == b'\n') {
            let Some(mapping) = parse(&buffer[begin..begin + end]) else {
                die(b"its mappings are not understood");
            };
            if count == into.len() {
                die(b"it has too many mappings");
            }
            into[count] = mapping;
            count += 1;
            begin += end + 1;
        }
        buffer.copy_within(begin..held, 0);
        held -= begin;
        if length == 0 {
            break;
        }
    }
    close(fd);
    count
}

fn parse(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let (start, end) = pair(fields.next()?, b'-')?;
    let mode = fields.next()?;
    let offset = hex(fields.next()?)?;
    let (major, minor) = pair(fields.next()?, b':')?;
    let inode = fields.next()?.iter().try_fold(0u64, |value, digit| {
        digit.is_ascii_digit().then(|| value * 10 + u64::from(digit - b'0'))
    })?;
    let name = fields.next().unwrap_or(b"");
    let kind = match name {
        b"[stack]" => STACK,
        _ if name.starts_with(b"[v") || name.starts_with(b"[uprobes") => KERNEL,
        _ => ORDINARY,
    };
    let mut protection = 0;
    for (letter, bit) in
        [(b'r', libc::PROT_READ), (b'w', libc::PROT_WRITE), (b'x', libc::PROT_EXEC)]
    {
        if mode.contains(&letter) {
            protection |= bit;
        }
    }
    let shared = mode.get(3) == Some(&b's');
    let device = major << 32 | minor;
    Some(Mapping { start, end, offset, inode, device, protection, shared, remade: false, kind })
}

fn pair(field: &[u8], by: u8) -> Option<(u64, u64)> {
    let at = field.iter().position(|byte| *byte == by)?;
    Some((hex(&field[..at])?, hex(&field[at + 1..])?))
}

fn hex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = (*digit as char).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

/// Makes the mappings of this process those that the snapshot has; contents are not looked at, but where
/// a mapping had to be made anew without its file. Afterwards `then` holds what there is.
pub(super) fn restore(arena: &mut Arena, snapshot: i32) -> usize {
    let number = Text::new().number(snapshot as u64, 10);
    let who = &number.as_bytes()[..number.as_bytes().len() - 1];
    let then_count = look(who, &mut arena.then, &mut arena.buffer);
    let now_count = look(b"self", &mut arena.now, &mut arena.buffer);
    let here: *const Arena = arena;
    let here = here as u64;
    let (mut n, mut t, mut at) = (0, 0, 0);
    loop {
        while n < now_count && arena.now[n].end <= at {
            n += 1;
        }
        while t < then_count && arena.then[t].end <= at {
            t += 1;
        }
        let now = arena.now[..now_count].get(n).copied();
        let then = arena.then[..then_count].get(t).copied();
        let Some(from) = [now, then].into_iter().flatten().map(|m| m.start.max(at)).min() else {
            return then_count;
        };
        let covers = |mapping: &Mapping| mapping.start <= from;
        let edge = |mapping: Mapping| if covers(&mapping) { mapping.end } else { mapping.start };
        let to = [now, then].into_iter().flatten().map(edge).min().unwrap_or(from);
        at = to;
        match (now.filter(covers), then.filter(covers)) {
            (Some(now), None) if now.kind == STACK => drop_pages(from, to),
            (Some(now), None) if now.is_kernels() || (now.start..now.end).contains(&here) => {}
            (Some(_), None) => unmap(from, to),
            (None, Some(then)) if !then.is_kernels() => {
                arena.then[t].remade |= map(&then, from, to, snapshot);
            }
            (Some(now), Some(then)) if now.is_kernels() || then.is_kernels() => {}
            (Some(now), Some(then))
                if now.is_like(&then, from) && now.protection == then.protection => {}
            (Some(now), Some(then)) if now.is_like(&then, from) => {
                protect(from, to, then.protection);
            }
            (Some(_), Some(then)) => {
                unmap(from, to);
                arena.then[t].remade |= map(&then, from, to, snapshot);
            }
            _ => {}
        }
    }
}

fn unmap(from: u64, to: u64) {
    // SAFETY: a range that the program mapped after the checkpoint, and that nothing of it knows before.
    if unsafe { syscall!(libc::SYS_munmap, from, to - from) } < 0 {
        die(b"a mapping cannot be removed");
    }
}

pub(super) fn protect(from: u64, to: u64, protection: i32) {
    // SAFETY: gives a mapping of the program the protection that it had.
    if unsafe { syscall!(libc::SYS_mprotect, from, to - from, protection) } < 0 {
        die(b"a mapping cannot be protected as it was");
    }
}

/// Gives pages back to the kernel; `false` if it keeps them.
pub(super) fn drop_pages_if_possible(from: u64, to: u64) -> bool {
    // SAFETY: drops private pages whose content is to be what it is without them.
    unsafe { syscall!(libc::SYS_madvise, from, to - from, libc::MADV_DONTNEED) == 0 }
}

fn drop_pages(from: u64, to: u64) {
    let _ = drop_pages_if_possible(from, to);
}

/// Maps again what was there; `true` if that was possible only without its file.
fn map(then: &Mapping, from: u64, to: u64, snapshot: i32) -> bool {
    let length = to - from;
    if then.inode != 0 {
        let path = Text::new().add(b"/proc/").number(snapshot as u64, 10).add(b"/map_files/");
        let path = path.number(then.start, 16).add(b"-").number(then.end, 16);
        let access = if then.shared { libc::O_RDWR } else { libc::O_RDONLY };
        let fd = open(path.as_bytes(), access);
        if fd >= 0 {
            let kind = if then.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
            let offset = then.offset_at(from);
            let flags = kind | libc::MAP_FIXED;
            // SAFETY: the range holds nothing now, and held this file.
            let mapped = unsafe {
                syscall!(libc::SYS_mmap, from, length, then.protection, flags, fd, offset)
            };
            close(fd);
            if mapped == from as isize {
                return false;
            }
        }
        if then.shared {
            die(b"a shared mapping cannot be made again");
        }
    }
    // Without the file: anonymous pages with the same content.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the range holds nothing now.
    let mapped = unsafe { syscall!(libc::SYS_mmap, from, length, writable, flags, usize::MAX, 0) };
    if mapped != from as isize {
        die(b"a mapping cannot be made again");
    }
    if then.inode != 0 {
        super::pages::copy(snapshot, from, to);
    }
    protect(from, to, then.protection);
    then.inode != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let line = b"7f12a000-7f12c000 r-xp 00001000 fe:00 1311  /lib/x y";
        let mapping = parse(line).expect("a mapping");
        assert_eq!(
            (mapping.start, mapping.end, mapping.offset),
            (0x7f12_a000, 0x7f12_c000, 0x1000)
        );
        assert_eq!(mapping.protection, libc::PROT_READ | libc::PROT_EXEC);
        assert_eq!((mapping.inode, mapping.shared, mapping.kind), (1311, false, ORDINARY));
        let kernels = parse(b"7fff0-7fff2 r--p 00000000 00:00 0 [vvar]").expect("a mapping");
        assert!(kernels.is_kernels());
        let stack = parse(b"7ffe0-7fff0 rw-p 00000000 00:00 0 [stack]").expect("a mapping");
        assert_eq!(stack.kind, STACK);
        assert!(parse(b"").is_none() && parse(b"zz-1 rw-p 0 0:0 0").is_none());
    }

    #[test]
    fn likeness_minds_the_offset() {
        let of = |line: &[u8]| parse(line).expect("a mapping");
        let whole = of(b"1000-4000 r--p 00000000 fe:00 7 /f");
        let part = of(b"2000-4000 r--p 00001000 fe:00 7 /f");
        let other = of(b"2000-4000 r--p 00002000 fe:00 7 /f");
        assert!(whole.is_like(&part, 0x2000) && !whole.is_like(&other, 0x2000));
    }
}
