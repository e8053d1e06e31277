use std::fmt;

use serde::{Deserialize, Serialize};

/// The part of an object that was touched. Separate facets never conflict with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Facet {
    /// A name in a directory, present (bound to one object) or absent.
    Binding,
    /// Mode, owner and ACL of a directory that was walked through.
    Perms,
    /// What `stat(2)` shows.
    Attrs,
    /// All names of a directory.
    Listing,
    /// The bytes of a file.
    Content,
    /// The target of a symbolic link.
    Link,
    /// Extended attributes.
    Xattrs,
}

impl Facet {
    /// All of them.
    pub const ALL: [Facet; 7] = [
        Facet::Binding,
        Facet::Perms,
        Facet::Attrs,
        Facet::Listing,
        Facet::Content,
        Facet::Link,
        Facet::Xattrs,
    ];
}

impl fmt::Display for Facet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Facet::Binding => "name",
            Facet::Perms => "permissions",
            Facet::Attrs => "attributes",
            Facet::Listing => "listing",
            Facet::Content => "content",
            Facet::Link => "link target",
            Facet::Xattrs => "extended attributes",
        })
    }
}
