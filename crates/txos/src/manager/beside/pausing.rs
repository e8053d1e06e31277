use std::time::{Duration, Instant};

use txos_domain::{DomainError, Pause, Pauser};
use txos_outside::Outside;
use txos_store::StoreError;

/// The pause of one commit, as the store wants it; of nobody, where there is no domain.
#[derive(Debug, Default)]
pub struct Pausing<'b> {
    pub(super) pauser: Option<Pauser>,
    pub(super) outside: Option<&'b Outside>,
    pause: Option<(Pause, Instant)>,
    stood: Option<Duration>,
    /// How many pauses lasted for their limit before the commit was decided.
    expired: u32,
    /// Whether the last one did.
    late: bool,
}

/// So many pauses may last for their limit.
const TRIES: u32 = 4;

impl<'b> Pausing<'b> {
    pub(super) fn new(pauser: Pauser, outside: Option<&'b Outside>) -> Pausing<'b> {
        Pausing { pauser: Some(pauser), outside, ..Pausing::default() }
    }

    /// Whether the last pause was over before the commit was decided, and another one may be tried.
    pub fn may_try_again(&self) -> bool {
        self.late && self.expired < TRIES
    }

    /// How long the domain stood still, at the last time; `None` if it did not.
    pub fn stood(&self) -> Option<Duration> {
        self.stood
    }
}

fn failed(error: DomainError) -> StoreError {
    StoreError::Domain(error.to_string())
}

impl txos_store::Domain for Pausing<'_> {
    fn pause(&mut self) -> Result<(), StoreError> {
        let Some(pauser) = &self.pauser else { return Ok(()) };
        // Inside the pause only what came since is to be read.
        if let Some(outside) = self.outside {
            outside.drain();
        }
        let pause = pauser.pause().map_err(failed)?;
        let since = pause.began();
        self.pause = Some((pause, since));
        self.late = false;
        Ok(())
    }

    fn decide(&mut self) -> Result<(), StoreError> {
        let Some((pause, _)) = &self.pause else { return Ok(()) };
        let decided = pause.decide();
        if matches!(decided, Err(DomainError::Expired(_))) {
            self.late = true;
            self.expired += 1;
        }
        decided.map_err(failed)
    }

    fn resume(&mut self) {
        if let Some((pause, since)) = self.pause.take() {
            drop(pause);
            self.stood = Some(since.elapsed());
        }
    }
}
