//! The headers in front of each message. The 4-byte length in front of them is the connection's.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::StrBytes;

use crate::api::{ApiSpec, spec};
use crate::error::{DecodeError, EncodeError};
use crate::wire::{Reader, Writer};

/// Key, version and correlation id: no request is shorter.
pub const MIN_REQUEST_BYTES: usize = 8;

/// Ceiling of all requests but Produce, once the client is authenticated.
pub const MAX_REQUEST_BYTES: usize = 8 * 1024 * 1024;

/// Ceiling of the requests of a client that is not authenticated yet.
pub const MAX_UNAUTHENTICATED_REQUEST_BYTES: usize = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<StrBytes>,
}

impl RequestHeader {
    /// The row of the API. A decoded header has one.
    pub fn spec(&self) -> Option<&'static ApiSpec> {
        spec(self.api_key)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a request of {0} bytes is shorter than its header")]
    TooShort(usize),
    /// Its header's layout isn't known: nothing can be answered, the connection is closed.
    #[error("unknown API key {0}")]
    UnknownApiKey(i16),
    #[error("request header: {0}")]
    Header(#[from] DecodeError),
}

/// Takes the header off a request; the body is left in `frame`. Versions are not checked: that of
/// ApiVersions is answered in any case.
pub fn decode_request_header(frame: &mut Bytes) -> Result<RequestHeader, FrameError> {
    if frame.len() < MIN_REQUEST_BYTES {
        return Err(FrameError::TooShort(frame.len()));
    }
    let (header, length) = read_request_header(frame)?;
    frame.advance(length);
    Ok(header)
}

/// The header of a request whose body will be written to, and its length: nothing of it is shared with
/// `frame`.
pub fn peek_request_header(frame: &[u8]) -> Result<(RequestHeader, usize), FrameError> {
    if frame.len() < MIN_REQUEST_BYTES {
        return Err(FrameError::TooShort(frame.len()));
    }
    let (key, version) = (i16::from_be_bytes([frame[0], frame[1]]), i16::from_be_bytes([frame[2], frame[3]]));
    let spec = spec(key).ok_or(FrameError::UnknownApiKey(key))?;
    let mut reader = Reader::over_slice(frame, version, false);
    let header = read_header_fields(&mut reader, spec)?;
    Ok((header, frame.len() - reader.left()))
}

fn read_request_header(frame: &Bytes) -> Result<(RequestHeader, usize), FrameError> {
    let (key, version) = (i16::from_be_bytes([frame[0], frame[1]]), i16::from_be_bytes([frame[2], frame[3]]));
    let spec = spec(key).ok_or(FrameError::UnknownApiKey(key))?;
    let mut reader = Reader::new(frame, version, false);
    let header = read_header_fields(&mut reader, spec)?;
    Ok((header, frame.len() - reader.left()))
}

fn read_header_fields(reader: &mut Reader<'_>, spec: &ApiSpec) -> Result<RequestHeader, DecodeError> {
    let (api_key, api_version) = (reader.i16()?, reader.i16()?);
    let correlation_id = reader.i32()?;
    // Never compact, so that the header can be read before it is known to be flexible.
    let client_id = reader.nullable_string()?;
    reader.flexible = spec.request_header_version(api_version) >= 2;
    reader.skip_tags()?;
    Ok(RequestHeader { api_key, api_version, correlation_id, client_id })
}

pub(crate) fn encode_request_header(
    out: &mut BytesMut,
    spec: &ApiSpec,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
) -> Result<(), EncodeError> {
    let mut writer = Writer::new(out, version, false);
    writer.out.put_i16(spec.key.code());
    writer.out.put_i16(version);
    writer.out.put_i32(correlation_id);
    writer.nullable_string(client_id)?;
    writer.flexible = spec.request_header_version(version) >= 2;
    writer.no_tags();
    Ok(())
}

/// What stands in front of a response's body.
pub fn encode_response_header(out: &mut BytesMut, spec: &ApiSpec, version: i16, correlation_id: i32) {
    out.put_i32(correlation_id);
    if spec.response_header_version(version) >= 1 {
        out.put_u8(0);
    }
}

/// Takes the header off a response and returns its correlation id.
pub(crate) fn decode_response_header(
    frame: &mut Bytes,
    spec: &ApiSpec,
    version: i16,
) -> Result<i32, DecodeError> {
    let mut reader = Reader::new(frame, version, spec.response_header_version(version) >= 1);
    let correlation_id = reader.i32()?;
    reader.skip_tags()?;
    let length = frame.len() - reader.left();
    frame.advance(length);
    Ok(correlation_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const API_VERSIONS_3: &[u8] = &[0, 18, 0, 3, 0, 0, 0, 7, 0, 2, b'm', b'e', 0, 0xaa];

    #[test]
    fn header_is_taken_off() {
        let mut frame = Bytes::from_static(API_VERSIONS_3);
        let header = decode_request_header(&mut frame).unwrap();
        assert_eq!((header.api_key, header.api_version, header.correlation_id), (18, 3, 7));
        assert_eq!(header.client_id.as_deref(), Some("me"));
        assert_eq!(&frame[..], [0xaa]);
        assert_eq!(peek_request_header(API_VERSIONS_3).unwrap(), (header, API_VERSIONS_3.len() - 1));
    }

    #[test]
    fn every_cut_is_refused() {
        for length in 0..API_VERSIONS_3.len() - 1 {
            let mut frame = Bytes::from_static(&API_VERSIONS_3[..length]);
            let error = decode_request_header(&mut frame).unwrap_err();
            assert_eq!(matches!(error, FrameError::TooShort(_)), length < 8, "{length}");
        }
    }

    #[test]
    fn what_cannot_be_a_header() {
        let decode =
            |bytes: &'static [u8]| decode_request_header(&mut Bytes::from_static(bytes)).unwrap_err();
        assert_eq!(decode(&[0x7f, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff]), FrameError::UnknownApiKey(0x7fff));
        assert_eq!(decode(&[0xff, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff]), FrameError::UnknownApiKey(-1));
        // Client id of 32767 bytes, of -2 bytes; 2^32-1 tags; a tag longer than the frame.
        assert!(matches!(decode(&[0, 3, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 1]), FrameError::Header(_)));
        assert!(matches!(decode(&[0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xfe, 1]), FrameError::Header(_)));
        assert_eq!(
            decode(&[0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]),
            FrameError::Header(DecodeError::TooManyTags { limit: 256 })
        );
        assert!(matches!(decode(&[0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 1, 0, 5, 1]), FrameError::Header(_)));
    }

    #[test]
    fn an_unknown_version_of_api_versions_has_a_readable_header() {
        let mut frame = Bytes::from_static(&[0, 18, 0, 127, 0, 0, 0, 9, 0xff, 0xff, 0]);
        let header = decode_request_header(&mut frame).unwrap();
        assert_eq!((header.api_version, header.correlation_id, header.client_id), (127, 9, None));
    }
}
