//! Any bytes as a trace, in whichever form its lines have.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = tollgate::replay::fuzz::trace(bytes);
});
