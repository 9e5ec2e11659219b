//! What the relay and the Emacs module say to each other: messages, their framing, the limits and
//! error codes both keep to, and where the socket is. It does no I/O; both sides bring their own.

#![forbid(unsafe_code)]

pub mod code;
pub mod frame;
pub mod limits;
pub mod message;
pub mod outcome;
pub mod place;

pub use code::ErrorCode;
pub use frame::{Decoder, FrameError, encode};
pub use message::{Eval, FromModule, FromRelay, Hello, PROTOCOL, Reply};
pub use outcome::{Evaluation, Failure, Outcome, Success};

/// The version of this build, the same for relay, module and Lisp.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
