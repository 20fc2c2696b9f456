//! Certificates that the gateway orders, from a real authority.

mod fleet;
mod front;
mod many_gateways;
mod orders;
mod renewal_time;
