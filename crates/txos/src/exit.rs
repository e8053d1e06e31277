//! The one place that decides exit codes.

use std::process::ExitCode;

use txos_store::StoreError;

/// How a txos command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All went well.
    Success,
    /// The command of a transaction ended with this status; so does txos.
    Command(u8),
    /// The command, or txos, was ended by this signal: 128 + its number.
    Signal(i32),
    /// Someone changed what the transaction had read, and the retries are used up.
    Conflict,
    /// txos itself failed; nothing was changed.
    Failure,
    /// The transaction is committed and not wholly applied, or nobody can tell whether it is: a
    /// recovery will.
    Unsettled,
    /// The command exists and cannot be executed, as env(1).
    NotExecutable,
    /// The command was not found, as env(1).
    NotFound,
    /// `txos doctor` found something missing.
    Limited,
}

impl Exit {
    /// The exit status.
    pub fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Command(status) => status,
            Exit::Signal(number) => 128u8.saturating_add(u8::try_from(number).unwrap_or(127)),
            Exit::Conflict => 75,
            Exit::Unsettled => 74,
            Exit::Failure => 125,
            Exit::NotExecutable => 126,
            Exit::NotFound => 127,
            Exit::Limited => 1,
        }
    }

    /// The exit of a failed `execve(2)`.
    pub fn of_exec(errno: i32) -> Exit {
        match errno {
            libc::ENOENT => Exit::NotFound,
            _ => Exit::NotExecutable,
        }
    }

    /// The exit of a command whose `wait(2)` status is `status`.
    pub fn of_wait_status(status: i32) -> Exit {
        if libc::WIFSIGNALED(status) {
            Exit::Signal(libc::WTERMSIG(status))
        } else {
            match u8::try_from(libc::WEXITSTATUS(status)) {
                Ok(0) => Exit::Success,
                Ok(code) => Exit::Command(code),
                Err(_) => Exit::Failure,
            }
        }
    }

    /// The exit of an error that reached `main`.
    pub fn of_error(error: &anyhow::Error) -> Exit {
        match error.downcast_ref::<StoreError>() {
            Some(StoreError::Conflict(_)) => Exit::Conflict,
            Some(StoreError::Unfinished { .. } | StoreError::Undecided { .. }) => Exit::Unsettled,
            _ => Exit::Failure,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_status_as_a_shell_shows_it() {
        assert_eq!(Exit::of_wait_status(0).code(), 0);
        assert_eq!(Exit::of_wait_status(3 << 8).code(), 3);
        assert_eq!(Exit::of_wait_status(9).code(), 137);
        assert_eq!(Exit::of_exec(libc::ENOENT).code(), 127);
        assert_eq!(Exit::of_exec(libc::EACCES).code(), 126);
        assert_eq!(Exit::Conflict.code(), 75);
        assert_eq!(Exit::Unsettled.code(), 74);
        assert_eq!(Exit::Failure.code(), 125);
    }
}
