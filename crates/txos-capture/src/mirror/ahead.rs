//! Who lists a directory and then looks at everything in it.
//!
//! Tools that walk a tree (`find`, `ls -l`, `git status`, `tar`, `grep -r`) ask for the names of a
//! directory and then for each of them. To such a client a listing is given with the attributes of
//! its entries, which saves a request for each. What is given counts as read, whether it is looked
//! at or not; so it is given only to a client whose last directories were looked up nearly
//! completely, and no longer when it leaves directories half seen.
//!
//! Of an entry that was given, overlayfs still asks for a mark of its own when it is looked up, if
//! it is a regular file: that confirms it.

use std::collections::{HashMap, VecDeque};

use txos_core::{NodeId, workset::Facets};

use super::Mirror;

/// Directories of a client that are watched at a time.
const WATCHED: usize = 24;
/// Directories with fewer entries say nothing about a client.
const TELLING: u32 = 3;
/// So many directories looked at completely make a walker.
const ENOUGH: u32 = 3;
/// Confidence does not grow past this, so that it can be lost soon.
const MOST: u32 = 8;
/// What a directory that is left half seen costs.
const PENALTY: u32 = 2;
/// Clients that are watched at a time.
const CLIENTS: usize = 64;

/// A directory that a client has listed.
struct Watched {
    dir: NodeId,
    /// How many looks make it seen; 0 once it was counted.
    missing: u32,
    telling: bool,
}

#[derive(Default)]
struct Client {
    watched: VecDeque<Watched>,
    confidence: u32,
}

impl Client {
    fn look(&mut self, dir: NodeId) {
        // The directory in question is nearly always the last one.
        let Some(watched) = self.watched.iter_mut().rev().find(|watched| watched.dir == dir) else {
            return;
        };
        if watched.missing > 0 {
            watched.missing -= 1;
            if watched.missing == 0 && watched.telling {
                self.confidence = (self.confidence + 1).min(MOST);
            }
        }
    }

    fn watch(&mut self, dir: NodeId, missing: u32, telling: bool) {
        if self.watched.len() == WATCHED
            && let Some(oldest) = self.watched.pop_front()
            && oldest.telling
            && oldest.missing > 0
        {
            self.confidence = self.confidence.saturating_sub(PENALTY);
        }
        self.watched.push_back(Watched { dir, missing, telling });
    }
}

/// The clients of a capture.
pub(crate) struct Ahead {
    enabled: bool,
    clients: HashMap<u32, Client>,
}

impl Ahead {
    pub(super) fn new(enabled: bool) -> Self {
        Ahead { enabled, clients: HashMap::new() }
    }

    /// `client` looked up a name in `dir`, or was seen to use an entry that it had been given.
    pub(crate) fn looked_up(&mut self, client: u32, dir: NodeId) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.look(dir);
        }
    }

    /// Whether `client` walks trees. Asked before a directory is listed.
    pub(crate) fn walks(&self, client: u32) -> bool {
        self.enabled && self.clients.get(&client).is_some_and(|client| client.confidence >= ENOUGH)
    }

    /// `client` was given the names of `dir`, without anything else.
    pub(crate) fn listed(&mut self, client: u32, dir: NodeId, entries: usize) {
        // Nine out of ten.
        let entries = u32::try_from(entries).unwrap_or(u32::MAX);
        self.watch(client, dir, entries - entries / 10, entries >= TELLING);
    }

    /// `client` was given `files` regular files of `dir` with their attributes.
    pub(crate) fn given(&mut self, client: u32, dir: NodeId, files: usize) {
        // Half of them: who filters by name and looks at the rest is still served well.
        let files = u32::try_from(files).unwrap_or(u32::MAX);
        self.watch(client, dir, files / 2, files >= TELLING);
    }

    fn watch(&mut self, client: u32, dir: NodeId, missing: u32, telling: bool) {
        if !self.enabled {
            return;
        }
        if self.clients.len() >= CLIENTS && !self.clients.contains_key(&client) {
            self.clients.clear();
        }
        self.clients.entry(client).or_default().watch(dir, missing, telling);
    }
}

impl Mirror {
    /// Overlayfs looked for its own marks on an object for `client`: so the object is wanted, and
    /// not only read ahead.
    pub(crate) fn confirm(&self, client: u32, node: NodeId) {
        let dir = {
            let mut known = self.known();
            if !known.workset.facets(node).contains(Facets::SPECULATIVE) {
                return;
            }
            known.workset.unmark(node, Facets::SPECULATIVE);
            known.workset.first_name(node).map(|(dir, _)| dir)
        };
        if let Some(dir) = dir {
            self.ahead().looked_up(client, dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(raw: u64) -> NodeId {
        NodeId::from_raw(raw).unwrap()
    }

    /// Lists directories of ten entries, and looks at so many of each.
    fn list(ahead: &mut Ahead, dirs: std::ops::Range<u64>, looks: usize) {
        for number in dirs {
            if ahead.walks(7) {
                ahead.given(7, dir(number), 10);
            } else {
                ahead.listed(7, dir(number), 10);
            }
            (0..looks).for_each(|_| ahead.looked_up(7, dir(number)));
        }
    }

    #[test]
    fn a_walker_is_known_by_its_walk() {
        let mut ahead = Ahead::new(true);
        list(&mut ahead, 1..3, 10);
        assert!(!ahead.walks(7));
        list(&mut ahead, 3..4, 9);
        assert!(ahead.walks(7) && !ahead.walks(8));
        list(&mut ahead, 4..100, 5);
        assert!(ahead.walks(7), "half of what is given is used");
        list(&mut ahead, 100..160, 1);
        assert!(!ahead.walks(7));
    }

    #[test]
    fn who_looks_at_little_is_none() {
        let mut ahead = Ahead::new(true);
        list(&mut ahead, 1..100, 8);
        assert!(!ahead.walks(7));
        let mut off = Ahead::new(false);
        list(&mut off, 1..100, 10);
        assert!(!off.walks(7));
    }
}
