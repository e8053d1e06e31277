//! What the commit costs: from the end of the command to the end of `txos run`.

use std::fs;

use anyhow::Result;

use super::files::text;
use crate::context::Context;
use crate::helper::figures;
use crate::inputs::{copy, small_files};
use crate::measure::{Pairs, median, pairs, run, undisturbed};
use crate::plot::{Line, svg};
use crate::report::{Figure, Goal, Unit};

const NEW_FILES: usize = 10_000;
/// Sizes of the trees in which the same number of files is touched.
const TREES: [usize; 3] = [1_000, 10_000, 100_000];
/// Files that are read, and as many that are written, whatever the tree.
const TOUCHED: usize = 500;

/// `cp -a` of many small files: the whole, and its commit alone, against the native copy.
pub fn new_files(context: &Context) -> Result<Vec<Figure>> {
    let source = text(&small_files(context, NEW_FILES)?)?;
    let target = context.work.join("new-files");
    let args = ["stamp", "--", "cp", "-a", &source, &text(&target)?].map(str::to_owned);
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let command = context.helper(&args)?;
    let [whole, commit] = pairs(context, context.rounds + 2, |inside| {
        if target.exists() {
            fs::remove_dir_all(&target)?;
        }
        rustix::fs::sync();
        Ok(match inside {
            false => {
                let wall = run(context.helper(&args)?)?.wall.as_secs_f64();
                [wall, wall]
            }
            true => {
                let run = run(context.transaction(&[], &command))?;
                let [ended] = figures(&run.stdout)?;
                [run.wall.as_secs_f64(), run.ended.as_secs_f64() - ended]
            }
        })
    })?;
    let mut synced = Pairs::default();
    synced.native.push(copy_and_sync(&source, &target)?);
    synced.txos.clone_from(&whole.txos);
    Ok(vec![
        Figure::ratio("commit of 10,000 small new files, against `cp -a` of them", commit, 1.5)
            .note("durable"),
        Figure {
            what: "the whole transaction, against `cp -a`".into(),
            unit: Unit::Seconds,
            goal: Goal::None,
            pairs: whole,
            note: None,
        },
        Figure {
            what: "the whole transaction, against `cp -a` and `sync`".into(),
            unit: Unit::Seconds,
            goal: Goal::None,
            pairs: synced,
            note: None,
        },
    ])
}

/// What a native copy costs that is as durable as a commit.
fn copy_and_sync(source: &str, target: &std::path::Path) -> Result<f64> {
    if target.exists() {
        fs::remove_dir_all(target)?;
    }
    rustix::fs::sync();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "cp -a \"$1\" \"$2\" && sync", "sh", source]).arg(target);
    Ok(run(command)?.wall.as_secs_f64())
}

/// The same work in trees of three sizes.
pub fn tree_size(context: &Context) -> Result<Vec<Figure>> {
    let mut medians = Vec::new();
    for size in TREES {
        let mut commits = Vec::new();
        let input = small_files(context, size)?;
        let tree = copy(context, &input, "tree")?;
        for round in 0..=context.rounds {
            let dir = text(&tree)?;
            let command = context.helper(&["touch", &dir, &TOUCHED.to_string()])?;
            let run = undisturbed(|| run(context.transaction(&[], &command)))?;
            let [ended] = figures(&run.stdout)?;
            // The first round meets files that no transaction has seen; it is not counted.
            if round > 0 {
                commits.push(run.ended.as_secs_f64() - ended);
            }
        }
        fs::remove_dir_all(&tree)?;
        medians.push((size as f64, median(&commits)));
    }
    let line = Line {
        name: format!("commit of {TOUCHED} files read and {TOUCHED} written"),
        points: medians.iter().map(|&(size, seconds)| (size, seconds * 1e3)).collect(),
    };
    let plot = svg("Commit time against the size of the tree", "files in the tree", "ms", &[line]);
    fs::write(context.out.join("commit-vs-tree.svg"), plot)?;
    let pairs = Pairs {
        native: medians.first().map(|point| point.1).into_iter().collect(),
        txos: medians.last().map(|point| point.1).into_iter().collect(),
    };
    let what =
        "commit of the same work in a tree of 100,000 files, against one of 1,000 (as native)";
    Ok(vec![Figure::ratio(what, pairs, 1.5)])
}
