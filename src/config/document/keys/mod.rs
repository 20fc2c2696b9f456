//! How a key is declared, and how its value is read from its table.
//!
//! In: a table of the tree. Out: the values of its keys with their places, or the mistakes in them.
//!
//! ```text
//! vocabulary     the declaration of a key: name, form, default, meaning, example
//! table          `table!`: a table of the file, a block for each key
//! form           the forms of values: reader, message, schema
//! words          types whose values are words of the file
//! fields         the keys of one table, each read once by name and type
//! written_value  what a written value is called in messages
//! unknown_table  unknown tables, and the name that was meant
//! misplaced      keys in a table that does not have them
//! ```

pub(in crate::config::document) mod fields;
pub(in crate::config::document) mod form;
pub(in crate::config::document) mod misplaced;
pub(in crate::config::document) mod table;
pub(in crate::config::document) mod unknown_table;
pub mod vocabulary;
pub(in crate::config::document) mod words;
pub(in crate::config::document) mod written_value;
