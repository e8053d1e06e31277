//! What commits cost that need no view.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use txos_store::{Key, Privilege, SmallOp, SmallOptions, StateDir, Store};

use crate::context::Context;
use crate::measure::Pairs;
use crate::report::{Figure, Goal, Unit};

const BLOCK: [u8; 4096] = [b'x'; 4096];
/// Commits in one round.
const COMMITS: usize = 200;

/// Nothing is read, so nobody has to be waited for but who writes the same.
fn options(durable: bool) -> SmallOptions<'static> {
    const NOTHING: &[Key] = &[];
    SmallOptions { durable, reads: Some(NOTHING), follow: true }
}

fn store(context: &Context) -> Result<Store> {
    Ok(Store::open(StateDir::open(context.work.join("state"), Privilege::Root)?)?)
}

fn files(context: &Context, count: usize) -> Result<Vec<PathBuf>> {
    let paths: Vec<PathBuf> =
        (0..count).map(|number| context.work.join(format!("f{number}"))).collect();
    for path in &paths {
        fs::write(path, BLOCK)?;
        File::open(path)?.sync_all()?;
    }
    Ok(paths)
}

/// Seconds that each of so many calls takes.
fn each(count: usize, mut act: impl FnMut(usize) -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    (0..count).try_for_each(&mut act)?;
    Ok(start.elapsed().as_secs_f64() / count as f64)
}

/// Durable commits of one 4 KB file against as many `fdatasync`s of one; and of two small files
/// that are not durable.
pub fn small(context: &Context) -> Result<Vec<Figure>> {
    let [mut rewrite, mut create, mut quick] =
        [const { Pairs { native: vec![], txos: vec![] } }; 3];
    let paths = files(context, 3)?;
    let store = store(context)?;
    for round in 0..context.short_rounds {
        let file = File::options().write(true).open(&paths[2])?;
        let native = each(COMMITS, |_| {
            file.write_all_at(&BLOCK, 0)?;
            Ok(file.sync_data()?)
        })?;
        let op = SmallOp::Write { path: &paths[0], offset: 0, bytes: &BLOCK };
        let txos = each(COMMITS, |_| {
            Ok(store.commit_small(&[op], &options(true), &mut || Ok(())).map(drop)?)
        })?;
        rewrite.push(native, txos);
        let txos = each(COMMITS, |number| {
            let path = context.work.join(format!("new{round}-{number}"));
            let op = SmallOp::Create { path: &path, bytes: &BLOCK, mode: 0o644 };
            Ok(store.commit_small(&[op], &options(true), &mut || Ok(())).map(drop)?)
        })?;
        create.push(native, txos);
        let two = paths[..2].iter().map(|path| SmallOp::Write { path, offset: 0, bytes: &[1; 64] });
        let two: Vec<_> = two.collect();
        let plain = each(COMMITS, |_| {
            for path in &paths[..2] {
                File::options().write(true).open(path)?.write_all_at(&[1; 64], 0)?;
            }
            Ok(())
        })?;
        let txos = each(COMMITS, |_| {
            Ok(store.commit_small(&two, &options(false), &mut || Ok(())).map(drop)?)
        })?;
        quick.push(plain, txos);
    }
    Ok(vec![
        Figure::ratio("durable commit of one 4 KB file in place, against fdatasync", rewrite, 2.5),
        Figure::ratio("durable commit that makes a file of 4 KB, against fdatasync", create, 2.5),
        Figure {
            what: "commit of 64 bytes to each of two files, not durable".into(),
            unit: Unit::Seconds,
            goal: Goal::AtMost(80e-6),
            pairs: quick,
            note: Some("native: open, pwrite, close".into()),
        },
    ])
}

/// Durable commits of 8 threads to files of their own, against one thread: seconds for each commit.
pub fn group(context: &Context) -> Result<Vec<Figure>> {
    const WRITERS: usize = 8;
    let paths = files(context, WRITERS)?;
    let store = store(context)?;
    let commit = |path: &Path| -> Result<()> {
        let op = SmallOp::Write { path, offset: 0, bytes: &BLOCK };
        Ok(store.commit_small(&[op], &options(true), &mut || Ok(())).map(drop)?)
    };
    let mut pairs = Pairs::default();
    for _ in 0..context.short_rounds {
        let one = each(COMMITS, |_| commit(&paths[0]))?;
        let (begin, commit) = (Barrier::new(WRITERS + 1), &commit);
        let many = thread::scope(|scope| -> Result<f64> {
            let begin = &begin;
            let run = |path| {
                move || -> Result<()> {
                    begin.wait();
                    (0..COMMITS).try_for_each(|_| commit(path))
                }
            };
            let threads: Vec<_> = paths.iter().map(|path| scope.spawn(run(path))).collect();
            begin.wait();
            let start = Instant::now();
            for thread in threads {
                let Ok(done) = thread.join() else { anyhow::bail!("a writer panicked") };
                done?;
            }
            Ok(start.elapsed().as_secs_f64() / (COMMITS * WRITERS) as f64)
        })?;
        pairs.push(one, many);
    }
    Ok(vec![
        Figure::ratio(
            "durable commits by 8 writers, seconds a commit, against one writer",
            pairs,
            0.334,
        )
        .note("3x the commits of one is 0.33"),
    ])
}

/// 10,000 new files that are committed and of which a power cut left nothing but the record.
pub fn recovery(context: &Context) -> Result<Vec<Figure>> {
    const OPERATIONS: usize = 10_000;
    let mut pairs = Pairs::default();
    for _ in 0..context.rounds {
        let target = context.work.join("target");
        fs::create_dir(&target)?;
        let paths: Vec<PathBuf> =
            (0..OPERATIONS).map(|number| target.join(number.to_string())).collect();
        let ops: Vec<SmallOp<'_>> = paths
            .iter()
            .map(|path| SmallOp::Create { path, bytes: b"what the record holds", mode: 0o644 })
            .collect();
        let first = store(context)?;
        let start = Instant::now();
        first.commit_small(&ops, &options(false), &mut || Ok(()))?;
        let commit = start.elapsed().as_secs_f64();
        // As after a power cut: nobody has closed it, the shared page is gone, and so are the files.
        std::mem::forget(first);
        fs::remove_file(context.work.join("state/journal/control"))?;
        paths.iter().try_for_each(fs::remove_file)?;
        let start = Instant::now();
        drop(store(context)?);
        pairs.push(commit, start.elapsed().as_secs_f64());
        ensure!(fs::read_dir(&target)?.count() == OPERATIONS, "recovery left some out");
        fs::remove_dir_all(&target)?;
    }
    Ok(vec![Figure {
        what: "recovery of 10,000 pending operations".into(),
        unit: Unit::Seconds,
        goal: Goal::AtMost(3.0),
        pairs,
        note: Some("native: committing them".into()),
    }])
}
