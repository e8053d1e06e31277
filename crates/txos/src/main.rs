//! The `txos` command: system transactions for stock Linux.
//!
//! A verb is a file in `verbs/`; running a transaction is `manager/`; which exit status means what
//! is decided in `exit`.

mod cli;
mod exit;
mod inherited;
mod manager;
mod state;
mod text;
mod verbs;

use std::{
    ffi::{OsStr, OsString},
    process::ExitCode,
};

use clap::Parser;

use txos_contention as contention;

use crate::{cli::Cli, exit::Exit};

fn main() -> ExitCode {
    txos_view::keep_children();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let (called_as, rest) =
        arguments.split_first().map_or((OsStr::new(""), &[][..]), |(a, r)| (a.as_os_str(), r));
    if let Some(code) = verbs::helper::main(called_as, rest) {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Exit::Failure.into() } else { Exit::Success.into() };
        }
    };
    text::start_log();
    match verbs::dispatch(cli.verb) {
        Ok(exit) => exit.into(),
        Err(error) => {
            text::say(format!("{error:#}"));
            Exit::of_error(&error).into()
        }
    }
}
