//! How long small transactions take: two reads and two small writes in one, durable and not.
//!
//! `cargo run --release -p txos-api --example commits -- [DIRECTORY]`

use std::{fs, os::unix::fs::FileExt, path::PathBuf, time::Instant};

use txos_api::{Options, Result, System};

fn main() -> Result<()> {
    let dir = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("txos-commits-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory to work in");
    for name in ["a", "b"] {
        fs::write(dir.join(name), "0123456789").expect("a file");
    }
    for durable in [false, true] {
        let state = Some(dir.join("state"));
        let system = System::open(Options { durable, state, ..Options::default() })?;
        let rounds = if durable { 200 } else { 2000 };
        let mut times = Vec::new();
        for round in 0..rounds {
            let begin = Instant::now();
            system.transaction(|tx| {
                let a = tx.read(dir.join("a"))?;
                let b = tx.read(dir.join("b"))?;
                tx.write_range(dir.join("a"), 0, [b'0' + (a[0] + round as u8) % 10])?;
                tx.write_range(dir.join("b"), 0, [b'0' + (b[0] + round as u8) % 10])
            })?;
            times.push(begin.elapsed());
        }
        times.sort();
        let name = if durable { "durable" } else { "not durable" };
        println!("two reads, two writes, {name}: {:?} median", times[rounds / 2]);
    }
    let file = fs::File::create(dir.join("sync")).expect("a file");
    let mut times = Vec::new();
    for _ in 0..200 {
        file.write_all_at(&[0; 4096], 0).expect("a write");
        let begin = Instant::now();
        file.sync_data().expect("a flush");
        times.push(begin.elapsed());
    }
    times.sort();
    println!("fdatasync of a block: {:?} median", times[100]);
    fs::remove_dir_all(&dir).expect("the directory goes");
    Ok(())
}
