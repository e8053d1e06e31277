//! One set-associative cache array with true LRU, holding MESI states and no data.
//!
//! A way is one word, `line << 2 | state`, and ways are kept in recency order, so a hit moves its
//! way to the front and the victim is always the last. Zero is an invalid way.

/// MESI state of a line in one cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Mesi {
    /// Not here.
    Invalid = 0,
    /// Here, perhaps elsewhere too, equal to memory.
    Shared = 1,
    /// Here alone, equal to memory.
    Exclusive = 2,
    /// Here alone, newer than memory.
    Modified = 3,
}

impl Mesi {
    fn of(way: u32) -> Self {
        match way & 3 {
            0 => Self::Invalid,
            1 => Self::Shared,
            2 => Self::Exclusive,
            _ => Self::Modified,
        }
    }
}

/// What had to leave to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evicted {
    /// The line that left.
    pub line: u32,
    /// Its state when it left.
    pub state: Mesi,
    /// The mark that [`Array::mark`] had put on it, or 0.
    pub mark: u32,
}

/// A cache of `W` ways.
pub struct Array<const W: usize> {
    ways: Vec<[u32; W]>,
    marks: Vec<[u32; W]>,
    mask: u32,
}

impl<const W: usize> Array<W> {
    /// A cache of `bytes`, with marks (one word a way) if `marked`.
    pub fn new(bytes: u32, marked: bool) -> Self {
        let sets = (bytes / 64) as usize / W;
        Self {
            ways: vec![[0; W]; sets],
            marks: vec![[0; W]; if marked { sets } else { 0 }],
            mask: sets as u32 - 1,
        }
    }

    #[inline]
    fn set(&self, line: u32) -> usize {
        (line & self.mask) as usize
    }

    /// Looks `line` up and makes it the most recent; its state.
    #[inline]
    pub fn touch(&mut self, line: u32) -> Mesi {
        let s = self.set(line);
        let ways = &mut self.ways[s];
        if ways[0] >> 2 == line && ways[0] != 0 {
            return Mesi::of(ways[0]);
        }
        for i in 1..W {
            if ways[i] >> 2 == line && ways[i] != 0 {
                ways[..=i].rotate_right(1);
                if !self.marks.is_empty() {
                    self.marks[s][..=i].rotate_right(1);
                }
                return Mesi::of(self.ways[s][0]);
            }
        }
        Mesi::Invalid
    }

    /// The state of `line`, recency unchanged.
    pub fn peek(&self, line: u32) -> Mesi {
        self.ways[self.set(line)]
            .iter()
            .find(|w| **w >> 2 == line && **w != 0)
            .map_or(Mesi::Invalid, |w| Mesi::of(*w))
    }

    /// Puts `line` in front with `state`; what left, if anything.
    pub fn insert(&mut self, line: u32, state: Mesi) -> Option<Evicted> {
        let s = self.set(line);
        let free = self.ways[s].iter().position(|w| *w == 0).unwrap_or(W - 1);
        let old = self.ways[s][free];
        self.ways[s][..=free].rotate_right(1);
        self.ways[s][0] = line << 2 | state as u32;
        let mut mark = 0;
        if !self.marks.is_empty() {
            mark = self.marks[s][free];
            self.marks[s][..=free].rotate_right(1);
            self.marks[s][0] = 0;
        }
        (old != 0).then(|| Evicted { line: old >> 2, state: Mesi::of(old), mark })
    }

    /// Sets the state of `line` if it is here; `Invalid` removes it.
    pub fn set_state(&mut self, line: u32, state: Mesi) {
        let s = self.set(line);
        for i in 0..W {
            let w = &mut self.ways[s][i];
            if *w >> 2 == line && *w != 0 {
                *w = if state == Mesi::Invalid { 0 } else { line << 2 | state as u32 };
                if state == Mesi::Invalid && !self.marks.is_empty() {
                    self.marks[s][i] = 0;
                }
                return;
            }
        }
    }

    /// Marks `line`, which was just touched or inserted, with `mark`.
    #[inline]
    pub fn mark(&mut self, line: u32, mark: u32) {
        let s = self.set(line);
        if self.ways[s][0] >> 2 == line {
            self.marks[s][0] = mark;
        }
    }

    /// The mark on `line`, 0 if it has none or is not here.
    pub fn mark_of(&self, line: u32) -> u32 {
        let s = self.set(line);
        let way = self.ways[s].iter().position(|w| *w >> 2 == line && *w != 0);
        way.map_or(0, |i| self.marks.get(s).map_or(0, |m| m[i]))
    }

    /// All lines here with their states, in no particular order.
    pub fn lines(&self) -> impl Iterator<Item = (u32, Mesi)> + '_ {
        self.ways.iter().flatten().filter(|w| **w != 0).map(|w| (*w >> 2, Mesi::of(*w)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_leaves_first() {
        // 4 ways, 64 sets: lines 0, 64, 128, ... share set 0.
        let mut a: Array<4> = Array::new(16 << 10, true);
        for i in 1..=4 {
            assert_eq!(a.insert(i * 64, Mesi::Shared), None);
        }
        assert_eq!(a.touch(64), Mesi::Shared);
        a.mark(64, 9);
        let out = a.insert(5 * 64, Mesi::Exclusive).expect("full set evicts");
        assert_eq!((out.line, out.mark), (128, 0));
        for i in 6..=7 {
            a.insert(i * 64, Mesi::Modified);
        }
        let out = a.insert(8 * 64, Mesi::Shared).expect("marked way evicts");
        assert_eq!((out.line, out.mark, out.state), (64, 9, Mesi::Shared));
    }

    #[test]
    fn removal_frees_the_way() {
        let mut a: Array<4> = Array::new(16 << 10, false);
        a.insert(3, Mesi::Exclusive);
        a.set_state(3, Mesi::Modified);
        assert_eq!(a.peek(3), Mesi::Modified);
        a.set_state(3, Mesi::Invalid);
        assert_eq!(a.peek(3), Mesi::Invalid);
        assert_eq!(a.lines().count(), 0);
    }
}
