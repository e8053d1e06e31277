//! Programs without a kernel: one closure for each processor, for litmus tests and measurements.

use std::cell::RefCell;
use std::pin::Pin;

use crate::config::Config;
use crate::error::Result;
use crate::guest::Cx;
use crate::machine::exec::{Frame, Program, Sim};
use crate::machine::{Machine, Vector};
use crate::mem::Addr;
use crate::stats::Stats;

type Main = Box<dyn FnOnce(Cx) -> Frame>;
type Handler = Box<dyn Fn(Cx, Vector) -> Frame>;

/// A program of independent threads, thread `i` on processor `i`.
#[derive(Default)]
pub struct Bare {
    mains: RefCell<Vec<Option<Main>>>,
    handler: Option<Handler>,
}

impl Bare {
    /// No thread yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a thread.
    #[must_use]
    pub fn cpu<F>(self, main: impl FnOnce(Cx) -> F + 'static) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        self.mains.borrow_mut().push(Some(Box::new(|cx| Box::pin(main(cx)))));
        self
    }

    /// Sets the interrupt handler; without one, an interrupt does nothing.
    #[must_use]
    pub fn on_interrupt<F>(mut self, handler: impl Fn(Cx, Vector) -> F + 'static) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        self.handler = Some(Box::new(move |cx, v| Box::pin(handler(cx, v))));
        self
    }

    /// Runs the threads on a machine of `cfg` with as many processors as threads; the counters,
    /// and the words at `look` when all have ended. `setup` may fill memory first.
    ///
    /// # Errors
    /// Whatever ended the run early.
    pub fn run(
        self,
        cfg: &Config,
        setup: impl FnOnce(&mut Machine),
        look: &[Addr],
    ) -> Result<(Stats, Vec<u32>)> {
        let threads = self.mains.borrow().len();
        let cfg = Config { cpus: threads, ..cfg.clone() };
        let mut machine = Machine::new(cfg, threads)?;
        setup(&mut machine);
        let mut sim = Sim::new(machine);
        let stats = sim.run(&self)?;
        let m = sim.machine().borrow();
        Ok((stats, look.iter().map(|a| m.mem.get(*a)).collect()))
    }
}

impl Program for Bare {
    fn thread(&self, cx: Cx, id: usize) -> Frame {
        match self.mains.borrow_mut().get_mut(id).and_then(Option::take) {
            Some(main) => main(cx),
            None => Box::pin(std::future::ready(())),
        }
    }

    fn interrupt(&self, cx: Cx, vector: Vector) -> Frame {
        match &self.handler {
            Some(handler) => handler(cx, vector),
            None => Box::pin(std::future::ready(())) as Pin<Box<_>>,
        }
    }
}
