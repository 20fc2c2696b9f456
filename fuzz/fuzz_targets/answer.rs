//! Any bytes as the answer of a server.
#![no_main]

#[path = "../../tests/fuzzing/answer.rs"]
mod answer;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = answer::compare(bytes);
});
