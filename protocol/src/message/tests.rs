//! Every kind of message, in every version: what is written is read again, what is cut off, inflated or
//! random is refused, and nothing panics or allocates beyond its bytes. An invented count that reached
//! `Vec::with_capacity` would abort this program.

use std::sync::LazyLock;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

/// Key, version and bytes of each empty message, and whether it is a request.
static EMPTY_BODIES: LazyLock<Vec<(ApiKey, i16, Bytes, bool)>> = LazyLock::new(empty_bodies);

fn empty_bodies() -> Vec<(ApiKey, i16, Bytes, bool)> {
    let mut bodies = Vec::new();
    for request in empty::requests() {
        let spec = request.key().spec();
        for version in spec.min_version..=spec.max_version {
            let body = encode_request_body(&request, version)
                .unwrap_or_else(|error| panic!("{} {version}: {error}", spec.name));
            bodies.push((spec.key, version, body, true));
        }
    }
    for response in empty::responses() {
        let spec = response.key().spec();
        for version in spec.min_version..=spec.max_version {
            let body = encode_response(&response, spec.key, version)
                .unwrap_or_else(|error| panic!("{} {version}: {error}", spec.name));
            bodies.push((spec.key, version, body, false));
        }
    }
    bodies
}

#[derive(Clone, Debug, PartialEq)]
enum Message {
    Request(Request),
    Response(Response),
}

fn decode(key: ApiKey, version: i16, body: Bytes, request: bool) -> Result<Message, DecodeError> {
    if request {
        decode_request(key, version, body).map(Message::Request)
    } else {
        decode_response_body(key, version, body).map(Message::Response)
    }
}

fn encode(message: &Message, version: i16) -> Result<Bytes, EncodeError> {
    match message {
        Message::Request(request) => encode_request_body(request, version),
        Message::Response(response) => encode_response(response, response.key(), version),
    }
}

#[test]
fn all_that_is_served_has_a_message() {
    let requests: Vec<ApiKey> = empty::requests().iter().map(Request::key).collect();
    let responses: Vec<ApiKey> = empty::responses().iter().map(Response::key).collect();
    assert_eq!(requests, responses);
    for &key in ApiKey::ALL {
        let speaks = key.spec().min_version <= key.spec().max_version;
        assert_eq!(requests.contains(&key), speaks, "{}", key.name());
    }
}

#[test]
fn empty_messages_are_read_again_and_no_part_of_one_is() {
    for (key, version, body, request) in EMPTY_BODIES.iter().cloned() {
        let name = key.name();
        let message =
            decode(key, version, body.clone(), request).unwrap_or_else(|e| panic!("{name} {version}: {e}"));
        assert_eq!(encode(&message, version).unwrap(), body, "{name} {version}");
        for length in 0..body.len() {
            assert!(
                decode(key, version, body.slice(..length), request).is_err(),
                "{name} {version} cut at {length}"
            );
        }
        let mut longer = body.to_vec();
        longer.push(0);
        assert!(decode(key, version, longer.into(), request).is_err(), "{name} {version} and a byte more");
    }
}

/// N3.
#[test]
fn versions_below_and_above_are_refused() {
    for &key in ApiKey::ALL {
        let spec = key.spec();
        for version in -1..=spec.max_version.max(0) + 1 {
            let unsupported = Err(DecodeError::UnsupportedVersion { key, version });
            let refused =
                decode_request(key, version, Bytes::new()) == unsupported.clone().map(|()| unreachable!());
            assert_eq!(refused, !spec.supports(version), "{} {version}", spec.name);
            let refused =
                decode_response_body(key, version, Bytes::new()) == unsupported.map(|()| unreachable!());
            assert_eq!(refused, !spec.supports(version), "{} {version}", spec.name);
        }
    }
    let request = Request::Metadata(MetadataRequest::default());
    let error = EncodeError::UnsupportedVersion { key: ApiKey::Metadata, version: 14 };
    assert_eq!(encode_request(&request, 14, 0, None), Err(error));
}

/// N3: a header with tagged fields before a body of a version that has none leaves a byte too many.
#[test]
fn a_flexible_header_on_a_version_that_is_not_is_refused() {
    for (key, version, body, request) in EMPTY_BODIES.iter().cloned() {
        if request && !key.is_flexible(version) {
            let shifted = [&[0][..], &body].concat();
            assert!(decode_request(key, version, shifted.into()).is_err(), "{} {version}", key.name());
        }
    }
}

/// N4: at each place of each message a number that cannot be true. Where the place is no count the
/// message may well be read.
#[test]
fn invented_counts_anywhere_are_harmless() {
    let numbers: [&[u8]; 9] = [
        &[0x7f, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xfe],
        &[0x80, 0, 0, 0],
        &[0x00, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0xfe, 0xff, 0xff, 0x07],
        &[0x7f, 0xff],
    ];
    for (key, version, body, request) in EMPTY_BODIES.iter().cloned() {
        for at in 0..body.len() {
            for number in numbers {
                for replaced in [0, 1, number.len()] {
                    let mut bytes = body[..at].to_vec();
                    bytes.extend_from_slice(number);
                    bytes.extend_from_slice(body.get(at + replaced..).unwrap_or_default());
                    let _ = decode(key, version, bytes.into(), request);
                }
            }
        }
    }
}

/// Some counts in particular, in the versions before and after they became compact.
#[test]
fn invented_counts_are_refused() {
    let topics = |count: &[u8]| -> Bytes { count.to_vec().into() };
    // Metadata: the topics. Null is allowed from 1 on, and then means all.
    for count in [0x7fff_ffff_i32, -2, i32::MIN, 1] {
        assert!(decode_request(ApiKey::Metadata, 1, topics(&count.to_be_bytes())).is_err(), "{count}");
    }
    assert!(decode_request(ApiKey::Metadata, 1, topics(&(-1_i32).to_be_bytes())).is_ok());
    // Null where it is not allowed.
    let null = |more: &[u8]| -> Bytes { [&(-1_i32).to_be_bytes()[..], more].concat().into() };
    assert!(decode_request(ApiKey::DeleteRecords, 0, null(&[0; 4])).is_err());
    assert!(decode_request(ApiKey::CreateTopics, 4, null(&[0; 5])).is_err());
    assert!(decode_request(ApiKey::DeleteRecords, 2, Bytes::from_static(&[0, 0, 0, 0, 0, 0])).is_err());
    for count in [&[0xff, 0xff, 0xff, 0xff, 0x0f][..], &[0xff, 0xff, 0xff, 0xff, 0x1f], &[0xff; 10], &[2]] {
        let error = decode_request(ApiKey::Metadata, 12, topics(count)).unwrap_err();
        assert!(!matches!(error, DecodeError::TrailingBytes(_)), "{count:?}: {error}");
    }
    // A name of 32767 bytes, and of -2.
    for length in [0x7fff_i16, -2] {
        let mut body = 1_i32.to_be_bytes().to_vec();
        body.extend_from_slice(&length.to_be_bytes());
        assert!(decode_request(ApiKey::Metadata, 1, body.into()).is_err());
    }
}

#[test]
fn frames_have_length_header_and_body() {
    let request = Request::ApiVersions(
        ApiVersionsRequest::default()
            .with_client_software_name("kagami".into())
            .with_client_software_version("1".into())
            .with_cluster_id(Some("c".into()))
            .with_node_id(2),
    );
    let frame = encode_request(&request, 5, 9, Some("me")).unwrap();
    let golden: &[u8] = b"\0\0\0\x1d\0\x12\0\x05\0\0\0\x09\0\x02me\0\x07kagami\x021\x02c\0\0\0\x02\0";
    assert_eq!(&frame[..], golden);
    let mut frame = frame.freeze().slice(4..);
    let header = crate::frame::decode_request_header(&mut frame).unwrap();
    assert_eq!((header.api_key, header.correlation_id), (18, 9));
    assert_eq!(decode_request(ApiKey::ApiVersions, 5, frame), Ok(request));

    let response = Response::from(ApiVersionsResponse::default());
    let frame = encode_response_frame(&response, 5, 9).unwrap();
    // No tagged fields in the header of this one.
    assert_eq!(&frame[..], b"\0\0\0\x09\0\0\x01\0\0\0\0\0");
    assert_eq!(decode_response(ApiKey::ApiVersions, 5, frame), Ok((9, response)));

    let response = Response::from(CreateMirrorResponse::default());
    let frame = encode_response_frame(&response, 0, 9).unwrap();
    assert_eq!(&frame[..], b"\0\0\0\x09\0\0\0\0\0\0\0\0\0");
    assert_eq!(decode_response(ApiKey::CreateMirror, 0, frame), Ok((9, response.clone())));
    let wrong = EncodeError::WrongMessage { wanted: ApiKey::ListMirrors, found: ApiKey::CreateMirror };
    assert_eq!(encode_response(&response, ApiKey::ListMirrors, 0), Err(wrong));
}

/// A key, a version that we speak, and a direction.
fn place() -> impl Strategy<Value = (ApiKey, i16, bool)> {
    let places: Vec<_> =
        empty_bodies().into_iter().map(|(key, version, _, request)| (key, version, request)).collect();
    prop::sample::select(places)
}

/// Bytes among which small numbers are frequent, so that counts and lengths are often true.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte =
        prop_oneof![6 => Just(0_u8), 6 => 1_u8..4, 2 => 4_u8..64, 1 => any::<u8>(), 1 => Just(0xff_u8)];
    prop::collection::vec(byte, 0..160)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    /// Whatever can be read can be written and read again.
    #[test]
    fn random_bytes((key, version, request) in place(), bytes in bytes()) {
        if let Ok(message) = decode(key, version, bytes.into(), request) {
            let written = encode(&message, version).unwrap();
            prop_assert_eq!(decode(key, version, written, request), Ok(message));
        }
    }

    #[test]
    fn mutated_messages(
        (place, flips) in (any::<prop::sample::Index>(), prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)),
        more in bytes(),
    ) {
        let (key, version, body, request) = place.get(&EMPTY_BODIES);
        let mut bytes = body.to_vec();
        bytes.extend_from_slice(&more);
        for (at, byte) in flips {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        let _ = decode(*key, *version, bytes.into(), *request);
    }
}
