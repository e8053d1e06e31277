//! What extracting and committing costs; run by hand in a release build:
//! `cargo test --release -p txos-store figures -- --ignored --nocapture`.

use std::{fs, path::Path, process::Command, time::Instant};

use super::world::{World, able};
use crate::{NoDomain, Prepared};

const FILES: usize = 10_000;

fn fill(dir: &Path) {
    for group in 0..FILES / 100 {
        let dir = dir.join(group.to_string());
        fs::create_dir_all(&dir).unwrap();
        for number in 0..100 {
            fs::write(dir.join(number.to_string()), vec![b'x'; 2000]).unwrap();
        }
    }
}

fn round(setup: fn(&Path), act: fn(&Path), durable: bool) -> String {
    let world = World::new(setup);
    let origins = world.inodes();
    let tx = world.run(&act);
    let start = Instant::now();
    let delta = world.extract(&tx, &origins).unwrap();
    let extract = start.elapsed();
    let lock = world.state.try_lock("test").unwrap();
    let start = Instant::now();
    let mut prepared = Prepared::stage(&world.state, tx, delta).unwrap();
    let stage = start.elapsed();
    let start = Instant::now();
    let report = prepared.commit(&lock, &mut |_| Ok(()), &mut NoDomain, durable).unwrap();
    let commit = start.elapsed();
    format!(
        "extract {extract:.1?} stage {stage:.1?} commit {commit:.1?} (apply {:.1?} flush {:.1?}): {:.1?}",
        report.apply,
        report.flush,
        extract + stage + commit
    )
}

#[test]
#[ignore = "prints figures"]
fn figures() {
    if !able() {
        return;
    }
    for _ in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        fill(&dir.path().join("from"));
        let copy = |to: &str| {
            let start = Instant::now();
            let mut cp = Command::new("cp");
            cp.arg("-a").arg(dir.path().join("from")).arg(dir.path().join(to));
            assert!(cp.status().unwrap().success());
            start.elapsed()
        };
        println!("cp -a of {FILES} small files: {:.1?}", copy("to"));
        drop(dir);
        for durable in [false, true] {
            println!(
                "new tree, durable {durable}: {}",
                round(|_| (), |root| fill(&root.join("n")), durable)
            );
            let flat = |root: &Path| {
                (0..FILES).for_each(|n| fs::write(root.join(n.to_string()), "x").unwrap());
            };
            println!("one old directory, durable {durable}: {}", round(|_| (), flat, durable));
            println!(
                "one file, durable {durable}: {}",
                round(|_| (), |root| fs::write(root.join("f"), vec![1; 4096]).unwrap(), durable)
            );
        }
    }
}
