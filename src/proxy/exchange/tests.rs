//! The size of an exchange.

use super::*;

#[test]
fn an_exchange_is_small_enough_to_be_allocated_quickly() {
    // Beyond this size every allocation takes the allocator's slow path.
    const QUICK: usize = 1024;
    assert!(size_of::<Exchange>() <= QUICK, "{}", size_of::<Exchange>());
}
