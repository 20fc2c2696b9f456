//! Stars for what is secret in an explanation: in what the file says, not in what the request does.

use super::answer::Answer;
use super::request::{Explanation, Held, Key, Way};
use crate::config::hidden::Secrets;

impl Explanation {
    /// Puts them in.
    pub(super) fn hide(&mut self, secrets: &Secrets) {
        let hide = |text: &mut String| *text = secrets.hide(text).into_owned();
        match &mut self.answer {
            Answer::Itself(_, says) | Answer::Route(_, says, _) | Answer::Lacking(_, says, _) => {
                hide(says);
            }
            Answer::Upstream(_) => {}
        }
        if let Some(way) = &mut self.way {
            way.hide(&hide);
        }
    }
}

impl Way {
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

impl Held {
    fn hide(&mut self, hide: &impl Fn(&mut String)) {
        hide(&mut self.means);
        hide(&mut self.by);
        if let Some((_, means)) = &mut self.tier {
            hide(means);
        }
        match &mut self.key {
            Key::Absent(part)
            | Key::Unknown(part)
            | Key::Ambiguous(part)
            | Key::Unbelieved(part)
            | Key::LeftOut(part) => hide(part),
            Key::Counted { .. } | Key::Skipped | Key::Exempt(_) => {}
        }
    }
}
