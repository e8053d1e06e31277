//! Which outsider made a transaction lose, for people.
//!
//! Whoever changed something while an attempt listened is named in the conflict itself. Of what turned
//! out to have changed only at the commit no process is known; then those are named that have the
//! object open for writing now, as `/proc` shows them: nobody else can be more than guessed.

use std::{
    fs::{self, DirEntry},
    os::unix::fs::MetadataExt,
};

use txos_core::{Conflict, Detail};

/// So many processes are named.
const FEW: usize = 3;
/// So many objects are looked for: each is looked for among all open files of the machine.
const OBJECTS: usize = 10;

/// The access mode in the flags of an open file (`proc_pid_fdinfo(5)`, `open(2)`).
const ACCESS: u32 = 0o3;

/// Who caused these conflicts, in words.
pub(super) fn named(conflicts: &[Conflict]) -> String {
    let mut heard: Vec<&str> = conflicts
        .iter()
        .filter_map(|conflict| match &conflict.detail {
            Detail::By(process) => Some(process.as_str()),
            _ => None,
        })
        .collect();
    heard.dedup();
    heard.truncate(FEW);
    if !heard.is_empty() {
        return heard.join(", ");
    }
    let outsider = "someone who is no transaction of this state directory";
    let writers = writers(conflicts);
    match writers.is_empty() {
        true => outsider.to_owned(),
        false => format!("{outsider}; open for writing in {}", writers.join(", ")),
    }
}

/// The processes, other than this one, that have one of the objects open for writing.
fn writers(conflicts: &[Conflict]) -> Vec<String> {
    let objects = conflicts.iter().take(OBJECTS).filter_map(|conflict| {
        let meta = fs::symlink_metadata(&conflict.path).ok()?;
        meta.is_file().then(|| (meta.dev(), meta.ino()))
    });
    let objects: Vec<(u64, u64)> = objects.collect();
    if objects.is_empty() {
        return Vec::new();
    }
    let pid = |entry: &DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let others = processes.filter_map(|entry| pid(&entry)).filter(|pid| *pid != std::process::id());
    others.filter(|pid| writes(*pid, &objects)).take(FEW).map(shown).collect()
}

fn writes(pid: u32, objects: &[(u64, u64)]) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.filter(|fd| {
        let meta = fs::metadata(fd.path());
        meta.is_ok_and(|meta| objects.contains(&(meta.dev(), meta.ino())))
    })
    .any(|fd| for_writing(pid, &fd).unwrap_or(false))
}

/// Whether a descriptor was opened for writing.
fn for_writing(pid: u32, fd: &DirEntry) -> Option<bool> {
    let name = fd.file_name();
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", name.to_str()?)).ok()?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
    Some(flags & ACCESS != libc::O_RDONLY as u32)
}

fn shown(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("process {pid} ({})", name.trim())
}

#[cfg(test)]
mod tests {
    use txos_core::{Facet, Seen};

    use super::*;

    #[test]
    fn who_was_heard_is_named_and_who_writes_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let conflict = |detail: &str| Conflict {
            path: file.path().to_owned(),
            facet: Facet::Content,
            seen: Seen::Changed,
            detail: detail.into(),
        };
        let heard = [conflict("by process 7 (sed)"), conflict("by process 7 (sed)")];
        assert_eq!(named(&heard), "process 7 (sed)");
        let unknown = [conflict("")];
        // This process has it open, and is not looked at.
        assert!(named(&unknown).ends_with("state directory"));
        let mut holder = std::process::Command::new("sleep")
            .arg("60")
            .stdout(file.reopen().unwrap())
            .spawn()
            .unwrap();
        let by = named(&unknown);
        let _ = (holder.kill(), holder.wait());
        assert!(by.ends_with(&format!("process {} (sleep)", holder.id())), "{by}");
    }
}
