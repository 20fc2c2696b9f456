//! Values that are numbers with units.
//!
//! ```text
//! amount     amounts with units
//! time       rates and durations
//! zone       time zones
//! byte_rate  rates of bytes
//! ```

pub(in crate::config::value) mod amount;
pub(in crate::config::value) mod byte_rate;
pub(in crate::config::value) mod time;
pub(in crate::config::value) mod zone;
