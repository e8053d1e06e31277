//! Paired measurements of txos against native execution.
