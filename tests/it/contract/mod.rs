//! The contract of `emacs_eval`. Each function is one promise and runs twice: through the module and
//! through emacsclient, each time with an Emacs of its own.

use harness::{Emacs, Relay, RelayBuilder, Scratch};

/// An Emacs and a relay that reaches it by one path.
pub(crate) struct Fixture {
    pub(crate) relay: Relay,
    pub(crate) builder: RelayBuilder,
    pub(crate) emacs: Emacs,
    pub(crate) scratch: Scratch,
    /// Which path it is; emacsclient's calls take longer, so fewer have to do.
    pub(crate) by_module: bool,
}

impl Fixture {
    pub(crate) fn by_module() -> Self {
        let scratch = Scratch::new();
        let emacs = Emacs::start(&scratch);
        let builder = RelayBuilder::to(&emacs).by("module");
        Self {
            relay: builder.start(),
            builder,
            emacs,
            scratch,
            by_module: true,
        }
    }

    pub(crate) fn by_emacsclient() -> Self {
        let scratch = Scratch::new();
        let emacs = Emacs::start_without_module(&scratch);
        let builder = RelayBuilder::to(&emacs);
        Self {
            relay: builder.start(),
            builder,
            emacs,
            scratch,
            by_module: false,
        }
    }
}

/// Makes two tests of each function, `module::NAME` and `emacsclient::NAME`.
macro_rules! on_both_paths {
    ($(fn $name:ident($fixture:ident) $body:block)*) => {
        $(fn $name($fixture: &mut crate::contract::Fixture) $body)*

        mod module {
            $(#[test]
            fn $name() {
                super::$name(&mut crate::contract::Fixture::by_module());
            })*
        }

        mod emacsclient {
            $(#[test]
            fn $name() {
                super::$name(&mut crate::contract::Fixture::by_emacsclient());
            })*
        }
    };
}

/// Signals, throws and other ways not to return.
mod errors;
/// Every value and every error to the character, whatever is in it.
mod exact;
/// Arguments and their limits.
mod input;
/// What a form prints and messages.
mod output;
/// One form is read, and nothing runs before that.
mod reading;
/// Live state, the current buffer, what the person has.
mod state;
/// Time: timeouts, order, waiting.
mod time;
/// Values: printing, counting, cutting.
mod values;
