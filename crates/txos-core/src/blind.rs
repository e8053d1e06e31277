//! A fault for the tests: conflicts of one facet go unnoticed.
//!
//! The history checker (`tests/tests/histories.rs`) is only worth something if it finds the anomaly
//! when a facet is not minded. So with the cargo feature `blind`, which no build for use has, the
//! variable `TXOS_BLIND` names a facet, as [`Facet`] is written in JSON, and every place that could
//! notice a change of it looks away: what was read is held against what is stable ([`crate::Workset`]
//! judges that, `txos_capture` compares listings, contents and attributes), and against what others
//! are about to write ([`crate::contention::Written`]).

use crate::Facet;

/// Whether conflicts of this facet are to go unnoticed: never, in a build without the fault.
#[cfg(not(feature = "blind"))]
#[inline(always)]
pub const fn blind_to(_facet: Facet) -> bool {
    false
}

/// Whether conflicts of this facet are to go unnoticed.
#[cfg(feature = "blind")]
pub fn blind_to(facet: Facet) -> bool {
    static BLIND: std::sync::OnceLock<Option<Facet>> = std::sync::OnceLock::new();
    let named = || {
        let name = std::env::var("TXOS_BLIND").ok()?;
        Facet::ALL.into_iter().find(|facet| format!("{facet:?}").eq_ignore_ascii_case(&name))
    };
    *BLIND.get_or_init(named) == Some(facet)
}
