//! A trace's lines, from a file, standard input or gzip: one at a time, and never more than one in memory.

use super::Fault;
use flate2::bufread::MultiGzDecoder;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

/// The longest line that is read.
const LONGEST: usize = 1024 * 1024;

/// The number of bytes that are read at once: little enough to leave the processor's cache to the counters.
const CHUNK: usize = 64 * 1024;

/// The first bytes of gzip.
const GZIP: &[u8] = &[0x1f, 0x8b];
/// The byte order mark, which some editors put in front of UTF-8.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// The lines of a trace.
pub struct TraceLines {
    reader: Box<dyn BufRead>,
    /// The last line, if the buffer did not have all of it at once.
    line: Vec<u8>,
    /// The bytes of the buffer that the last line takes.
    shown: usize,
    number: u64,
    read: Rc<Cell<u64>>,
    size: Option<u64>,
}

/// One line of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceLine<'a> {
    /// The line's number, counted from 1.
    pub number: u64,
    /// The bytes of the line with its line break, or the cause for which they were not read.
    pub text: Result<&'a [u8], Fault>,
}

impl std::fmt::Debug for TraceLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl TraceLines {
    /// Opens `path`; `-` is standard input. A file that begins like gzip is read as gzip, independent of its name.
    ///
    /// # Errors
    /// If the file cannot be opened, or its beginning cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Self::new(io::stdin().lock(), None);
        }
        let file = File::open(path)?;
        let about = file.metadata()?;
        if about.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        // A pipe has no size.
        let size = about.is_file().then_some(about.len());
        Self::new(file, size)
    }

    /// The lines of any reader; `size` is the number of bytes that it will give, if that is known.
    ///
    /// # Errors
    /// If the beginning cannot be read.
    pub fn new(source: impl Read + 'static, size: Option<u64>) -> io::Result<Self> {
        let read = Rc::new(Cell::new(0));
        let counted = CountedBytes {
            source,
            read: Rc::clone(&read),
        };
        let mut raw = BufReader::with_capacity(CHUNK, counted);
        let is_gzip = raw.fill_buf()?.starts_with(GZIP);
        let mut reader: Box<dyn BufRead> = if is_gzip {
            // Rotation may have joined several gzip files.
            Box::new(BufReader::with_capacity(CHUNK, MultiGzDecoder::new(raw)))
        } else {
            Box::new(raw)
        };
        if reader.fill_buf()?.starts_with(BOM) {
            reader.consume(BOM.len());
        }
        Ok(Self {
            reader,
            line: Vec::new(),
            shown: 0,
            number: 0,
            read,
            size,
        })
    }

    /// The next line.
    ///
    /// # Errors
    /// If reading fails, for a broken disk or a truncated gzip file.
    pub fn read(&mut self) -> io::Result<Option<TraceLine<'_>>> {
        self.reader.consume(std::mem::take(&mut self.shown));
        let end = match self.reader.fill_buf() {
            Ok(buffer) => memchr::memchr(b'\n', buffer),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            Err(error) => return Err(error),
        };
        let Some(end) = end else {
            return self.read_across();
        };
        // The whole line is in the buffer, and is borrowed from there.
        self.number += 1;
        self.shown = end + 1;
        let text = Ok(&self.reader.fill_buf()?[..self.shown]);
        let number = self.number;
        Ok(Some(TraceLine { number, text }))
    }

    /// The next line, of which the buffer has only the beginning.
    #[cold]
    fn read_across(&mut self) -> io::Result<Option<TraceLine<'_>>> {
        self.line.clear();
        let most = LONGEST as u64 + 1;
        let taken = (&mut self.reader)
            .take(most)
            .read_until(b'\n', &mut self.line)?;
        if taken == 0 {
            return Ok(None);
        }
        self.number += 1;
        let number = self.number;
        if self.line.last() != Some(&b'\n') && taken > LONGEST {
            self.reader.skip_until(b'\n')?;
            self.line = Vec::new();
            let text = Err(Fault::TooLong);
            return Ok(Some(TraceLine { number, text }));
        }
        let text = Ok(&*self.line);
        Ok(Some(TraceLine { number, text }))
    }

    /// The bytes read so far, before decompression, and the size of the trace, if that is known.
    #[must_use]
    pub fn progress(&self) -> (u64, Option<u64>) {
        (self.read.get(), self.size)
    }
}

/// A reader that counts the bytes that pass.
struct CountedBytes<R> {
    source: R,
    read: Rc<Cell<u64>>,
}

impl<R: Read> Read for CountedBytes<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let many = self.source.read(into)?;
        self.read.set(self.read.get() + many as u64);
        Ok(many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    fn read_all(bytes: Vec<u8>) -> io::Result<Vec<(u64, Result<usize, Fault>)>> {
        let mut lines = TraceLines::new(io::Cursor::new(bytes), None)?;
        let mut seen = Vec::new();
        while let Some(line) = lines.read()? {
            seen.push((line.number, line.text.map(<[u8]>::len)));
        }
        Ok(seen)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn lines_are_numbered_and_the_last_needs_no_end() {
        let seen = read_all(b"a\n\nbcd".to_vec()).unwrap();
        assert_eq!(seen, [(1, Ok(2)), (2, Ok(1)), (3, Ok(3))]);
        assert_eq!(read_all(Vec::new()).unwrap(), []);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        let marked = read_all(b"\xef\xbb\xbfab\ncd".to_vec()).unwrap();
        assert_eq!(marked, [(1, Ok(3)), (2, Ok(2))]);
        assert_eq!(read_all(gzip(b"\xef\xbb\xbfab\n")).unwrap(), [(1, Ok(3))]);
        assert_eq!(read_all(Vec::new()).unwrap(), []);
    }

    #[test]
    fn gzip_is_known_by_its_beginning_and_may_be_several() {
        let joined = [gzip(b"a\nb\n"), gzip(b"c\n")].concat();
        assert_eq!(read_all(joined).unwrap().len(), 3);
        let mut cut = gzip(&b"some line or other\n".repeat(100));
        cut.truncate(cut.len() - 9);
        assert!(read_all(cut).is_err());
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let text = [
            &vec![b'x'; 3 * LONGEST][..],
            b"\nb\n",
            &vec![b'y'; LONGEST],
            b"\n",
        ]
        .concat();
        let seen = read_all(text).unwrap();
        assert_eq!(
            seen,
            [(1, Err(Fault::TooLong)), (2, Ok(2)), (3, Ok(LONGEST + 1))]
        );
    }
}
