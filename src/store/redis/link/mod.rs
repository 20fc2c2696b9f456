//! A worker's connections to one Redis, and their state.
//!
//! In: an address with its credentials. Out: connections that are logged in and have the scripts, and strictly parsed
//! answers.
//!
//! ```text
//! transport              the stream that a connection runs over
//! connection             a connection that all calls of a worker share
//! login                  what goes first on a connection
//! rights                 may the user call the commands of the scripts?
//! signals                signs of connections to the watch
//! sentinel               the master's address, from the sentinels
//! sentinel/subscription  a sentinel reports another master by itself
//! pool                   the connections of one worker to one Redis
//! reply                  the scripts' answers, read strictly
//! outage                 one line in the log for all workers
//! health                 is Redis asked, or away?
//! ```

pub(super) mod connection;
pub(super) mod health;
pub(super) mod login;
pub(super) mod outage;
pub(super) mod pool;
pub(super) mod reply;
pub(super) mod rights;
pub(super) mod sentinel;
pub(super) mod signals;
pub(super) mod transport;
