//! Registers: places of a tree that hold the number of their last writer, one kind for each facet
//! that holds a value.

use std::error::Error;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, chown, symlink};
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, setxattr};

/// Where a register has its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In the bytes of a file.
    Content,
    /// In the target of a symbolic link.
    Link,
    /// In the group of a file.
    Attrs,
    /// In the group of a directory that is walked through.
    Perms,
    /// In an extended attribute of a directory.
    Xattrs,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] = [Kind::Content, Kind::Link, Kind::Attrs, Kind::Perms, Kind::Xattrs];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Content => "content",
            Kind::Link => "link",
            Kind::Attrs => "attrs",
            Kind::Perms => "perms",
            Kind::Xattrs => "xattrs",
        })
    }
}

/// Who writes a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Transactions.
    Inside,
    /// Outsiders, each time by one system call that can be seen.
    Outside,
}

/// A register of a tree; its text is its name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Where its value is.
    pub kind: Kind,
    /// Who writes it.
    pub writer: Writer,
    /// Which of those.
    pub number: u64,
}

/// So many registers there are of each kind and writer.
pub const EACH: u64 = 2;

const NAME: &str = "user.by";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

impl Register {
    /// All registers of a writer.
    pub fn all(writer: Writer) -> impl Iterator<Item = Register> {
        let each = move |kind| (0..EACH).map(move |number| Register { kind, writer, number });
        Kind::ALL.into_iter().flat_map(each)
    }

    /// Makes it in `tree`, with the value 0.
    ///
    /// # Errors
    /// As the system calls.
    pub fn make(self, tree: &Path) -> Result<()> {
        let path = tree.join(self.to_string());
        match self.kind {
            Kind::Content => fs::write(path, wide(0))?,
            Kind::Link => symlink("0", path)?,
            Kind::Attrs => {
                fs::write(&path, "")?;
                chown(path, None, Some(0))?;
            }
            Kind::Perms => {
                fs::create_dir(&path)?;
                fs::write(path.join("f"), "")?;
                chown(path, None, Some(0))?;
            }
            Kind::Xattrs => {
                fs::create_dir(&path)?;
                setxattr(path, NAME, b"0", XattrFlags::empty())?;
            }
        }
        Ok(())
    }

    /// Its value.
    ///
    /// # Errors
    /// As the system calls.
    pub fn read(self, tree: &Path) -> Result<u64> {
        let path = tree.join(self.to_string());
        Ok(match self.kind {
            Kind::Content => fs::read_to_string(path)?.trim().parse()?,
            Kind::Link => fs::read_link(path)?.to_string_lossy().parse()?,
            Kind::Attrs => u64::from(fs::symlink_metadata(path)?.gid()),
            Kind::Perms => {
                // Walked through, and looked at.
                fs::read(path.join("f"))?;
                u64::from(fs::symlink_metadata(path)?.gid())
            }
            Kind::Xattrs => {
                let mut value = [0; 20];
                let length = getxattr(path, NAME, &mut value[..])?;
                std::str::from_utf8(&value[..length])?.parse()?
            }
        })
    }

    /// Gives it a value.
    ///
    /// # Errors
    /// As the system calls.
    pub fn write(self, tree: &Path, value: u64) -> Result<()> {
        let path = tree.join(self.to_string());
        let group = Some(u32::try_from(value)?);
        match (self.kind, self.writer) {
            (Kind::Content, Writer::Inside) => fs::write(path, wide(value))?,
            (Kind::Content, Writer::Outside) => {
                let file = OpenOptions::new().write(true).open(path)?;
                file.write_all_at(wide(value).as_bytes(), 0)?;
            }
            (Kind::Link, _) => {
                let aside = tree.join(format!("{self}.{value}"));
                symlink(value.to_string(), &aside)?;
                fs::rename(aside, path)?;
            }
            (Kind::Attrs | Kind::Perms, _) => chown(path, None, group)?,
            (Kind::Xattrs, _) => {
                setxattr(path, NAME, value.to_string().as_bytes(), XattrFlags::empty())?;
            }
        }
        Ok(())
    }
}

/// A number as text of the same length, whatever it is.
fn wide(value: u64) -> String {
    format!("{value:12}")
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.writer {
            Writer::Inside => write!(f, "{}:{}", self.kind, self.number),
            Writer::Outside => write!(f, "{}:out{}", self.kind, self.number),
        }
    }
}
