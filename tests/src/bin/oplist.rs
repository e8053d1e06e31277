//! Performs the operations of a file, one answer a line: the one program that scenarios run
//! natively and inside.

use std::io::Write;
use std::process::ExitCode;

use txos_tests::op::Op;
use txos_tests::perform::perform;

fn main() -> ExitCode {
    let Some(list) = std::env::args_os().nth(1) else {
        eprintln!("usage: oplist FILE");
        return ExitCode::from(2);
    };
    let ops =
        match std::fs::read_to_string(&list).map_err(|e| e.to_string()).and_then(|t| Op::parse(&t))
        {
            Ok(ops) => ops,
            Err(e) => {
                eprintln!("oplist: {}: {e}", list.display());
                return ExitCode::from(2);
            }
        };
    let mut out = std::io::stdout().lock();
    for op in &ops {
        if writeln!(out, "{}", perform(op)).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
