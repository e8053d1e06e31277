//! Memory through which a file could be changed past a view.
//!
//! A shared, writable mapping of a file that was made before the beginning goes on showing and changing
//! the stable file, whatever view the thread is in. So a transaction does not begin as long as there is
//! one. Shared memory without a file (anonymous, System V, memfd) is memory like any other, and so is that of a file
//! which has no name any more (as of unnamed semaphores that processes share): it is no part of any view.

use std::os::fd::AsFd;

use rustix::{
    fs::{MemfdFlags, Mode, OFlags, fstat, major, makedev, memfd_create, minor, open, stat},
    io::Errno,
};

use crate::sys::{Mapped, writable_shared_mapping};

/// Whether there is a shared mapping of a file that can be written.
///
/// # Errors
/// If `/proc` is not mounted.
pub(crate) fn writes_to_a_file() -> Result<bool, Errno> {
    let maps = open("/proc/self/maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut from = 0;
    let mut memory = None;
    loop {
        match writable_shared_mapping(maps.as_fd(), from) {
            Some(Mapped::None) => return Ok(false),
            Some(Mapped::At { start, end, device: found, inode }) => {
                let device = match memory {
                    Some(device) => device,
                    None => *memory.insert(device_of_memory()?),
                };
                if found != device && !is_own(found, inode) && has_name(&range(start, end)) {
                    return Ok(true);
                }
                from = end;
            }
            None => return listed(),
        }
    }
}

/// Whether a file is one of the explicit API's own, which stays outside.
fn is_own((major, minor): (u32, u32), inode: u64) -> bool {
    ::api::maps_for_itself(makedev(major, minor), inode)
}

/// Whether the file of a mapping has a name, as far as can be told: to ordinary users the kernel does not say
/// (proc_pid_map_files(5)).
fn has_name(range: &str) -> bool {
    stat(format!("/proc/self/map_files/{range}")).map_or(true, |stat| stat.st_nlink > 0)
}

/// The device number of memory that is mapped like a file (memfd_create(2)).
fn device_of_memory() -> Result<(u32, u32), Errno> {
    let stat = fstat(memfd_create("txos", MemfdFlags::CLOEXEC)?)?;
    Ok((major(stat.st_dev), minor(stat.st_dev)))
}

/// The same from the list of all mappings (proc_pid_maps(5)), before Linux 6.11.
fn listed() -> Result<bool, Errno> {
    let text = std::fs::read_to_string("/proc/self/maps")
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let memory = device_of_memory()?;
    let named = |line: &str| range_of(line).is_none_or(|range| has_name(&range));
    Ok(text.lines().any(|line| is_of_a_file(line, memory) && named(line)))
}

/// The range of a line of the list as `/proc/self/map_files` has it, which knows no leading zeros.
fn range_of(line: &str) -> Option<String> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(range(number(start)?, number(end)?))
}

fn range(start: u64, end: u64) -> String {
    format!("{start:x}-{end:x}")
}

/// Whether a line of the list tells of a shared mapping that can be written, of a file of a device.
fn is_of_a_file(line: &str, memory: (u32, u32)) -> bool {
    let mut fields = line.split_ascii_whitespace();
    let writable = fields.nth(1).is_some_and(|mode| mode.starts_with("rw") && mode.ends_with('s'));
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let device = fields.nth(1).and_then(|device| {
        let (major, minor) = device.split_once(':')?;
        Some((number(major)?, number(minor)?))
    });
    let inode = fields.next().and_then(|inode| inode.parse().ok()).unwrap_or(0);
    writable
        && device
            .is_some_and(|device| device != (0, 0) && device != memory && !is_own(device, inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_list() {
        let is = |line| is_of_a_file(line, (0, 1));
        assert!(is("7f00-7f10 rw-s 00000000 fe:00 131 /var/data"));
        assert!(!is("7f00-7f10 r--s 00000000 fe:00 131 /var/data"));
        assert!(!is("7f00-7f10 rw-p 00000000 fe:00 131 /var/data"));
        assert!(!is("7f00-7f10 rw-s 00000000 00:01 5 /dev/zero (deleted)"));
        assert!(!is("7f00-7f10 rw-s 00000000 00:00 0"));
        assert!(!is(""));
    }

    #[test]
    fn ranges_have_no_leading_zeros() {
        let line = "00400000-00401000 rw-s 00000000 fe:00 131 /var/data";
        assert_eq!(range_of(line).as_deref(), Some("400000-401000"));
        let line = "7f0000000000-7f0000001000 rw-s 00000000 fe:00 131 /var/data";
        assert_eq!(range_of(line).as_deref(), Some("7f0000000000-7f0000001000"));
        assert_eq!(range_of(""), None);
    }

    #[test]
    fn both_ways_agree() {
        assert_eq!(writes_to_a_file(), listed());
    }
}
