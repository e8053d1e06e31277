//! One line from standard input, waited for in pieces: whoever asks has other things to look at.

use std::time::Duration;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, read},
    stdio::stdin,
};

/// The line, as far as it has come.
#[derive(Debug, Default)]
pub struct Answer {
    line: Vec<u8>,
}

impl Answer {
    /// Waits for `patience` at the most and takes what is there; whether the line, or the input, has
    /// come to its end.
    ///
    /// # Errors
    /// If standard input cannot be read. A terminal that has hung up is at its end (termios(3)).
    pub fn read(&mut self, patience: Duration) -> Result<bool, Errno> {
        let input = stdin();
        let limit = Timespec::try_from(patience).map_err(|_| Errno::INVAL)?;
        match poll(&mut [PollFd::from_borrowed_fd(input, PollFlags::IN)], Some(&limit)) {
            Ok(0) | Err(Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(errno) => return Err(errno),
        }
        let mut some = [0; 256];
        match read(input, &mut some) {
            Ok(0) | Err(Errno::IO) => Ok(true),
            Ok(count) => {
                self.line.extend_from_slice(&some[..count]);
                Ok(self.line.contains(&b'\n'))
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Whether it is a clear yes.
    pub fn is_yes(&self) -> bool {
        let line = self.line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        matches!(line.trim_ascii(), b"y" | b"Y" | b"yes")
    }
}
