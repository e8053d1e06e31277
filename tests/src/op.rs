//! One operation on a file tree, as data.
//!
//! A list of operations is what a scenario performs twice, natively and inside a transaction. It is
//! data and not code so that it can be generated from a seed, made smaller after a failure, printed
//! in a bug report, and read from a file by the `oplist` helper, which is the one program that
//! performs it in both worlds.
//!
//! Names are strings in which `%xx` stands for the byte 0xxx (and `%25` for the per cent sign), so
//! that names which are not UTF-8 survive the JSON.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A path relative to the tree, or a value, with `%xx` escapes.
pub type Text = String;

/// What kind of special file [`Op::Mknod`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Special {
    /// A named pipe.
    Fifo,
    /// A UNIX socket's name (nobody listens).
    Socket,
    /// A character device with the numbers of the operation.
    Char,
    /// A block device with the numbers of the operation.
    Block,
}

/// How [`Op::Rename`] treats what has the new name already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RenameHow {
    /// rename(2): replaces.
    #[default]
    Replace,
    /// `RENAME_NOREPLACE`: `EEXIST`.
    NoReplace,
    /// `RENAME_EXCHANGE`: both names swap what they mean.
    Exchange,
}

/// One operation. Each is one system call, or the few that its name says.
///
/// Contents are generated from a seed: byte `i` of a filling is a function of the seed and `i`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the fields are the system call's own arguments")]
pub enum Op {
    /// `open(O_CREAT|O_EXCL)`, then `len` bytes.
    Create { path: Text, mode: u32, len: u64, seed: u8 },
    /// `open(O_CREAT|O_TRUNC)`, then `len` bytes: what most programs do to save.
    Save { path: Text, mode: u32, len: u64, seed: u8 },
    /// `pwrite` of `len` bytes at `off` into a file that exists.
    Write { path: Text, off: u64, len: u64, seed: u8 },
    /// `open(O_APPEND)` and `len` bytes.
    Append { path: Text, len: u64, seed: u8 },
    /// A store of `len` bytes at `off` through a shared mapping.
    Store { path: Text, off: u64, len: u64, seed: u8 },
    /// truncate(2).
    Truncate { path: Text, len: u64 },
    /// fallocate(2), mode 0.
    Allocate { path: Text, off: u64, len: u64 },
    /// fallocate(2) with `PUNCH_HOLE|KEEP_SIZE`.
    Punch { path: Text, off: u64, len: u64 },
    /// Opens `from`, renames it to `to`, and writes through the descriptor opened before.
    RenameThenWrite { from: Text, to: Text, len: u64, seed: u8 },
    /// Opens `path`, unlinks it, and writes through the descriptor.
    UnlinkThenWrite { path: Text, len: u64, seed: u8 },
    /// A new file beside `path`, filled, flushed and renamed over `path`.
    Replace { path: Text, mode: u32, len: u64, seed: u8 },
    /// `O_TMPFILE` in `dir`, filled and linked as `path`.
    Tmpfile { dir: Text, path: Text, mode: u32, len: u64, seed: u8 },
    /// rename(2) or renameat2(2).
    Rename {
        from: Text,
        to: Text,
        #[serde(default)]
        how: RenameHow,
    },
    /// linkat(2) without following.
    Link { from: Text, to: Text },
    /// symlink(2).
    Symlink { target: Text, path: Text },
    /// unlink(2).
    Unlink { path: Text },
    /// rmdir(2).
    Rmdir { path: Text },
    /// As `rm -rf`.
    RemoveTree { path: Text },
    /// mkdir(2).
    Mkdir { path: Text, mode: u32 },
    /// mknod(2), or bind(2) for a socket.
    Mknod { path: Text, kind: Special, mode: u32, major: u32, minor: u32 },
    /// chmod(2), follows.
    Chmod { path: Text, mode: u32 },
    /// lchown(2).
    Chown { path: Text, uid: u32, gid: u32 },
    /// utimensat(2) of both times, without following.
    Times { path: Text, sec: i64, nsec: i64 },
    /// lsetxattr(2).
    SetXattr { path: Text, name: String, value: Text },
    /// lremovexattr(2).
    RemoveXattr { path: Text, name: String },
    /// Reads the whole file; the result carries a hash.
    Read { path: Text },
    /// Lists a directory; the result carries the sorted names.
    List { path: Text },
    /// lstat(2); the result carries type, mode, owner, size, and links of what is no directory.
    Stat { path: Text },
    /// readlink(2).
    ReadLink { path: Text },
    /// Lists and reads all extended attributes.
    Xattrs { path: Text },
    /// fsync(2).
    Fsync { path: Text },
    /// Makes an empty file, outside all trees: tells a test that this point was reached.
    Signal { path: Text },
    /// Waits until the named file exists, at most 30 s.
    Await { path: Text },
}

impl Op {
    /// The operation's name as in JSON, for tables of known differences.
    pub fn kind(&self) -> String {
        match serde_json::to_value(self) {
            Ok(v) => v["op"].as_str().unwrap_or_default().to_owned(),
            Err(_) => String::new(),
        }
    }

    /// The list as JSON, one operation a line.
    pub fn print(ops: &[Op]) -> String {
        let mut out = String::new();
        for op in ops {
            out.push_str(&serde_json::to_string(op).expect("an operation is always printable"));
            out.push('\n');
        }
        out
    }

    /// Reads what [`Op::print`] wrote; empty lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// A line that is no operation, with its number.
    pub fn parse(text: &str) -> Result<Vec<Op>, String> {
        text.lines()
            .enumerate()
            .filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#'))
            .map(|(i, l)| serde_json::from_str(l).map_err(|e| format!("line {}: {e}", i + 1)))
            .collect()
    }
}

/// Undoes the `%xx` escapes. A `%` that no two hex digits follow stands for itself.
pub fn bytes(text: &str) -> Vec<u8> {
    let raw = text.as_bytes();
    let mut out = Vec::with_capacity(raw.len());
    let mut i = 0;
    while i < raw.len() {
        let hex = (raw[i] == b'%')
            .then(|| raw.get(i + 1..i + 3))
            .flatten()
            .and_then(|h| std::str::from_utf8(h).ok())
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match hex {
            Some(b) => {
                out.push(b);
                i += 3;
            }
            None => {
                out.push(raw[i]);
                i += 1;
            }
        }
    }
    out
}

/// A path out of its escaped form.
pub fn path(text: &str) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes(text)))
}

/// Escapes bytes that are not printable ASCII, and the per cent sign.
pub fn escape(raw: &[u8]) -> Text {
    raw.iter()
        .map(|&b| match b {
            b'%' => "%25".to_owned(),
            b' '..=b'~' => char::from(b).to_string(),
            _ => format!("%{b:02x}"),
        })
        .collect()
}

/// `len` bytes that depend on `seed` and on their place, with no zero byte among them (a zero would
/// not be told apart from a hole).
pub fn filling(seed: u8, at: u64, len: u64) -> Vec<u8> {
    (at..at + len)
        .map(|i| {
            let x = (i ^ (i >> 8) ^ (i >> 16)).wrapping_mul(167).wrapping_add(u64::from(seed) * 29);
            1 + (x % 251) as u8
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_escaping() {
        let raw: Vec<u8> = (1..=255).collect();
        assert_eq!(bytes(&escape(&raw)), raw);
        assert_eq!(bytes("100%"), b"100%");
    }

    #[test]
    fn lists_survive_printing() {
        let ops = vec![
            Op::Rename { from: "a%ff".into(), to: "b".into(), how: RenameHow::Exchange },
            Op::Mknod { path: "n".into(), kind: Special::Fifo, mode: 0o600, major: 0, minor: 0 },
        ];
        assert_eq!(Op::parse(&Op::print(&ops)).unwrap(), ops);
        assert!(Op::parse("{\"op\":\"fly\"}").unwrap_err().starts_with("line 1"));
    }

    #[test]
    fn fillings_are_places_of_one_sequence_and_hold_no_zero() {
        let whole = filling(3, 0, 5000);
        assert_eq!(whole[1000..1100], filling(3, 1000, 100));
        assert!(!whole.contains(&0));
        assert_ne!(whole, filling(4, 0, 5000));
    }
}
