//! The layout of what a fanotify group gives to read (`fanotify(7)`).
//!
//! ```text
//! event  := length:u32 version:u8 reserved:u8 head:u16 mask:u64 fd:i32 pid:i32 info*
//! info   := kind:u8 pad:u8 length:u16 body
//! body   := fsid:8 bytes:u32 type:i32 handle:bytes [name NUL]     kinds FID, DFID, DFID_NAME
//!         | pidfd:i32                                             kind PIDFD
//! ```
//!
//! All numbers are the machine's own. Lengths count their whole event or record. What is cut short
//! is an error for the reader: then nothing behind it is understood.

use std::os::fd::OwnedFd;

use crate::sys::from_event;

/// How long an event is without its records.
pub(crate) const HEAD: usize = 24;

/// The handle of an object, as an event gives it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle {
    pub(crate) fsid: [u8; 8],
    pub(crate) kind: i32,
    pub(crate) bytes: Vec<u8>,
}

/// One event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) mask: u64,
    pub(crate) pid: i32,
    /// The process itself; `None` if it had ended, or the group does not ask for it.
    pub(crate) pidfd: Option<OwnedFd>,
    /// The object.
    pub(crate) object: Option<Handle>,
    /// The directory, and the name in it; `.` for the directory itself.
    pub(crate) entry: Option<(Handle, Vec<u8>)>,
}

/// The events in a buffer; `Err` in the last place if the rest is not understood.
pub(crate) fn parse(mut buffer: &[u8]) -> Vec<Result<Event, Garbled>> {
    let mut events = Vec::new();
    while !buffer.is_empty() {
        let length = u32_at(buffer, 0).unwrap_or(0) as usize;
        let event = buffer.get(..length).filter(|event| event.len() >= HEAD);
        let Some(event) = event.and_then(parse_one) else {
            events.push(Err(Garbled));
            return events;
        };
        events.push(Ok(event));
        buffer = &buffer[length..];
    }
    events
}

/// What was read is not what the manual says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

fn parse_one(event: &[u8]) -> Option<Event> {
    if *event.get(4)? != libc::FANOTIFY_METADATA_VERSION {
        return None;
    }
    let mask = u64::from_ne_bytes(event.get(8..16)?.try_into().ok()?);
    let pid = i32_at(event, 20)?;
    let mut parsed = Event { mask, pid, pidfd: None, object: None, entry: None };
    let mut rest = event.get(usize::from(u16_at(event, 6)?)..)?;
    while !rest.is_empty() {
        let length = usize::from(u16_at(rest, 2)?);
        let record = rest.get(..length).filter(|record| record.len() >= 4)?;
        match record[0] {
            libc::FAN_EVENT_INFO_TYPE_PIDFD => parsed.pidfd = from_event(i32_at(record, 4)?),
            libc::FAN_EVENT_INFO_TYPE_FID => parsed.object = Some(handle(record)?.0),
            libc::FAN_EVENT_INFO_TYPE_DFID => {
                parsed.entry = Some((handle(record)?.0, b".".to_vec()));
            }
            libc::FAN_EVENT_INFO_TYPE_DFID_NAME => {
                let (dir, rest) = handle(record)?;
                let name = rest.split(|byte| *byte == 0).next()?.to_vec();
                parsed.entry = Some((dir, name));
            }
            _ => {}
        }
        rest = &rest[length..];
    }
    Some(parsed)
}

/// The handle in a record, and what follows it.
fn handle(record: &[u8]) -> Option<(Handle, &[u8])> {
    let fsid = record.get(4..12)?.try_into().ok()?;
    let count = u32_at(record, 12)? as usize;
    let kind = i32_at(record, 16)?;
    let bytes = record.get(20..20usize.checked_add(count)?)?;
    Some((Handle { fsid, kind, bytes: bytes.to_vec() }, &record[20 + count..]))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    u32_at(bytes, at).map(|number| number as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, handle: &[u8], name: &[u8]) -> Vec<u8> {
        let mut body = [7u8; 8].to_vec();
        body.extend((handle.len() as u32).to_ne_bytes());
        body.extend(1i32.to_ne_bytes());
        body.extend(handle);
        body.extend(name);
        let mut record = vec![kind, 0];
        record.extend((4 + body.len() as u16).to_ne_bytes());
        record.extend(body);
        record
    }

    fn event(mask: u64, records: &[Vec<u8>]) -> Vec<u8> {
        let records = records.concat();
        let mut event = Vec::new();
        event.extend((HEAD as u32 + records.len() as u32).to_ne_bytes());
        event.extend([libc::FANOTIFY_METADATA_VERSION, 0]);
        event.extend((HEAD as u16).to_ne_bytes());
        event.extend(mask.to_ne_bytes());
        event.extend((-1i32).to_ne_bytes());
        event.extend(42i32.to_ne_bytes());
        event.extend(records);
        event
    }

    #[test]
    fn records_of_all_kinds() {
        let pidfd = {
            let mut record = vec![libc::FAN_EVENT_INFO_TYPE_PIDFD, 0];
            record.extend(8u16.to_ne_bytes());
            record.extend((-1i32).to_ne_bytes());
            record
        };
        let named = record(libc::FAN_EVENT_INFO_TYPE_DFID_NAME, b"dir!", b"name\0\0\0");
        let object = record(libc::FAN_EVENT_INFO_TYPE_FID, b"object", b"");
        let mut buffer = event(libc::FAN_CREATE, &[named.clone(), object, pidfd]);
        buffer.extend(event(libc::FAN_Q_OVERFLOW, &[]));
        let events: Vec<Event> = parse(&buffer).into_iter().map(Result::unwrap).collect();
        assert_eq!((events[0].mask, events[0].pid), (libc::FAN_CREATE, 42));
        let (dir, name) = events[0].entry.as_ref().unwrap();
        assert_eq!((&dir.bytes[..], &name[..]), (&b"dir!"[..], &b"name"[..]));
        assert_eq!(events[0].object.as_ref().unwrap().bytes, b"object");
        assert!(events[0].pidfd.is_none());
        assert_eq!(events[1].mask, libc::FAN_Q_OVERFLOW);

        // Cut at each place: never more events than whole ones, and an error unless at a boundary.
        let first = event(libc::FAN_CREATE, &[named]);
        for end in 1..first.len() {
            assert!(parse(&first[..end]).iter().all(Result::is_err), "{end}");
        }
    }

    #[test]
    fn lengths_that_lie_are_not_followed() {
        let whole = event(1, &[record(libc::FAN_EVENT_INFO_TYPE_FID, b"abcd", b"")]);
        for (at, value) in
            [(0, 0u8), (0, 8), (HEAD + 2, 3), (HEAD + 2, 255), (HEAD + 12, 200), (4, 9)]
        {
            let mut bad = whole.clone();
            bad[at] = value;
            assert!(parse(&bad).last().unwrap().is_err(), "byte {at} = {value}");
        }
    }
}
