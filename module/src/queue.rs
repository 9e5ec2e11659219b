//! The calls of all relays, in order of arrival, and the one that runs. One form at a time for the
//! whole Emacs; a call is answered once, whoever answers it.
//!
//! The life of a call: waiting (`push`), then running (`take`), then gone (`finish`). While it
//! waits it can be withdrawn, by its deadline, its relay, a person or the end of listening, and
//! never runs. While it runs it can be stopped, see [`crate::running`], and it keeps the slot until
//! Lisp says that it has ended.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use emacs_runtime_mcp_protocol::{
    ErrorCode, Eval, Evaluation, Failure, FromModule, Outcome, Reply, limits,
};

use crate::outbox::Outbox;
use crate::running::{Ending, LOOK, Running, Stage, Why};
use crate::sync::{lock, wait};

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
pub(crate) struct Ticket {
    outbox: Arc<Outbox>,
    id: u64,
    pub(crate) timeout_ms: u64,
    arrived: Instant,
    pub(crate) deadline: Instant,
}

struct Job {
    ticket: Ticket,
    expression: String,
    max_output_chars: u64,
}

/// A call on its way into Lisp.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Names the call in [`Queue::stage`] and [`Queue::finish`].
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
    pub(crate) fn new(
        outbox: &Arc<Outbox>,
        id: u64,
        timeout_ms: u64,
        arrived: Instant,
        deadline: Instant,
    ) -> Self {
        Self {
            outbox: Arc::clone(outbox),
            id,
            timeout_ms,
            arrived,
            deadline,
        }
    }

    pub(crate) fn answer(&self, outcome: Outcome, queue_ms: u64) {
        self.outbox.send(&FromModule::Reply(Reply {
            id: self.id,
            queue_ms,
            outcome,
        }));
    }

    /// It will not be answered: nobody waits.
    pub(crate) fn dropped(&self) {
        self.outbox.call_dropped();
    }

    fn waited_ms(&self) -> u64 {
        millis(self.arrived.elapsed())
    }

    fn withdraw(&self, failure: Failure) {
        self.answer(
            failure.with_evaluation(Evaluation::NotStarted).into(),
            self.waited_ms(),
        );
    }

    /// Listening has ended: the relay may take another way.
    fn give_back(&self) {
        self.outbox.send(&FromModule::Withdrawn { id: self.id });
    }

    /// Its time is over before it began; says what kept it waiting.
    fn expire(&self, running: Option<&Running>) {
        let holder = match running {
            None => format!("Emacs itself, busy for {} ms", self.waited_ms()),
            Some(running) => {
                let whose = if Arc::ptr_eq(&running.ticket.outbox, &self.outbox) {
                    "an earlier form of this client"
                } else {
                    "another client's form"
                };
                let can_be_stopped = if running.is_awaited() {
                    ""
                } else {
                    " and so far not to be stopped"
                };
                format!(
                    "{whose}, running for {} ms{can_be_stopped}",
                    millis(running.began.elapsed())
                )
            }
        };
        let mut failure = Failure::timeout(self.timeout_ms, Evaluation::NotStarted);
        failure.message += &format!("; what kept it waiting: {holder}");
        self.withdraw(failure);
    }
}

impl State {
    /// Answers the waiting calls whose time is over.
    fn expire_waiting(&mut self, now: Instant) {
        let running = self.running.as_ref();
        self.waiting.retain(|job| {
            let stays = job.ticket.deadline > now;
            if !stays {
                job.ticket.expire(running);
            }
            stays
        });
    }

    /// When the watchdog has to look next, after it has at `now`. A form is begun without a word to
    /// it, so while one waits it looks often enough to see it.
    fn due(&self, now: Instant) -> Option<Instant> {
        let next = self.waiting.front().map(|_| now + LOOK);
        let waiting = self.waiting.iter().map(|job| job.ticket.deadline);
        waiting
            .chain(next)
            .chain(self.running.as_ref().map(Running::due))
            .min()
    }
}

impl Queue {
    /// Puts a call in line. True when Emacs has to be told: nothing runs that will take it anyway.
    /// A call that can't wait is answered here.
    pub(crate) fn push(&self, outbox: &Arc<Outbox>, eval: Eval) -> bool {
        let arrived = Instant::now();
        let deadline = arrived + Duration::from_millis(eval.left_ms);
        let ticket = Ticket::new(outbox, eval.id, eval.timeout_ms, arrived, deadline);
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
        let due = deadline.min(arrived + LOOK);
        if state.watched.is_none_or(|until| due < until) {
            state.watched = Some(due);
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
        let now = Instant::now();
        let job = loop {
            let job = state.waiting.pop_front()?;
            if job.ticket.deadline > now {
                break job;
            }
            job.ticket.expire(None);
        };
        state.next_key += 1;
        state.taken += 1;
        let (key, queue_ms) = (state.next_key, job.ticket.waited_ms());
        state.running = Some(Running::new(key, job.ticket, queue_ms, now));
        Some(Taken {
            key,
            expression: job.expression,
            max_output_chars: job.max_output_chars,
        })
    }

    /// Lisp has come to `stage` with the call `key`; see [`Stage`] for what the answer means.
    pub(crate) fn stage(&self, key: u64, stage: Stage) -> bool {
        let mut state = lock(&self.state);
        let answer = match &mut state.running {
            Some(running) if running.key == key => running.stage(stage, Instant::now()),
            _ => false,
        };
        if stage == Stage::Thrown && answer {
            // When the next signal may come has changed.
            self.changed.notify_all();
        }
        answer
    }

    /// The running call has ended. Answers it, unless somebody did, and frees the slot. A key that
    /// isn't the running one's changes nothing. True when more calls wait.
    pub(crate) fn finish(&self, key: u64, ending: Ending) -> bool {
        let mut state = lock(&self.state);
        if let Some(running) = state.running.take_if(|running| running.key == key) {
            running.end(ending);
            if state.closed {
                // The watchdog has waited for this.
                self.changed.notify_all();
            }
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
                job.ticket.dropped();
            }
            stays
        });
        if let Some(running) = &mut state.running
            && meant(&running.ticket)
        {
            running.stop(Why::Unwanted, Instant::now());
            self.changed.notify_all();
        }
    }

    /// A person stops what runs and withdraws what waits. How many calls that were.
    pub(crate) fn cancel_by_person(&self) -> usize {
        let mut state = lock(&self.state);
        let waiting = state.waiting.len();
        for job in state.waiting.drain(..) {
            job.ticket
                .withdraw(Failure::by_person(Evaluation::NotStarted));
        }
        let running = state
            .running
            .as_mut()
            .map(|running| running.stop(Why::Person, Instant::now()));
        self.changed.notify_all();
        waiting + usize::from(running.is_some())
    }

    /// How many calls are before this one; `Some(0)` when it runs, `None` when it is gone.
    pub(crate) fn ahead(&self, outbox: &Arc<Outbox>, id: u64) -> Option<u64> {
        let state = lock(&self.state);
        let meant = |ticket: &Ticket| ticket.id == id && Arc::ptr_eq(&ticket.outbox, outbox);
        if state
            .running
            .as_ref()
            .is_some_and(|running| meant(&running.ticket))
        {
            return Some(0);
        }
        let before = state.waiting.iter().position(|job| meant(&job.ticket))?;
        Some(before as u64 + 1)
    }

    /// Ends listening: what waits is given back, what runs is still answered, nothing new is taken.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        for job in state.waiting.drain(..) {
            job.ticket.give_back();
        }
        self.changed.notify_all();
    }

    /// How many calls there are.
    pub(crate) fn counts(&self) -> Counts {
        let state = lock(&self.state);
        Counts {
            waiting: state.waiting.len(),
            running: state.running.is_some(),
            taken: state.taken,
        }
    }

    /// The watchdog's life: answers and stops the calls whose time is over. Sleeps while there is
    /// nothing to watch. Returns when the queue is closed and empty.
    ///
    /// `signal` is called under the lock, for only so is it certain that the form has not left its
    /// evaluation; `knock` is not, since a pipe might be full.
    pub(crate) fn watch(&self, knock: impl Fn(), signal: impl Fn()) {
        let mut state = lock(&self.state);
        let mut known = None;
        loop {
            let now = Instant::now();
            state.expire_waiting(now);
            let mut knocks = false;
            if let Some(running) = &mut state.running {
                let act = running.act(now);
                if act.signal {
                    signal();
                }
                // A form that was stopped by somebody else wants a knock too, once.
                let stopped = running.is_stopped().then_some(running.key);
                knocks = act.knock || (stopped.is_some() && stopped != known);
                known = stopped.or(known);
            }
            if state.closed && state.running.is_none() {
                return;
            }
            if knocks {
                drop(state);
                knock();
                state = lock(&self.state);
                // Nobody waited for a word meanwhile.
                continue;
            }
            state.watched = state.due(now);
            let until = state.watched;
            state = wait(&self.changed, state, until);
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
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

    fn done(text: &str) -> Ending {
        Ending::Done(value(text))
    }

    fn reply(outbox: &Outbox) -> Reply {
        match outbox.next_message() {
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
        let (queue, outbox) = (Queue::default(), Arc::new(Outbox::mute()));
        assert!(queue.push(&outbox, eval(1, 1_000)));
        assert!(queue.push(&outbox, eval(2, 1_000)));
        let first = queue.take().unwrap();
        assert_eq!(first.expression, "(1)");
        assert_eq!(queue.take(), None);
        assert!(
            !queue.push(&outbox, eval(3, 1_000)),
            "a running form takes the next one anyway"
        );
        assert!(queue.finish(first.key, done("a")));
        assert_eq!(reply(&outbox).id, 1);
        assert_eq!(queue.take().unwrap().expression, "(2)");
    }

    #[test]
    fn a_stale_key_finishes_nothing() {
        let (queue, outbox) = (Queue::default(), Arc::new(Outbox::mute()));
        queue.push(&outbox, eval(1, 1_000));
        let taken = queue.take().unwrap();
        queue.finish(taken.key + 1, done("wrong"));
        assert!(queue.counts().running);
        queue.finish(taken.key, done("right"));
        assert_eq!(reply(&outbox).outcome, value("right"));
    }

    #[test]
    fn what_waited_too_long_never_runs() {
        let (queue, outbox) = (Queue::default(), Arc::new(Outbox::mute()));
        queue.push(&outbox, eval(1, 0));
        assert_eq!(queue.take(), None);
        assert_eq!(evaluation(&reply(&outbox)), Some(Evaluation::NotStarted));
    }

    #[test]
    fn the_watchdog_answers_for_waiting_and_running_calls_and_the_slot_stays_taken() {
        let (queue, outbox) = (Arc::new(Queue::default()), Arc::new(Outbox::mute()));
        queue.push(&outbox, eval(1, 50));
        let taken = queue.take().expect("50 ms are not over yet");
        queue.push(&outbox, eval(2, 1));
        let watchdog = std::thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.watch(|| (), || ())
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
        queue.finish(taken.key, done("late"));
        assert!(!queue.counts().running);
        queue.close();
        watchdog.join().unwrap();
        outbox.finish();
        assert_eq!(
            outbox.next_message(),
            None,
            "a late value is sent to nobody"
        );
    }

    #[test]
    fn one_call_too_many_is_refused_at_once() {
        let (queue, outbox) = (Queue::default(), Arc::new(Outbox::mute()));
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
            Arc::new(Outbox::mute()),
            Arc::new(Outbox::mute()),
        );
        queue.push(&gone, eval(1, 1_000));
        queue.push(&stays, eval(1, 1_000));
        queue.push(&gone, eval(2, 1_000));
        queue.cancel_all(&gone);
        let taken = queue.take().unwrap();
        queue.finish(taken.key, done("x"));
        assert_eq!(reply(&stays).outcome, value("x"));
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn closing_withdraws_what_waits_and_still_answers_what_runs() {
        let (queue, outbox) = (Queue::default(), Arc::new(Outbox::mute()));
        queue.push(&outbox, eval(1, 1_000));
        queue.push(&outbox, eval(2, 1_000));
        let taken = queue.take().unwrap();
        queue.close();
        assert_eq!(outbox.next_message(), Some(FromModule::Withdrawn { id: 2 }));
        queue.finish(taken.key, done("x"));
        assert_eq!(reply(&outbox).outcome, value("x"));
    }
}
