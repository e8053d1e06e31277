use anyhow::{Result, bail};
use serde_json::{Value, json};
use txos_effects::table::{self, Row};

use crate::{exit::Exit, verbs::print};

/// Options of `txos syscalls`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only these calls, named as strace(1) names them
    name: Vec<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print the document docs/syscalls.md
    #[arg(long, conflicts_with_all = ["json", "name"])]
    markdown: bool,
}

/// Prints the table of effects, or a part of it.
pub fn run(args: Args) -> Result<Exit> {
    if args.markdown {
        print(format_args!("{}", table::markdown()))?;
        return Ok(Exit::Success);
    }
    let mut rows = Vec::new();
    for name in &args.name {
        match table::row(name) {
            Some(row) => rows.push(row),
            None => bail!(
                "no system call {name:?} on x86-64 or arm64: `txos syscalls` lists them all (a call \
                 that is not listed is absent inside a transaction)"
            ),
        }
    }
    let all = args.name.is_empty();
    if all {
        rows = table::rows();
    }
    if args.json {
        let rows: Vec<Value> = rows.iter().map(as_json).collect();
        print(format_args!("{}\n", crate::text::json_pretty(&rows)?))?;
        return Ok(Exit::Success);
    }
    print(format_args!("{}", table::text(&rows)))?;
    if all {
        let [complete, partial, none] = table::totals();
        let total = complete + partial + none;
        print(format_args!(
            "{total} calls: {complete} complete, {partial} in part, {none} not at all\n"
        ))?;
    }
    Ok(Exit::Success)
}

fn as_json(row: &Row) -> Value {
    let [x86_64, arm64] = row.numbers();
    let cases = row
        .cases
        .iter()
        .map(|case| json!({ "when": case.when, "fate": case.fate, "says": case.says }));
    json!({
        "call": row.call,
        "fate": row.fate,
        "support": row.support(),
        "says": row.says,
        "x86_64": x86_64,
        "arm64": arm64,
        "cases": cases.collect::<Vec<_>>(),
    })
}
