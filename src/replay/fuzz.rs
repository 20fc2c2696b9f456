//! What a fuzzer hands any bytes to.

use super::fields::Mapping;
use super::line_layout::LineLayout;
use super::policy_side::LoggedHead;
use super::request::LoggedRequest;
use crate::clock::Timestamp;

/// Reads every line of `bytes`, as a trace and with `--fields`; says how many are requests.
#[must_use]
pub fn trace(bytes: &[u8]) -> usize {
    let options = "client=a.b,path=request_uri,header:x-api-key=headers.x,duration=took,ts=t";
    let mapping = Mapping::read_options(&[options.to_owned()], |_, _| None).ok();
    let (mut line_layout, mut head, mut requests) =
        (LineLayout::default(), LoggedHead::default(), 0);
    for line in bytes.split(|byte| *byte == b'\n') {
        for mapping in [None, mapping.as_ref()] {
            let mut request = LoggedRequest::at(Timestamp::default());
            let read = request.read(line, &mut line_layout, mapping);
            let _ = (request.path(), request.query());
            requests += usize::from(read.is_ok() && head.read(&request).is_ok());
        }
    }
    requests
}
