//! End-to-end tests that run the real `txos` from outside, and what they are made of.
//!
//! # How a test proves something
//!
//! A *scenario* is a tree, and something that runs in it: a list of operations ([`op::Op`]) or a
//! shell script. It is performed twice, in two trees that were made alike: once natively, which is
//! the model, and once by `txos run`. Exit status, standard output (each operation's error number
//! and observation is a line of it) and the two final trees have to be equal, in every respect that
//! [`tree`] lists. What is known to differ is in one table with its reason ([`known`]).
//!
//! So the tests need no expectations written by hand where the kernel itself can say what should
//! have happened. With `TXOS_TEST_NATIVE=1` the second run is native too, and `txos` isn't needed:
//! that validates the harness and every scenario on plain Linux.
//!
//! # Rules of the house
//!
//! - Every test has its own state directory, its own trees and its own mark in the environment of
//!   what it starts ([`scratch::Scratch`]); tests run in any order and beside one another.
//! - Everything started has a time limit ([`exec`]); what outlives its test is killed and is a
//!   failure.
//! - At its end each scenario is checked for leftovers: processes, mounts, overlay attributes,
//!   whiteouts, transactions that were forgotten.
//! - A test that can't run here prints `Skip: ` and why ([`skip!`]).

pub mod conform;
pub mod cprogram;
pub mod domain;
pub mod errno;
pub mod exec;
pub mod gate;
pub mod history;
pub mod known;
pub mod meeting;
pub mod op;
pub mod perform;
pub mod probes;
pub mod random;
pub mod raw;
pub mod report;
pub mod rows;
pub mod scenario;
pub mod scratch;
pub mod space;
pub mod stop;
pub mod terminal;
pub mod tree;
pub mod txos;
pub mod ways;
pub mod who;
pub mod witnesses;
pub mod xattr;

/// Ends the test with a line that says why it can't run here.
#[macro_export]
macro_rules! skip {
    ($($why:tt)*) => {{
        println!("Skip: {}", format_args!($($why)*));
        return;
    }};
}

/// Ends the test where there is no txos to test (`TXOS_TEST_NATIVE`), or where nobody may mount.
#[macro_export]
macro_rules! needs_root {
    () => {
        if $crate::txos::native_only() {
            $crate::skip!("nothing to compare natively");
        }
        if let Some(why) = $crate::who::Who::Root.impossible() {
            $crate::skip!("{why}");
        }
    };
}
