//! One random transaction of the history checker: performs a few operations in the working directory
//! and prints what it saw.
//!
//! Usage: `historian ID SEED [FACET]`; half of the operations are on this facet then

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use txos_tests::history::{DIRECTORY, EACH, Event, Kind, OUTSIDERS, Register, Writer, name};
use txos_tests::random::Random;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let [id, seed] = numbers[..] else {
        eprintln!("usage: historian ID SEED [FACET]");
        return ExitCode::from(2);
    };
    match transaction(id, seed, words.get(2).map(String::as_str)) {
        Ok(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => {
            eprintln!("historian: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The same operations whatever attempt it is.
fn transaction(id: u64, seed: u64, often: Option<&str>) -> Result<String> {
    let mut historian = Historian { random: Random::new(seed ^ id << 17), id, made: false };
    let mut text = String::new();
    for _ in 0..2 + historian.random.below(4) {
        let event = match (historian.random.below(2), often) {
            (0, Some(facet)) => historian.of(facet)?,
            _ => historian.any()?,
        };
        text += &format!("{event}\n");
    }
    Ok(text)
}

struct Historian {
    random: Random,
    id: u64,
    made: bool,
}

impl Historian {
    /// Any operation.
    fn any(&mut self) -> Result<Event> {
        let kind = *self.random.one(&Kind::ALL);
        match self.random.below(10) {
            0 if !self.made => self.make(),
            1 => look(1 + self.random.below(self.id + 8)),
            2 => look(OUTSIDERS + 1 + self.random.below(self.id + 8)),
            3 => self.list(),
            4 => self.read(kind, Writer::Outside),
            5..8 => self.write(kind),
            _ => self.read(kind, Writer::Inside),
        }
    }

    /// A read or a write of this facet, as `txos_core::blind_to` names it.
    fn of(&mut self, facet: &str) -> Result<Event> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.to_string() == facet);
        match (kind, self.random.below(5)) {
            (Some(kind), 0) => self.read(kind, Writer::Outside),
            (Some(kind), 1..3) => self.read(kind, Writer::Inside),
            (Some(kind), _) => self.write(kind),
            (None, 0..2) if !self.made => self.make(),
            (None, _) if facet == "listing" => self.list(),
            // Those that others make just now.
            (None, _) => look(self.id.saturating_sub(4).max(1) + self.random.below(8)),
        }
    }

    fn make(&mut self) -> Result<Event> {
        fs::File::create_new(name(self.id))?;
        self.made = true;
        Ok(Event::Made(self.id))
    }

    /// The directory in which names are made just now, or any of the outsiders'.
    fn list(&mut self) -> Result<Event> {
        let dir = match self.random.below(3) {
            0 => (OUTSIDERS + self.random.below(self.id + DIRECTORY)) / DIRECTORY,
            _ => self.id / DIRECTORY,
        };
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(format!("d{dir}"))? {
            let name = entry?.file_name().into_string().map_err(|_| "a strange name")?;
            names.insert(name.trim_start_matches('n').parse()?);
        }
        Ok(Event::Listed(dir, names))
    }

    fn read(&mut self, kind: Kind, writer: Writer) -> Result<Event> {
        let register = self.register(kind, writer);
        Ok(Event::Read(register.to_string(), register.read(Path::new(""))?))
    }

    fn write(&mut self, kind: Kind) -> Result<Event> {
        let register = self.register(kind, Writer::Inside);
        let before = register.read(Path::new(""))?;
        register.write(Path::new(""), self.id)?;
        Ok(Event::Wrote(register.to_string(), before, self.id))
    }

    fn register(&mut self, kind: Kind, writer: Writer) -> Register {
        Register { kind, writer, number: self.random.below(EACH) }
    }
}

fn look(number: u64) -> Result<Event> {
    match fs::symlink_metadata(name(number)) {
        Ok(_) => Ok(Event::Present(number)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Event::Absent(number)),
        Err(error) => Err(error.into()),
    }
}
