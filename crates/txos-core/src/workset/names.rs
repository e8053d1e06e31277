/// Names in one array of bytes, each after its length. A name has at most 255 bytes (`NAME_MAX`).
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    bytes: Vec<u8>,
}

impl Names {
    /// Adds a name and gives its place. Bytes past the 255th are cut off: no file system of Linux
    /// has longer names.
    pub(super) fn push(&mut self, name: &[u8]) -> u32 {
        let place = self.bytes.len() as u32;
        let name = &name[..name.len().min(usize::from(u8::MAX))];
        self.bytes.push(name.len() as u8);
        self.bytes.extend_from_slice(name);
        place
    }

    pub(super) fn get(&self, place: u32) -> &[u8] {
        let place = place as usize;
        let length = usize::from(self.bytes[place]);
        &self.bytes[place + 1..place + 1 + length]
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// Names from stored bytes, with the check that a name lies at each of `places`.
    pub(super) fn from_bytes(bytes: Vec<u8>, places: impl Iterator<Item = u32>) -> Option<Self> {
        let names = Names { bytes };
        for place in places {
            let length = usize::from(*names.bytes.get(place as usize)?);
            names.bytes.get(place as usize + 1..place as usize + 1 + length)?;
        }
        Some(names)
    }
}
