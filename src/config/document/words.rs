//! Types whose values are written as words in the file.

/// A type whose values are written as words in the file.
pub(in crate::config) trait Words: Copy + PartialEq + 'static {
    /// The words of the type.
    const WORDS: &'static [&'static str];
    /// The value of each word.
    const VALUES: &'static [Self];
    /// Words that are known but not available in this version.
    const LATER: &'static [&'static str] = &[];

    /// The value that `word` stands for.
    fn of(word: &str) -> Option<Self> {
        let at = Self::WORDS.iter().position(|one| *one == word)?;
        Self::VALUES.get(at).copied()
    }

    /// The word of the value in the file.
    fn word(self) -> &'static str {
        let at = Self::VALUES.iter().position(|one| *one == self);
        at.map_or("", |at| Self::WORDS[at])
    }
}

/// Declares the words of a type.
macro_rules! words {
    ($type:ident: $($value:ident $word:literal),+ $(; later $($later:literal),+)?) => {
        impl $crate::config::document::words::Words for $type {
            const WORDS: &'static [&'static str] = &[$($word),+];
            const VALUES: &'static [Self] = &[$(Self::$value),+];
            $(const LATER: &'static [&'static str] = &[$($later),+];)?
        }
    };
}

pub(super) use words;
