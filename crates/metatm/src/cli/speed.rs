//! `metatm speed`: how fast the simulator is on this host.

use std::time::Instant;

use metatm::Config;
use metatm::bare::Bare;

/// Arguments of `metatm speed`.
#[derive(Debug, clap::Args)]
pub struct Speed {
    /// Simulated instructions, in millions.
    #[arg(long, default_value_t = 40)]
    millions: u32,
}

/// First address of processor `i`'s data.
fn base(i: u32) -> u32 {
    0x20_0000 + (i << 17)
}

/// Locks, loads, stores, arithmetic and a transaction: 81 instructions, 35 of them references.
async fn step(c: &metatm::guest::Cx, i: u32, k: u32) {
    let data = base(i) + 4096 * (1 + k % 8);
    c.spin_lock(base(i)).await;
    for j in 0..10 {
        let v = c.load(data + j * 64).await;
        c.alu(3).await;
        c.store(data + j * 64, v + 1).await;
    }
    c.spin_unlock(base(i)).await;
    c.atomic(async || {
        for j in 0..5 {
            let v = c.load(data + j * 64).await;
            c.alu(3).await;
            c.store(data + j * 64, v + 1).await;
        }
    })
    .await;
}

impl Speed {
    /// Prints instructions and references a second on 1 to 32 simulated processors.
    ///
    /// # Errors
    /// A run failed.
    pub fn run(self) -> anyhow::Result<bool> {
        anyhow::ensure!((1..=10_000).contains(&self.millions), "--millions: 1 to 10000");
        super::say("processors  instructions/s  references/s   seconds\n")?;
        for cpus in [1, 4, 16, 32] {
            let steps = self.millions * 1_000_000 / 81 / cpus;
            let mut program = Bare::new();
            for i in 0..cpus {
                program = program.cpu(move |c| async move {
                    for k in 0..steps {
                        step(&c, i, k).await;
                    }
                });
            }
            let start = Instant::now();
            let free = |m: &mut metatm::machine::Machine| {
                (0..cpus).for_each(|i| m.mem.set(base(i), metatm::sync::cx::FREE));
            };
            let (s, _) = program.run(&Config::default(), free, &[])?;
            let seconds = start.elapsed().as_secs_f64();
            super::say(&format!(
                "{cpus:>10} {:>13.1} M {:>11.1} M {seconds:>9.2}\n",
                s.instrs as f64 / seconds / 1e6,
                s.refs as f64 / seconds / 1e6
            ))?;
        }
        Ok(true)
    }
}
