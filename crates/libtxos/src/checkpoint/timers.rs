//! POSIX timers (timer_create(2)), which fork(2) does not copy: so what they are is noted at the beginning.
//!
//! After a rollback those that were made inside are gone, those that were there have what was left to run
//! at the beginning, and those that were deleted inside are made again, with their number (Linux 6.15;
//! before, a program that deleted one cannot be put back).

use rustix::io::Errno;

use super::{
    arena::Arena,
    raw::{close, die, open, read, syscall},
};

/// Timers that are noted.
pub(super) const TIMERS: usize = 256;

/// `PR_TIMER_CREATE_RESTORE_IDS` (linux/prctl.h).
const RESTORE_IDS: usize = 77;

/// One timer, as `/proc/self/timers` shows it (proc_pid_timers(5)).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Timer {
    id: i32,
    signal: i32,
    value: u64,
    /// `SIGEV_*`.
    notify: i32,
    task: i32,
    clock: i32,
    /// `struct itimerspec`: interval and what was left.
    setting: [i64; 4],
}

/// `struct sigevent`, as the kernel takes it.
#[repr(C)]
struct Event {
    value: u64,
    signal: i32,
    notify: i32,
    task: i32,
    rest: [i32; 11],
}

/// Notes the timers of this process; none where the kernel does not show them.
///
/// # Errors
/// `ENOMEM` if there are too many.
pub(super) fn note(arena: &mut Arena) -> Result<(), Errno> {
    let count = list(&mut arena.timers_then, &mut arena.buffer).ok_or(Errno::NOMEM)?;
    arena.timers = count;
    for timer in &mut arena.timers_then[..count] {
        // SAFETY: the call fills a structure of four numbers.
        unsafe { syscall!(libc::SYS_timer_gettime, timer.id, timer.setting.as_mut_ptr()) };
    }
    Ok(())
}

/// Makes the timers those that were noted.
pub(super) fn restore(arena: &mut Arena) {
    let Some(now) = list(&mut arena.timers_now, &mut arena.buffer) else {
        die(b"it has too many timers");
    };
    let (now, then) = (&arena.timers_now[..now], &arena.timers_then[..arena.timers]);
    for timer in now.iter().filter(|timer| !then.iter().any(|other| other.is_like(timer))) {
        // SAFETY: a plain number, of a timer that the program made after the checkpoint.
        unsafe { syscall!(libc::SYS_timer_delete, timer.id) };
    }
    for timer in then {
        if !now.iter().any(|other| other.is_like(timer)) {
            timer.make();
        }
        // SAFETY: the setting is a structure of four numbers, which the kernel gave.
        let set =
            unsafe { syscall!(libc::SYS_timer_settime, timer.id, 0, timer.setting.as_ptr(), 0) };
        if set < 0 {
            die(b"a timer cannot be set as it was");
        }
    }
}

impl Timer {
    /// Whether both are the same, whatever they are set to.
    fn is_like(&self, other: &Timer) -> bool {
        Timer { setting: [0; 4], ..*self } == Timer { setting: [0; 4], ..*other }
    }

    /// Makes it again, with its number.
    fn make(&self) {
        let Timer { signal, value, notify, task, .. } = *self;
        let event = Event { value, signal, notify, task, rest: [0; 11] };
        let mut id = self.id;
        let (event, into): (*const Event, *mut i32) = (&raw const event, &raw mut id);
        // SAFETY: both structures are what the calls take, and outlive them.
        let made = unsafe {
            let wanted = syscall!(libc::SYS_prctl, RESTORE_IDS, 1, 0, 0, 0);
            let made = syscall!(libc::SYS_timer_create, self.clock, event, into);
            syscall!(libc::SYS_prctl, RESTORE_IDS, 0, 0, 0, 0);
            wanted == 0 && made == 0
        };
        if !made || id != self.id {
            die(b"a timer that it deleted cannot be made again");
        }
    }
}

/// Lists the timers of this process; gives how many, or nothing if they are too many.
fn list(into: &mut [Timer], buffer: &mut [u8]) -> Option<usize> {
    let fd = open(b"/proc/self/timers\0", libc::O_RDONLY);
    if fd < 0 {
        return Some(0);
    }
    let mut held = 0;
    while let length @ 1.. = read(fd, &mut buffer[held..]) {
        held += length as usize;
    }
    close(fd);
    parse(&buffer[..held], into).filter(|_| held < buffer.len())
}

fn parse(text: &[u8], into: &mut [Timer]) -> Option<usize> {
    let mut count = 0;
    for line in text.split(|byte| *byte == b'\n') {
        let Some(at) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, rest) = (&line[..at], line.get(at + 2..).unwrap_or_default());
        if name == b"ID" {
            *into.get_mut(count)? = Timer { id: decimal(rest), ..Timer::default() };
            count += 1;
            continue;
        }
        let Some(timer) = count.checked_sub(1).map(|last| &mut into[last]) else { continue };
        match name {
            b"signal" => {
                timer.signal = decimal(rest);
                timer.value = rest.split(|byte| *byte == b'/').nth(1).map_or(0, hexadecimal);
            }
            b"notify" => {
                let is_task = rest.windows(4).any(|word| word == b"tid.");
                timer.notify = match rest.first() {
                    Some(b'n') => libc::SIGEV_NONE,
                    _ if is_task => libc::SIGEV_THREAD_ID,
                    _ => libc::SIGEV_SIGNAL,
                };
                if is_task {
                    timer.task = rest.rsplit(|byte| *byte == b'.').next().map_or(0, decimal);
                }
            }
            b"ClockID" => timer.clock = decimal(rest),
            _ => {}
        }
    }
    Some(count)
}

/// The number at the beginning of a text.
fn decimal(text: &[u8]) -> i32 {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let digits = digits.iter().take_while(|digit| digit.is_ascii_digit());
    let value = digits
        .fold(0i32, |value, digit| value.wrapping_mul(10).wrapping_add(i32::from(digit - b'0')));
    if negative { -value } else { value }
}

fn hexadecimal(text: &[u8]) -> u64 {
    let digits = text.iter().map_while(|digit| (*digit as char).to_digit(16));
    digits.fold(0, |value, digit| value << 4 | u64::from(digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_the_kernel() {
        let text = b"ID: 3\nsignal: 10/00007ffc0badcafe\nnotify: signal/pid.77\nClockID: 1\n\
                     ID: 4\nsignal: 0/0000000000000000\nnotify: none/pid.77\nClockID: -6\n\
                     ID: 5\nsignal: 12/0000000000000005\nnotify: signal/tid.78\nClockID: 0\n";
        let mut timers = [Timer::default(); 4];
        assert_eq!(parse(text, &mut timers), Some(3));
        let first = timers[0];
        assert_eq!((first.id, first.signal, first.value), (3, 10, 0x7ffc_0bad_cafe));
        assert_eq!((first.notify, first.task, first.clock), (libc::SIGEV_SIGNAL, 0, 1));
        assert_eq!((timers[1].notify, timers[1].clock), (libc::SIGEV_NONE, -6));
        assert_eq!((timers[2].notify, timers[2].task), (libc::SIGEV_THREAD_ID, 78));
        assert!(first.is_like(&Timer { setting: [1; 4], ..first }) && !first.is_like(&timers[1]));
        assert_eq!(parse(b"", &mut timers), Some(0));
        assert_eq!(parse(text, &mut timers[..2]), None);
    }
}
