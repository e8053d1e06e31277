use std::{collections::BTreeSet, fmt, str::FromStr};

/// One operation, with what it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A register held the value of this writer.
    Read(String, u64),
    /// A register that held the value of the first writer was given that of the second.
    Wrote(String, u64, u64),
    /// A name was not there.
    Absent(u64),
    /// A name was there.
    Present(u64),
    /// A name was made.
    Made(u64),
    /// These names were in the directory of this number, and no others.
    Listed(u64, BTreeSet<u64>),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Read(register, from) => write!(f, "read {register} {from}"),
            Event::Wrote(register, before, by) => write!(f, "wrote {register} {before} {by}"),
            Event::Absent(name) => write!(f, "absent {name}"),
            Event::Present(name) => write!(f, "present {name}"),
            Event::Made(name) => write!(f, "made {name}"),
            Event::Listed(dir, names) => {
                write!(f, "listed {dir}")?;
                names.iter().try_for_each(|name| write!(f, " {name}"))
            }
        }
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(line: &str) -> Result<Event, String> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().map_err(|_| format!("no event: {line:?}"));
        Ok(match words.as_slice() {
            ["read", register, from] => Event::Read((*register).to_owned(), number(from)?),
            ["wrote", register, before, by] => {
                Event::Wrote((*register).to_owned(), number(before)?, number(by)?)
            }
            ["absent", name] => Event::Absent(number(name)?),
            ["present", name] => Event::Present(number(name)?),
            ["made", name] => Event::Made(number(name)?),
            ["listed", dir, names @ ..] => {
                let names = names.iter().map(|name| number(name)).collect::<Result<_, _>>()?;
                Event::Listed(number(dir)?, names)
            }
            _ => return Err(format!("no event: {line:?}")),
        })
    }
}
