//! Numbers, strings and lists as bytes: little-endian, each list and string led by its length.

use std::{
    ffi::{CString, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use txos_core::Stamp;

use crate::plan::Ident;

/// Why bytes are no record of this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub &'static str);

pub(crate) type Decoded<T> = Result<T, Malformed>;

/// Bytes being written.
#[derive(Default)]
pub(crate) struct Encoder {
    pub bytes: Vec<u8>,
}

impl Encoder {
    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend(value.to_le_bytes());
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.u8(value.into());
    }

    pub(crate) fn blob(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.raw(bytes);
    }

    pub(crate) fn path(&mut self, path: &Path) {
        self.blob(path.as_os_str().as_bytes());
    }

    pub(crate) fn stamp(&mut self, stamp: Stamp) {
        self.u64(stamp.sec as u64);
        self.u32(stamp.nsec);
    }

    pub(crate) fn ident(&mut self, ident: Ident) {
        self.u64(ident.ino);
        self.stamp(ident.birth);
    }

    pub(crate) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        match value {
            None => self.u8(0),
            Some(value) => {
                self.u8(1);
                write(self, value);
            }
        }
    }

    pub(crate) fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.u32(items.len() as u32);
        for item in items {
            write(self, item);
        }
    }
}

/// Bytes being read. Nothing is allocated on the word of a length that the bytes do not bear out.
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Decoder { rest: bytes }
    }

    pub(crate) fn raw(&mut self, length: usize) -> Decoded<&'a [u8]> {
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or(Malformed("it ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        self.raw(N)?.try_into().map_err(|_| Malformed("it ends too early"))
    }

    pub(crate) fn u8(&mut self) -> Decoded<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Decoded<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Decoded<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn id(&mut self) -> Decoded<[u8; 16]> {
        self.array()
    }

    pub(crate) fn bool(&mut self) -> Decoded<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag is neither 0 nor 1")),
        }
    }

    pub(crate) fn blob(&mut self) -> Decoded<&'a [u8]> {
        let length = self.u32()?;
        self.raw(length as usize)
    }

    /// A path without `..` and NUL that stays where it is joined to, or an absolute one where
    /// `absolute`.
    pub(crate) fn path(&mut self, absolute: bool) -> Decoded<PathBuf> {
        let bytes = self.blob()?;
        let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
        let climbs = path.components().any(|part| part == std::path::Component::ParentDir);
        if climbs || bytes.contains(&0) || path.is_absolute() != absolute {
            return Err(Malformed("a path leads elsewhere"));
        }
        Ok(path)
    }

    pub(crate) fn name(&mut self) -> Decoded<CString> {
        CString::new(self.blob()?).map_err(|_| Malformed("a name holds a zero byte"))
    }

    pub(crate) fn stamp(&mut self) -> Decoded<Stamp> {
        Ok(Stamp { sec: self.u64()? as i64, nsec: self.u32()? })
    }

    pub(crate) fn ident(&mut self) -> Decoded<Ident> {
        Ok(Ident { ino: self.u64()?, birth: self.stamp()? })
    }

    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Decoded<T>,
    ) -> Decoded<Option<T>> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    pub(crate) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Decoded<T>,
    ) -> Decoded<Vec<T>> {
        let count = self.u32()?;
        // Each item takes a byte at least.
        if count as usize > self.rest.len() {
            return Err(Malformed("a list is longer than the record"));
        }
        (0..count).map(|_| read(self)).collect()
    }

    /// Ends the reading; nothing may be left.
    pub(crate) fn end(self) -> Decoded<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed("something follows its end")) }
    }
}
