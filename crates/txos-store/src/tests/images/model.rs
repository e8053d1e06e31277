//! What a disk may hold after a power cut, given what was asked of it.
//!
//! # The model
//!
//! A run is a list of events on objects: a page of content, a size, attributes, and changes of
//! names, of which one call's are one event. What was flushed is there. Of the rest
//!
//! - each page is there in one of its versions since the flush, whatever the others are; where the
//!   file system has smaller blocks, or the disk writes less than a page at once, that holds for each
//!   part of a page alone (*tearing*): an image is made with parts of 4096, 1024 or 512 bytes;
//! - on an *ordered* file system all else is there up to some moment, and nothing later (a journal
//!   of metadata); a flush of an object brings all that happened up to its last change, a flush of
//!   its content all up to the last change of its size;
//! - on an *unordered* one each size, attribute and change of names is there or not, except that
//!   changes of names of one object, and of one name, keep their order: else a rename would not be
//!   atomic, and an object could have two places or none; a flush brings what concerns that object, and what concerns names in it.

use std::{
    collections::{BTreeMap, HashSet},
    ffi::OsString,
};

use super::rng::Rng;

/// An object, by the order in which it was met.
pub(super) type Node = usize;

/// Attributes as they are compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Look {
    pub perm: u32,
    pub owner: (u32, u32),
    pub xattrs: BTreeMap<std::ffi::CString, Vec<u8>>,
}

/// What happened.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Page { node: Node, page: u64, bytes: Vec<u8> },
    Size { node: Node, size: u64 },
    Look { node: Node, look: Look },
    Names { changes: Vec<(Node, OsString, Option<Node>)>, nodes: Vec<Node> },
    Flush { node: Node, all: bool },
    FlushFs { device: u64 },
}

/// The disk at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Image {
    /// Pages of 4096 bytes, the last cut at the size.
    pub pages: BTreeMap<(Node, u64), Vec<u8>>,
    pub sizes: BTreeMap<Node, u64>,
    pub looks: BTreeMap<Node, Look>,
    pub names: BTreeMap<(Node, OsString), Node>,
}

impl Image {
    pub(super) fn take(&mut self, event: &Event) {
        match event {
            Event::Page { node, page, bytes } => {
                self.pages.insert((*node, *page), bytes.clone());
            }
            Event::Size { node, size } => {
                let old = self.sizes.insert(*node, *size).unwrap_or(0);
                if *size < old {
                    self.cut(*node, *size);
                }
            }
            Event::Look { node, look } => {
                self.looks.insert(*node, look.clone());
            }
            Event::Names { changes, .. } => {
                for (dir, name, node) in changes {
                    match node {
                        Some(node) => self.names.insert((*dir, name.clone()), *node),
                        None => self.names.remove(&(*dir, name.clone())),
                    };
                }
            }
            Event::Flush { .. } | Event::FlushFs { .. } => {}
        }
    }

    /// Takes some parts of a page.
    fn tear(
        &mut self,
        at: (Node, u64),
        bytes: &[u8],
        part: usize,
        mut taken: impl FnMut() -> bool,
    ) {
        let page = self.pages.entry(at).or_insert_with(|| vec![0; bytes.len()]);
        for (old, new) in page.chunks_mut(part).zip(bytes.chunks(part)) {
            if taken() {
                old.copy_from_slice(new);
            }
        }
    }

    /// What a shorter file lost reads zero when it grows again.
    fn cut(&mut self, node: Node, size: u64) {
        for ((_, page), bytes) in self.pages.range_mut((node, size / 4096)..=(node, u64::MAX)) {
            let kept = size.saturating_sub(page * 4096).min(4096) as usize;
            bytes[kept..].fill(0);
        }
    }

    /// The content of a file.
    pub(super) fn content(&self, node: Node) -> Vec<u8> {
        let size = self.sizes.get(&node).copied().unwrap_or(0) as usize;
        let mut content = vec![0; size];
        for ((_, page), bytes) in self.pages.range((node, 0)..=(node, u64::MAX)) {
            let start = *page as usize * 4096;
            if start < size {
                let end = size.min(start + bytes.len());
                content[start..end].copy_from_slice(&bytes[..end - start]);
            }
        }
        content
    }
}

/// Which rules a file system keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Ordered,
    Unordered,
}

/// A run: what was there, what happened, and on which device each object is.
pub(super) struct History {
    pub base: Image,
    pub events: Vec<Event>,
    pub devices: Vec<u64>,
}

impl History {
    /// One of the images that a power cut after the first `cut` events may leave.
    pub(super) fn image(&self, cut: usize, order: Order, rng: &mut Rng) -> Image {
        let kept = match order {
            Order::Ordered => self.ordered(cut, rng),
            Order::Unordered => self.unordered(cut, rng),
        };
        let part = *rng.of(&[4096, 1024, 512]);
        let certain = self.certain(cut, order);
        let mut image = self.base.clone();
        for (index, event) in self.events[..cut].iter().enumerate() {
            match event {
                Event::Page { node, page, bytes } if !certain[index] && part < 4096 => {
                    image.tear((*node, *page), bytes, part, || rng.half());
                }
                _ if kept[index] => image.take(event),
                _ => {}
            }
        }
        image
    }

    fn device(&self, event: &Event) -> u64 {
        match event {
            Event::Page { node, .. }
            | Event::Size { node, .. }
            | Event::Look { node, .. }
            | Event::Flush { node, .. } => self.devices[*node],
            Event::Names { nodes, .. } => self.devices[nodes[0]],
            Event::FlushFs { device } => *device,
        }
    }

    fn concerns(event: &Event, node: Node) -> bool {
        match event {
            Event::Page { node: other, .. }
            | Event::Size { node: other, .. }
            | Event::Look { node: other, .. } => *other == node,
            Event::Names { changes, nodes } => {
                nodes.contains(&node) || changes.iter().any(|(dir, _, _)| *dir == node)
            }
            Event::Flush { .. } | Event::FlushFs { .. } => false,
        }
    }

    /// Which events a flush at `at` has brought to the disk for certain, pages apart.
    fn certain(&self, cut: usize, order: Order) -> Vec<bool> {
        let mut certain = vec![false; cut];
        for (at, flush) in self.events[..cut].iter().enumerate() {
            match flush {
                Event::FlushFs { device } => {
                    for (index, event) in self.events[..at].iter().enumerate() {
                        certain[index] |= self.device(event) == *device;
                    }
                }
                Event::Flush { node, all } => {
                    let device = self.devices[*node];
                    let mut last = None;
                    for (index, event) in self.events[..at].iter().enumerate() {
                        if let Event::Page { node: other, .. } = event {
                            certain[index] |= other == node;
                            continue;
                        }
                        let brings = match event {
                            Event::Size { node: other, .. } => other == node,
                            other => *all && Self::concerns(other, *node),
                        };
                        if brings {
                            certain[index] = true;
                            last = Some(index);
                        }
                    }
                    if let (Order::Ordered, Some(last)) = (order, last) {
                        for (index, event) in self.events[..last].iter().enumerate() {
                            let page = matches!(event, Event::Page { .. });
                            certain[index] |= !page && self.device(event) == device;
                        }
                    }
                }
                _ => {}
            }
        }
        certain
    }

    fn ordered(&self, cut: usize, rng: &mut Rng) -> Vec<bool> {
        let certain = self.certain(cut, Order::Ordered);
        // For each device the moment behind which no metadata is kept.
        let mut limits: BTreeMap<u64, usize> = BTreeMap::new();
        let all: HashSet<u64> = self.devices.iter().copied().collect();
        for device in all {
            let least = (0..cut)
                .rev()
                .find(|index| {
                    let event = &self.events[*index];
                    certain[*index]
                        && !matches!(event, Event::Page { .. })
                        && self.device(event) == device
                })
                .map_or(0, |index| index + 1);
            limits.insert(device, least + rng.below(cut - least + 1));
        }
        (0..cut)
            .map(|index| match &self.events[index] {
                Event::Page { .. } => certain[index] || rng.half(),
                event => index < limits[&self.device(event)],
            })
            .collect()
    }

    fn unordered(&self, cut: usize, rng: &mut Rng) -> Vec<bool> {
        let mut certain = self.certain(cut, Order::Unordered);
        let mut needed = Touched::default();
        for index in (0..cut).rev() {
            if let Event::Names { changes, nodes } = &self.events[index] {
                certain[index] |= needed.meets(changes, nodes);
                if certain[index] {
                    needed.add(changes, nodes);
                }
            }
        }
        let odds = 1 + rng.below(4);
        let mut lost = Touched::default();
        (0..cut)
            .map(|index| match &self.events[index] {
                Event::Page { .. } => certain[index] || rng.half(),
                Event::Names { changes, nodes } => {
                    let chosen = !lost.meets(changes, nodes) && rng.below(4) >= odds.min(3);
                    let kept = certain[index] || chosen;
                    if !kept {
                        lost.add(changes, nodes);
                    }
                    kept
                }
                _ => certain[index] || rng.half(),
            })
            .collect()
    }
}

/// Objects and names that changes of names are about.
#[derive(Default)]
struct Touched {
    nodes: HashSet<Node>,
    names: HashSet<(Node, OsString)>,
}

impl Touched {
    fn add(&mut self, changes: &[(Node, OsString, Option<Node>)], nodes: &[Node]) {
        self.nodes.extend(nodes);
        self.names.extend(changes.iter().map(|(dir, name, _)| (*dir, name.clone())));
    }

    fn meets(&self, changes: &[(Node, OsString, Option<Node>)], nodes: &[Node]) -> bool {
        nodes.iter().any(|node| self.nodes.contains(node))
            || changes.iter().any(|(dir, name, _)| self.names.contains(&(*dir, name.clone())))
    }
}
