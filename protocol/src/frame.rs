//! Framing: one JSON document a line. Bytes in, message or "need more" or an error out; who reads
//! and writes them, blocking or not, is the caller's business.

use serde::{Serialize, de::DeserializeOwned};

/// A frame that can't be used. The connection it came on is ended.
#[derive(Debug)]
pub enum FrameError {
    /// The line is longer than the decoder's limit; nothing of it beyond that was kept.
    TooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The line is no message of this protocol.
    Malformed(serde_json::Error),
    /// The input ended inside a line.
    Truncated,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong { limit } => write!(f, "frame longer than {limit} bytes"),
            Self::Malformed(error) => write!(f, "malformed frame: {error}"),
            Self::Truncated => write!(f, "input ended inside a frame"),
        }
    }
}

impl std::error::Error for FrameError {}

/// `message` as one line, its newline included.
///
/// # Panics
///
/// Never: messages are plain data, which JSON can always carry.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("messages are plain data");
    line.push(b'\n');
    line
}

/// Cuts a stream of bytes into messages. Keeps at most its limit of an unfinished line.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    buffer: Vec<u8>,
    /// Start of the line that is being read.
    start: usize,
    /// Everything in the buffer before this was searched for a newline.
    searched: usize,
}

impl Decoder {
    /// A decoder for lines of at most `limit` bytes, newline not counted.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
        }
    }

    /// Adds bytes that arrived. Give pieces of bounded size and drain [`Self::next`] after each.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            // A long line is rare; don't hold its memory for ever.
            self.buffer.shrink_to(64 * 1024);
            (self.start, self.searched) = (0, 0);
        } else if self.start > 0 && self.buffer.len() + bytes.len() > self.buffer.capacity() {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message, or `None` while more bytes are needed. Blank lines are skipped.
    ///
    /// # Errors
    ///
    /// [`FrameError::TooLong`] as soon as a line passes the limit, finished or not;
    /// [`FrameError::Malformed`] for a line that is no `T`.
    #[allow(
        clippy::should_implement_trait,
        reason = "the item type is the caller's choice"
    )]
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        loop {
            let newline = self.buffer[self.searched..]
                .iter()
                .position(|&byte| byte == b'\n');
            let Some(at) = newline else {
                self.searched = self.buffer.len();
                return if self.searched - self.start > self.limit {
                    Err(FrameError::TooLong { limit: self.limit })
                } else {
                    Ok(None)
                };
            };
            let end = self.searched + at;
            let line = &self.buffer[self.start..end];
            (self.start, self.searched) = (end + 1, end + 1);
            if line.len() > self.limit {
                return Err(FrameError::TooLong { limit: self.limit });
            }
            if !line.is_empty() {
                return serde_json::from_slice(line)
                    .map(Some)
                    .map_err(FrameError::Malformed);
            }
        }
    }

    /// What the end of the input means.
    ///
    /// # Errors
    ///
    /// [`FrameError::Truncated`] where it ended inside a line.
    pub fn finish(&self) -> Result<(), FrameError> {
        if self.start == self.buffer.len() {
            Ok(())
        } else {
            Err(FrameError::Truncated)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(decoder: &mut Decoder, bytes: &[u8]) -> Vec<u32> {
        decoder.push(bytes);
        let mut all = Vec::new();
        while let Some(number) = decoder.next().unwrap() {
            all.push(number);
        }
        all
    }

    #[test]
    fn frames_split_anywhere_come_out_whole() {
        let stream = b"1\n22\n\n333\n";
        for cut in 0..stream.len() {
            let mut decoder = Decoder::new(8);
            let mut all = numbers(&mut decoder, &stream[..cut]);
            all.extend(numbers(&mut decoder, &stream[cut..]));
            assert_eq!(all, [1, 22, 333], "cut at {cut}");
            decoder.finish().unwrap();
        }
    }

    #[test]
    fn a_line_at_the_limit_passes_and_one_byte_more_does_not() {
        let mut decoder = Decoder::new(4);
        assert_eq!(numbers(&mut decoder, b"1234\n"), [1234]);
        decoder.push(b"12345\n");
        assert!(matches!(
            decoder.next::<u32>(),
            Err(FrameError::TooLong { limit: 4 })
        ));
    }

    #[test]
    fn a_long_line_is_refused_before_its_end() {
        let mut decoder = Decoder::new(4);
        decoder.push(b"12345");
        assert!(matches!(
            decoder.next::<u32>(),
            Err(FrameError::TooLong { limit: 4 })
        ));
    }

    #[test]
    fn what_is_no_message_is_malformed_and_the_next_line_is_read() {
        let mut decoder = Decoder::new(64);
        decoder.push(b"\xff\xfe\n{}\n7\n");
        assert!(matches!(
            decoder.next::<u32>(),
            Err(FrameError::Malformed(_))
        ));
        assert!(matches!(
            decoder.next::<u32>(),
            Err(FrameError::Malformed(_))
        ));
        assert_eq!(decoder.next::<u32>().unwrap(), Some(7));
    }

    #[test]
    fn an_end_inside_a_line_is_not_an_end_between_lines() {
        let mut decoder = Decoder::new(8);
        assert_eq!(numbers(&mut decoder, b"1\n2"), [1]);
        assert!(matches!(decoder.finish(), Err(FrameError::Truncated)));
    }

    #[test]
    fn encoded_is_one_line() {
        assert_eq!(encode(&"a\nb"), b"\"a\\nb\"\n");
    }
}
