use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::DomainError;

/// The name of a domain: 1 to 64 ASCII letters, digits, `-` and `_`, the first a letter or digit.
///
/// A dot is not allowed: the kernel's own files in a group have one (`cgroup.procs`), and names
/// that begin with `txos.` are this crate's. `system` and `none` mean something else in
/// `txos run --domain`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DomainName(String);

impl DomainName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DomainName {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<Self, DomainError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let good = text.len() <= 64
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(plain)
            && !["system", "none"].contains(&text);
        if good { Ok(DomainName(text.to_owned())) } else { Err(DomainError::Name(text.to_owned())) }
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_mean_something_else_are_refused() {
        for good in ["web", "0", "a-b_C9", &"x".repeat(64)] {
            assert_eq!(good.parse::<DomainName>().unwrap().as_str(), good);
        }
        let bad = ["", ".", "..", "a/b", "cgroup.procs", "-v", "_x", "system", "none", "ä", "a b"];
        for bad in bad.iter().copied().chain([&*"x".repeat(65)]) {
            assert!(bad.parse::<DomainName>().is_err(), "{bad:?}");
        }
    }
}
