//! The calls of all relays, in order of arrival, and the one that runs. One form at a time for the
//! whole Emacs; a call is answered once, whoever answers it.
//!
//! The life of a call: waiting (`push`), then running (`take`), then gone (`finish`). While it
//! waits it can be withdrawn, by its deadline, its relay or the end of listening, and never runs.
//! While it runs its deadline answers for it, and it keeps the slot until it has really ended.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use emacs_runtime_mcp_protocol::{
    ErrorCode, Eval, Evaluation, Failure, FromModule, Outcome, Reply, limits,
};

use crate::outbox::Outbox;
use crate::sync::{lock, wait};

/// How long after its deadline a running call is answered, in time for
/// [`limits::ANSWER_GRACE_MS`] to hold at the relay.
const UNKNOWN_AFTER: Duration = Duration::from_millis(200);

/// The queue and the slot of one listener.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Told when the watchdog has something earlier to wait for, or should end.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    running: Option<Running>,
    next_key: u64,
    taken: u64,
    /// Until when the watchdog sleeps; `None` while it waits to be told.
    watched: Option<Instant>,
    closed: bool,
}

/// A call and whom to answer.
struct Ticket {
    outbox: Arc<Outbox>,
    id: u64,
    timeout_ms: u64,
    arrived: Instant,
    deadline: Instant,
}

struct Job {
    ticket: Ticket,
    expression: String,
    max_output_chars: u64,
}

struct Running {
    key: u64,
    ticket: Ticket,
    queue_ms: u64,
    answered: bool,
}

/// A call on its way into Lisp.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Names the call in [`Queue::finish`].
    pub(crate) key: u64,
    pub(crate) expression: String,
    pub(crate) max_output_chars: u64,
}

/// How many calls there are and were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) waiting: usize,
    pub(crate) running: bool,
    /// Forms handed to Lisp since listening began.
    pub(crate) taken: u64,
}

impl Ticket {
    fn answer(&self, outcome: Outcome, queue_ms: u64) {
        self.outbox.send(FromModule::Reply(Reply {
            id: self.id,
            queue_ms,
            outcome,
        }));
    }

    fn waited_ms(&self) -> u64 {
        u64::try_from(self.arrived.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn withdraw(&self, failure: Failure) {
        self.answer(
            failure.with_evaluation(Evaluation::NotStarted).into(),
            self.waited_ms(),
        );
    }

    /// Listening has ended: the relay may take another way.
    fn give_back(&self) {
        self.outbox.send(FromModule::Withdrawn { id: self.id });
    }

    fn expire(&self) {
        self.withdraw(Failure::timeout(self.timeout_ms, Evaluation::NotStarted));
    }
}

impl Queue {
    /// Puts a call in line. True when Emacs has to be told: nothing runs that will take it anyway.
    /// A call that can't wait is answered here.
    pub(crate) fn push(&self, outbox: &Arc<Outbox>, eval: Eval) -> bool {
        let arrived = Instant::now();
        let deadline = arrived + Duration::from_millis(eval.left_ms);
        let ticket = Ticket {
            outbox: Arc::clone(outbox),
            id: eval.id,
            timeout_ms: eval.timeout_ms,
            arrived,
            deadline,
        };
        outbox.call_opened();
        let mut state = lock(&self.state);
        if state.closed {
            ticket.give_back();
            return false;
        }
        if state.waiting.len() >= limits::QUEUE_MAX_JOBS {
            drop(state);
            ticket.withdraw(Failure::new(
                ErrorCode::EmacsUnavailable,
                format!(
                    "Emacs has {} calls waiting already; try again when some are answered",
                    limits::QUEUE_MAX_JOBS
                ),
            ));
            return false;
        }
        let Eval {
            expression,
            max_output_chars,
            ..
        } = eval;
        state.waiting.push_back(Job {
            ticket,
            expression,
            max_output_chars,
        });
        if state.watched.is_none_or(|until| deadline < until) {
            state.watched = Some(deadline);
            self.changed.notify_all();
        }
        state.running.is_none()
    }

    /// The next call for Lisp; `None` when there is none or one is running.
    pub(crate) fn take(&self) -> Option<Taken> {
        let mut state = lock(&self.state);
        if state.running.is_some() {
            return None;
        }
        let job = loop {
            let job = state.waiting.pop_front()?;
            if job.ticket.deadline > Instant::now() {
                break job;
            }
            job.ticket.expire();
        };
        state.next_key += 1;
        state.taken += 1;
        let (key, queue_ms) = (state.next_key, job.ticket.waited_ms());
        state.running = Some(Running {
            key,
            ticket: job.ticket,
            queue_ms,
            answered: false,
        });
        Some(Taken {
            key,
            expression: job.expression,
            max_output_chars: job.max_output_chars,
        })
    }

    /// The running call has ended. Answers it, unless its deadline did, and frees the slot. A key
    /// that isn't the running one's changes nothing. True when more calls wait.
    pub(crate) fn finish(&self, key: u64, outcome: Outcome) -> bool {
        let mut state = lock(&self.state);
        if let Some(running) = state.running.take_if(|running| running.key == key)
            && !running.answered
        {
            running
                .ticket
                .answer(outcome.within_limit(), running.queue_ms);
        }
        !state.waiting.is_empty()
    }

    /// Nobody waits for this call any more.
    pub(crate) fn cancel(&self, outbox: &Arc<Outbox>, id: u64) {
        self.drop_calls(|ticket| ticket.id == id && Arc::ptr_eq(&ticket.outbox, outbox));
    }

    /// Nobody waits for any call of this relay any more.
    pub(crate) fn cancel_all(&self, outbox: &Arc<Outbox>) {
        self.drop_calls(|ticket| Arc::ptr_eq(&ticket.outbox, outbox));
    }

    fn drop_calls(&self, meant: impl Fn(&Ticket) -> bool) {
        let mut state = lock(&self.state);
        state.waiting.retain(|job| {
            let stays = !meant(&job.ticket);
            if !stays {
                job.ticket.outbox.call_dropped();
            }
            stays
        });
        if let Some(running) = &mut state.running
            && !running.answered
            && meant(&running.ticket)
        {
            running.answered = true;
            running.ticket.outbox.call_dropped();
        }
    }

    /// Ends listening: what waits is withdrawn, what runs is still answered, nothing new is taken.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        for job in state.waiting.drain(..) {
            job.ticket.give_back();
        }
        self.changed.notify_all();
    }

    /// Whether a form is in Lisp's hands.
    pub(crate) fn counts(&self) -> Counts {
        let state = lock(&self.state);
        Counts {
            waiting: state.waiting.len(),
            running: state.running.is_some(),
            taken: state.taken,
        }
    }

    /// The watchdog's life: answers the calls whose time is over. Sleeps while there is nothing to
    /// watch. Returns when the queue is closed and empty.
    pub(crate) fn watch(&self) {
        let mut state = lock(&self.state);
        loop {
            let now = Instant::now();
            state.waiting.retain(|job| {
                let stays = job.ticket.deadline > now;
                if !stays {
                    job.ticket.expire();
                }
                stays
            });
            if let Some(running) = &mut state.running
                && !running.answered
                && running.ticket.deadline + UNKNOWN_AFTER <= now
            {
                running.answered = true;
                let failure = Failure::timeout(running.ticket.timeout_ms, Evaluation::Unknown);
                running.ticket.answer(failure.into(), running.queue_ms);
            }
            if state.closed
                && state
                    .running
                    .as_ref()
                    .is_none_or(|running| running.answered)
            {
                return;
            }
            state.watched = next_deadline(&state);
            let until = state.watched;
            state = wait(&self.changed, state, until);
        }
    }
}

/// When the watchdog has to look next.
fn next_deadline(state: &State) -> Option<Instant> {
    let waiting = state.waiting.iter().map(|job| job.ticket.deadline);
    let running = state.running.iter().filter(|running| !running.answered);
    waiting
        .chain(running.map(|running| running.ticket.deadline + UNKNOWN_AFTER))
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use emacs_runtime_mcp_protocol::Success;

    fn eval(id: u64, timeout_ms: u64) -> Eval {
        Eval {
            id,
            expression: format!("({id})"),
            timeout_ms,
            left_ms: timeout_ms,
            max_output_chars: 10,
        }
    }

    fn value(text: &str) -> Outcome {
        Outcome::Success(Success {
            value: text.into(),
            truncated: false,
            original_chars: 1,
            output: None,
        })
    }

    fn reply(outbox: &Outbox) -> Reply {
        match outbox.next() {
            Some(FromModule::Reply(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn evaluation(reply: &Reply) -> Option<Evaluation> {
        match &reply.outcome {
            Outcome::Failure(failure) => failure.data.evaluation,
            Outcome::Success(_) => None,
        }
    }

    #[test]
    fn calls_run_one_at_a_time_in_order() {
        let (queue, outbox) = (Queue::default(), Arc::new(Outbox::new()));
        assert!(queue.push(&outbox, eval(1, 1_000)));
        assert!(queue.push(&outbox, eval(2, 1_000)));
        let first = queue.take().unwrap();
        assert_eq!(first.expression, "(1)");
        assert_eq!(queue.take(), None);
        assert!(
            !queue.push(&outbox, eval(3, 1_000)),
            "a running form takes the next one anyway"
        );
        assert!(queue.finish(first.key, value("a")));
        assert_eq!(reply(&outbox).id, 1);
        assert_eq!(queue.take().unwrap().expression, "(2)");
    }

    #[test]
    fn a_stale_key_finishes_nothing() {
        let (queue, outbox) = (Queue::default(), Arc::new(Outbox::new()));
        queue.push(&outbox, eval(1, 1_000));
        let taken = queue.take().unwrap();
        queue.finish(taken.key + 1, value("wrong"));
        assert!(queue.counts().running);
        queue.finish(taken.key, value("right"));
        assert_eq!(reply(&outbox).outcome, value("right"));
    }

    #[test]
    fn what_waited_too_long_never_runs() {
        let (queue, outbox) = (Queue::default(), Arc::new(Outbox::new()));
        queue.push(&outbox, eval(1, 0));
        assert_eq!(queue.take(), None);
        assert_eq!(evaluation(&reply(&outbox)), Some(Evaluation::NotStarted));
    }

    #[test]
    fn the_watchdog_answers_for_waiting_and_running_calls_and_the_slot_stays_taken() {
        let (queue, outbox) = (Arc::new(Queue::default()), Arc::new(Outbox::new()));
        queue.push(&outbox, eval(1, 50));
        let taken = queue.take().expect("50 ms are not over yet");
        queue.push(&outbox, eval(2, 1));
        let watchdog = std::thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.watch()
        });
        let second = reply(&outbox);
        assert_eq!(
            (second.id, evaluation(&second)),
            (2, Some(Evaluation::NotStarted))
        );
        let first = reply(&outbox);
        assert_eq!(
            (first.id, evaluation(&first)),
            (1, Some(Evaluation::Unknown))
        );
        assert!(queue.counts().running);
        queue.finish(taken.key, value("late"));
        assert!(!queue.counts().running);
        queue.close();
        watchdog.join().unwrap();
        outbox.finish();
        assert_eq!(outbox.next(), None, "a late value is sent to nobody");
    }

    #[test]
    fn one_call_too_many_is_refused_at_once() {
        let (queue, outbox) = (Queue::default(), Arc::new(Outbox::new()));
        for id in 0..limits::QUEUE_MAX_JOBS as u64 {
            queue.push(&outbox, eval(id, 1_000));
        }
        assert!(!queue.push(&outbox, eval(999, 1_000)));
        let refused = reply(&outbox);
        assert_eq!(
            (refused.id, evaluation(&refused)),
            (999, Some(Evaluation::NotStarted))
        );
    }

    #[test]
    fn a_vanished_relay_takes_its_calls_with_it() {
        let (queue, gone, stays) = (
            Queue::default(),
            Arc::new(Outbox::new()),
            Arc::new(Outbox::new()),
        );
        queue.push(&gone, eval(1, 1_000));
        queue.push(&stays, eval(1, 1_000));
        queue.push(&gone, eval(2, 1_000));
        queue.cancel_all(&gone);
        let taken = queue.take().unwrap();
        queue.finish(taken.key, value("x"));
        assert_eq!(reply(&stays).outcome, value("x"));
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn closing_withdraws_what_waits_and_still_answers_what_runs() {
        let (queue, outbox) = (Queue::default(), Arc::new(Outbox::new()));
        queue.push(&outbox, eval(1, 1_000));
        queue.push(&outbox, eval(2, 1_000));
        let taken = queue.take().unwrap();
        queue.close();
        assert_eq!(outbox.next(), Some(FromModule::Withdrawn { id: 2 }));
        queue.finish(taken.key, value("x"));
        assert_eq!(reply(&outbox).outcome, value("x"));
    }
}
