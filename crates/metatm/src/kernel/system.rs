//! The kernel as a program for the machine: boot, threads, daemons, and the end of a run.
//!
//! Threads 0 to `cpus - 1` are the idle ones. Then come `init`, which waits for the workload's
//! threads and switches the machine off, and a real-time daemon. All others run the workload.

use std::cell::RefCell;
use std::rc::Rc;

use super::map::{Map, rq, task};
use super::prio::conflict_priority;
use super::region::K;
use crate::config::Config;
use crate::error::Result;
use crate::guest::Cx;
use crate::machine::exec::{Frame, Program, Sim};
use crate::machine::{Machine, Vector};
use crate::mem::Addr;
use crate::stats::Stats;
use crate::workload::{Plan, Script};

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Waits for the workload's threads, so many of them.
    Init(u32),
    /// Wakes every few ticks at real-time priority.
    Daemon,
    /// Thread `n` of the workload.
    Worker(u32),
    /// Process forked by the task `parent`, number `n` of its children.
    Child {
        /// The parent's task structure.
        parent: Addr,
        /// Its number.
        n: u32,
    },
}

/// Static priority of the real-time daemon.
const DAEMON_PRIO: u32 = 50;

/// Static priority of normal threads (nice 0).
const NICE_0: u32 = 120;

/// A booted kernel with a workload.
pub struct System {
    map: Rc<Map>,
    script: Rc<dyn Script>,
    /// Hash table, pages and so on when nothing is held, for the audit.
    base: super::audit::Base,
}

impl Map {
    /// Thread number of `init`.
    pub fn init(&self) -> usize {
        self.cpus
    }

    /// Thread number of the real-time daemon.
    pub fn daemon(&self) -> usize {
        self.cpus + 1
    }

    /// Notes what thread `id` will do when it first runs.
    pub fn set_role(&self, id: usize, role: Role) {
        self.roles.borrow_mut()[id] = Some(role);
    }
}

/// Runs `plan` on the machine and kernel of `cfg`.
///
/// # Errors
/// Whatever ended the run early, or a kernel invariant that does not hold at its end.
pub fn run(cfg: &Config, plan: &Plan) -> Result<Stats> {
    let fixed = cfg.cpus + 2;
    let threads = fixed + plan.workers as usize + plan.children as usize;
    let mut machine = Machine::new(cfg.clone(), threads)?;
    machine.kernel_reports = true;
    let map = Map::boot(&mut machine, cfg, plan.pages)?;
    let script = (plan.script)(&map, &mut machine, cfg)?;
    map.start(&mut machine, plan);
    machine.free_threads = (fixed + plan.workers as usize..threads).rev().collect();
    let system =
        System { base: super::audit::Base::new(&map, &machine), map: Rc::new(map), script };
    Sim::new(machine).run(&system)
}

impl Map {
    /// Puts the first tasks into the run queues.
    fn start(&self, m: &mut Machine, plan: &Plan) {
        let fixed = self.cpus + 2;
        for id in 0..self.cpus {
            m.threads[id].mode = crate::stats::Mode::Sys;
            m.mem.set(self.task(id) + task::PRIO, super::prio::LEVELS - 1);
            m.mem.set(self.rqs[id] + rq::CURR, self.task(id));
            m.mem.set(self.task(id) + task::CPU, id as u32);
        }
        for id in self.cpus..fixed + plan.workers as usize {
            let (role, prio) = match id - self.cpus {
                0 => (Role::Init(plan.workers), NICE_0),
                1 => (Role::Daemon, DAEMON_PRIO),
                n => (Role::Worker(n as u32 - 2), NICE_0),
            };
            self.set_role(id, role);
            let t = self.task(id);
            let cpu = id % self.cpus;
            for (field, value) in [
                (task::PRIO, prio),
                (task::STATIC, prio),
                (task::SLICE, m.cfg.quantum),
                (task::CPU, cpu as u32),
                (task::SLEEP_AVG, 500),
            ] {
                m.mem.set(t + field, value);
            }
            m.set_prio(id, conflict_priority(prio));
            self.boot_enqueue(m, cpu, t, prio);
        }
        m.mem.set(self.tasklist + 64, plan.workers);
        m.mem.set(self.mmlist + 64, plan.workers);
    }

    fn boot_enqueue(&self, m: &mut Machine, cpu: usize, t: Addr, prio: u32) {
        let rq = self.rqs[cpu];
        let array = m.mem.get(rq + rq::ACTIVE);
        self.host_list_add(m, array + rq::HEADS + 8 * prio, t + task::LINK);
        let word = array + rq::BITMAP + prio / 32 * 4;
        for (a, v) in [
            (word, m.mem.get(word) | 1 << (prio % 32)),
            (array, m.mem.get(array) + 1),
            (t + task::ARRAY, array),
            (rq + rq::NR, m.mem.get(rq + rq::NR) + 1),
        ] {
            m.mem.set(a, v);
        }
    }
}

impl Program for System {
    fn thread(&self, cx: Cx, id: usize) -> Frame {
        let k = K { cx, map: Rc::clone(&self.map) };
        if id < self.map.cpus {
            return Box::pin(async move {
                let tick = k.host(|m| m.cfg.tick());
                // Ticks of different processors are spread over the interval.
                let phase = tick * id as u64 / k.map.cpus as u64;
                k.raise_after(tick + phase, Vector::Timer);
                k.idle().await;
            });
        }
        let role = self.map.roles.borrow_mut()[id];
        let script = Rc::clone(&self.script);
        Box::pin(async move {
            let rq = k.map.rqs[k.cpu()];
            k.switched(rq).await;
            k.irq_flag(true).await;
            match role {
                Some(Role::Init(n)) => k.init_thread(n).await,
                Some(Role::Daemon) => k.daemon_thread().await,
                Some(Role::Worker(n)) => {
                    let mut p = super::process::Process::default();
                    script.worker(&k, n, &mut p).await;
                    let init = k.map.task(k.map.init());
                    k.exit(p, init).await;
                }
                Some(Role::Child { parent, n }) => {
                    let mut p = super::process::Process::default();
                    script.child(&k, n, &mut p).await;
                    k.exit(p, parent).await;
                }
                None => k.host(|m| m.fault("a thread was started without a role")),
            }
        })
    }

    fn interrupt(&self, cx: Cx, vector: Vector) -> Frame {
        let k = K { cx, map: Rc::clone(&self.map) };
        Box::pin(async move { k.interrupt(vector).await })
    }

    fn audit(&self, machine: &Machine) -> std::result::Result<(), String> {
        self.base.check(&self.map, machine)?;
        self.script.audit(&self.map, machine)
    }
}

impl K {
    async fn init_thread(&self, n: u32) {
        for _ in 0..n {
            self.wait().await;
        }
        self.settle().await;
        self.host(Machine::power_off);
        self.alu(1).await;
    }

    /// Waits, interrupts off, for an instant at which nothing else is under way.
    async fn settle(&self) {
        loop {
            self.irq_flag(false).await;
            let nr = self.load(self.rq() + rq::NR).await;
            let quiet = self.host(|m| {
                let me = m.cur;
                m.cpus.iter().enumerate().all(|(i, c)| i == me || c.halted.is_some())
            });
            if quiet && nr == 1 {
                return;
            }
            self.irq_flag(true).await;
            self.alu(300).await;
            if nr > 1 {
                self.schedule().await;
            }
        }
    }

    /// Wakes when the clock tick says so, and looks around in shared structures.
    async fn daemon_thread(&self) {
        let me = self.current();
        loop {
            self.sleep_until(me + task::WOKEN, false).await;
            self.store(me + task::WOKEN, 0).await;
            self.gettimeofday().await;
            let d = self.walk(&[]).await;
            self.dput(d).await;
            let page = self.page_alloc().await;
            if page != 0 {
                self.page_free(page).await;
            }
            self.vmalloc().await;
        }
    }
}

/// Roles of threads, kept in [`Map`].
pub(super) type Roles = RefCell<Vec<Option<Role>>>;
