//! What a transaction has written to one file, over what is stable in it.
//!
//! # Invariants
//!
//! - Pieces do not overlap and none is empty: a byte is either stable, written, or zero.
//! - A stable byte at or past `cut` is never seen again: a file cut short and grown again shows
//!   zeros there, as with `truncate(2)`.
//! - Writing asks for nothing stable: two transactions that write different parts of one file, or
//!   both append, learn nothing of each other and both commit. Only who asks for the size, or
//!   reads, has read.

use std::collections::BTreeMap;

/// The edits of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edits {
    /// Stable bytes from here on are hidden.
    cut: Option<u64>,
    /// The size, where a truncation fixed it; grown by what was written past it since.
    fixed: Option<u64>,
    /// What was written, by offset.
    pieces: BTreeMap<u64, Vec<u8>>,
    /// What was appended at an end that nobody has asked for yet.
    appended: Vec<u8>,
}

impl Edits {
    /// Those of a new, empty file.
    pub(crate) fn of_new() -> Self {
        Edits { cut: Some(0), fixed: Some(0), ..Edits::default() }
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        *self != Edits::default()
    }

    /// The size, where it does not rest on the stable one.
    pub(crate) fn own_size(&self) -> Option<u64> {
        self.fixed.map(|size| size + self.appended.len() as u64)
    }

    /// The size over a stable file of `base` bytes.
    pub(crate) fn size(&self, base: u64) -> u64 {
        self.end(base) + self.appended.len() as u64
    }

    /// Where appending begins.
    fn end(&self, base: u64) -> u64 {
        let written = self.pieces.last_key_value().map_or(0, |(at, piece)| at + len(piece));
        self.fixed.unwrap_or_else(|| base.max(written))
    }

    /// Settles where what was appended lies, over a stable file of `base` bytes.
    pub(crate) fn settle(&mut self, base: u64) {
        let appended = std::mem::take(&mut self.appended);
        if !appended.is_empty() {
            self.write(self.end(base), &appended);
        }
    }

    /// Whether something was appended at an end that is not settled.
    pub(crate) fn unsettled(&self) -> bool {
        !self.appended.is_empty()
    }

    /// Writes `data` at `at`. What was appended before must be settled.
    pub(crate) fn write(&mut self, at: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let end = at + data.len() as u64;
        self.clear(at, end);
        self.pieces.insert(at, data.to_vec());
        if let Some(size) = &mut self.fixed {
            *size = end.max(*size);
        }
    }

    /// Writes `data` at the end, wherever that is.
    pub(crate) fn append(&mut self, data: &[u8]) {
        match self.fixed {
            Some(size) => self.write(size, data),
            None => self.appended.extend_from_slice(data),
        }
    }

    /// Sets the size. What was appended before must be settled, unless `size` is 0.
    pub(crate) fn truncate(&mut self, size: u64) {
        if size == 0 {
            self.appended.clear();
        }
        self.cut = Some(self.cut.map_or(size, |cut| cut.min(size)));
        self.fixed = Some(size);
        self.clear(size, u64::MAX);
    }

    /// Takes all that is written between `from` and `to` away.
    fn clear(&mut self, from: u64, to: u64) {
        let before = self.pieces.range(..from).next_back().map(|(at, _)| *at);
        let mut touched: Vec<u64> = before.into_iter().collect();
        touched.extend(self.pieces.range(from..to).map(|(at, _)| *at));
        for at in touched {
            let Some(mut piece) = self.pieces.remove(&at) else { continue };
            let end = at + len(&piece);
            if end > to {
                self.pieces.insert(to, piece.split_off((to - at) as usize));
            }
            if at < from {
                piece.truncate(((from - at) as usize).min(piece.len()));
                self.pieces.insert(at, piece);
            }
        }
    }

    /// The ranges of stable bytes that show through between `from` and `to`, for a file that now
    /// has at least `to` bytes.
    pub(crate) fn gaps(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let to = self.cut.map_or(to, |cut| cut.min(to));
        let mut gaps = Vec::new();
        let mut at = from;
        let first = self.pieces.range(..=from).next_back().map_or(from, |(start, _)| *start);
        for (start, piece) in self.pieces.range(first..) {
            if *start >= to {
                break;
            }
            if *start > at {
                gaps.push((at, *start));
            }
            at = at.max(start + len(piece));
        }
        if at < to {
            gaps.push((at, to));
        }
        gaps
    }

    /// Lays what was written over `bytes`, which are those from `from` on.
    pub(crate) fn overlay(&self, from: u64, bytes: &mut [u8]) {
        let to = from + bytes.len() as u64;
        let first = self.pieces.range(..=from).next_back().map_or(from, |(start, _)| *start);
        for (start, piece) in self.pieces.range(first..to) {
            let begin = (*start).max(from);
            let end = (start + len(piece)).min(to);
            if begin < end {
                let source = &piece[(begin - start) as usize..(end - start) as usize];
                bytes[(begin - from) as usize..(end - from) as usize].copy_from_slice(source);
            }
        }
    }
}

fn len(piece: &[u8]) -> u64 {
    piece.len() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u8, Vec<u8>),
        Append(Vec<u8>),
        Truncate(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let data = || proptest::collection::vec(1u8.., 0..20);
        let step = prop_oneof![
            (any::<u8>(), data()).prop_map(|(at, data)| Step::Write(at, data)),
            data().prop_map(Step::Append),
            any::<u8>().prop_map(Step::Truncate),
        ];
        proptest::collection::vec(step, 0..12)
    }

    fn native(file: &mut Vec<u8>, step: &Step) {
        match step {
            Step::Write(_, data) if data.is_empty() => {}
            Step::Write(at, data) => {
                let end = *at as usize + data.len();
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[*at as usize..end].copy_from_slice(data);
            }
            Step::Append(data) => file.extend(data),
            Step::Truncate(size) => file.resize(*size as usize, 0),
        }
    }

    fn edit(edits: &mut Edits, base: u64, step: &Step) {
        match step {
            Step::Write(at, data) => {
                edits.settle(base);
                edits.write(u64::from(*at), data);
            }
            Step::Append(data) => edits.append(data),
            Step::Truncate(size) => {
                if *size > 0 {
                    edits.settle(base);
                }
                edits.truncate(u64::from(*size));
            }
        }
    }

    fn shown(edits: &Edits, base: &[u8]) -> Vec<u8> {
        let mut settled = edits.clone();
        settled.settle(base.len() as u64);
        let size = settled.size(base.len() as u64);
        let mut bytes = vec![0; size as usize];
        for (from, to) in settled.gaps(0, size) {
            let to = to.min(base.len() as u64);
            if from < to {
                bytes[from as usize..to as usize]
                    .copy_from_slice(&base[from as usize..to as usize]);
            }
        }
        settled.overlay(0, &mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn what_is_shown_is_what_a_file_would_hold(
            base in proptest::collection::vec(1u8.., 0..100),
            steps in steps(),
        ) {
            let mut file = base.clone();
            let mut edits = Edits::default();
            for step in &steps {
                let step = match step {
                    // Keep offsets where the model's u8 can name them.
                    Step::Write(at, data) => Step::Write(*at / 2, data.clone()),
                    Step::Truncate(size) => Step::Truncate(*size / 2),
                    other => other.clone(),
                };
                native(&mut file, &step);
                edit(&mut edits, base.len() as u64, &step);
                prop_assert_eq!(&shown(&edits, &base), &file);
            }
        }
    }

    #[test]
    fn appending_to_another_base_lands_at_its_end() {
        let mut edits = Edits::default();
        edits.append(b"x");
        assert_eq!(shown(&edits, b"abc"), b"abcx");
        assert_eq!(shown(&edits, b"abcde"), b"abcdex");
    }
}
