use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::Event;

/// So many names have a directory for themselves: the one whose number is theirs divided by this.
pub const DIRECTORY: u64 = 200;

/// One committed transaction, or one operation of an outsider.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its number; that of a transaction is also the value that it writes.
    pub id: u64,
    /// When it began and when it had ended, by any clock that all share.
    pub time: (u64, u64),
    /// What it did.
    pub events: Vec<Event>,
}

/// Why one record comes before another.
#[derive(Clone, Copy, Debug)]
enum Why<'h> {
    Register(&'static str, &'h str),
    Name(&'static str, u64),
    Time(&'static str),
}

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Register(kind, register) => write!(f, "{kind} {register}"),
            Why::Name(kind, name) => write!(f, "{kind} {name}"),
            Why::Time(kind) => f.write_str(kind),
        }
    }
}

/// The graph: nodes are records, and between them points in time.
#[derive(Default)]
struct Graph<'h> {
    edges: Vec<Vec<(usize, Why<'h>)>>,
}

impl<'h> Graph<'h> {
    fn add(&mut self, from: usize, to: usize, why: Why<'h>) {
        if from != to {
            self.edges[from].push((to, why));
        }
    }
}

/// A cycle in the dependency graph of a history, as a line for each step; `None` if there is none and
/// the history is strictly serializable. What nobody wrote cannot be read: that is told, too.
pub fn cycle(history: &[Record]) -> Option<Vec<String>> {
    let mut graph = Graph { edges: vec![Vec::new(); history.len()] };
    if let Err(wrong) = dependencies(history, &mut graph) {
        return Some(vec![wrong]);
    }
    real_time(history, &mut graph);
    let found = search(&graph)?;
    let name = |node: usize| history.get(node).map(|record| record.id.to_string());
    let told = found.iter().filter_map(|(from, to, why)| {
        let (from, to) = (name(*from), name(*to));
        (from.is_some() || to.is_some()).then(|| {
            let shown = |id: Option<String>| id.unwrap_or_else(|| "time".to_owned());
            format!("{} before {}: {why}", shown(from), shown(to))
        })
    });
    Some(told.collect())
}

fn dependencies<'h>(history: &'h [Record], graph: &mut Graph<'h>) -> Result<(), String> {
    // Who wrote a value, and who overwrote it, by register and value.
    let mut writer: HashMap<(&str, u64), usize> = HashMap::new();
    let mut overwritten: HashMap<(&str, u64), Vec<usize>> = HashMap::new();
    let mut maker: BTreeMap<u64, usize> = BTreeMap::new();
    for (node, record) in history.iter().enumerate() {
        for event in &record.events {
            match event {
                Event::Wrote(register, before, by) => {
                    writer.insert((register, *by), node);
                    // Who writes twice overwrites nobody the second time.
                    if before != by {
                        overwritten.entry((register, *before)).or_default().push(node);
                    }
                }
                Event::Made(name) => {
                    maker.insert(*name, node);
                }
                _ => {}
            }
        }
    }
    for (node, record) in history.iter().enumerate() {
        let mut read = |register: &'h str, from: u64| {
            match writer.get(&(register, from)) {
                Some(by) => graph.add(*by, node, Why::Register("wr", register)),
                None if from == 0 => {}
                None => {
                    return Err(format!(
                        "{} read {register} from {from}, who never committed",
                        record.id
                    ));
                }
            }
            for by in overwritten.get(&(register, from)).into_iter().flatten() {
                graph.add(node, *by, Why::Register("rw", register));
            }
            Ok(())
        };
        for event in &record.events {
            match event {
                Event::Read(register, from) | Event::Wrote(register, from, _) => {
                    read(register, *from)?;
                }
                _ => {}
            }
        }
        for event in &record.events {
            match event {
                Event::Absent(name) => {
                    if let Some(by) = maker.get(name) {
                        graph.add(node, *by, Why::Name("rw absent name", *name));
                    }
                }
                Event::Present(name) => match maker.get(name) {
                    Some(by) => graph.add(*by, node, Why::Name("wr name", *name)),
                    None => return Err(format!("{} saw {name}, which nobody made", record.id)),
                },
                Event::Listed(dir, names) => {
                    if let Some(name) = names.iter().find(|name| !maker.contains_key(name)) {
                        return Err(format!("{} listed {name}, which nobody made", record.id));
                    }
                    for (name, by) in maker.range(dir * DIRECTORY..(dir + 1) * DIRECTORY) {
                        if names.contains(name) {
                            graph.add(*by, node, Why::Name("wr listing", *name));
                        } else {
                            graph.add(node, *by, Why::Name("rw listing", *name));
                        }
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Whoever had ended comes before whoever began later: by a chain of points in time, so that it
/// takes few edges.
fn real_time(history: &[Record], graph: &mut Graph<'_>) {
    let mut moments: Vec<(u64, bool, usize)> = Vec::new();
    for (node, record) in history.iter().enumerate() {
        // At one moment beginnings come before endings: what touches is concurrent.
        moments.push((record.time.0, false, node));
        moments.push((record.time.1, true, node));
    }
    moments.sort_unstable();
    let mut last: Option<usize> = None;
    for (_, ending, node) in moments {
        if ending {
            let point = graph.edges.len();
            graph.edges.push(Vec::new());
            graph.add(node, point, Why::Time("ended"));
            if let Some(last) = last {
                graph.add(last, point, Why::Time("later"));
            }
            last = Some(point);
        } else if let Some(last) = last {
            graph.add(last, node, Why::Time("real time"));
        }
    }
}

/// Depth first, without recursion: a history is longer than a stack.
fn search<'h>(graph: &Graph<'h>) -> Option<Vec<(usize, usize, Why<'h>)>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; graph.edges.len()];
    for start in 0..graph.edges.len() {
        if marks[start] != Mark::New {
            continue;
        }
        marks[start] = Mark::Open;
        let mut way = vec![(start, 0)];
        while let Some((node, next)) = way.last_mut() {
            let Some((to, _)) = graph.edges[*node].get(*next) else {
                marks[*node] = Mark::Done;
                way.pop();
                continue;
            };
            *next += 1;
            match marks[*to] {
                Mark::Done => {}
                Mark::New => {
                    marks[*to] = Mark::Open;
                    way.push((*to, 0));
                }
                Mark::Open => {
                    let from = way.iter().position(|(node, _)| node == to).unwrap_or(0);
                    return Some(
                        way[from..]
                            .iter()
                            .map(|(node, next)| {
                                let (to, why) = &graph.edges[*node][next - 1];
                                (*node, *to, *why)
                            })
                            .collect(),
                    );
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: u64, time: (u64, u64), events: &[&str]) -> Record {
        let events = events.iter().map(|line| line.parse().unwrap()).collect();
        Record { id, time, events }
    }

    /// Two records that overlap, with these events.
    fn two(one: &[&str], other: &[&str]) -> Option<Vec<String>> {
        cycle(&[record(1, (0, 10), one), record(2, (0, 10), other)])
    }

    #[test]
    fn each_anomaly_is_a_cycle() {
        let lost = two(&["wrote x 0 1"], &["wrote x 0 2"]);
        assert!(lost.is_some(), "lost update");
        let skew = two(&["read x 0", "wrote y 0 1"], &["read y 0", "wrote x 0 2"]);
        assert!(skew.is_some(), "write skew");
        assert!(two(&["listed 0", "made 1"], &["listed 0", "made 2"]).is_some(), "phantom");
        assert!(two(&["absent 2", "made 1"], &["absent 1", "made 2"]).is_some(), "absent names");
        let half = two(&["wrote x 0 1", "wrote y 0 1"], &["read x 1", "read y 0"]);
        assert!(half.is_some(), "a commit seen in part");
        assert!(two(&["wrote x 0 1"], &["read x 7"]).is_some(), "dirty read");
        assert!(two(&["made 1"], &["listed 0 1 7"]).is_some(), "a name that nobody made");
        let stale = [record(1, (0, 1), &["wrote x 0 1"]), record(2, (2, 3), &["read x 0"])];
        assert!(cycle(&stale).is_some(), "older than what had ended");
        let reader = [
            record(1, (0, 9), &["read s 0", "read c 0", "wrote c 0 1"]),
            record(2, (0, 9), &["wrote s 0 2"]),
            record(3, (0, 9), &["read s 2", "read c 0"]),
        ];
        assert!(cycle(&reader).is_some(), "the anomaly of one that only reads");
    }

    #[test]
    fn what_one_order_explains_is_none() {
        assert_eq!(two(&["wrote x 0 1"], &["wrote x 1 2"]), None);
        assert_eq!(two(&["wrote x 0 1", "wrote x 1 1"], &["wrote x 1 2"]), None, "written twice");
        assert_eq!(two(&["made 1", "listed 0 1 2"], &["absent 1", "made 2", "listed 0 2"]), None);
        assert_eq!(two(&["made 1", "listed 0 1"], &["present 1", "made 2", "listed 0 1 2"]), None);
        assert_eq!(two(&["read x 0", "wrote y 0 1"], &["read y 1", "wrote x 0 2"]), None);
        // A long serial history.
        let serial: Vec<Record> = (1..5000)
            .map(|id| record(id, (2 * id, 2 * id + 1), &[&format!("wrote x {} {id}", id - 1)]))
            .collect();
        assert_eq!(cycle(&serial), None);
    }

    #[test]
    fn events_are_read_as_they_are_printed() {
        for line in ["read content:1 7", "wrote x 0 9", "absent 3", "listed 0", "listed 7 1 2"] {
            assert_eq!(line.parse::<Event>().unwrap().to_string(), line);
        }
        assert!("read x".parse::<Event>().is_err() && "".parse::<Event>().is_err());
    }
}
