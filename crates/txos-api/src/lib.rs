//! Small ACID transactions over plain files, in process and without a view.
//!
//! ```no_run
//! # fn main() -> txos_api::Result<()> {
//! // Move an amount between two accounts, each a file: both change, or none, also in a power cut.
//! txos_api::transaction(|tx| {
//!     let parse = |bytes: Vec<u8>| {
//!         String::from_utf8_lossy(&bytes).trim().parse::<i64>().map_err(txos_api::Error::abort)
//!     };
//!     let from = parse(tx.read("accounts/alice")?)?;
//!     let to = parse(tx.read("accounts/bob")?)?;
//!     tx.write("accounts/alice", (from - 10).to_string())?;
//!     tx.write("accounts/bob", (to + 10).to_string())
//! })
//! # }
//! ```
//!
//! A [`Transaction`] reads files by plain calls and remembers what it saw; its writes stay in
//! memory; the commit checks under the store's commit lock that everything seen is still so,
//! writes one journal record and applies it. Transactions in views (`txos run`) and those in process
//! meet by the same rules: each validates what it read when it commits. Programs that know nothing of
//! transactions are noticed in the same way.
//!
//! What is remembered is compared by value, byte ranges included (see [`Transaction::read_range`] and
//! [`Transaction::write_range`]): two writers of different parts of one file commit side by side.

mod attrs;
mod edits;
mod error;
mod lease;
mod log;
mod names;
mod read;
mod seen;
mod shadow;
mod system;
mod transaction;
mod turn;
mod validate;
mod walk;
mod write;

pub use error::{Error, Result};
pub use read::Stat;
pub use system::{Options, System};
pub use transaction::Transaction;
pub use txos_core::{Conflict, Facet, FileKind, Stamp};
#[doc(hidden)]
pub use txos_store::maps_for_itself;

/// Runs `body` as one transaction with the default [`Options`]: see [`System::transaction`].
///
/// # Errors
/// As [`System::open`] and [`System::transaction`].
pub fn transaction<T>(body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
    System::shared()?.transaction(body)
}
