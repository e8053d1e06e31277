//! Names as text, without loss.
//!
//! A file name is any bytes but `/` and NUL. In JSON and on a terminal it is written in one form:
//! UTF-8 as it is, except that a backslash is written `\\`, and every byte of a control character
//! (C0, DEL, C1, the bidirectional and line separators that can reorder what a person sees) and
//! every byte that is not UTF-8 is written `\xHH`. The form can be read back exactly.

use std::{
    ffi::OsString,
    fmt::Write,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use txos_core::misleading;

/// Writes `bytes` in the form described above.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut buffer = [0; 4];
            match character {
                '\\' => text.push_str("\\\\"),
                c if misleading(c) => hex(&mut text, c.encode_utf8(&mut buffer).as_bytes()),
                c => text.push(c),
            }
        }
        hex(&mut text, chunk.invalid());
    }
    text
}

/// Reads the form back; `None` if `text` is not in it.
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match (byte, tail) {
            (b'\\', [b'\\', after @ ..]) => {
                bytes.push(b'\\');
                rest = after;
            }
            (b'\\', [b'x', high, low, after @ ..]) => {
                bytes.push(nibble(*high)? << 4 | nibble(*low)?);
                rest = after;
            }
            (b'\\', _) => return None,
            (byte, _) => bytes.push(byte),
        }
    }
    Some(bytes)
}

/// A path for a person to read.
pub fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

fn hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "\\x{byte:02x}");
    }
}

fn nibble(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

/// Serde form of a path: for `#[serde(with)]`.
pub(crate) mod path {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::*;

    pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&shown(path))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        let text = String::deserialize(from)?;
        read(&text).ok_or_else(|| D::Error::custom("a bad path"))
    }
}

/// Serde form of a path that may be missing.
pub(crate) mod optional_path {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match path {
            Some(path) => to.serialize_some(&shown(path)),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        let text: Option<String> = Option::deserialize(from)?;
        let path = text.map(|text| read(&text).ok_or_else(|| D::Error::custom("a bad path")));
        path.transpose()
    }
}

/// Serde form of a list of paths.
pub(crate) mod paths {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::*;

    pub(crate) fn serialize<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().map(|path| shown(path)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        let texts: Vec<String> = Vec::deserialize(from)?;
        texts.iter().map(|text| read(text).ok_or_else(|| D::Error::custom("a bad path"))).collect()
    }
}

fn read(text: &str) -> Option<PathBuf> {
    Some(PathBuf::from(OsString::from_vec(unescape(text)?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_codes_never_reach_the_terminal() {
        assert_eq!(escape(b"a\x1b[31m\n\\b\xff\xc3\xa9"), "a\\x1b[31m\\x0a\\\\b\\xff\u{e9}");
        assert_eq!(escape("\u{202e}x".as_bytes()), "\\xe2\\x80\\xaex");
        assert_eq!(unescape("a\\"), None);
        assert_eq!(unescape("\\xg0"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes: Vec<u8>) {
            prop_assert_eq!(unescape(&escape(&bytes)), Some(bytes));
        }
    }
}
