use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use serde_json::json;
use txos_core::{Stamp, TxId};
use txos_session::HOLDER;
use txos_store::{StateDir, TxState, TxStatus};

use crate::{
    contention::{self, Row},
    exit::Exit,
    text::{printable, shortened},
    verbs::{print, recovered},
};

/// Options of `txos ps`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one JSON value a line
    #[arg(long)]
    json: bool,
}

/// Lists the transactions that run or are kept.
pub fn run(args: Args) -> Result<Exit> {
    let Some(state) = recovered()? else { return Ok(Exit::Success) };
    let rows = contention::table(state.path())?;
    let mut rows: BTreeMap<TxId, Row> =
        rows.into_iter().map(|row| (row.standing.id, row)).collect();
    let all = state.transactions()?;
    if !(args.json || all.is_empty() && rows.is_empty()) {
        print(format_args!(
            "{:>6}  {:<10}  {:>9}  {:>4}  {:>7}  {:>8}  {:>8}  {:>7}  {:<12}  COMMAND\n",
            "ID", "STATE", "AGE", "PRIO", "RETRIES", "READ", "WRITTEN", "PROCESS", "WAITS FOR"
        ))?;
    }
    for status in all {
        let row = rows.remove(&status.meta.id);
        if args.json {
            print(format_args!("{}\n", as_json(&status, row.as_ref())?))?;
        } else {
            Line::of(&status, row.as_ref()).print()?;
        }
    }
    // Commits of the explicit API have no directory.
    for row in rows.into_values() {
        if args.json {
            let (id, state, command) = (row.standing.id, &row.state, &row.command);
            let value = json!({ "id": id, "state": state, "command": command, "contention": row });
            print(format_args!("{}\n", crate::text::json(&value)?))?;
        } else {
            Line::of_row(&row).print()?;
        }
    }
    Ok(Exit::Success)
}

/// How far a transaction is, and which process leads it, if one does.
pub(super) fn state_and_process(state: &StateDir, status: &TxStatus) -> Result<String> {
    let rows = contention::table(state.path())?;
    let row = rows.iter().find(|row| row.standing.id == status.meta.id);
    let word = state_of(status, row);
    Ok(if status.alive { format!("{word}, process {}", status.meta.pid) } else { word })
}

/// How far a transaction is, in a word.
fn state_of(status: &TxStatus, row: Option<&Row>) -> String {
    match (status.meta.state, status.alive, row) {
        (_, _, Some(row)) => row.state.clone(),
        (TxState::Prepared, _, None) => "kept".to_owned(),
        // Ready for a program to begin in it.
        (TxState::Running, true, None) if status.meta.command == HOLDER => "warm".to_owned(),
        (TxState::Running, true, None) => "running".to_owned(),
        (TxState::Running, false, None) => "crashed".to_owned(),
    }
}

/// What is shown of one.
struct Line<'a> {
    id: TxId,
    state: String,
    started: Stamp,
    retries: u32,
    process: Option<u32>,
    command: &'a str,
    row: Option<&'a Row>,
}

impl<'a> Line<'a> {
    fn of(status: &'a TxStatus, row: Option<&'a Row>) -> Line<'a> {
        Line {
            id: status.meta.id,
            state: state_of(status, row),
            started: status.meta.started,
            retries: row.map_or(0, |row| row.standing.losses).max(status.meta.retries),
            process: status.alive.then_some(row.map_or(status.meta.pid, |row| row.process)),
            command: row.map_or(&status.meta.command, |row| &row.command),
            row,
        }
    }

    fn of_row(row: &'a Row) -> Line<'a> {
        Line {
            id: row.standing.id,
            state: row.state.clone(),
            started: row.standing.started,
            retries: row.standing.losses,
            process: Some(row.process),
            command: &row.command,
            row: Some(row),
        }
    }

    fn print(&self) -> Result<()> {
        let number = |number: Option<u64>| number.map_or("-".to_owned(), |n| n.to_string());
        let row = self.row;
        let waits = row.map(|row| row.waits_for.iter().map(TxId::to_string).collect::<Vec<_>>());
        print(format_args!(
            "{:>6}  {:<10}  {:>9}  {:>4}  {:>7}  {:>8}  {:>8}  {:>7}  {:<12}  {}\n",
            self.id,
            self.state,
            age(self.started),
            row.map_or("-".to_owned(), |row| row.standing.priority.to_string()),
            self.retries,
            number(row.map(|row| row.read)),
            number(row.and_then(|row| row.written)),
            number(self.process.map(u64::from)),
            waits.map_or_else(String::new, |ids| ids.join(",")),
            printable(&shortened(self.command)),
        ))
    }
}

fn age(started: Stamp) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = now.saturating_sub(u64::try_from(started.sec).unwrap_or(0));
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn as_json(status: &TxStatus, row: Option<&Row>) -> Result<String> {
    let mut value = serde_json::to_value(status)?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("state".to_owned(), json!(state_of(status, row)));
        fields.insert("contention".to_owned(), json!(row));
    }
    Ok(crate::text::json(&value)?)
}
