//! Any bytes as the head of a request that keys are made of.
#![no_main]

#[path = "../../tests/fuzzing/key.rs"]
mod key;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = key::request(bytes);
});
