//! Helpers in the view that stand in for what would reach services.
//!
//! `policy-rc.d`, and `systemctl` and `service` where the host has them, are shadowed by scripts of
//! one line (see [`Plant`]). Their names belong to the host all the same:
//!
//! - A plant that the command left alone is no change.
//! - One that it replaced (an upgrade of the package, say) is its change like any other.
//! - One that it moved or linked elsewhere would end up on the host in the program's stead: such a
//!   transaction is refused.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use txos_effects::services::shim_targets;
use txos_view::{Layer, Original, Plant};

/// The plants of one attempt.
#[derive(Clone, Debug, Default)]
pub struct Plants {
    plants: Vec<(Plant, PathBuf)>,
    /// Further names of the planted files, by which they are found again wherever they are moved.
    links: PathBuf,
}

/// What to plant, and which originals the helpers need.
pub fn plan() -> (Vec<Plant>, Vec<Original>) {
    let (mut plants, mut originals) = (Vec::new(), Vec::new());
    for target in shim_targets(Path::new("/")) {
        if target.exists && target.name != "policy-rc.d" {
            originals.push(Original { name: target.name.to_owned(), path: target.path.clone() });
        }
        plants.push(Plant { path: target.path, helper: target.name.to_owned() });
    }
    (plants, originals)
}

impl Plants {
    /// Finds the planted files in the upper layers, once the view is mounted, and gives each a
    /// further name below `links`.
    ///
    /// # Errors
    /// If the names cannot be made.
    pub fn watch(plants: &[Plant], layers: &[Layer], links: PathBuf) -> Result<Plants> {
        let failed = || format!("cannot prepare {}", links.display());
        match fs::remove_dir_all(&links) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(failed);
            }
            _ => fs::create_dir(&links).with_context(failed)?,
        }
        let mut watched = Vec::new();
        for (number, plant) in plants.iter().enumerate() {
            let Some(upper) = upper_path(layers, &plant.path) else { continue };
            fs::hard_link(&upper, links.join(number.to_string())).with_context(failed)?;
            watched.push((plant.clone(), upper));
        }
        Ok(Plants { plants: watched, links })
    }

    /// Where in the upper layers a helper still is what was planted there: device and inode. Looks
    /// at sizes only, since it is asked again and again.
    pub fn in_place(&self) -> BTreeSet<(u64, u64)> {
        let same = |(plant, upper): &(Plant, PathBuf)| {
            let meta = fs::symlink_metadata(upper).ok()?;
            (meta.len() == plant.content().len() as u64).then_some((meta.dev(), meta.ino()))
        };
        self.plants.iter().filter_map(same).collect()
    }

    /// The planted paths that the command left alone, after its end.
    ///
    /// # Errors
    /// If one was moved or linked elsewhere.
    pub fn untouched(&self) -> Result<Vec<PathBuf>> {
        let mut untouched = Vec::new();
        for (number, (plant, upper)) in self.plants.iter().enumerate() {
            let own = fs::symlink_metadata(self.links.join(number.to_string()))
                .context("cannot examine a helper of the view")?;
            let there = fs::symlink_metadata(upper).ok();
            let in_place =
                there.is_some_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()));
            let expected = 1 + u64::from(in_place);
            let content = plant.content();
            let same = in_place && fs::read(upper).is_ok_and(|read| read == content.as_bytes());
            if own.nlink() != expected {
                bail!(
                    "the command moved or linked {}, which is a stand-in inside a transaction: \
                     it cannot be committed; run this command outside",
                    plant.path.display()
                );
            }
            if same {
                untouched.push(plant.path.clone());
            }
        }
        Ok(untouched)
    }
}

/// Where `path` lies in the upper directory of its layer.
fn upper_path(layers: &[Layer], path: &Path) -> Option<PathBuf> {
    let layer = layers
        .iter()
        .filter(|layer| path.starts_with(&layer.point))
        .max_by_key(|layer| layer.point.as_os_str().len())?;
    Some(layer.upper.as_ref()?.join(path.strip_prefix(&layer.point).ok()?))
}
