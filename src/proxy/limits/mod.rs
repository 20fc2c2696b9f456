//! The application of limits to a request.
//!
//! In: a plan. Out: the request is admitted, now or after a wait, with the charges that its end may change.
//!
//! ```text
//! limit_check         all limits in one question. Else 429, 503, then 400, 401
//! reservation         charges that are not final: they come back or are settled
//! held_slots          slots of requests in flight, free at the request's end
//! hold                a leaky bucket's wait. Else 429, 499, 503
//! wait_queue          requests that wait, all workers together; those behind a leaver move up
//! wait_queue/queue    one queue
//! wait_queue/tickets  the places of one request in all its queues
//! wait_queue/leak     late requests go on in turn, at the rate
//! response_cost       costs that the response states
//! json_probe          numbers in JSON that passes by
//! json_probe/number   one of them, byte by byte
//! json_probe/events   the events of a stream
//! json_probe/recipes  a test: answers of five language models
//! ```

pub(super) mod held_slots;
pub mod hold;
pub(super) mod json_probe;
pub(super) mod limit_check;
pub(super) mod reservation;
pub(super) mod response_cost;
pub mod wait_queue;
