use std::collections::HashSet;

use txos_core::Touched;

/// More than this is not worth a list: whoever has it looks at everything.
const MOST: usize = 50_000;

/// What was touched since a point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Since {
    touched: HashSet<Touched>,
    unclean: Option<&'static str>,
}

impl Since {
    /// Whether this is all that can have been touched, as far as events tell; stores through
    /// mappings give none.
    pub fn clean(&self) -> bool {
        self.unclean.is_none()
    }

    /// Why it is not clean, for a person.
    pub fn why_unclean(&self) -> Option<&'static str> {
        self.unclean
    }

    /// What was touched, in no order.
    pub fn touched(&self) -> impl Iterator<Item = &Touched> {
        self.touched.iter()
    }

    pub(crate) fn add(&mut self, touched: &Touched) {
        if self.touched.len() >= MOST {
            self.spoil("too much was changed meanwhile");
        } else if !self.touched.contains(touched) {
            self.touched.insert(touched.clone());
        }
    }

    /// Something may be missing. The first reason stands.
    pub(crate) fn spoil(&mut self, why: &'static str) {
        self.unclean.get_or_insert(why);
    }
}

#[cfg(test)]
mod tests {
    use txos_core::{ObjectId, Stamp};

    use super::*;

    #[test]
    fn too_much_is_unclean() {
        let mut since = Since::default();
        for ino in 0..=MOST as u64 {
            let touched = Touched::Object(ObjectId { dev: 1, ino, birth: Stamp::default() });
            since.add(&touched);
            since.add(&touched);
        }
        assert_eq!((since.touched().count(), since.clean()), (MOST, false));
        since.spoil("later");
        assert_eq!(since.why_unclean(), Some("too much was changed meanwhile"));
    }
}
