//! The one call that runs, and how it is stopped: knock, then break the door. Pure: the clock is
//! handed in, and what to do is handed out.
//!
//! A signal may be sent only while [`Running::act`] says so, under the queue's lock: then the form
//! is inside its evaluation, where Lisp has made sure that the signal ends it and nothing else.

use std::time::{Duration, Instant};

use emacs_runtime_mcp_protocol::{ErrorCode, Evaluation, Failure, Outcome};

use crate::queue::Ticket;

/// How long Lisp has to notice the knock before a signal is sent. Lisp that waits notices within a
/// millisecond; Lisp that computes never does.
const KNOCK: Duration = Duration::from_millis(30);

/// From one signal to the next while the form swallows them.
const BETWEEN_SIGNALS: Duration = Duration::from_millis(40);

/// How long cleanup forms may take before the next signal cuts them.
const CLEANUP: Duration = Duration::from_millis(100);

/// How long after the knock what runs in a form's wait, and isn't the form, is spared by signals.
const GUESTS: Duration = Duration::from_millis(100);

/// How long after its deadline a call is answered whose form has not ended, in time for
/// [`emacs_runtime_mcp_protocol::limits::ANSWER_GRACE_MS`] to hold at the relay.
const UNKNOWN_AFTER: Duration = Duration::from_millis(200);

/// How often Emacs is rung for while a form runs. If the form was lost, since Emacs has jumped out of
/// it without unwinding, Lisp then sees it.
pub(crate) const LOOK: Duration = Duration::from_millis(250);

/// How long a form is signalled; what withstood that long can't be stopped.
const SIGNALS_FOR: Duration = Duration::from_secs(1);

/// A call in Lisp's hands. It keeps its slot until Lisp says that it has ended.
pub(crate) struct Running {
    /// Names the call to Lisp.
    pub(crate) key: u64,
    pub(crate) ticket: Ticket,
    pub(crate) queue_ms: u64,
    pub(crate) began: Instant,
    phase: Phase,
    next_look: Instant,
    stop: Option<Stop>,
    /// Nobody waits for an answer any more.
    answered: bool,
}

/// Where Lisp is with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Taken; the variables that make a signal harmless are not all bound yet.
    Taken,
    /// The form runs.
    Evaluating,
    /// It was thrown out since then; cleanup forms may run.
    Unwinding(Instant),
    /// It has ended, one way or other; the variables are about to be unbound.
    Left,
}

/// Why a form is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Its time is over.
    Timeout,
    /// Nobody waits for it: it was cancelled, or its relay has gone.
    Unwanted,
    /// A person stopped it.
    Person,
}

struct Stop {
    why: Why,
    since: Instant,
    next_signal: Instant,
    signals: u32,
}

/// What Lisp tells of the running form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The bindings are made, the form is about to begin. False: don't.
    Enter,
    /// We were called out of the form. True: throw.
    Thrown,
    /// We were called out of something else that runs in the form's wait. True: the form is to be
    /// stopped, but that may go on.
    Spare,
    /// The form has ended. A signal that was sent is handled when this returns.
    Leave,
}

/// How Lisp says that a form ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself.
    Done(Outcome),
    /// It was thrown out, or not begun, since it was to be stopped.
    Stopped,
}

/// What the watchdog is to do now.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Act {
    /// Ring for Emacs: if Lisp waits, it looks whether the form is to be stopped, or was lost.
    pub(crate) knock: bool,
    /// Signal Emacs's main thread.
    pub(crate) signal: bool,
}

impl Running {
    pub(crate) fn new(key: u64, ticket: Ticket, queue_ms: u64, now: Instant) -> Self {
        Self {
            key,
            ticket,
            queue_ms,
            began: now,
            phase: Phase::Taken,
            next_look: now + LOOK,
            stop: None,
            answered: false,
        }
    }

    /// Lisp has come to `stage`.
    pub(crate) fn stage(&mut self, stage: Stage, now: Instant) -> bool {
        match stage {
            Stage::Enter => {
                let wanted = self.stop.is_none();
                if wanted {
                    self.phase = Phase::Evaluating;
                }
                wanted
            }
            Stage::Thrown => {
                let stopped = self.stop.is_some()
                    && matches!(self.phase, Phase::Evaluating | Phase::Unwinding(_));
                if stopped {
                    self.phase = Phase::Unwinding(now);
                }
                stopped
            }
            Stage::Spare => self
                .stop
                .as_ref()
                .is_some_and(|stop| now < stop.since + GUESTS),
            Stage::Leave => {
                if self.phase != Phase::Taken {
                    self.phase = Phase::Left;
                }
                self.was_signalled()
            }
        }
    }

    /// Whether a signal was sent into it.
    fn was_signalled(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.signals > 0)
    }

    /// Begins to stop it. The first reason stays, but for the answer: nobody waits any more for a
    /// call that is unwanted.
    pub(crate) fn stop(&mut self, why: Why, now: Instant) {
        if why == Why::Unwanted && !std::mem::replace(&mut self.answered, true) {
            self.ticket.dropped();
        }
        if self.stop.is_none() {
            self.stop = Some(Stop {
                why,
                since: now,
                next_signal: now + KNOCK,
                signals: 0,
            });
        }
    }

    /// What is to be done at `now`; answers the call if its time is over.
    pub(crate) fn act(&mut self, now: Instant) -> Act {
        let mut act = Act::default();
        if now >= self.next_look {
            self.next_look = now + LOOK;
            act.knock = true;
        }
        if self.stop.is_none() && now >= self.ticket.deadline {
            self.stop(Why::Timeout, now);
            act.knock = true;
        }
        if !self.answered && now >= self.ticket.deadline + UNKNOWN_AFTER {
            self.answer(Failure::timeout(self.ticket.timeout_ms, Evaluation::Unknown).into());
        }
        if self.signal_due().is_some_and(|due| due <= now)
            && let Some(stop) = &mut self.stop
        {
            stop.signals += 1;
            stop.next_signal = now + BETWEEN_SIGNALS;
            act.signal = true;
        }
        act
    }

    /// When a signal is to be sent; `None` while none may be, or no more is.
    fn signal_due(&self) -> Option<Instant> {
        let stop = self.stop.as_ref()?;
        let due = match self.phase {
            Phase::Evaluating => stop.next_signal,
            Phase::Unwinding(since) => stop.next_signal.max(since + CLEANUP),
            Phase::Taken | Phase::Left => return None,
        };
        (due < stop.since + SIGNALS_FOR).then_some(due)
    }

    /// When the watchdog has to look again.
    pub(crate) fn due(&self) -> Instant {
        let deadline = self.stop.is_none().then_some(self.ticket.deadline);
        let unknown = (!self.answered).then_some(self.ticket.deadline + UNKNOWN_AFTER);
        [deadline, unknown, self.signal_due()]
            .into_iter()
            .flatten()
            .fold(self.next_look, Instant::min)
    }

    /// Whether it is to be stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// Whether somebody waits for its answer.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.answered
    }

    /// It has ended; answers it if nobody did.
    pub(crate) fn end(mut self, ending: Ending) {
        let outcome = match ending {
            // Where our debugger is not called, Emacs makes a quit of the signal.
            Ending::Done(Outcome::Failure(failure))
                if self.was_signalled() && failure.data.symbol.as_deref() == Some("quit") =>
            {
                self.stopped()
            }
            Ending::Done(outcome) => outcome.within_limit(),
            Ending::Stopped => self.stopped(),
        };
        self.answer(outcome);
    }

    fn stopped(&self) -> Outcome {
        let begun = self.phase != Phase::Taken;
        let evaluation = if begun {
            Evaluation::Interrupted
        } else {
            Evaluation::NotStarted
        };
        match self.stop.as_ref().map(|stop| stop.why) {
            Some(Why::Person) => Failure::by_person(evaluation).into(),
            Some(Why::Timeout | Why::Unwanted) => {
                Failure::timeout(self.ticket.timeout_ms, evaluation).into()
            }
            None => Failure::new(
                ErrorCode::InternalError,
                "the form was stopped for no reason",
            )
            .into(),
        }
    }

    fn answer(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.answered, true) {
            self.ticket.answer(outcome, self.queue_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::Outbox;
    use emacs_runtime_mcp_protocol::FromModule;
    use std::sync::Arc;

    const TIMEOUT: Duration = Duration::from_millis(300);

    fn running(begun: Instant) -> (Running, Arc<Outbox>) {
        let outbox = Arc::new(Outbox::mute());
        let ticket = Ticket::new(&outbox, 1, 300, begun, begun + TIMEOUT);
        let mut running = Running::new(7, ticket, 0, begun);
        assert!(running.stage(Stage::Enter, begun));
        (running, outbox)
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn evaluation(outbox: &Outbox) -> Option<Evaluation> {
        match outbox.next_message() {
            Some(FromModule::Reply(reply)) => match reply.outcome {
                Outcome::Failure(failure) => failure.data.evaluation,
                Outcome::Success(_) => None,
            },
            other => panic!("{other:?}"),
        }
    }

    /// Lets the watchdog look whenever it wants to until `end`; the times, from `begun`, at which
    /// it knocked and signalled.
    fn watch(
        running: &mut Running,
        begun: Instant,
        end: Duration,
    ) -> (Vec<Duration>, Vec<Duration>) {
        let (mut knocks, mut signals) = (Vec::new(), Vec::new());
        loop {
            let due = running.due();
            if due > begun + end {
                break (knocks, signals);
            }
            let act = running.act(due);
            if act.knock {
                knocks.push(due - begun);
            }
            if act.signal {
                signals.push(due - begun);
            }
        }
    }

    #[test]
    fn a_form_that_swallows_everything_is_signalled_for_a_second_and_answered_in_time() {
        let begun = Instant::now();
        let (mut running, outbox) = running(begun);
        let (knocks, signals) = watch(&mut running, begun, ms(10_000));
        assert_eq!(knocks[..3], [ms(250), ms(300), ms(500)]);
        assert_eq!(signals[..3], [ms(330), ms(370), ms(410)]);
        assert!(signals.last().unwrap() < &ms(1_300));
        assert_eq!(evaluation(&outbox), Some(Evaluation::Unknown));
        assert_eq!(knocks.len(), 41, "it is looked at four times a second");
    }

    #[test]
    fn no_signal_outside_the_evaluation() {
        let begun = Instant::now();
        let (mut running, _outbox) = running(begun);
        running.act(begun + ms(300));
        assert!(!running.stage(Stage::Leave, begun + ms(301)));
        assert_eq!(watch(&mut running, begun, ms(10_000)).1, []);
    }

    #[test]
    fn cleanup_forms_get_their_time_before_the_next_signal() {
        let begun = Instant::now();
        let (mut running, _outbox) = running(begun);
        running.act(begun + ms(300));
        assert!(running.act(begun + ms(330)).signal);
        assert!(running.stage(Stage::Thrown, begun + ms(335)));
        let (_, signals) = watch(&mut running, begun, ms(500));
        assert_eq!(signals[0], ms(435));
        assert!(
            running.stage(Stage::Leave, begun + ms(436)),
            "a signal has to be waited for"
        );
    }

    #[test]
    fn a_guest_is_spared_by_the_first_signals() {
        let begun = Instant::now();
        let (mut running, _outbox) = running(begun);
        assert!(!running.stage(Stage::Spare, begun), "nothing is stopped");
        let (_, signals) = watch(&mut running, begun, ms(460));
        let spared: Vec<bool> = signals
            .iter()
            .map(|at| running.stage(Stage::Spare, begun + *at))
            .collect();
        assert_eq!(spared, [true, true, false, false]);
    }

    #[test]
    fn a_form_that_is_stopped_before_it_begins_never_does() {
        let begun = Instant::now();
        let outbox = Arc::new(Outbox::mute());
        let ticket = Ticket::new(&outbox, 1, 300, begun, begun + TIMEOUT);
        let mut running = Running::new(7, ticket, 0, begun);
        running.act(begun + ms(300));
        assert!(!running.stage(Stage::Enter, begun + ms(301)));
        assert!(!running.stage(Stage::Thrown, begun + ms(301)));
        running.end(Ending::Stopped);
        assert_eq!(evaluation(&outbox), Some(Evaluation::NotStarted));
    }

    #[test]
    fn a_value_that_comes_late_but_in_time_is_the_answer() {
        let begun = Instant::now();
        let (mut running, outbox) = running(begun);
        running.act(begun + ms(300));
        let value = Failure::new(ErrorCode::ElispError, "x").into();
        running.end(Ending::Done(value));
        assert_eq!(evaluation(&outbox), None);
    }

    #[test]
    fn nobody_is_told_of_an_unwanted_form() {
        let begun = Instant::now();
        let (mut running, outbox) = running(begun);
        running.stop(Why::Unwanted, begun);
        assert!(running.stage(Stage::Thrown, begun));
        running.end(Ending::Stopped);
        outbox.finish();
        assert_eq!(outbox.next_message(), None);
    }
}
