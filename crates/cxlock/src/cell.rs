//! Transactional cells: the memory that sections share.
//!
//! A cell is one machine word in an atomic, with whatever its engine needs beside it. All access
//! goes through a section, a guard or a transaction, so that an engine in software sees every load
//! and store. A cell belongs to one engine by its type: cells of different engines can't be mixed
//! up in one section.

use crate::engine::Engine;
use crate::sync::{AtomicU64, Ordering};
use std::marker::PhantomData;

/// Values that fit in a machine word.
///
/// `from_word(into_word(v))` must be `v`.
pub trait Value: Copy {
    /// As a word.
    fn into_word(self) -> u64;
    /// From the word that [`Value::into_word`] gave.
    fn from_word(word: u64) -> Self;
}

macro_rules! integers {
    ($($int:ty as $unsigned:ty),*) => {$(
        impl Value for $int {
            #[inline]
            fn into_word(self) -> u64 {
                u64::from(self.cast_unsigned())
            }
            #[inline]
            fn from_word(word: u64) -> Self {
                // Truncation gives back what `into_word` widened.
                (word as $unsigned).cast_signed()
            }
        }
        impl Value for $unsigned {
            #[inline]
            fn into_word(self) -> u64 {
                u64::from(self)
            }
            #[inline]
            fn from_word(word: u64) -> Self {
                word as $unsigned
            }
        }
    )*};
}
integers!(i8 as u8, i16 as u16, i32 as u32, i64 as u64);

impl Value for usize {
    fn into_word(self) -> u64 {
        self as u64
    }
    fn from_word(word: u64) -> Self {
        word as usize
    }
}

impl Value for isize {
    fn into_word(self) -> u64 {
        self.cast_unsigned() as u64
    }
    fn from_word(word: u64) -> Self {
        (word as usize).cast_signed()
    }
}

impl Value for bool {
    fn into_word(self) -> u64 {
        u64::from(self)
    }
    fn from_word(word: u64) -> Self {
        word != 0
    }
}

impl Value for char {
    fn into_word(self) -> u64 {
        u64::from(u32::from(self))
    }
    fn from_word(word: u64) -> Self {
        char::from_u32(word as u32).unwrap_or(char::REPLACEMENT_CHARACTER)
    }
}

impl Value for f32 {
    fn into_word(self) -> u64 {
        u64::from(self.to_bits())
    }
    fn from_word(word: u64) -> Self {
        Self::from_bits(word as u32)
    }
}

impl Value for f64 {
    fn into_word(self) -> u64 {
        self.to_bits()
    }
    fn from_word(word: u64) -> Self {
        Self::from_bits(word)
    }
}

/// An optional index or count: `None` is the word that no 32-bit value has.
impl Value for Option<u32> {
    fn into_word(self) -> u64 {
        self.map_or(u64::MAX, u64::from)
    }
    fn from_word(word: u64) -> Self {
        u32::try_from(word).ok()
    }
}

/// The untyped part of a cell, which engines see.
#[derive(Debug, Default)]
pub struct Slot<M> {
    /// What the engine keeps beside the value.
    pub meta: M,
    value: AtomicU64,
}

impl<M> Slot<M> {
    /// The value; with `Acquire`, so that a reader of a new value also sees the version held.
    #[inline]
    pub fn load(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }

    /// Stores the value; with `Release`, for the reason that [`Slot::load`] gives.
    #[inline]
    pub fn store(&self, value: u64) {
        self.value.store(value, Ordering::Release);
    }
}

/// One shared value of type `T`, for sections of engine `E`.
#[derive(Debug)]
pub struct TCell<T, E: Engine> {
    pub(crate) slot: Slot<E::Meta>,
    _value: PhantomData<fn(T) -> T>,
}

impl<T: Value, E: Engine> TCell<T, E> {
    /// A cell with a first value.
    #[must_use]
    pub fn new(value: T) -> Self {
        let slot = Slot { meta: E::Meta::default(), value: AtomicU64::new(value.into_word()) };
        Self { slot, _value: PhantomData }
    }

    /// The value, by the only owner.
    pub fn into_inner(self) -> T {
        T::from_word(self.slot.load())
    }

    /// One committed value, outside of any section: atomic by itself, and nothing is promised
    /// about other cells. Waits while a commit holds the cell.
    #[must_use]
    pub fn peek(&self) -> T {
        T::from_word(E::read_held(&self.slot))
    }
}

impl<T: Value + Default, E: Engine> Default for TCell<T, E> {
    fn default() -> Self {
        Self::new(T::default())
    }
}
