//! What people ask the contention manager, and what they are told where none runs.

use std::{
    os::fd::OwnedFd,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use txos_core::contention::Policy;
use txos_view::Channel;

use super::{
    Row, Stats,
    memory::read_all,
    message::{ToManager, ToTransaction},
    server::{POLICY, read_policy},
    socket::Place,
    stats::FILE,
};

/// A message, with a descriptor where one belongs to it.
type Answer = (ToTransaction, Option<OwnedFd>);

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// The transactions that run in the state directory at `state`.
///
/// # Errors
/// If a manager is there and does not answer.
pub fn table(state: &Path) -> Result<Vec<Row>> {
    match ask(state, &ToManager::Table)? {
        Some((ToTransaction::Table, Some(rows))) => {
            let rows = read_all(rows).context("the contention manager's table cannot be read")?;
            serde_json::from_slice(&rows)
                .context("the contention manager's table is not understood")
        }
        Some((other, _)) => Err(unexpected(&other)),
        None => Ok(Vec::new()),
    }
}

/// What has been counted in the state directory at `state`.
///
/// # Errors
/// If a manager is there and does not answer.
pub fn stats(state: &Path) -> Result<Stats> {
    match ask(state, &ToManager::Stats)? {
        Some((ToTransaction::Stats(stats), _)) => Ok(*stats),
        Some((other, _)) => Err(unexpected(&other)),
        None => Ok(Stats::load(&state.join(FILE))),
    }
}

/// The policy of the state directory at `state`.
///
/// # Errors
/// If a manager is there and does not answer.
pub fn policy(state: &Path) -> Result<Policy> {
    match ask(state, &ToManager::Policy(None))? {
        Some((ToTransaction::Policy(policy), _)) => Ok(policy),
        Some((other, _)) => Err(unexpected(&other)),
        None => Ok(read_policy(&state.join(POLICY))),
    }
}

/// Sets the policy of the state directory at `state`, for what runs and what comes.
///
/// # Errors
/// If it cannot be written, or a manager is there and does not answer.
pub fn set_policy(state: &Path, policy: Policy) -> Result<()> {
    // First where the next manager finds it, so that none is started in between with the old one.
    let (path, aside) = (state.join(POLICY), state.join("policy.new"));
    std::fs::write(&aside, format!("{policy}\n"))
        .and_then(|()| std::fs::rename(&aside, &path))
        .with_context(|| format!("cannot write {}", path.display()))?;
    ask(state, &ToManager::Policy(Some(policy))).map(drop)
}

/// Asks the manager; `None` if none runs.
fn ask(state: &Path, question: &ToManager) -> Result<Option<Answer>> {
    let place = Place::of(state)?;
    let began = Instant::now();
    loop {
        let Some(channel) = place.connect()? else { return Ok(None) };
        if channel.send(question, None).is_ok()
            && let Some(answer) = answer(&channel, state)?
        {
            return Ok(Some(answer));
        }
        // It was just about to end.
        if began.elapsed() > PATIENCE {
            bail!("the contention manager of {} ends all connections", state.display());
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn answer(channel: &Channel, state: &Path) -> Result<Option<Answer>> {
    let wait = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let count = poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&wait))?;
    if count == 0 {
        bail!(
            "what listens at {} does not answer: it is no contention manager, or it is stopped; \
             end it",
            state.join("manager").display()
        );
    }
    channel.receive().map_err(|error| anyhow!("{error}"))
}

fn unexpected(answer: &ToTransaction) -> anyhow::Error {
    anyhow!("the contention manager gave another answer than asked for: {answer:?}")
}
