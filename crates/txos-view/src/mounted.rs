//! Memory file systems that the command mounted inside (`--on-unsupported allow`): they end with the view, and
//! what is in them is no part of the commit. (What is behind other mounts lies elsewhere: below another name of
//! the view, in an image file there, or outside.)

use std::{
    collections::BTreeSet,
    fs,
    os::unix::{ffi::OsStringExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

/// Those that hold their files themselves, in memory.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];
/// So many paths of one file system are named.
const NAMED: usize = 5;
/// So many objects are counted; there are "more" then.
const COUNTED: usize = 10_000;

/// The mounts of the view, before the command runs.
#[derive(Debug)]
pub(crate) struct Mounts {
    devices: BTreeSet<String>,
}

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    device: String,
    point: PathBuf,
    kind: String,
}

impl Mounts {
    pub(crate) fn now() -> Mounts {
        Mounts { devices: table().into_iter().map(|mount| mount.device).collect() }
    }

    /// What is in memory file systems that were not there before: a line for each that holds anything.
    pub(crate) fn added(&self) -> Vec<String> {
        let mut seen = self.devices.clone();
        let new = table()
            .into_iter()
            .filter(|mount| IN_MEMORY.contains(&&*mount.kind) && seen.insert(mount.device.clone()));
        new.filter_map(|mount| mount.told()).collect()
    }
}

impl Mount {
    fn told(&self) -> Option<String> {
        let mut found = Found::default();
        let device = fs::metadata(&self.point).ok()?.dev();
        found.look(&self.point, device);
        if found.count == 0 {
            return None;
        }
        let mut names: Vec<String> =
            found.named.iter().map(|path| path.display().to_string()).collect();
        let more = found.count - names.len();
        if more > 0 {
            let least = if found.count >= COUNTED { "at least " } else { "" };
            names.push(format!("{least}{more} more"));
        }
        let (names, kind, point) = (names.join(", "), &self.kind, self.point.display());
        Some(format!("{names} (in the {kind} mounted inside at {point})"))
    }
}

/// What is in a file system.
#[derive(Debug, Default)]
struct Found {
    named: Vec<PathBuf>,
    count: usize,
}

impl Found {
    /// Looks through `dir` as far as it is on this device.
    fn look(&mut self, dir: &Path, device: u64) {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        entries.sort();
        for path in entries {
            let Ok(meta) = path.symlink_metadata() else { continue };
            if self.count >= COUNTED || meta.dev() != device {
                continue;
            }
            self.count += 1;
            if self.named.len() < NAMED {
                self.named.push(path.clone());
            }
            if meta.is_dir() {
                self.look(&path, device);
            }
        }
    }
}

fn table() -> Vec<Mount> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines().filter_map(read).collect()
}

/// Source: proc_pid_mountinfo(5).
fn read(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(2);
    let device = fields.next()?.to_owned();
    let point = unescaped(fields.nth(1)?);
    let kind = after.split(' ').next()?.to_owned();
    Some(Mount { device, point, kind })
}

/// Spaces and their kind stand there as `\\` and three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let byte = octal.and_then(|o| u8::from_str_radix(std::str::from_utf8(o).ok()?, 8).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_are_read() {
        let line = r"36 35 98:0 /mnt1 /a\040b\134c rw,noatime master:1 - ext3 /dev/root rw";
        let mount =
            Mount { device: "98:0".to_owned(), point: r"/a b\c".into(), kind: "ext3".to_owned() };
        assert_eq!(read(line), Some(mount));
        assert_eq!(read("junk"), None);
    }

    #[test]
    fn what_is_there_already_is_not_new() {
        assert_eq!(Mounts::now().added(), Vec::<String>::new());
    }

    #[test]
    fn what_a_file_system_holds_is_named() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..7 {
            fs::create_dir(dir.path().join(format!("d{number}"))).unwrap();
            fs::write(dir.path().join(format!("d{number}/f")), "").unwrap();
        }
        let mount = |point: &Path| Mount {
            device: String::new(),
            point: point.to_owned(),
            kind: "tmpfs".to_owned(),
        };
        let told = mount(dir.path()).told().unwrap();
        let first = dir.path().join("d0/f").display().to_string();
        assert!(told.contains(&first) && told.contains("9 more (in the tmpfs"), "{told}");
        assert_eq!(mount(&dir.path().join("d0/none")).told(), None);
        fs::create_dir(dir.path().join("empty")).unwrap();
        assert_eq!(mount(&dir.path().join("empty")).told(), None);
    }
}
