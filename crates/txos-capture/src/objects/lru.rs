use std::collections::HashMap;

use txos_core::NodeId;

/// A bounded cache by node. When it is full, the quarter that was used longest ago goes.
#[derive(Debug)]
pub(crate) struct Lru<V> {
    entries: HashMap<NodeId, (V, u64)>,
    capacity: usize,
    clock: u64,
}

impl<V: Clone> Lru<V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Lru { entries: HashMap::with_capacity(capacity), capacity, clock: 0 }
    }

    pub(crate) fn get(&mut self, node: NodeId) -> Option<V> {
        self.clock += 1;
        let (value, used) = self.entries.get_mut(&node)?;
        *used = self.clock;
        Some(value.clone())
    }

    pub(crate) fn insert(&mut self, node: NodeId, value: V) {
        if self.entries.len() >= self.capacity {
            self.make_room();
        }
        self.clock += 1;
        self.entries.insert(node, (value, self.clock));
    }

    fn make_room(&mut self) {
        let mut uses: Vec<u64> = self.entries.values().map(|(_, used)| *used).collect();
        let place = uses.len() / 4;
        let (_, limit, _) = uses.select_nth_unstable(place);
        let limit = *limit;
        self.entries.retain(|_, (_, used)| *used > limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_used() {
        let mut lru = Lru::new(8);
        let node = |raw| NodeId::from_raw(raw).unwrap();
        for raw in 1..100 {
            lru.insert(node(raw), raw);
            assert_eq!(lru.get(node(1)), Some(1));
            assert!(lru.entries.len() <= 8);
        }
        assert_eq!(lru.get(node(99)), Some(99));
        assert_eq!(lru.get(node(50)), None);
    }
}
