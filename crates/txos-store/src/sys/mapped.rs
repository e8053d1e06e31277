//! A file mapped into memory and shared with other processes.
#![allow(unsafe_code)] // mmap(2); the two blocks below are all of it

use std::{
    fs::File,
    marker::PhantomData,
    ops::Deref,
    ptr::NonNull,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::{
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap, munmap},
};

/// What may lie in memory that other processes change at any moment.
///
/// # Safety
/// The type must consist of atomics alone, so that every pattern of bytes is a value and every
/// access is a race that the language permits.
pub(crate) unsafe trait Shared: Sync {}

/// Device and inode of all files that this process has mapped so.
static FILES: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

fn files() -> MutexGuard<'static, Vec<(u64, u64)>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a file is one that the store itself has mapped into this process, shared and writable.
pub fn maps_for_itself(dev: u64, ino: u64) -> bool {
    files().contains(&(dev, ino))
}

/// A `T` in a mapped file. The mapping lives as long as this.
pub(crate) struct Mapped<T: Shared> {
    at: NonNull<T>,
    /// Device and inode.
    file: (u64, u64),
    owns: PhantomData<T>,
}

// SAFETY: a `T: Shared` is `Sync`, and the mapping is bound to no thread.
unsafe impl<T: Shared> Send for Mapped<T> {}
// SAFETY: as above; only `&T` is given out.
unsafe impl<T: Shared> Sync for Mapped<T> {}

impl<T: Shared> Mapped<T> {
    /// Maps the beginning of `file`, which is made long enough.
    ///
    /// # Errors
    /// What `ftruncate(2)` and `mmap(2)` give.
    pub(crate) fn new(file: &File) -> Result<Self, Errno> {
        let size = size_of::<T>() as u64;
        if file.metadata().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?.len()
            < size
        {
            rustix::fs::ftruncate(file, size)?;
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; the file is at least as long
        // as `T`, and only its owner, who never shortens it, may open it.
        let at = unsafe {
            mmap(std::ptr::null_mut(), size_of::<T>(), protection, MapFlags::SHARED, file, 0)
        }?;
        let at = NonNull::new(at.cast()).ok_or(Errno::NOMEM)?;
        let stat = rustix::fs::fstat(file)?;
        let file = (stat.st_dev, stat.st_ino);
        files().push(file);
        Ok(Mapped { at, file, owns: PhantomData })
    }
}

impl<T: Shared> Deref for Mapped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mapping is as long as `T`, page-aligned, and lives as long as `self`; any
        // bytes are a `T: Shared`.
        unsafe { self.at.as_ref() }
    }
}

impl<T: Shared> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this length, and nothing borrowed from it outlives `self`.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), size_of::<T>()) };
        let mut files = files();
        if let Some(at) = files.iter().position(|file| *file == self.file) {
            files.swap_remove(at);
        }
    }
}
