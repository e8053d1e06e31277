//! Time keeping: the clock under a sequence lock, timers, the interval timer chip.

use super::region::K;
use super::site::{Class, Site, Treat};
use crate::machine::devices::Port;
use crate::sync::cx::Irq;

const SECONDS: u32 = 128;
const MICROS: u32 = 132;

impl K {
    /// `do_gettimeofday`: seconds and microseconds, never torn.
    pub async fn gettimeofday(&self) -> (u32, u32) {
        let _code = self.code(160, 4);
        let x = self.map.xtime;
        let body = async || {
            let s = self.load(x + SECONDS).await;
            let us = self.load(x + MICROS).await;
            self.alu(12).await;
            (s, us)
        };
        let (s, us) = match Class::Time.treat(self.map.kernel) {
            Treat::Lock => self.seq_read(x, body).await,
            _ => self.section(Site::TimeRead, x, body).await,
        };
        if us >= 1_000_000 {
            self.host(|m| m.value_error(format!("the clock read {s}.{us:06}: torn")));
        }
        (s, us)
    }

    /// The tick's update of the clock, on the first processor.
    pub(super) async fn clock_tick(&self) {
        let x = self.map.xtime;
        let pit = self.map.pit;
        self.section(Site::PitRead, pit, async || {
            self.io_read(Port::Other).await;
        })
        .await;
        let us = self.host(|m| 1_000_000 / m.cfg.hz);
        let body = async || {
            let jiffies = self.load(self.map.jiffies).await;
            self.store(self.map.jiffies, jiffies + 1).await;
            let micros = self.load(x + MICROS).await + us;
            // Seconds first: a torn read would show microseconds out of range or a step back.
            let carry = micros / 1_000_000;
            if carry > 0 {
                let s = self.load(x + SECONDS).await;
                self.store(x + SECONDS, s + carry).await;
            }
            self.store(x + MICROS, micros % 1_000_000).await;
        };
        match Class::Time.treat(self.map.kernel) {
            Treat::Lock => {
                debug_assert_eq!(Site::TimeWrite.irq(), Irq::Disable);
                self.seq_write_begin(x).await;
                body().await;
                self.seq_write_end(x).await;
            }
            _ => self.section(Site::TimeWrite, x, body).await,
        }
    }

    /// Sets a timer on this processor.
    pub async fn timer_add(&self) {
        let base = self.map.timers[self.cpu()];
        self.section(Site::TimerAdd, base, async || {
            let n = self.load(base + 64).await;
            self.alu(8).await;
            self.store(base + 64, n + 1).await;
        })
        .await;
    }

    /// The tick's run through this processor's timers.
    pub(super) async fn timers_run(&self) {
        let base = self.map.timers[self.cpu()];
        self.section(Site::TimerRun, base, async || {
            self.alu(10).await;
            self.store(base + 64, 0).await;
        })
        .await;
    }
}
