use crate::ObjectId;

/// Where a change happened: something to look at, not a proof that it differs from what was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Touched {
    /// A name in a directory, which also changes the directory's listing.
    Name(ObjectId, Vec<u8>),
    /// The content or attributes of an object.
    Object(ObjectId),
}
