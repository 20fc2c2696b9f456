//! Writes the key of a request: parts framed so that no value can imitate another.
//!
//! A value keeps the characters `A-Z a-z 0-9 . _ ~ : / @ -`; every other byte becomes `%XX`. Parts are separated by
//! `|`, which no value can contain, and everything that is not a plain value starts with `%` and a small letter
//! beyond the hexadecimal ones, which no escape does: `%ip=` (counted by address instead), `%none` (absent), `%other` (a
//! method that hardly anybody knows), `%preflight` (in front of the parts), `%sha=` (a digest). An absent field and an empty one are the same.

use super::part::{BY_ADDRESS, PartReading, is_elsewhere, piece_digest, write_address, write_part};
use super::preflight::PREFLIGHT;
use super::{Caller, Doubt, KeyOutcome, KeyPart, KeyTemplate, KnownValues, MissingKey, UnknownKey};

impl KeyTemplate {
    /// Can a request lack what this counts by? Then `missing` is a required choice.
    #[must_use]
    pub fn can_be_absent(&self) -> bool {
        self.parts.iter().any(KeyPart::can_be_absent)
    }

    /// Appends the key of `caller` to `out`. What is there already stays; on anything but `Key` nothing is added.
    pub fn write(&self, caller: &Caller<'_>, out: &mut Vec<u8>) -> KeyOutcome<'_> {
        let start = out.len();
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                out.push(b'|');
            }
            if let Err(outcome) = self.write_part(index, part, caller, out) {
                out.truncate(start);
                return outcome;
            }
        }
        KeyOutcome::Key
    }

    /// Appends one part of the key, or what stands in its place.
    fn write_part<'k>(
        &self,
        index: usize,
        part: &'k KeyPart,
        caller: &Caller<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), KeyOutcome<'k>> {
        let at = out.len();
        let reading = write_part(part, caller, out);
        if reading == PartReading::One {
            match self.unknown_value(index, &out[at..]) {
                None => {}
                Some(UnknownKey::Refuse) => return Err(KeyOutcome::Unknown(part)),
                Some(UnknownKey::Ip) => {
                    out.truncate(at);
                    write_address(caller, out);
                }
            }
            return Ok(());
        }
        let missing = self.absence(part, reading, caller);
        match missing.map_err(KeyOutcome::Doubt)? {
            MissingKey::Shared => out.extend_from_slice(b"%none"),
            MissingKey::Ip => write_address(caller, out),
            MissingKey::Skip => return Err(KeyOutcome::Skip),
            MissingKey::Refuse => return Err(KeyOutcome::Refuse(part)),
        }
        Ok(())
    }

    /// What the written value of a part meets, where the limit asks for known values and no group knows this one.
    fn unknown_value(&self, index: usize, piece: &[u8]) -> Option<UnknownKey> {
        let known = self.unknown.as_ref()?;
        (!known.has(index, piece)).then_some(known.otherwise)
    }

    /// What a request meets that does not say one value of `part`.
    fn absence<'k>(
        &self,
        part: &'k KeyPart,
        reading: PartReading,
        caller: &Caller<'_>,
    ) -> Result<MissingKey, Doubt<'k>> {
        let is_skipped = self.missing == MissingKey::Skip;
        match (reading, part) {
            (PartReading::Unbelieved, _) => Err(Doubt::Unbelieved(part)),
            // Browsers send cookies of one name that were set for several paths. Such a request is not turned away, and
            // a limit that would hold for it is not skipped.
            (PartReading::Several, KeyPart::Cookie(_)) if is_skipped => Ok(MissingKey::Ip),
            (PartReading::Several, KeyPart::Cookie(_)) => Ok(self.missing),
            (PartReading::Several, _) => Err(Doubt::Several(part)),
            // A client that has a name to the upstream is not let go without one.
            (PartReading::One | PartReading::Nothing, _)
                if is_skipped && is_elsewhere(part, caller) =>
            {
                Ok(MissingKey::Ip)
            }
            (PartReading::One | PartReading::Nothing, _) => Ok(self.missing),
        }
    }

    /// Makes of a key that was written elsewhere, and stands in `out` from `start` on, the one that counts here: values
    /// that no group knows give way to the client's address, or are refused. On anything but `Key` the key is gone.
    pub fn recognise(
        &self,
        caller: &Caller<'_>,
        out: &mut Vec<u8>,
        start: usize,
    ) -> KeyOutcome<'_> {
        let Some(known) = &self.unknown else {
            return KeyOutcome::Key;
        };
        if out[start..].starts_with(PREFLIGHT) {
            return KeyOutcome::Key;
        }
        let written = out.split_off(start);
        for (index, piece) in written.split(|byte| *byte == b'|').enumerate() {
            if index > 0 {
                out.push(b'|');
            }
            let is_known = match piece_digest(piece) {
                Some(_) => known.has(index, piece),
                // Counted by address: for want of a value, where `missing` says so, else for an unknown one.
                None => !piece.starts_with(BY_ADDRESS) || self.missing == MissingKey::Ip,
            };
            match (is_known, known.otherwise, self.parts.get(index)) {
                (false, UnknownKey::Refuse, Some(part)) => {
                    out.truncate(start);
                    return KeyOutcome::Unknown(part);
                }
                (false, UnknownKey::Ip, _) => write_address(caller, out),
                _ => out.extend_from_slice(piece),
            }
        }
        KeyOutcome::Key
    }
}

impl KnownValues {
    /// Is this value of that part one that a group knows, or one that need not be known?
    fn has(&self, part: usize, piece: &[u8]) -> bool {
        let groups = self.groups.get(part).map_or(&[][..], Vec::as_slice);
        let known = |digest| groups.iter().any(|group| group.has(&digest));
        groups.is_empty() || piece_digest(piece).is_some_and(known)
    }
}

#[cfg(test)]
mod tests;
