use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Bytes, as hexadecimal digits where they are written as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let text: String = digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect();
        to.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(from)?;
        let digit = |c: u8| char::from(c).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let pairs = text.as_bytes().chunks(2);
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
        bytes.map(Bytes).ok_or_else(|| D::Error::custom("not pairs of hexadecimal digits"))
    }
}
