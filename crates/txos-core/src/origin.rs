use std::path::PathBuf;

use crate::{Attrs, ObjectId, Stamp};

/// The stable object from which a shadow object was copied up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The version that the transaction saw.
    pub attrs: Attrs,
    /// One name of it, as an absolute path of the stable system, as the transaction saw it.
    pub path: PathBuf,
}

/// Answers which stable object a node id of the capture stands for.
///
/// The overlay records the node id of a copied-up object in its `overlay.origin` attribute; the
/// delta needs the way back.
pub trait Origins {
    /// The object behind `node_id`, or `None` if the capture never gave out this id.
    fn origin(&self, node_id: u64) -> Option<Origin>;

    /// When this object was last copied up, to the clock of the files' times; `None` if it never
    /// was. Known only of views in which the overlay itself notes no origins.
    fn copied(&self, id: &ObjectId) -> Option<Stamp>;

    /// When a piece of this file's content was last copied up, to the same clock, if its attributes
    /// had been copied up before; `None` else.
    fn filled(&self, id: &ObjectId) -> Option<Stamp>;
}
