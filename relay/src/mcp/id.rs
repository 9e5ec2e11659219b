//! Finds the id of a message in text that can't be parsed: too long, cut off, or wrong somewhere.
//! Pure, and of constant memory.

use rmcp::model::RequestId;
use serde_json::Value;

/// Longest id that is found, in bytes of its JSON.
const ID_MAX_BYTES: usize = 1024;

/// Looks through the text of one JSON object for its key `id`. It knows no more of JSON than where
/// strings and nested values end, so what else is wrong with the text doesn't matter.
#[derive(Debug, Default)]
pub(super) struct IdScanner {
    place: Place,
    /// How many objects and arrays are open inside the object.
    nested: u64,
    /// Within a string; and whether a backslash came last.
    string: Option<bool>,
    /// The key or the id's value that is being read, as it stands in the text.
    token: Vec<u8>,
}

/// Where in the object the text is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before its brace.
    #[default]
    Before,
    /// In a key, or about to be.
    Key,
    /// After a key, before its colon.
    Colon,
    /// In the value of another key.
    Other,
    /// In the value of `id`.
    Id,
    /// The id was read whole.
    Found,
    /// There is none.
    Nothing,
}

impl IdScanner {
    /// The text goes on with `bytes`.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if matches!(self.place, Place::Found | Place::Nothing) {
                return;
            }
            self.step(byte);
        }
    }

    /// The id, if it was read whole and is one that a request may have.
    pub(super) fn id(&self) -> Option<RequestId> {
        if self.place != Place::Found {
            return None;
        }
        let value = serde_json::from_slice::<Value>(&self.token).ok()?;
        serde_json::from_value(value).ok()
    }

    fn step(&mut self, byte: u8) {
        if let Some(escaped) = self.string {
            self.string = (escaped || byte != b'"').then_some(!escaped && byte == b'\\');
            self.keep(byte);
            if self.string.is_none() && self.nested == 0 {
                match self.place {
                    Place::Key => self.place = Place::Colon,
                    Place::Id => self.place = Place::Found,
                    _ => {}
                }
            }
            return;
        }
        match byte {
            b'"' if self.place != Place::Before => {
                self.string = Some(false);
                self.keep(byte);
            }
            b'{' if self.place == Place::Before => self.place = Place::Key,
            b' ' | b'\t' | b'\r' | b'\n' if self.place != Place::Id || self.token.is_empty() => {}
            _ if self.place == Place::Before => self.place = Place::Nothing,
            // An id is no object and no array.
            b'{' | b'[' if self.place == Place::Id => self.place = Place::Nothing,
            b'{' | b'[' => self.nested += 1,
            b'}' | b']' if self.nested > 0 => self.nested -= 1,
            _ if self.nested > 0 => {}
            b',' | b'}' | b' ' | b'\t' | b'\r' | b'\n' if self.place == Place::Id => {
                self.place = Place::Found;
            }
            b'}' => self.place = Place::Nothing,
            b',' => self.enter(Place::Key),
            b':' if self.place == Place::Colon => {
                let key = serde_json::from_slice::<String>(&self.token);
                let id = key.is_ok_and(|key| key == "id");
                self.enter(if id { Place::Id } else { Place::Other });
            }
            _ => self.keep(byte),
        }
    }

    fn enter(&mut self, place: Place) {
        self.place = place;
        self.token.clear();
    }

    fn keep(&mut self, byte: u8) {
        let wanted = matches!(self.place, Place::Key | Place::Id) && self.nested == 0;
        if wanted && self.token.len() < ID_MAX_BYTES {
            self.token.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &[u8]) -> Option<RequestId> {
        let mut scanner = IdScanner::default();
        scanner.push(text);
        // However the text is cut, it is the same.
        let mut by_byte = IdScanner::default();
        for byte in text.chunks(1) {
            by_byte.push(byte);
        }
        assert_eq!(scanner.id(), by_byte.id());
        scanner.id()
    }

    #[test]
    fn the_id_is_found_wherever_it_stands() {
        for text in [
            r#"{"id":7}"#,
            r#" { "jsonrpc" : "2.0" , "id" : 7 , "method":"ping"}"#,
            r#"{"method":"m","params":{"id":8,"a":[{"id":9}],"s":"}\"],\\"},"id":7}"#,
            r#"{"id":7,"method":"tools/call","params":{"expression":"(car"#,
            r#"{"id":7,,"method" nonsense"#,
            r#"{"\u0069d":7}"#,
            r#"{"id":7,"id":8}"#,
        ] {
            assert_eq!(find(text.as_bytes()), Some(RequestId::Number(7)), "{text}");
        }
        let string = br#"{"params":"\xff\ud800","id":"a\"b\u00e9"}"#;
        assert_eq!(find(string), Some(RequestId::String("a\"bé".into())));
        let deep = format!(
            r#"{{"params":{}{},"id":7}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert_eq!(find(deep.as_bytes()), Some(RequestId::Number(7)));
    }

    #[test]
    fn what_is_no_id_or_not_whole_is_none() {
        for text in [
            "",
            "7",
            "[]",
            r#"[{"id":7}]"#,
            "{}",
            r#"{"params":{"id":7}}"#,
            r#"{"id":null}"#,
            r#"{"id":1.5}"#,
            r#"{"id":{"id":7}}"#,
            r#"{"id":[7]}"#,
            r#"{"id":9223372036854775808}"#,
            r#"{"id":7"#,
            r#"{"id":"sev"#,
            r#"{"id"#,
            r#"{"id""#,
            r#"x{"id":7}"#,
        ] {
            assert_eq!(find(text.as_bytes()), None, "{text}");
        }
        let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(2 * ID_MAX_BYTES));
        assert_eq!(find(long.as_bytes()), None);
    }
}
