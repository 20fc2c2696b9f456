//! Stars for what is secret in an explanation: in what the file says, not in what the request does.

use super::outlook::ExpectedAnswer;
use super::request::{AppliedLimit, Explanation, KeyResult, Routing};
use crate::config::masking::Secrets;

impl Explanation {
    /// Puts them in.
    pub(super) fn hide(&mut self, secrets: &Secrets) {
        let hide = |text: &mut String| *text = secrets.hide(text).into_owned();
        match &mut self.answer {
            ExpectedAnswer::Itself(_, says)
            | ExpectedAnswer::Route(_, says, _)
            | ExpectedAnswer::Lacking(_, says, _) => {
                hide(says);
            }
            ExpectedAnswer::Upstream(_) => {}
        }
        if let Some(routing) = &mut self.routing {
            routing.hide(&hide);
        }
    }
}

impl Routing {
    fn hide(&mut self, hide: &impl Fn(&mut String)) {
        // What goes on as it came is the request's own.
        let matched = &self.matched;
        let made = self.forwarded.as_mut();
        if let Some(path) = made.filter(|path| *path != matched) {
            hide(path);
        }
        if let Some(route) = &mut self.route {
            route.servers.iter_mut().for_each(hide);
        }
        self.near.iter_mut().for_each(|near| hide(&mut near.why));
        self.limits.iter_mut().for_each(|held| held.hide(hide));
    }
}

impl AppliedLimit {
    fn hide(&mut self, hide: &impl Fn(&mut String)) {
        hide(&mut self.means);
        hide(&mut self.by);
        if let Some((_, means)) = &mut self.tier {
            hide(means);
        }
        match &mut self.key {
            KeyResult::Absent(part)
            | KeyResult::Unknown(part)
            | KeyResult::Ambiguous(part)
            | KeyResult::Unbelieved(part)
            | KeyResult::LeftOut(part) => hide(part),
            KeyResult::Counted { .. } | KeyResult::Skipped | KeyResult::Exempt(_) => {}
        }
    }
}
