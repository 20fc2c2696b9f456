//! The customer of one request, looked up once, when it is first needed.

use super::{CustomerReading, Customers};
use crate::key::{Caller, CustomerLookup, KeyPart};
use std::cell::OnceCell;
use std::rc::Rc;

/// The lookup of the customer of one request.
#[derive(Debug, Default)]
pub struct CustomerSearch<'a> {
    all: Option<&'a Customers>,
    /// On the heap, since a request without a customer moves it along, too.
    found: OnceCell<Rc<CustomerReading>>,
}

impl<'a> CustomerSearch<'a> {
    /// A lookup among these customers.
    #[must_use]
    #[inline]
    pub fn of(all: Option<&'a Customers>) -> Self {
        Self {
            all,
            found: OnceCell::new(),
        }
    }

    /// The same lookup, with its earlier result.
    #[must_use]
    #[inline]
    pub fn knowing(self, reading: Option<Rc<CustomerReading>>) -> Self {
        Self {
            found: reading.map_or_else(OnceCell::new, OnceCell::from),
            ..self
        }
    }

    /// The result, if the customer was needed.
    #[must_use]
    #[inline]
    pub fn reading(&self) -> Option<Rc<CustomerReading>> {
        self.found.get().cloned()
    }

    /// The customers of the file.
    #[must_use]
    pub fn all(&self) -> Option<&'a Customers> {
        self.all
    }
}

impl CustomerLookup for CustomerSearch<'_> {
    fn read(&self, caller: &Caller<'_>, room: &mut Vec<u8>) -> &CustomerReading {
        let look = || match self.all {
            Some(all) => Rc::new(all.look(caller, room)),
            None => Rc::new(CustomerReading::Nothing),
        };
        self.found.get_or_init(look)
    }

    fn name(&self) -> Option<&str> {
        match &**self.found.get()? {
            CustomerReading::Named { name, .. } => Some(self.all?.text(name)),
            _ => None,
        }
    }

    fn faulty_credential(&self) -> Option<&KeyPart> {
        match &**self.found.get()? {
            CustomerReading::Unknown(source)
            | CustomerReading::Several(source)
            | CustomerReading::Malformed(source)
            | CustomerReading::Untrusted(source) => self.all?.source(*source),
            CustomerReading::Named { .. }
            | CustomerReading::Nothing
            | CustomerReading::Different => None,
        }
    }

    fn each_unknown(
        &self,
        caller: &Caller<'_>,
        room: &mut Vec<u8>,
        each: &mut dyn FnMut(&KeyPart),
    ) {
        if let Some(all) = self.all {
            all.each_unknown(caller, room, each);
        }
    }

    fn are_elsewhere(&self, is_elsewhere: &dyn Fn(&KeyPart) -> bool) -> bool {
        self.all.is_some_and(|all| all.are_elsewhere(is_elsewhere))
    }
}
