use std::ffi::{CStr, CString};

use txos_host::XattrSet;

use super::fid::{self, OriginMark};
use crate::Privilege;

/// What the overlay notes about a shadow object in extended attributes of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    /// It was copied up.
    pub origin: Option<OriginMark>,
    /// A directory that hides what the stable directory of its name holds.
    pub opaque: bool,
    /// A directory (or metadata-only copy) that was renamed: its stable path.
    pub redirect: Option<Vec<u8>>,
    /// Only metadata was copied up.
    pub metacopy: bool,
    /// Flags of `chattr(1)` that the view shows: `i`, `a`.
    pub protected: Vec<u8>,
    /// Names of all attributes of the overlay that are on it.
    pub own: Vec<CString>,
    /// The node from which the capture says that it was copied up; see [`NAMED`].
    pub named: Option<u64>,
    /// The `origin` attribute could not be understood.
    pub unknown_origin: bool,
}

/// The attribute by which the capture names the original of a copy in a view of an ordinary user,
/// where the overlay cannot (`txos_capture::ORIGIN_MARK`): the node id, 8 bytes, little end first.
///
/// The filter of the view's system calls keeps programs from copying it to a file of their own
/// with all other attributes. It counts only if the capture has seen that the original was copied
/// up, and not before the copy was made. (The overlay's own mark is missing on copies of files
/// with several names.)
pub(crate) const NAMED: &CStr = c"user.txos.origin";

/// Parts the attributes of a shadow object: the overlay's own, and those that the view shows.
///
/// An attribute that the view shows as `PREFIXname` is kept by the overlay as
/// `PREFIXoverlay.name` ("escaped"); it comes back under its own name.
pub(crate) fn part(raw: XattrSet, prefix: &str) -> (Marks, XattrSet) {
    let mut marks = Marks::default();
    let mut shown = XattrSet::new();
    for (name, value) in raw {
        if name.as_c_str() == NAMED {
            marks.named = value.try_into().ok().map(u64::from_le_bytes);
            marks.own.push(name);
            continue;
        }
        let Some(own) = name.to_bytes().strip_prefix(prefix.as_bytes()) else {
            shown.insert(name, value);
            continue;
        };
        if let Some(plain) = own.strip_prefix(b"overlay.") {
            if let Ok(unescaped) = CString::new([prefix.as_bytes(), plain].concat()) {
                shown.insert(unescaped, value);
            }
            marks.own.push(name);
            continue;
        }
        match own {
            b"origin" => match fid::parse(&value) {
                Some(origin) => marks.origin = Some(origin),
                None => marks.unknown_origin = true,
            },
            b"opaque" => marks.opaque = value.first() == Some(&b'y'),
            b"redirect" => marks.redirect = Some(value),
            b"metacopy" => marks.metacopy = true,
            b"protattr" => marks.protected = value,
            _ => {}
        }
        marks.own.push(name);
    }
    (marks, shown)
}

/// Whether the view cannot show an attribute of the stable system, so that its absence in the
/// shadow says nothing: attributes that look like the overlay's own, of either kind; and in an
/// ordinary user's view ACLs, which may name users that the view does not know.
pub(crate) fn hidden_by_view(name: &CStr, privilege: Privilege) -> bool {
    let name = name.to_bytes();
    let overlays = [Privilege::Root, Privilege::User]
        .iter()
        .any(|of| name.starts_with(of.xattr_prefix().as_bytes()));
    overlays || privilege == Privilege::User && name.starts_with(b"system.posix_acl_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_the_mark_of_a_copy_are_told_apart() {
        let named = (NAMED.to_owned(), 7u64.to_le_bytes().to_vec());
        let copied = (c"user.overlay.origin".to_owned(), Vec::new());
        let (marks, shown) = part([named.clone()].into_iter().collect(), "user.overlay.");
        assert!(marks.origin.is_none() && marks.named == Some(7) && shown.is_empty());
        let (marks, _) = part([named, copied].into_iter().collect(), "user.overlay.");
        assert_eq!((marks.origin, marks.named), (Some(OriginMark::Anonymous), Some(7)));
        assert_eq!(marks.own.len(), 2);
    }

    #[test]
    fn escaped_names_come_back_and_own_ones_do_not() {
        let raw: XattrSet = [
            (c"trusted.overlay.opaque", &b"y"[..]),
            (c"trusted.overlay.overlay.opaque", b"mine"),
            (c"trusted.overlay.impure", b"y"),
            (c"trusted.other", b"1"),
            (c"user.overlay.opaque", b"2"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_vec()))
        .collect();
        let (marks, shown) = part(raw, "trusted.overlay.");
        assert!(marks.opaque && marks.origin.is_none());
        assert_eq!(marks.own.len(), 3);
        let names: Vec<_> = shown.keys().map(|name| name.to_str().unwrap()).collect();
        assert_eq!(names, ["trusted.other", "trusted.overlay.opaque", "user.overlay.opaque"]);
    }
}
