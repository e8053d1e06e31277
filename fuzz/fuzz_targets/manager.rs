//! What transactions say to the contention manager and it to them, and what the arbiter makes of it in
//! whatever order it comes: lines of JSON, each led by a byte that says who speaks.
#![no_main]
#![allow(dead_code)] // parts of the binary, of which a part is used

#[path = "../../crates/txos/src/contention/message.rs"]
mod message;
#[path = "../../crates/txos/src/contention/stats.rs"]
mod stats;
#[path = "../../crates/txos/src/text.rs"]
mod text;

use std::collections::HashMap;

use message::{ToManager, ToTransaction};
use stats::Stats;
use txos_core::contention::{Arbiter, Policy};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut arbiter = Arbiter::new(Policy::default());
    let mut stats = Stats::default();
    let mut known = HashMap::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some((speaker, line)) = line.split_first() else { continue };
        if let Ok(message) = serde_json::from_slice::<ToTransaction>(line) {
            same(&message);
        }
        let Ok(message) = serde_json::from_slice::<ToManager>(line) else { continue };
        same(&message);
        let id = known.get(speaker).copied();
        // As `contention/server.rs` does.
        let actions = match (message, id) {
            (ToManager::Begin { standing, .. }, id) if id.is_none_or(|id| id == standing.id) => {
                known.insert(*speaker, standing.id);
                arbiter.begin(standing)
            }
            (ToManager::Ready { read, .. }, Some(id)) => arbiter.ready(id, read),
            (ToManager::Answer { hold, met, read }, Some(id)) => {
                arbiter.answer(id, hold, met.is_some(), read)
            }
            (ToManager::Touch { hold, read }, Some(id)) => arbiter.touch(id, hold, read),
            (ToManager::Stopped, Some(id)) => arbiter.stopped(id),
            (ToManager::Stuck(stuck), Some(id)) => arbiter.stuck(id, stuck),
            (ToManager::End(ended), Some(id)) => {
                stats.ended(&ended);
                arbiter.end(id)
            }
            (ToManager::Policy(Some(policy)), _) => arbiter.set_policy(policy),
            _ => Vec::new(),
        };
        assert!(actions.len() <= 10_000);
    }
    for id in known.into_values() {
        let _ = arbiter.leave(id);
    }
    assert!(arbiter.is_empty(), "somebody stays whom nobody knows");
});

/// It is the same when it is written and read again.
fn same<T: serde::Serialize + serde::de::DeserializeOwned>(message: &T) {
    let text = serde_json::to_vec(message).expect("a message can be written");
    let again: T = serde_json::from_slice(&text).expect("what was written can be read");
    assert_eq!(serde_json::to_vec(&again).expect("again"), text);
}
