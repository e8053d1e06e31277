//! A virtual machine under software emulation, and what it says on its serial line.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::image::Image;

/// A running machine; dropped, its power is cut.
#[derive(Debug)]
pub struct Machine {
    emulator: Child,
    lines: Receiver<String>,
    /// The last lines that were not for us: what the kernel said.
    console: Vec<String>,
}

/// What a guest said, or did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// A line after its mark.
    Line(String),
    /// Nothing until then.
    Nothing,
}

impl Machine {
    /// Starts a machine with the disks `ext` and `xfs`, whose writes are logged beside them.
    ///
    /// # Errors
    /// If the emulator can't be started.
    pub fn start(image: &Image, ext: &Path, xfs: &Path) -> Result<Machine> {
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-machine", "q35", "-accel", "tcg", "-cpu", "max", "-m", "512"])
            .args(["-smp", "1", "-display", "none", "-nodefaults", "-no-reboot"])
            .args(["-serial", "stdio", "-monitor", "none"])
            .arg("-kernel")
            .arg(&image.kernel)
            .arg("-initrd")
            .arg(&image.initrd)
            // An emulator on a busy machine is late with the ticks by which the kernel tries its timer.
            .args(["-append", "console=ttyS0 quiet panic=1 no_timer_check rdinit=/init"]);
        let root = format!(
            "driver=raw,node-name=root,read-only=on,file.driver=file,file.filename={}",
            image.root.display()
        );
        command.arg("-blockdev").arg(root).args(["-device", "virtio-blk-pci,drive=root"]);
        for (name, disk) in [("ext", ext), ("xfs", xfs)] {
            let log = log_of(disk);
            std::fs::File::create(&log)?;
            let node = format!(
                "driver=blklogwrites,node-name={name},file.driver=file,file.filename={},\
                 log.driver=file,log.filename={}",
                disk.display(),
                log.display()
            );
            command.arg("-blockdev").arg(node);
            command.arg("-device").arg(format!("virtio-blk-pci,drive={name}"));
        }
        let mut emulator = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start qemu-system-x86_64 (Debian's package qemu-system-x86)")?;
        let output = emulator.stdout.take().context("the emulator has no output")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Machine { emulator, lines, console: Vec::new() })
    }

    /// The next thing that the guest says before `until`.
    ///
    /// # Errors
    /// If the machine ended by itself, or the guest says that something is broken.
    pub fn next(&mut self, until: Instant) -> Result<Said> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => match line.split_once("power: ") {
                    Some((_, said)) if said.starts_with("BROKEN") => {
                        // What is said after it tells why.
                        let rest = self.rest(Duration::from_secs(2));
                        bail!("the guest says: {said}\n{rest}");
                    }
                    Some((_, said)) => return Ok(Said::Line(said.trim_end().to_owned())),
                    None => self.console.push(line),
                },
                Err(RecvTimeoutError::Timeout) => return Ok(Said::Nothing),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the machine ended by itself:\n{}", self.console.join("\n"));
                }
            }
        }
    }

    fn rest(&mut self, wait: Duration) -> String {
        let until = Instant::now() + wait;
        let mut rest = self.console.clone();
        while let Ok(line) =
            self.lines.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            rest.push(line);
        }
        rest.join("\n")
    }

    /// Waits until the guest says a line that begins with `word`, and gives what follows it.
    /// Everything that it says on the way goes to `other`.
    ///
    /// # Errors
    /// If it does not within `limit`.
    pub fn wait_for(
        &mut self,
        word: &str,
        limit: Duration,
        mut other: impl FnMut(&str),
    ) -> Result<String> {
        let until = Instant::now() + limit;
        loop {
            match self.next(until)? {
                Said::Line(line) => match line.strip_prefix(word) {
                    Some(rest) => return Ok(rest.trim().to_owned()),
                    None => other(&line),
                },
                Said::Nothing => bail!(
                    "the guest did not say {word} within {limit:?}:\n{}",
                    self.console.join("\n")
                ),
            }
        }
    }

    /// Cuts the power.
    pub fn cut(mut self) -> Vec<String> {
        self.stop();
        // What it had said before counts: the other end of a serial line has no cache.
        self.lines
            .iter()
            .filter_map(|line| line.split_once("power: ").map(|(_, said)| said.to_owned()))
            .collect()
    }

    fn stop(&mut self) {
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Where the writes to a disk are logged.
pub fn log_of(disk: &Path) -> std::path::PathBuf {
    disk.with_extension("log")
}
