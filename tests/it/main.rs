//! The tests of the whole: the real relay, a real Emacs, the real module, over real pipes. A test
//! whose name begins with `timed_` measures a time and has to have the machine to itself.

/// What printing costs.
mod bounds;
/// The official MCP clients.
mod clients;
/// What the contract promises, one list for both paths.
mod contract;
/// What else runs in a form's wait.
mod guests;
/// Emacs and relay come, go and break.
mod life;
/// Several relays, many calls, and none at all.
mod load;
/// Loading the module, its socket, its warnings.
mod loading;
/// Options and environment at start-up.
mod options;
/// Cases of a path of its own: what only emacsclient or only the module can do wrong.
mod paths;
/// The person who sits in front of Emacs.
mod person;
/// Which Emacs a relay finds.
mod selection;
/// A short soak.
mod short_soak;
/// Forms that have to be stopped.
mod stopping;
/// Versions, names and headers that must agree.
mod tidy;
/// Lines, revisions and what is offered; floods.
mod wire;
