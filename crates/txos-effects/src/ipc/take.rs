//! Taking what was left.

use super::{Bytes, Kind, Left, MEMORY, Object, QUEUES, sys};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// All objects together hold so many bytes at the most; what comes later is told as gone.
const MOST: u64 = 64 << 20;
/// So many objects are kept at the most.
const MAX_OBJECTS: usize = 1000;
/// So many lines are told at the most.
const MAX_LINES: usize = 50;
/// Permission bits of a mode; more can be set in a table.
const PERMISSIONS: u32 = 0o777;

#[derive(Default)]
struct Taker {
    left: Left,
    bytes: u64,
}

/// # Errors
///
/// If what is there can't be told; a kernel without one of the kinds has none of it.
pub(super) fn all() -> io::Result<Left> {
    let mut taker = Taker::default();
    for (table, what) in [("msg", "message queue"), ("sem", "semaphores"), ("shm", "shared memory")]
    {
        let text = none_if_absent(fs::read_to_string(format!("/proc/sysvipc/{table}")))?;
        let text = text.unwrap_or_default();
        for row in text.lines().skip(1) {
            taker.keyed(table, what, row);
        }
    }
    for dir in [MEMORY, QUEUES] {
        for entry in none_if_absent(fs::read_dir(dir))?.into_iter().flatten() {
            taker.named(dir, &entry?);
        }
    }
    taker.left.gone.truncate(MAX_LINES);
    Ok(taker.left)
}

fn none_if_absent<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Taker {
    /// An object of System V, by its row in a table of `/proc/sysvipc`.
    fn keyed(&mut self, table: &str, what: &str, row: &str) {
        let words: Vec<&str> = row.split_ascii_whitespace().collect();
        let number =
            |at: usize| words.get(at).and_then(|word| word.parse::<i64>().ok()).unwrap_or(0);
        let (Ok(key), Ok(id)) = (i32::try_from(number(0)), i32::try_from(number(1))) else {
            return;
        };
        let mode = words.get(2).and_then(|word| u32::from_str_radix(word, 8).ok()).unwrap_or(0);
        // Where the owner stands depends on the table.
        let owner = match table {
            "sem" => 4,
            _ => 7,
        };
        let (uid, gid) = (number(owner) as u32, number(owner + 1) as u32);
        let mode = mode & PERMISSIONS;
        if key == libc::IPC_PRIVATE {
            return self.left.gone.push(format!("{what} {id} (it has no key)"));
        }
        let kind = match table {
            "msg" => self.queue(key, id, number(3).unsigned_abs()),
            "sem" => {
                sys::values(id, number(3) as usize).map(|values| Kind::Semaphores(key, values))
            }
            _ => self.segment(key, id, number(3).unsigned_abs()),
        };
        self.keep(kind, (uid, gid, mode), || format!("{what} {id}"));
    }

    fn queue(&mut self, key: i32, id: i32, bytes: u64) -> io::Result<Kind> {
        self.charge(bytes)?;
        let mut messages = Vec::new();
        while let Some((kind, text)) = sys::take_message(id, bytes as usize)? {
            messages.push((kind, Bytes(text)));
        }
        Ok(Kind::Queue(key, sys::queue_limit(id)?, messages))
    }

    fn segment(&mut self, key: i32, id: i32, size: u64) -> io::Result<Kind> {
        self.charge(size)?;
        let content = sys::with_segment(id, size as usize, true, |bytes| without_end(bytes))?;
        Ok(Kind::Segment(key, size, content))
    }

    /// An object of POSIX, by its entry in `/dev/shm` or `/dev/mqueue`.
    fn named(&mut self, dir: &str, entry: &fs::DirEntry) {
        let shown = format!("{dir}/{}", entry.file_name().to_string_lossy());
        let (Ok(status), Ok(name)) = (entry.metadata(), entry.file_name().into_string()) else {
            return self.left.gone.push(shown);
        };
        if !status.is_file() || status.nlink() != 1 {
            return self.left.gone.push(format!("{shown} (it is no plain file)"));
        }
        let kind = match dir {
            QUEUES => named_queue(&name),
            _ => self.charge(status.len()).and_then(|()| fs::read(entry.path())).map(|content| {
                Kind::NamedMemory(name, content.len() as u64, without_end(&content))
            }),
        };
        let owner = (status.uid(), status.gid(), status.mode() & PERMISSIONS);
        self.keep(kind, owner, || shown);
    }

    fn charge(&mut self, bytes: u64) -> io::Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        match self.bytes > MOST || self.left.objects.len() >= MAX_OBJECTS {
            true => Err(io::Error::other("too much is left to be kept")),
            false => Ok(()),
        }
    }

    fn keep(
        &mut self,
        kind: io::Result<Kind>,
        owner: (u32, u32, u32),
        name: impl FnOnce() -> String,
    ) {
        let (uid, gid, mode) = owner;
        match kind {
            Ok(kind) => self.left.objects.push(Object { uid, gid, mode, kind }),
            Err(error) => self.left.gone.push(format!("{} ({error})", name())),
        }
    }
}

fn named_queue(name: &str) -> io::Result<Kind> {
    let queue = sys::named_queue(name, libc::O_RDONLY, None)?;
    let limits = sys::queue_limits(&queue)?;
    let mut messages = Vec::new();
    while let Some((priority, text)) = sys::receive(&queue, limits[1].max(0) as usize)? {
        messages.push((priority, Bytes(text)));
    }
    Ok(Kind::NamedQueue(name.to_owned(), limits, messages))
}

/// Content up to the last byte that is not zero.
fn without_end(bytes: &[u8]) -> Bytes {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    Bytes(bytes[..end].to_vec())
}
