//! Change times: whether two changes of a file, with a look at it between them, always show two
//! different times. Where they don't, a time too recent proves nothing and contents are compared.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

use crate::report::Probe;
use crate::scratch::Scratch;

const NAMES: [&str; 4] = [
    "change times, state directory",
    "change times, /",
    "change times, /tmp",
    "change times, home",
];

const ROUNDS: usize = 64;

/// Measures on the file system of each of the state directory, `/`, `/tmp` and the home directory;
/// a file system met twice is measured once.
pub(super) fn granularity(state_dir: &Path, scratch: Option<&Scratch>) -> Vec<Probe> {
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let state = scratch.map_or_else(
        || crate::scratch::nearest_existing(state_dir).to_owned(),
        |scratch| scratch.path().to_owned(),
    );
    let places = [state, PathBuf::from("/"), PathBuf::from("/tmp"), home];
    let mut seen: Vec<(u64, &'static str, Probe)> = Vec::new();
    NAMES
        .into_iter()
        .zip(places)
        .map(|(name, place)| {
            let Ok(device) = std::fs::metadata(&place).map(|meta| meta.dev()) else {
                return unmeasured(name, &place, "not there");
            };
            if let Some((_, first, probe)) = seen.iter().find(|(known, ..)| *known == device) {
                let detail = format!("same file system as for \"{first}\"");
                return Probe { name, detail, ..probe.clone() };
            }
            let probe = measure(name, &place);
            // A place that can't be written says nothing about others on its file system.
            if probe.remedy.is_none() || probe.detail.contains("rounds") {
                seen.push((device, name, probe.clone()));
            }
            probe
        })
        .collect()
}

fn measure(name: &'static str, place: &Path) -> Probe {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, place, flags, Mode::RUSR | Mode::WUSR) {
        Err(errno) => unmeasured(name, place, &errno.to_string()),
        Ok(file) => match same_times(&File::from(file)) {
            Err(error) => unmeasured(name, place, &error.to_string()),
            Ok(0) => Probe::ok(name, format!("fine: each of {ROUNDS} rounds showed a new time")),
            Ok(same) => Probe::limited(
                name,
                format!(
                    "coarse: {same} of {ROUNDS} rounds showed no new time; a recent time is no \
                     proof, contents are compared"
                ),
                "Linux 6.13 or newer with ext4, xfs, btrfs or tmpfs",
            ),
        },
    }
}

fn unmeasured(name: &'static str, place: &Path, why: &str) -> Probe {
    Probe::limited(
        name,
        format!("not measured on {}: {why}", place.display()),
        "taken for coarse: contents are compared where a time is recent",
    )
}

/// In how many rounds of "write, look, write, look" the two looks showed one change time.
fn same_times(file: &File) -> std::io::Result<usize> {
    use std::os::unix::fs::FileExt;
    let mut same = 0;
    let mut before = None;
    for round in 0..=ROUNDS {
        file.write_all_at(&[u8::from(round % 2 == 0)], 0)?;
        let meta = file.metadata()?;
        let now = (meta.ctime(), meta.ctime_nsec());
        same += usize::from(before == Some(now));
        before = Some(now);
    }
    Ok(same)
}
