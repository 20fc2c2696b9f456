//! Writes the key of a request: parts framed so that no value can imitate another.
//!
//! A value keeps the characters `A-Z a-z 0-9 . _ ~ : / @ -`; every other byte becomes `%XX`. Parts are separated by
//! `|`, which no value can contain. Every part that is not a plain value starts with `%` and a lower-case letter beyond
//! the hexadecimal ones, which no escape does: `%ip=` (counted by address instead), `%none` (absent), `%other` (a rare
//! method), `%preflight` (before the parts), `%sha=` (a digest), `%tls=` (the authorities of a subject). An absent
//! field and an empty field are the same.

use super::part::{
    BY_ADDRESS, PartReading, is_elsewhere, piece_digest, write_address, write_logged, write_part,
};
use super::percent;
use super::preflight::PREFLIGHT;
use super::{
    Caller, Digest, Doubt, Group, KeyCase, KeyOutcome, KeyPart, KeyTemplate, KnownValues,
    MissingKey, UnknownKey,
};

/// The part of a key of all requests that lack it.
const ABSENT: &[u8] = b"%none";

impl KeyTemplate {
    /// Can a request lack a part of this key? Then `missing` is a required choice.
    #[must_use]
    pub fn can_be_absent(&self) -> bool {
        self.parts.iter().any(KeyPart::can_be_absent)
    }

    /// Is a part a claim, or a customer that a claim may name?
    #[must_use]
    pub fn asks_token(&self) -> bool {
        let by_claim = self.parts.iter().any(|part| part.claim().is_some());
        by_claim || self.counts_customers() && self.credentials().any(|group| group.uses_token())
    }

    /// Is a part the customer?
    #[must_use]
    pub fn counts_customers(&self) -> bool {
        self.parts.iter().any(KeyPart::is_customer)
    }

    /// The groups that name the customers that are counted.
    pub fn credentials(&self) -> impl Iterator<Item = &Group> {
        let known = self.unknown.iter().flat_map(|known| &known.groups);
        let customers = self.parts.iter().zip(known);
        let customers = customers.filter(|(part, _)| part.is_customer());
        customers.flat_map(|(_, groups)| groups.iter().map(|group| &**group))
    }

    /// Appends the key of `caller` to `out`. The earlier bytes of `out` stay; on any outcome but `Key` nothing is
    /// added.
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

    /// Appends one part of the key, or its substitute.
    fn write_part<'k>(
        &'k self,
        index: usize,
        part: &'k KeyPart,
        caller: &Caller<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), KeyOutcome<'k>> {
        let at = out.len();
        let reading = write_part(part, self.case, caller, out);
        if reading == PartReading::One {
            return match self.unknown_value(index, &out[at..]) {
                None => Ok(()),
                Some(otherwise) => {
                    out.truncate(at);
                    write_unknown(otherwise, part, caller, out)
                }
            };
        }
        if reading == PartReading::Unknown {
            let otherwise = match self.unknown.as_ref().map(|known| known.otherwise) {
                // The limit applies to a client that the upstream can name.
                Some(UnknownKey::Skip) if is_elsewhere(part, caller) => UnknownKey::Ip,
                otherwise => otherwise.unwrap_or(UnknownKey::Refuse),
            };
            return write_unknown(otherwise, self.faulty(index, part, caller), caller, out);
        }
        let missing = self.absence(index, part, reading, caller);
        match missing.map_err(KeyOutcome::Doubt)? {
            MissingKey::Shared => out.extend_from_slice(ABSENT),
            MissingKey::Ip => write_address(caller, out),
            MissingKey::Skip => return Err(KeyOutcome::Skip),
            MissingKey::Refuse => return Err(KeyOutcome::Refuse(self.wanted(index, part))),
        }
        Ok(())
    }

    /// Is this part the customer? The name is written only where a group knows the credential.
    fn is_customer(&self, index: usize) -> bool {
        self.parts.get(index).is_some_and(KeyPart::is_customer)
    }

    /// The part that a fault is about: of a customer, the credential for which the customer is not known.
    fn faulty<'k>(&'k self, index: usize, part: &'k KeyPart, caller: &Caller<'_>) -> &'k KeyPart {
        let credential = || {
            let by = caller.customers.faulty_credential()?;
            let mut groups = self.unknown.as_ref()?.groups.get(index)?.iter();
            Some(&groups.find(|group| group.by == *by)?.by)
        };
        let credential = part.is_customer().then(credential);
        credential.flatten().unwrap_or(part)
    }

    /// The part that a request lacks: of a customer, the first part that is a credential.
    fn wanted<'k>(&'k self, index: usize, part: &'k KeyPart) -> &'k KeyPart {
        if !part.is_customer() {
            return part;
        }
        let known = self.unknown.as_ref();
        let groups = known.and_then(|known| known.groups.get(index));
        let credentials = groups.into_iter().flatten().map(|group| &group.by);
        let mut credentials = credentials.filter(|by| by.can_be_absent());
        credentials.next().unwrap_or(part)
    }

    /// The treatment of a part's written value, if the limit requires known values and no group knows this one.
    fn unknown_value(&self, index: usize, piece: &[u8]) -> Option<UnknownKey> {
        let known = self.unknown.as_ref().filter(|_| !self.is_customer(index))?;
        (!known.has(index, piece)).then_some(known.otherwise)
    }

    /// The treatment of a request without exactly one value of `part`.
    fn absence<'k>(
        &'k self,
        index: usize,
        part: &'k KeyPart,
        reading: PartReading,
        caller: &Caller<'_>,
    ) -> Result<MissingKey, Doubt<'k>> {
        let is_skipped = self.missing == MissingKey::Skip;
        let is_elsewhere = match reading {
            PartReading::Untrusted => {
                return Err(Doubt::Untrusted(self.faulty(index, part, caller)));
            }
            PartReading::Malformed => {
                return Err(Doubt::Malformed(self.faulty(index, part, caller)));
            }
            PartReading::Several if !part.may_repeat() => {
                return Err(Doubt::Several(self.faulty(index, part, caller)));
            }
            // Different cookies refuse no request, and a limit that would apply to it is not skipped.
            PartReading::Several => true,
            _ => is_skipped && is_elsewhere(part, caller),
        };
        // The limit applies to a client that the upstream can name, even if this gateway finds no name.
        if is_skipped && is_elsewhere {
            return Ok(MissingKey::Ip);
        }
        Ok(self.missing)
    }

    /// The parts of the request, among those of the key, whose values no group knows: of a customer, the credentials.
    #[cold]
    pub fn unknown_parts(&self, caller: &Caller<'_>, room: &mut Vec<u8>) -> Vec<KeyPart> {
        let (start, mut unknown) = (room.len(), Vec::new());
        for (index, part) in self.parts.iter().enumerate() {
            let reading = write_part(part, self.case, caller, room);
            if reading == PartReading::Unknown {
                caller
                    .customers
                    .each_unknown(caller, room, &mut |by| unknown.push(by.clone()));
            } else if reading == PartReading::One
                && self.unknown_value(index, &room[start..]).is_some()
            {
                unknown.push(part.clone());
            }
            room.truncate(start);
        }
        unknown
    }

    /// Turns a key from outside (a log, for instance), in `out` from `start` on, into the key that counts here. The
    /// client's address replaces values that no group knows, or they are refused. On any outcome but `Key` the key is
    /// removed.
    pub fn recognise(
        &self,
        caller: &Caller<'_>,
        out: &mut Vec<u8>,
        start: usize,
    ) -> KeyOutcome<'_> {
        if self.case == KeyCase::Insensitive {
            self.fold_logged(out, start);
        }
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
                // The digest that stands for a value of no group.
                Some(digest) if digest == Digest::default() => false,
                Some(_) => self.is_customer(index) || known.has(index, piece),
                // The part was counted by address: because the value was missing, if `missing` says so, else because
                // the value was unknown.
                None => !piece.starts_with(BY_ADDRESS) || self.missing == MissingKey::Ip,
            };
            match (is_known, known.otherwise, self.parts.get(index)) {
                (false, UnknownKey::Refuse, Some(part)) => {
                    out.truncate(start);
                    return KeyOutcome::Unknown(part);
                }
                (false, UnknownKey::Ip | UnknownKey::Skip, _) => write_address(caller, out),
                (false, UnknownKey::Shared, _) => out.extend_from_slice(ABSENT),
                _ => out.extend_from_slice(piece),
            }
        }
        KeyOutcome::Key
    }
}

impl KeyTemplate {
    /// Writes the texts of a key from outside, in `out` from `start` on, as they count here.
    #[cold]
    fn fold_logged(&self, out: &mut Vec<u8>, start: usize) {
        let written = out.split_off(start);
        let is_preflight = written.starts_with(PREFLIGHT);
        let mut parts = self.parts.iter();
        for (index, piece) in written.split(|byte| *byte == b'|').enumerate() {
            if index > 0 {
                out.push(b'|');
            }
            let part = if is_preflight && index == 0 {
                None
            } else {
                parts.next()
            };
            match part {
                None | Some(KeyPart::Ip(_) | KeyPart::Route | KeyPart::Method) => {
                    out.extend_from_slice(piece);
                }
                // The text in a path is escaped as it came, and was escaped once more for the key.
                Some(KeyPart::Path(_)) => write_logged(&percent::decode(piece), out),
                Some(_) => write_logged(piece, out),
            }
        }
    }
}

/// Writes what counts in place of a value that no group knows.
fn write_unknown<'k>(
    otherwise: UnknownKey,
    part: &'k KeyPart,
    caller: &Caller<'_>,
    out: &mut Vec<u8>,
) -> Result<(), KeyOutcome<'k>> {
    match otherwise {
        UnknownKey::Refuse => return Err(KeyOutcome::Unknown(part)),
        UnknownKey::Skip => return Err(KeyOutcome::Skip),
        UnknownKey::Ip => write_address(caller, out),
        UnknownKey::Shared => out.extend_from_slice(ABSENT),
    }
    Ok(())
}

impl KnownValues {
    /// Does a group know this value of the part, or is no known value required?
    fn has(&self, part: usize, piece: &[u8]) -> bool {
        let groups = self.groups.get(part).map_or(&[][..], Vec::as_slice);
        let known = |digest| groups.iter().any(|group| group.has(&digest));
        groups.is_empty() || piece_digest(piece).is_some_and(known)
    }
}

#[cfg(test)]
mod tests;
