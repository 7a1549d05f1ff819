//! Control batches: one record, whose key tells what it marks.

use super::{Batch, BatchError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRecordType {
    Abort,
    Commit,
    LeaderChange,
    SnapshotHeader,
    SnapshotFooter,
    KRaftVersion,
    KRaftVoters,
    /// Of a later Kafka: to be kept and skipped.
    Unknown(i16),
}

impl ControlRecordType {
    pub fn from_code(code: i16) -> ControlRecordType {
        match code {
            0 => ControlRecordType::Abort,
            1 => ControlRecordType::Commit,
            2 => ControlRecordType::LeaderChange,
            3 => ControlRecordType::SnapshotHeader,
            4 => ControlRecordType::SnapshotFooter,
            5 => ControlRecordType::KRaftVersion,
            6 => ControlRecordType::KRaftVoters,
            other => ControlRecordType::Unknown(other),
        }
    }

    /// Reads the key of a control record: version, type. Later versions may add to it.
    pub fn from_key(key: &[u8]) -> Option<ControlRecordType> {
        let [version_high, version_low, high, low, ..] = *key else { return None };
        if i16::from_be_bytes([version_high, version_low]) < 0 {
            return None;
        }
        Some(ControlRecordType::from_code(i16::from_be_bytes([high, low])))
    }
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTxnMarker {
    pub committed: bool,
    pub coordinator_epoch: i32,
}

impl EndTxnMarker {
    pub(super) fn key(self) -> [u8; 4] {
        [0, 0, 0, u8::from(self.committed)]
    }

    pub(super) fn value(self) -> [u8; 6] {
        let epoch = self.coordinator_epoch.to_be_bytes();
        [0, 0, epoch[0], epoch[1], epoch[2], epoch[3]]
    }
}

fn error(what: &'static str) -> BatchError {
    BatchError::Record { index: 0, what }
}

/// The type and value of a control batch's record.
pub fn read_control_record<'a>(
    batch: &Batch<'a>,
) -> Result<(ControlRecordType, Option<&'a [u8]>), BatchError> {
    let record = batch.records().next().ok_or(error("a control batch without a record"))??;
    let key = record.key.ok_or(error("a control record without a key"))?;
    let control_type = ControlRecordType::from_key(key).ok_or(error("a control record's key is no type"))?;
    Ok((control_type, record.value))
}

/// `None` for a control batch that ends no transaction.
pub fn read_end_txn_marker(batch: &Batch<'_>) -> Result<Option<EndTxnMarker>, BatchError> {
    let (control_type, value) = read_control_record(batch)?;
    let committed = match control_type {
        ControlRecordType::Abort => false,
        ControlRecordType::Commit => true,
        _ => return Ok(None),
    };
    // Version, coordinator epoch; later versions add tagged fields.
    match value {
        Some(&[version_high, version_low, a, b, c, d, ..])
            if i16::from_be_bytes([version_high, version_low]) >= 0 =>
        {
            Ok(Some(EndTxnMarker { committed, coordinator_epoch: i32::from_be_bytes([a, b, c, d]) }))
        }
        _ => Err(error("a transaction marker's value is cut off")),
    }
}
