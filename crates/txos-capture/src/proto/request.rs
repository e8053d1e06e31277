use super::Opcode;

/// One request as it lies in the buffer of the worker that read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'b> {
    pub(crate) opcode: Opcode,
    /// Pairs the reply with the request.
    pub(crate) unique: u64,
    pub(crate) node: u64,
    /// The calling thread, in the process id name space in which the file system was mounted.
    pub(crate) pid: u32,
    pub(crate) body: Body<'b>,
}

const HEADER: usize = 40;

impl<'b> Request<'b> {
    /// `None` if the kernel sent less than a header.
    pub(crate) fn parse(bytes: &'b [u8]) -> Option<Self> {
        let mut header = Body { rest: bytes.get(..HEADER)? };
        let _length = header.u32()?;
        let opcode = Opcode::from_raw(header.u32()?);
        let (unique, node) = (header.u64()?, header.u64()?);
        let (_uid, _gid) = (header.u32()?, header.u32()?);
        let pid = header.u32()?;
        Some(Request { opcode, unique, node, pid, body: Body { rest: &bytes[HEADER..] } })
    }
}

/// The fields of a request, taken one after the other. `None` past the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<'b> {
    rest: &'b [u8],
}

impl<'b> Body<'b> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>()?;
        self.rest = tail;
        Some(*head)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    /// So many bytes as they are.
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (head, tail) = self.rest.split_at_checked(count)?;
        self.rest = tail;
        Some(head)
    }

    /// A name, which ends with a NUL byte.
    pub(crate) fn name(&mut self) -> Option<&'b [u8]> {
        let end = self.rest.iter().position(|byte| *byte == 0)?;
        let name = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Some(name)
    }
}
