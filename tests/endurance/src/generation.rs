//! What the transactions do, and how to tell afterwards which of them took place.
//!
//! Generation `g` of a directory is a function of `g` alone: every kind of change that a commit can
//! make is among what leads from one to the next, so half a commit, or a mixture of two, shows.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};

use anyhow::{Context, Result, bail, ensure};

const IN_PLACE: u64 = 3;
const REPLACED: u64 = 3;

/// Content number `salt` of a generation: between 0 and some 60 KB.
fn content(generation: u64, salt: u64) -> Vec<u8> {
    let mut state = (generation + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ (salt + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let size = match next() % 4 {
        0 => next() % 64,
        1 => 4096,
        2 => next() % 10_000,
        _ => next() % 60_000,
    };
    (0..size).map(|_| next() as u8).collect()
}

/// Makes generation `to` of `root` out of the one before it; out of nothing if `to` is 0.
///
/// # Errors
/// If a call fails.
pub fn apply(root: &Path, to: u64) -> Result<()> {
    fs::create_dir_all(root)?;
    for salt in 0..IN_PLACE {
        overwrite(&root.join(format!("a.{salt}")), &content(to, salt))?;
    }
    for salt in 0..REPLACED {
        let new = root.join(format!("r.{salt}.new"));
        fs::write(&new, content(to, 100 + salt))?;
        fs::rename(&new, root.join(format!("r.{salt}")))?;
    }
    let dir = root.join(format!("d.{to}"));
    fs::create_dir(&dir)?;
    for salt in 0..4 {
        fs::write(dir.join(format!("f.{salt}")), content(to, 200 + salt))?;
    }
    if to == 0 {
        fs::write(root.join("one"), "")?;
        fs::hard_link(root.join("one"), root.join("other"))?;
        fs::write(root.join("moved.0"), "moved")?;
    } else {
        fs::remove_dir_all(root.join(format!("d.{}", to - 1)))?;
        fs::remove_file(root.join("now"))?;
        fs::rename(root.join(format!("moved.{}", to - 1)), root.join(format!("moved.{to}")))?;
    }
    overwrite(&root.join("one"), to.to_string().as_bytes())?;
    symlink(format!("d.{to}"), root.join("now"))?;
    let mode = 0o600 + (to % 8) as u32;
    fs::set_permissions(root.join("a.0"), fs::Permissions::from_mode(mode))?;
    rustix::fs::setxattr(
        root.join("a.1"),
        c"user.generation",
        to.to_string().as_bytes(),
        rustix::fs::XattrFlags::empty(),
    )?;
    Ok(())
}

/// Writes in place: the file keeps its inode.
fn overwrite(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    file.write_all(content)?;
    let end = file.stream_position()?;
    file.set_len(end)
}

/// The generation that `root` shows, wholly; `None` if it was never made.
///
/// # Errors
/// If it shows no generation wholly: what differs is named.
pub fn check(root: &Path) -> Result<Option<u64>> {
    if !root.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(root.join("one")).context("the generation cannot be read")?;
    let generation: u64 = text.parse().with_context(|| format!("the generation is {text:?}"))?;
    let other = fs::metadata(root.join("other"))?;
    ensure!(
        fs::metadata(root.join("one"))?.ino() == other.ino() && other.nlink() == 2,
        "generation {generation}: the two names are no longer one file"
    );
    let same = |name: String, salt: u64| -> Result<()> {
        let mut found = Vec::new();
        File::open(root.join(&name))
            .and_then(|mut file| file.read_to_end(&mut found))
            .with_context(|| format!("generation {generation}: {name}"))?;
        let wanted = content(generation, salt);
        if found != wanted {
            let first = found.iter().zip(&wanted).position(|(one, other)| one != other);
            bail!(
                "generation {generation}: {name} has {} bytes of {}, and differs from byte {first:?} on",
                found.len(),
                wanted.len()
            );
        }
        Ok(())
    };
    for salt in 0..IN_PLACE {
        same(format!("a.{salt}"), salt)?;
    }
    for salt in 0..REPLACED {
        same(format!("r.{salt}"), 100 + salt)?;
    }
    for salt in 0..4 {
        same(format!("d.{generation}/f.{salt}"), 200 + salt)?;
    }
    let link = fs::read_link(root.join("now"))?;
    ensure!(link == Path::new(&format!("d.{generation}")), "{generation}: the link says {link:?}");
    let mode = fs::metadata(root.join("a.0"))?.mode() & 0o777;
    ensure!(mode == 0o600 + (generation % 8) as u32, "generation {generation}: mode {mode:o}");
    let mut value = [0; 32];
    let count = rustix::fs::getxattr(root.join("a.1"), c"user.generation", &mut value[..])?;
    ensure!(
        value[..count] == *generation.to_string().as_bytes(),
        "generation {generation}: the attribute says {:?}",
        String::from_utf8_lossy(&value[..count])
    );
    nothing_else(root, generation)?;
    Ok(Some(generation))
}

fn nothing_else(root: &Path, generation: u64) -> Result<()> {
    let mut wanted: Vec<String> = (0..IN_PLACE).map(|salt| format!("a.{salt}")).collect();
    wanted.extend((0..REPLACED).map(|salt| format!("r.{salt}")));
    wanted.extend(["now", "one", "other"].map(String::from));
    wanted.extend([format!("d.{generation}"), format!("moved.{generation}")]);
    let mut names: BTreeMap<OsString, ()> = BTreeMap::new();
    for entry in fs::read_dir(root)? {
        names.insert(entry?.file_name(), ());
    }
    for name in wanted {
        ensure!(names.remove(&OsString::from(&name)).is_some(), "{generation}: {name} is missing");
    }
    ensure!(names.is_empty(), "generation {generation}: left over are {:?}", names.keys());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_generation_is_told_from_every_other_and_from_half_of_one() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        assert_eq!(check(&root).unwrap(), None);
        for generation in 0..6 {
            apply(&root, generation).unwrap();
            assert_eq!(check(&root).unwrap(), Some(generation));
        }
        fs::write(root.join("a.2"), content(4, 2)).unwrap();
        assert!(check(&root).is_err());
        fs::write(root.join("a.2"), content(5, 2)).unwrap();
        fs::write(root.join("r.0.new"), "").unwrap();
        assert!(check(&root).is_err());
        fs::remove_file(root.join("r.0.new")).unwrap();
        check(&root).unwrap();
        fs::set_permissions(root.join("a.0"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(check(&root).is_err());
    }
}
