//! The entry point of the fuzzer, for any bytes.

use super::line::{self, LineReader};
use super::mapping::Mapping;
use super::request::LoggedRequest;

/// Reads every line of `bytes`, as a trace and with `--fields`, and returns the number of requests.
#[must_use]
pub fn trace(bytes: &[u8]) -> usize {
    let options = "client=a.b,path=request_uri,header:x-api-key=headers.x,duration=took,ts=t";
    let mapping = Mapping::read_options(&[options.to_owned()], |_, _| None).ok();
    let mut requests = 0;
    for mapping in [None, mapping] {
        let mut reader = LineReader::new(mapping);
        for line in bytes.split(|byte| *byte == b'\n') {
            let Ok(text) = line::line_text(line) else {
                continue;
            };
            let mut request = LoggedRequest::default();
            let read = reader.read(&mut request, &text);
            let _ = request.target();
            requests += usize::from(read.is_ok());
        }
    }
    requests
}
