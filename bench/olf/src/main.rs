//! Measures olf. `olf-bench --help` lists the experiments.

mod hm_epoch;
mod hm_hazard;
mod locked;
mod olf_set;
mod rng;
mod set;
mod skip;
mod table;

fn main() {
    table::run();
}
