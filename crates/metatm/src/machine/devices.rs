//! Disk and network: what port accesses start, and the interrupts that end it.
//!
//! A request takes the device's fixed latency (paper, section 7.1) after its turn on the bus: the
//! transfer of one page holds the PCI bus for a while, so a burst of requests is served in order.

use std::collections::VecDeque;

use super::{Machine, Vector};

/// I/O ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Write: start the disk request with that number. Read: the next completed one, 0 if none.
    Disk,
    /// Write: send the packet with that number. Read: the next answered one, 0 if none.
    Net,
    /// Any other register: read as 0, writes have no effect beyond being I/O.
    Other,
}

/// Device state.
#[derive(Debug, Clone, Default)]
pub struct Devices {
    disk_free: u64,
    net_free: u64,
    disk: VecDeque<(u64, u32)>,
    net: VecDeque<(u64, u32)>,
}

fn start(
    queue: &mut VecDeque<(u64, u32)>,
    free: &mut u64,
    now: u64,
    bus: u64,
    delay: u64,
    n: u32,
) -> u64 {
    *free = now.max(*free) + bus;
    let done = *free + delay;
    queue.push_back((done, n));
    done
}

fn finished(queue: &mut VecDeque<(u64, u32)>, now: u64) -> u32 {
    match queue.front() {
        Some((done, _)) if *done <= now => queue.pop_front().map_or(0, |(_, n)| n),
        _ => 0,
    }
}

impl Machine {
    /// The effect of a port write that was allowed.
    pub(crate) fn port_write(&mut self, port: Port, value: u32) {
        let (now, cur) = (self.now(), self.cur);
        let us = u64::from(self.cfg.cycles_per_us);
        let d = &mut self.devices;
        let (done, vector) = match port {
            Port::Disk => {
                // A zero-latency disk (bonnie++) costs no bus time either.
                let bus = if self.cfg.disk_us == 0 { 0 } else { u64::from(self.cfg.dma_us) * us };
                let delay = u64::from(self.cfg.disk_us) * us;
                (start(&mut d.disk, &mut d.disk_free, now, bus, delay, value), Vector::Disk)
            }
            Port::Net => {
                let delay = u64::from(self.cfg.net_us) * us;
                let bus = u64::from(self.cfg.wire_us) * us;
                (start(&mut d.net, &mut d.net_free, now, bus, delay, value), Vector::Net)
            }
            Port::Other => return,
        };
        self.raise(cur, done, vector);
    }

    /// The value of a port read that was allowed.
    pub(crate) fn port_read(&mut self, port: Port) -> u32 {
        let now = self.now();
        match port {
            Port::Disk => finished(&mut self.devices.disk, now),
            Port::Net => finished(&mut self.devices.net, now),
            Port::Other => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_complete_in_order_after_bus_and_latency() {
        let (mut q, mut free) = (VecDeque::new(), 0);
        assert_eq!(start(&mut q, &mut free, 100, 30, 1000, 1), 1130);
        assert_eq!(start(&mut q, &mut free, 100, 30, 1000, 2), 1160);
        assert_eq!(finished(&mut q, 1129), 0);
        assert_eq!(finished(&mut q, 1160), 1);
        assert_eq!(finished(&mut q, 1160), 2);
        assert_eq!(finished(&mut q, 9999), 0);
    }
}
