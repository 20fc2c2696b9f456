//! Masks the secrets in an explanation: in texts of the file, not in texts of the request.

use super::explanation::{AppliedLimit, Explanation, KeyResult, Routing};
use crate::config::masking::Secrets;

impl Explanation {
    /// Masks `secrets`.
    pub(super) fn hide(&mut self, secrets: &Secrets) {
        let hide = |text: &mut String| *text = secrets.hide(text).into_owned();
        if let Some(gateway_answer) = &mut self.answer.gateway_answer {
            hide(&mut gateway_answer.reason);
        }
        if let Some(routing) = &mut self.routing {
            routing.hide(&hide);
        }
    }
}

impl Routing {
    fn hide(&mut self, hide: &impl Fn(&mut String)) {
        // A path that is forwarded unchanged is the request's own.
        let matched = &self.matched;
        let rewritten = self.forwarded.as_mut().filter(|path| *path != matched);
        rewritten.into_iter().for_each(hide);
        if let Some(route) = &mut self.route {
            route.servers.iter_mut().for_each(hide);
        }
        if let Some(server) = &mut self.server {
            server.hide(hide);
        }
        self.asked_host.iter_mut().for_each(hide);
        for candidate in &mut self.candidates {
            hide(&mut candidate.why);
        }
        self.limits.iter_mut().for_each(|limit| limit.hide(hide));
    }
}

impl AppliedLimit {
    fn hide(&mut self, hide: &impl Fn(&mut String)) {
        hide(&mut self.means);
        hide(&mut self.by);
        if let Some((_, means)) = &mut self.tier {
            hide(means);
        }
        if let Some(numbers) = &mut self.numbers {
            hide(&mut numbers.means);
        }
        if let KeyResult::Faulty(_, part) = &mut self.key {
            hide(part);
        }
    }
}
