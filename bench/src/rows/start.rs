//! What a transaction costs that does nothing.

use std::process::Command;

use anyhow::Result;

use crate::context::Context;
use crate::measure::{pairs, run};
use crate::report::{Figure, Goal, Unit};

/// `txos run true`.
pub fn empty(context: &Context) -> Result<Vec<Figure>> {
    let command = Command::new("true");
    let [pairs] = pairs(context, context.short_rounds, |inside| {
        let wall = match inside {
            false => run(Command::new("true"))?.wall,
            true => run(context.transaction(&[], &command))?.wall,
        };
        Ok([wall.as_secs_f64()])
    })?;
    Ok(vec![Figure {
        what: "empty transaction, `txos run true`".into(),
        unit: Unit::Seconds,
        goal: Goal::AtMost(0.015),
        pairs,
        note: None,
    }])
}
