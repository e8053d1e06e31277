use std::ops::Range;

/// Shown for a user or group that has no number inside: the kernel takes it for "nobody known".
pub(crate) const UNMAPPED: u32 = u32::MAX;

/// How user or group ids of the stable system are numbered inside the view
/// (`user_namespaces(7)`, `/proc/PID/uid_map`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMap {
    /// Ranges of ids outside, with the first id inside; empty: the same ids.
    ranges: Vec<(Range<u32>, u32)>,
}

impl IdMap {
    /// The map that changes nothing.
    pub fn identity() -> Self {
        IdMap::default()
    }

    /// The map of a view in which `id` alone has a name, its own; `None`: the map that changes nothing.
    pub fn only(id: Option<u32>) -> Self {
        match id {
            Some(id) => IdMap { ranges: vec![(id..id.saturating_add(1), id)] },
            None => IdMap::identity(),
        }
    }

    /// The map in the text of `/proc/PID/uid_map` or `gid_map`: lines of the first id inside, the
    /// first id outside and a count. `None` if it is anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut ranges = Vec::new();
        for line in text.lines() {
            let mut fields = line.split_ascii_whitespace().map(str::parse::<u32>);
            let (inside, outside, count) =
                (fields.next()?.ok()?, fields.next()?.ok()?, fields.next()?.ok()?);
            ranges.push((outside..outside.checked_add(count)?, inside));
        }
        (!ranges.is_empty()).then_some(IdMap { ranges })
    }

    /// The id inside of `id` outside.
    pub(crate) fn inside(&self, id: u32) -> u32 {
        if self.ranges.is_empty() {
            return id;
        }
        let range = self.ranges.iter().find(|(outside, _)| outside.contains(&id));
        range.map_or(UNMAPPED, |(outside, inside)| inside + (id - outside.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_and_leaves_out() {
        let map = IdMap::parse("         0       1000          1\n 1 100000 65536\n").unwrap();
        assert_eq!(map.inside(1000), 0);
        assert_eq!(map.inside(100_010), 11);
        assert_eq!(map.inside(0), UNMAPPED);
        assert_eq!(IdMap::identity().inside(7), 7);
        assert_eq!(IdMap::parse("0 0\n"), None);
        assert_eq!(IdMap::parse(""), None);
        assert_eq!(IdMap::parse("0 4294967295 2"), None);
    }
}
