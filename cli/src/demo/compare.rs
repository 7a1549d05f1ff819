//! The logs of both clusters, file by file.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

#[derive(Default)]
pub struct Compared {
    pub bytes: u64,
    pub partitions: usize,
    /// Partition and byte position of the first difference in each that differs.
    pub differences: Vec<String>,
}

/// Compares the source's segments of a topic with what the destination holds: all that the source has must
/// be there, byte for byte; behind it the destination may have written more.
pub fn compare(
    source: &Path,
    destination: &Path,
    topic: &str,
    partitions: usize,
) -> Result<Compared, Failure> {
    let mut compared = Compared { partitions, ..Compared::default() };
    for partition in 0..partitions {
        let name = format!("{topic}-{partition}");
        let left = Segments::open(&source.join(&name))?;
        let right = Segments::open(&destination.join(&name))?;
        match first_difference(left, right)? {
            Ok(bytes) => compared.bytes += bytes,
            Err(position) => compared.differences.push(format!("{name} at byte {position}")),
        }
    }
    Ok(compared)
}

/// `Ok(bytes compared)`, or `Err(position)` of the first byte that differs or is missing on the right.
fn first_difference(mut left: Segments, mut right: Segments) -> Result<Result<u64, u64>, Failure> {
    let (mut a, mut b) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut position = 0;
    loop {
        let wanted = left.fill(&mut a)?;
        let found = right.fill(&mut b[..wanted])?;
        if let Some(at) = a[..found].iter().zip(&b[..found]).position(|(x, y)| x != y) {
            return Ok(Err(position + at as u64));
        }
        if found < wanted {
            return Ok(Err(position + found as u64));
        }
        if wanted == 0 {
            return Ok(Ok(position));
        }
        position += wanted as u64;
    }
}

/// A partition's segments, read one after another.
struct Segments {
    files: std::vec::IntoIter<PathBuf>,
    current: Option<BufReader<File>>,
}

impl Segments {
    fn open(directory: &Path) -> Result<Segments, Failure> {
        let failed =
            |error: std::io::Error| Failure::refused(format!("cannot read {}: {error}", directory.display()));
        let mut files = Vec::new();
        for entry in fs::read_dir(directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                files.push(path);
            }
        }
        files.sort();
        Ok(Segments { files: files.into_iter(), current: None })
    }

    /// Reads until `buffer` is full or the last segment ends.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Failure> {
        let mut filled = 0;
        while filled < buffer.len() {
            let Some(current) = &mut self.current else {
                let Some(path) = self.files.next() else { break };
                let file = File::open(&path)
                    .map_err(|error| Failure::refused(format!("cannot read {}: {error}", path.display())))?;
                self.current = Some(BufReader::new(file));
                continue;
            };
            match current.read(&mut buffer[filled..]) {
                Ok(0) => self.current = None,
                Ok(count) => filled += count,
                Err(error) => return Err(Failure::refused(format!("cannot read a segment: {error}"))),
            }
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(directory: &Path, name: &str, bytes: &[u8]) {
        fs::create_dir_all(directory.join("t-0")).unwrap();
        fs::write(directory.join("t-0").join(name), bytes).unwrap();
    }

    #[test]
    fn segments_may_be_split_elsewhere_but_every_byte_counts() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(a.path(), "00.log", b"abcdef");
        write(b.path(), "00.log", b"abc");
        write(b.path(), "03.log", b"defMORE");
        let same = compare(a.path(), b.path(), "t", 1).unwrap();
        assert_eq!((same.bytes, same.differences.len()), (6, 0));

        write(b.path(), "03.log", b"dXf");
        assert_eq!(compare(a.path(), b.path(), "t", 1).unwrap().differences, ["t-0 at byte 4"]);
        write(b.path(), "03.log", b"d");
        assert_eq!(compare(a.path(), b.path(), "t", 1).unwrap().differences, ["t-0 at byte 4"]);
    }
}
