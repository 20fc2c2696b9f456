//! Any bytes as a gateway.toml.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = tollgate::config::fuzz::file(bytes);
});
