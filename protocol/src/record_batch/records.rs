//! The records of a batch that is not compressed, without a copy.

use super::BatchError;

/// Reads zigzag varints off a slice.
#[derive(Clone, Debug)]
pub(super) struct Varints<'a> {
    pub bytes: &'a [u8],
}

impl<'a> Varints<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    /// At most five bytes.
    pub fn varint(&mut self) -> Option<i32> {
        let mut value: u32 = 0;
        for index in 0..5 {
            let byte = self.byte()?;
            value |= u32::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Some((value >> 1) as i32 ^ -((value & 1) as i32));
            }
        }
        None
    }

    /// At most ten bytes.
    pub fn varlong(&mut self) -> Option<i64> {
        let mut value: u64 = 0;
        for index in 0..10 {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Some((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    /// Bytes after their length, -1 for null.
    fn nullable_bytes(&mut self) -> Option<Option<&'a [u8]>> {
        match self.varint()? {
            -1 => Some(None),
            length => self.take(usize::try_from(length).ok()?).map(Some),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Record<'a> {
    pub attributes: i8,
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    headers: Headers<'a>,
}

impl<'a> Record<'a> {
    /// Names may come more than once; their order holds.
    pub fn headers(&self) -> Headers<'a> {
        self.headers.clone()
    }

    /// Reads what follows a record's length, all of it.
    fn parse(bytes: &'a [u8]) -> Result<Record<'a>, &'static str> {
        let mut reader = Varints { bytes };
        let attributes = reader.byte().ok_or("it is empty")? as i8;
        let timestamp_delta = reader.varlong().ok_or("its timestamp is cut off")?;
        let offset_delta = reader.varint().ok_or("its offset is cut off")?;
        let key = reader.nullable_bytes().ok_or("its key passes its end")?;
        let value = reader.nullable_bytes().ok_or("its value passes its end")?;
        let count = reader.varint().ok_or("its header count is cut off")?;
        if count < 0 {
            return Err("its header count is negative");
        }
        let headers = Headers { reader: reader.clone(), left: count };
        // Each takes two bytes or more, so an invented count ends with the bytes.
        for _ in 0..count {
            Headers::read(&mut reader).ok_or("a header passes its end")?;
        }
        if !reader.bytes.is_empty() {
            return Err("bytes follow its headers");
        }
        Ok(Record { attributes, timestamp_delta, offset_delta, key, value, headers })
    }
}

/// The headers of a record: name and value.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    reader: Varints<'a>,
    left: i32,
}

impl<'a> Headers<'a> {
    fn read(reader: &mut Varints<'a>) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        // A name is never null.
        let name = reader.nullable_bytes()??;
        Some((name, reader.nullable_bytes()?))
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left <= 0 {
            return None;
        }
        self.left -= 1;
        Self::read(&mut self.reader)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.left.max(0) as usize;
        (left, Some(left))
    }
}

/// `Record::parse` has read them all once, so none is missing.
impl ExactSizeIterator for Headers<'_> {}

/// Iterates over records, as many as the header counts. Ends after the first error; bytes after the
/// last record are one.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    reader: Varints<'a>,
    index: i32,
    count: i32,
    failed: bool,
}

impl<'a> Records<'a> {
    /// `body` is what follows the header, decompressed.
    pub fn new(body: &'a [u8], count: i32) -> Records<'a> {
        Records { reader: Varints { bytes: body }, index: 0, count, failed: false }
    }

    fn read(&mut self) -> Result<Record<'a>, &'static str> {
        let length = self.reader.varint().ok_or("its length is cut off")?;
        let length = usize::try_from(length).map_err(|_| "its length is negative")?;
        Record::parse(self.reader.take(length).ok_or("it passes the end of the batch")?)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let index = self.index;
        let record = if index < self.count {
            self.read()
        } else if self.count < 0 {
            Err("the batch counts less than none")
        } else if !self.reader.bytes.is_empty() {
            Err("bytes follow the last record")
        } else {
            return None;
        };
        self.index = self.index.saturating_add(1);
        self.failed = record.is_err();
        Some(record.map_err(|what| BatchError::Record { index, what }))
    }
}
