//! Certificates by themselves, from a real authority.

mod front;
mod orders;
mod renewal_time;
