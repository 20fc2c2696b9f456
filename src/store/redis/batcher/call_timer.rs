//! The deadlines of a lane's calls, on one timer that is reused between calls.
//!
//! A timer that is set to end earlier than all others of a worker makes the worker process its timers at once: a write
//! to itself, and a poll of sockets that returns before anything has arrived. The deadlines of calls are of that kind,
//! and nearly none is ever reached. So the timer stays unchanged when a call is answered. It fires at some deadline of
//! an earlier call, and only then is set to the current one.

use crate::clock;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// The time for checking arrived replies.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

/// The timer of one lane. It is created at the first call.
#[derive(Debug, Default)]
pub(crate) struct CallTimer(Option<Pin<Box<Sleep>>>);

impl CallTimer {
    /// The answer, if it arrives by this instant. A worker that was late itself checks the replies that arrived
    /// meanwhile, before it reports that none did.
    pub(crate) async fn in_time<T>(
        &mut self,
        deadline: Instant,
        answer: impl Future<Output = T>,
    ) -> Option<T> {
        let mut answer = pin!(answer);
        let answered = std::future::poll_fn(|context| match answer.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => self.poll_until(deadline, context).map(|()| None),
        });
        match answered.await {
            Some(answer) => Some(answer),
            None => timeout(LOOK, answer).await.ok(),
        }
    }

    /// Has the instant passed?
    fn poll_until(&mut self, deadline: Instant, context: &mut Context<'_>) -> Poll<()> {
        let timer = self
            .0
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        loop {
            if timer.deadline() > deadline {
                timer.as_mut().reset(deadline);
            }
            ready!(timer.as_mut().poll(context));
            if timer.deadline() >= deadline || clock::now() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, poll_fn, ready};

    #[tokio::test]
    async fn each_call_has_its_own_deadline_whatever_the_ones_before_it_had() {
        let mut timer = CallTimer::default();
        for millis in [3, 3, 12, 30, 2, 0, 5] {
            let deadline = Instant::now() + Duration::from_millis(millis);
            assert_eq!(timer.in_time(deadline, ready(7)).await, Some(7));
            // The next deadline is later, and the timer may still be set to this one.
            let deadline = deadline + Duration::from_millis(1);
            assert_eq!(timer.in_time(deadline, pending::<()>()).await, None);
            assert!(Instant::now() >= deadline + LOOK, "{millis}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_came_while_the_worker_was_held_up_is_taken() {
        let mut timer = CallTimer::default();
        let over = Instant::now() - Duration::from_millis(50);
        let mut polls = 0;
        let answer = poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            match polls {
                2.. => Poll::Ready(()),
                _ => Poll::Pending,
            }
        });
        assert_eq!(timer.in_time(over, answer).await, Some(()));
    }
}
