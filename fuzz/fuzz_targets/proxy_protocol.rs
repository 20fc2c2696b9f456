//! Any bytes as the beginning of a connection that has a header of the PROXY protocol.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = tollgate::listen::proxy_protocol::fuzz::header(bytes);
});
