//! Named domains.

use std::{fs, path::PathBuf};

use rustix::io::Errno;
use serde::Serialize;

use crate::{
    DomainError, DomainName, Group, Hierarchy, Result, error::errno_of, group::child_groups,
    hierarchy::make_group, hold,
};

/// The named domains of the calling user.
#[derive(Debug)]
pub struct Domains {
    hierarchy: Hierarchy,
}

/// A domain, for lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its group, as a path that can be opened.
    pub group: PathBuf,
    /// The processes in it and below.
    pub processes: Vec<u32>,
    /// Whether it stands still just now.
    pub frozen: bool,
}

impl Domains {
    /// Finds the place of the domains, and ends what dead transactions hold there.
    ///
    /// # Errors
    /// [`DomainError::Unavailable`].
    pub fn find() -> Result<Domains> {
        let hierarchy = Hierarchy::find()?;
        hold::sweep(&hierarchy.domains());
        Ok(Domains { hierarchy })
    }

    /// The hierarchy that they are in.
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Where the group of this domain is, or would be.
    pub fn path(&self, name: &DomainName) -> PathBuf {
        self.hierarchy.domains().join(name.as_str())
    }

    /// Makes an empty domain.
    ///
    /// # Errors
    /// [`DomainError::Exists`], or [`DomainError::Unavailable`] if no group can be made.
    pub fn create(&self, name: &DomainName) -> Result<()> {
        make_group(&self.hierarchy.domains())?;
        let path = self.path(name);
        match fs::create_dir(&path) {
            Ok(()) => Ok(()),
            Err(error) if errno_of(&error) == Errno::EXIST => {
                Err(DomainError::Exists(name.to_string()))
            }
            Err(error) => Err(DomainError::std("make the group", path, &error)),
        }
    }

    /// Opens the group of a domain.
    ///
    /// # Errors
    /// [`DomainError::Gone`] if there is none.
    pub fn open(&self, name: &DomainName) -> Result<Group> {
        Group::open(&self.path(name)).map_err(|error| match error {
            DomainError::Io { errno: Errno::NOENT | Errno::NODEV, .. } => {
                DomainError::Gone(name.to_string())
            }
            other => other,
        })
    }

    /// Moves a process into a domain; its children to be born follow it, those that live do not.
    ///
    /// # Errors
    /// [`DomainError::Gone`], or [`DomainError::Move`] with what the kernel says.
    pub fn add(&self, name: &DomainName, pid: u32) -> Result<()> {
        self.open(name)?.add(pid)
    }

    /// All domains, sorted by name.
    pub fn list(&self) -> Vec<Listed> {
        let listed = |path: PathBuf| {
            let group = Group::open(&path).ok()?;
            Some(Listed {
                name: path.file_name()?.to_str()?.to_owned(),
                processes: group.processes().unwrap_or_default(),
                frozen: group.is_frozen().unwrap_or_default(),
                group: path,
            })
        };
        child_groups(&self.hierarchy.domains()).into_iter().filter_map(listed).collect()
    }

    /// Removes a domain without processes, with the groups below it.
    ///
    /// # Errors
    /// [`DomainError::Busy`] if it has processes, [`DomainError::Gone`] if there is none.
    pub fn remove(&self, name: &DomainName) -> Result<()> {
        let group = self.open(name)?;
        let count = group.processes()?.len();
        if count > 0 {
            return Err(DomainError::Busy { name: name.to_string(), count });
        }
        for path in group.subtree()?.iter().rev() {
            match fs::remove_dir(path) {
                Err(error) if errno_of(&error) == Errno::BUSY => {
                    return Err(DomainError::Busy { name: name.to_string(), count: 1 });
                }
                Err(error) if errno_of(&error) != Errno::NOENT => {
                    return Err(DomainError::std("remove", path, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Moves processes out of a domain, to the group below which domains are made (for root the
    /// root group).
    ///
    /// # Errors
    /// If one of them is not in the domain, or the kernel refuses.
    pub fn dismiss(&self, name: &DomainName, pids: &[u32]) -> Result<()> {
        let members = self.open(name)?.processes()?;
        let outside = self.hierarchy.outside();
        for pid in pids {
            if !members.contains(pid) {
                let group = self.path(name);
                return Err(DomainError::Move { pid: *pid, group, errno: Errno::SRCH });
            }
            let procs = outside.join("cgroup.procs");
            fs::write(&procs, pid.to_string()).map_err(|error| DomainError::Move {
                pid: *pid,
                group: outside.to_owned(),
                errno: errno_of(&error),
            })?;
        }
        Ok(())
    }
}
