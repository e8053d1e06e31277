//! First and second touches of many files, and what txos remembers of them.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::context::Context;
use crate::helper::figures;
use crate::inputs::small_files;
use crate::measure::{Pairs, pairs, run, undisturbed};
use crate::memory::Watch;
use crate::report::{Figure, Goal, Unit};

const SMALL_FILES: usize = 20_000;

/// A workload that prints two times, natively and inside, in turns.
fn twice(context: &Context, args: &[&str]) -> Result<[Pairs; 2]> {
    let command = context.helper(args)?;
    pairs(context, context.rounds + 2, |inside| {
        let run = match inside {
            false => run(context.helper(args)?)?,
            true => run(context.transaction(&[], &command))?,
        };
        figures(&run.stdout)
    })
}

/// Every file read twice in one transaction.
pub fn read(context: &Context) -> Result<Vec<Figure>> {
    let dir = small_files(context, SMALL_FILES)?;
    let [first, second] = twice(context, &["read", &text(&dir)?])?;
    Ok(vec![
        Figure::ratio("first reading of 20,000 small files", first, 3.0),
        Figure::ratio("second reading of the same", second, 1.1),
    ])
}

/// find(1), twice in one transaction.
pub fn find(context: &Context) -> Result<Vec<Figure>> {
    let args = ["twice", "--", "find", "/usr", "-xdev", "-size", "+0"];
    let [first, second] = twice(context, &args)?;
    Ok(vec![
        Figure::ratio("first `find /usr -xdev -size +0`", first, 2.5),
        Figure::ratio("second one in the same transaction", second, 1.2),
    ])
}

/// The processes of txos while a transaction reads many files, against what it says it read.
pub fn memory(context: &Context) -> Result<Vec<Figure>> {
    const MIB: f64 = 1_048_576.0;
    let dir = small_files(context, SMALL_FILES)?;
    let command = context.helper(&["read", &text(&dir)?])?;
    let json = context.work.join("report.json");
    let mut peaks = Pairs::default();
    let mut objects = 0;
    for _ in 0..context.rounds {
        let peak = undisturbed(|| {
            let watch = Watch::start(&context.txos);
            run(context.transaction(&["--json", &text(&json)?], &command))?;
            Ok(watch.stop())
        })?;
        peaks.txos.push(peak as f64 / MIB);
        objects = objects_read(&json).unwrap_or(SMALL_FILES);
    }
    let allowed = (300.0 * objects as f64 + 20e6) / MIB;
    Ok(vec![Figure {
        what: format!("memory of txos, {objects} objects read"),
        unit: Unit::MiB,
        goal: Goal::AtMost(allowed),
        pairs: peaks,
        note: Some("highest resident sizes of its processes, summed".into()),
    }])
}

/// The report's own count, wherever in it.
fn objects_read(json: &Path) -> Option<usize> {
    fn search(value: &serde_json::Value) -> Option<u64> {
        match value {
            serde_json::Value::Object(map) => map
                .get("read_objects")
                .and_then(serde_json::Value::as_u64)
                .or_else(|| map.values().find_map(search)),
            _ => None,
        }
    }
    let value = serde_json::from_str(&std::fs::read_to_string(json).ok()?).ok()?;
    usize::try_from(search(&value)?).ok()
}

/// A path as a command's argument.
pub(super) fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).with_context(|| format!("{} is not UTF-8", path.display()))
}
