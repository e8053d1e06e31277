//! `conform prepare` makes the tree of the conformance cases in the working directory, `conform run
//! [GROUP…]` runs them there, `conform fresh` does both: a line a case. `conform known` prints the table of
//! what is known to differ.

use std::process::ExitCode;

use txos_tests::conform;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let verb = arguments.next().unwrap_or_default();
    let groups: Vec<String> = arguments.collect();
    match verb.as_str() {
        "prepare" => conform::prepare(),
        "run" | "fresh" => {
            if verb == "fresh" {
                conform::prepare();
            }
            for line in conform::run(&groups) {
                println!("{line}");
            }
        }
        "known" => {
            for row in conform::differs::DIFFERS {
                println!("{}", row.line());
            }
        }
        _ => {
            eprintln!("conform prepare | run [GROUP…] | fresh [GROUP…] | known");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
