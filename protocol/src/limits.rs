//! Every limit that both sides keep to, with its unit in the name and what happens when it is hit.

/// Longest expression, in Unicode code points; a longer one is `invalid_request`.
pub const EXPRESSION_MAX_CHARS: usize = 262_144;

/// Smallest and largest `timeout_ms`; outside is `invalid_request`.
pub const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 100..=120_000;

/// `timeout_ms` where neither call, option nor environment says one.
pub const TIMEOUT_DEFAULT_MS: u64 = 10_000;

/// Smallest and largest `max_output_chars`; outside is `invalid_request`.
pub const OUTPUT_CHARS: std::ops::RangeInclusive<u64> = 1..=262_144;

/// `max_output_chars` where neither call, option nor environment says one.
pub const OUTPUT_DEFAULT_CHARS: u64 = 65_536;

/// Largest reply, in bytes of its outcome's JSON with all keys; a larger one is replaced by
/// `output_too_large`. What emacsclient prints, stdout and stderr together, is held to the same.
pub const REPLY_MAX_BYTES: usize = 1024 * 1024;

/// Largest frame from module to relay, in bytes: a reply at its limit and what is around it. A
/// longer line ends the connection.
pub const MODULE_FRAME_MAX_BYTES: usize = REPLY_MAX_BYTES + 4096;

/// Largest frame from relay to module, in bytes: an expression of [`EXPRESSION_MAX_CHARS`] in which
/// each character takes the six bytes of a `\u` escape (the widest JSON has; four bytes of UTF-8
/// are fewer), and what is around it. A longer line ends the connection.
pub const RELAY_FRAME_MAX_BYTES: usize = EXPRESSION_MAX_CHARS * 6 + 4096;

/// Longest `message` of an error, in characters; the rest is cut.
pub const MESSAGE_MAX_CHARS: usize = 4_096;

/// Calls that may wait for Emacs at once, of all relays together; one more is
/// `emacs_unavailable`.
pub const QUEUE_MAX_JOBS: usize = 256;

/// Calls of one client that may be under way at once; one more is `emacs_unavailable`.
pub const CALLS_MAX: usize = 256;

/// Relays that may be connected to one Emacs at once; one more is turned away and takes
/// the emacsclient path.
pub const RELAYS_MAX: usize = 128;

/// Replies of one relay, in bytes, that may wait to be written before no more of its calls are
/// read: a relay that doesn't read stalls itself and nobody else.
pub const OUTBOX_MAX_BYTES: usize = 4 * 1024 * 1024;

/// How long after a call's deadline its answer may take at the most, in milliseconds.
pub const ANSWER_GRACE_MS: u64 = 250;
