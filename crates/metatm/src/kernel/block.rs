//! Disk, network and console: the regions that do I/O under a lock.
//!
//! A request is queued under the queue's lock; `unplug` starts it, nested in the controller's lock,
//! if the controller has room, else the completion of another one does. So `generic_unplug_device`
//! does I/O on some of its paths, `ide_do_request` on all, and `ide_busy` on none: the three kinds
//! of region that figure 6 tells apart.

use super::region::K;
use super::site::Site;
use crate::machine::devices::Port;
use crate::mem::Addr;

/// Requests that the controller takes at once.
const DEPTH: u32 = 4;

const FIRST: u32 = 64;
const LAST: u32 = 68;
const WAITING: u32 = 72;
const ACTIVE: u32 = 64;
const NEXT: u32 = 4;

impl K {
    fn request(&self, thread: usize) -> Addr {
        self.map.requests + 64 * thread as u32
    }

    /// Reads a block and waits for it.
    pub async fn disk_read(&self) {
        let _code = self.code(120, 16);
        let (q, id) = (self.map.block, self.id());
        let req = self.request(id);
        self.store(req, 0).await;
        self.work(1_500).await;
        self.section(Site::BlockMake, q, async || {
            self.store(req + NEXT, 0).await;
            let last = self.load(q + LAST).await;
            self.store(if last == 0 { q + FIRST } else { last + NEXT }, req).await;
            self.store(q + LAST, req).await;
            let n = self.load(q + WAITING).await;
            self.store(q + WAITING, n + 1).await;
        })
        .await;
        self.timer_add().await; // the request's time limit
        self.unplug().await;
        self.sleep_until(req, true).await;
    }

    /// Starts the first waiting request if the controller has room.
    async fn unplug(&self) {
        let q = self.map.block;
        self.section(Site::BlockUnplug, q, async || {
            let req = self.load(q + FIRST).await;
            if req == 0 || !self.has_room().await {
                return;
            }
            let next = self.load(req + NEXT).await;
            self.store(q + FIRST, next).await;
            if next == 0 {
                self.store(q + LAST, 0).await;
            }
            let n = self.load(q + WAITING).await;
            self.store(q + WAITING, n - 1).await;
            self.start(req).await;
        })
        .await;
    }

    /// Looks at the controller's state without touching the device.
    async fn has_room(&self) -> bool {
        let ide = self.map.ide;
        self.section(Site::IdeBusy, ide, async || self.load(ide + ACTIVE).await < DEPTH).await
    }

    async fn start(&self, req: Addr) {
        let ide = self.map.ide;
        let number = (req - self.map.requests) / 64 + 1;
        self.section(Site::IdeDo, ide, async || {
            let n = self.load(ide + ACTIVE).await;
            self.store(ide + ACTIVE, n + 1).await;
            self.alu(20).await;
            self.io_write(Port::Disk, number).await;
        })
        .await;
    }

    /// The disk's interrupt.
    pub(super) async fn disk_interrupt(&self) {
        let _code = self.code(136, 8);
        self.work(500).await;
        let ide = self.map.ide;
        let number = self
            .section(Site::IdeIntr, ide, async || {
                let number = self.io_read(Port::Disk).await;
                if number != 0 {
                    let n = self.load(ide + ACTIVE).await;
                    self.store(ide + ACTIVE, n - 1).await;
                }
                number
            })
            .await;
        if number == 0 {
            return;
        }
        let thread = number as usize - 1;
        let req = self.request(thread);
        self.section(Site::BlockEnd, self.map.block, async || {
            self.alu(10).await;
            self.store(req, 1).await;
        })
        .await;
        self.wake(self.map.task(thread)).await;
        self.unplug().await;
    }

    /// Sends a packet and does not wait.
    pub async fn net_send(&self) {
        let _code = self.code(144, 8);
        let net = self.map.net;
        let number = self.id() as u32 + 1;
        self.work(1_500).await;
        self.section(Site::NetXmit, net, async || {
            let n = self.load(net + 64).await;
            self.store(net + 64, n + 1).await;
            self.alu(30).await;
            self.io_write(Port::Net, number).await;
        })
        .await;
    }

    /// The network's interrupt: a packet was sent.
    pub(super) async fn net_interrupt(&self) {
        let net = self.map.net;
        self.section(Site::NetIntr, net, async || {
            if self.io_read(Port::Net).await != 0 {
                let n = self.load(net + 64).await;
                self.store(net + 64, n - 1).await;
            }
        })
        .await;
        self.section(Site::NetStats, net, async || self.load(net + 64).await).await;
    }

    /// Writes a line to the console.
    pub async fn tty_write(&self) {
        let _code = self.code(152, 8);
        let tty = self.map.tty;
        self.section(Site::TtyWrite, tty, async || {
            let n = self.load(tty + 64).await + 1;
            self.store(tty + 64, n).await;
            self.alu(40).await;
            // The screen is flushed every eighth line.
            if n % 8 == 0 {
                self.io_write(Port::Other, n).await;
            }
        })
        .await;
    }
}
