//! Writes batches, not compressed: for coordinators, the demo and tests. Producers' batches are never
//! rebuilt.

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    ATTRIBUTES, BASE_SEQUENCE, CONTROL, CRC, CURRENT_MAGIC, EndTxnMarker, HEADER_BYTES, LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, TRANSACTIONAL,
    TimestampType, set_crc,
};

/// A record's header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader<'a> {
    pub name: &'a str,
    pub value: Option<&'a [u8]>,
}

/// One batch. What was not set is as a producer without idempotence sends it: base offset 0, leader
/// epoch -1.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    out: BytesMut,
    record: BytesMut,
    base_offset: i64,
    leader_epoch: i32,
    attributes: i16,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    base_timestamp: Option<i64>,
    max_timestamp: i64,
    next_offset_delta: i32,
    count: i32,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        BatchBuilder::new()
    }
}

impl BatchBuilder {
    pub fn new() -> BatchBuilder {
        let mut out = BytesMut::with_capacity(HEADER_BYTES + 256);
        out.put_bytes(0, HEADER_BYTES);
        BatchBuilder {
            out,
            record: BytesMut::new(),
            base_offset: 0,
            leader_epoch: -1,
            attributes: 0,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            base_sequence: NO_SEQUENCE,
            base_timestamp: None,
            max_timestamp: NO_TIMESTAMP,
            next_offset_delta: 0,
            count: 0,
        }
    }

    pub fn base_offset(mut self, base_offset: i64) -> BatchBuilder {
        self.base_offset = base_offset;
        self
    }

    pub fn leader_epoch(mut self, leader_epoch: i32) -> BatchBuilder {
        self.leader_epoch = leader_epoch;
        self
    }

    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> BatchBuilder {
        self.producer_id = id;
        self.producer_epoch = epoch;
        self.base_sequence = base_sequence;
        self
    }

    pub fn transactional(mut self) -> BatchBuilder {
        self.attributes |= TRANSACTIONAL;
        self
    }

    pub fn timestamp_type(mut self, timestamp_type: TimestampType) -> BatchBuilder {
        match timestamp_type {
            TimestampType::CreateTime => self.attributes &= !LOG_APPEND_TIME,
            TimestampType::LogAppendTime => self.attributes |= LOG_APPEND_TIME,
        }
        self
    }

    pub fn record(self, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> BatchBuilder {
        self.record_with_headers(timestamp, key, value, &[])
    }

    pub fn record_with_headers(
        mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader<'_>],
    ) -> BatchBuilder {
        self.push(timestamp, key, value, headers);
        self
    }

    /// Leaves a hole before the next record, as the cleaner does.
    pub fn skip_offsets(mut self, count: i32) -> BatchBuilder {
        self.next_offset_delta += count;
        self
    }

    /// Appends a record. The first one's timestamp is the base of all.
    pub fn push(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader<'_>],
    ) {
        let base_timestamp = *self.base_timestamp.get_or_insert(timestamp);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let record = &mut self.record;
        record.clear();
        record.put_u8(0);
        put_varint(record, timestamp.wrapping_sub(base_timestamp));
        put_varint(record, self.next_offset_delta.into());
        put_nullable(record, key);
        put_nullable(record, value);
        put_varint(record, headers.len() as i64);
        for header in headers {
            put_nullable(record, Some(header.name.as_bytes()));
            put_nullable(record, header.value);
        }
        put_varint(&mut self.out, self.record.len() as i64);
        self.out.put_slice(&self.record);
        self.next_offset_delta += 1;
        self.count += 1;
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Of the batch so far.
    pub fn size_bytes(&self) -> usize {
        self.out.len()
    }

    /// A transaction's end: a batch of its own. The producer's sequence is none.
    pub fn end_txn_marker(mut self, timestamp: i64, marker: EndTxnMarker) -> BatchBuilder {
        self.attributes |= TRANSACTIONAL | CONTROL;
        self.push(timestamp, Some(&marker.key()), Some(&marker.value()), &[]);
        self
    }

    pub fn build(self) -> Bytes {
        self.build_mut().freeze()
    }

    /// For those who patch it.
    pub fn build_mut(mut self) -> BytesMut {
        let length = (self.out.len() - LOG_OVERHEAD_BYTES) as i32;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.put_i64(self.base_offset);
        header.put_i32(length);
        header.put_i32(self.leader_epoch);
        header.put_i8(CURRENT_MAGIC);
        debug_assert_eq!(header.len(), CRC);
        header.put_u32(0);
        debug_assert_eq!(header.len(), ATTRIBUTES);
        header.put_i16(self.attributes);
        header.put_i32(self.next_offset_delta - 1);
        header.put_i64(self.base_timestamp.unwrap_or(NO_TIMESTAMP));
        header.put_i64(self.max_timestamp);
        header.put_i64(self.producer_id);
        header.put_i16(self.producer_epoch);
        debug_assert_eq!(header.len(), BASE_SEQUENCE);
        header.put_i32(self.base_sequence);
        header.put_i32(self.count);
        self.out[..HEADER_BYTES].copy_from_slice(&header);
        set_crc(&mut self.out);
        self.out
    }
}

/// Zigzag; of a varint and a varlong the bytes are the same.
fn put_varint(out: &mut BytesMut, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.put_u8((rest as u8) | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

fn put_nullable(out: &mut BytesMut, bytes: Option<&[u8]>) {
    put_varint(out, bytes.map_or(-1, |bytes| bytes.len() as i64));
    out.put_slice(bytes.unwrap_or_default());
}
