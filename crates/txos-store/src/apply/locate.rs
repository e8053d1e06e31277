use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::plan::Plan;

/// Where an object with a given original path may be while a plan is applied: under its original
/// path; in the stage directory, where renamed objects wait; or under its final path. While nothing is lost there
/// is no fourth place, since objects are taken out deepest first and put in shallowest first. A power cut may keep
/// that a directory was renamed, and lose that something had been taken out of it before: then that went along, and
/// is at its old place below where the directory waits or has come to.
pub(crate) struct Locator {
    /// Renames by area and original path: waiting place, final path.
    moves: BTreeMap<(u32, PathBuf), (Option<PathBuf>, PathBuf)>,
}

/// A possible place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// Beneath the mount point.
    Host(PathBuf),
    /// Beneath the stage directory.
    Stage(PathBuf),
}

impl Locator {
    /// For a first application (not `again`) all is at its original path, and nothing is looked
    /// for elsewhere.
    pub(crate) fn new(plan: &Plan, again: bool) -> Self {
        let moves = plan.moves.iter().filter(|_| again);
        let entry =
            |op: &crate::plan::Move| ((op.area, op.from.clone()), (op.slot.clone(), op.to.clone()));
        Locator { moves: moves.map(entry).collect() }
    }

    /// The places, the original first; then those where it is to come to, and then those where it may have gone with
    /// a directory, the nearest first.
    pub(crate) fn spots(&self, area: u32, original: &Path) -> Vec<Spot> {
        let mut spots = vec![Spot::Host(original.to_owned())];
        if self.moves.is_empty() {
            return spots;
        }
        for above in original.ancestors() {
            let Some((slot, to)) = self.moves.get(&(area, above.to_owned())) else { continue };
            let below = original.strip_prefix(above).unwrap_or(Path::new(""));
            let join = |base: &Path| {
                if below.as_os_str().is_empty() { base.to_owned() } else { base.join(below) }
            };
            spots.extend(slot.as_deref().map(|slot| Spot::Stage(join(slot))));
            spots.push(Spot::Host(join(to)));
        }
        spots
    }
}
