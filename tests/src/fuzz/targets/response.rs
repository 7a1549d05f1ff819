//! Answers of a source, another broker or a controller, as our client reads them: the source is not trusted.
//!
//! An input is the number of an API, a version, and the frame.

use broker::mirror::coordinator::codec;
use broker::mirror::fetcher::answer;
use broker::mirror::source::{metadata, position};
use bytes::Bytes;
use common::ids::Offset;
use protocol::message::{empty, encode_response, encode_response_frame};
use protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use protocol::messages::{FetchResponse, TopicName};
use protocol::{ApiKey, Response, StrBytes, decode_response};

use super::batch_samples;
use super::message_samples::{bodies, spoken, versions, words};
use crate::fuzz::{Target, Trail, bound};
use crate::simulation::random::Random;

pub struct Responses;

fn selected(input: &[u8]) -> Option<(ApiKey, i16, &[u8])> {
    let (&[key, version], frame) = input.split_first_chunk::<2>()?;
    let keys = spoken();
    let key = keys[usize::from(key) % keys.len()];
    let range = versions(key);
    let count = range.end() - range.start() + 1;
    Some((key, range.start() + i16::from(version) % count, frame))
}

fn input_of(key: ApiKey, version: i16, frame: &[u8]) -> Vec<u8> {
    let place = spoken().iter().position(|spoken| *spoken == key).unwrap_or_default();
    let version = version - versions(key).start();
    [&[place as u8, version as u8], frame].concat()
}

/// What the answers of a source mean to a mirror.
fn interpret(response: &Response, version: i16, trail: &mut Trail) {
    match response {
        Response::Fetch(response) => {
            for partition in response.responses.iter().flat_map(|topic| &topic.partitions) {
                let outcome = answer::interpret(partition, Offset(3));
                match &outcome {
                    answer::Outcome::Data { records, .. } => trail.size(records.len()),
                    answer::Outcome::Empty { .. } => trail.note(1),
                    answer::Outcome::Retry(_) => trail.note(2),
                    answer::Outcome::Stop(stop) => trail.refused(format_args!("{stop:?}")),
                }
            }
        }
        Response::Metadata(response) => {
            let parsed = metadata::parse(response, version);
            trail.size(parsed.topics.len());
            for topic in parsed.topics.values() {
                trail.note(topic.partitions.len().min(4) as i32);
            }
        }
        Response::LastMirroredOffsets(response) => {
            for partition in response.topics.iter().flat_map(|topic| &topic.partitions) {
                trail.result(position::interpret(partition).map_err(|error| format!("{error:?}")));
            }
        }
        Response::ReadMirrorStates(response) => {
            let topic = "orders".into();
            for partition in response.topics.iter().flat_map(|topic| &topic.partitions) {
                trail.result(codec::from_read_state(&topic, partition).map_err(|error| format!("{error:?}")));
            }
        }
        _ => {}
    }
}

impl Target for Responses {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let mut random = Random::new(2);
        let mut seeds = Vec::new();
        for response in empty::responses() {
            let key = response.key();
            for version in versions(key) {
                let Ok(frame) = encode_response_frame(&response, version, 7) else { continue };
                seeds.push(input_of(key, version, &frame));
                let body_bytes = encode_response(&response, key, version).map_or(0, |body| body.len());
                let header = &frame[..frame.len() - body_bytes];
                let is_read =
                    |body: Bytes| decode_response(key, version, [header, &body].concat().into()).is_ok();
                let found = bodies(is_read, &mut random);
                seeds.extend(found.iter().map(|body| input_of(key, version, &[header, body].concat())));
            }
        }
        seeds.extend(fetch_responses());
        seeds
    }

    fn words(&self) -> Vec<Vec<u8>> {
        words()
    }

    fn bound_bytes(&self, input: &[u8]) -> usize {
        bound(64 << 10, 1024, input)
    }

    fn run(&mut self, input: &[u8]) -> Trail {
        let mut trail = Trail::default();
        let Some((key, version, frame)) = selected(input) else { return trail };
        trail.note(key.code());
        trail.note(version);
        let frame = Bytes::copy_from_slice(frame);
        let Some((_, response)) = trail.result(decode_response(key, version, frame)) else { return trail };
        trail.accept();
        trail.size(input.len());
        interpret(&response, version, &mut trail);
        trail
    }
}

/// With batches in them.
fn fetch_responses() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for version in versions(ApiKey::Fetch) {
        for records in batch_samples::copied() {
            let partition = PartitionData::default()
                .with_high_watermark(9)
                .with_last_stable_offset(9)
                .with_records(Some(records.into()));
            let mut topic = FetchableTopicResponse::default().with_partitions(vec![partition]);
            if version >= 13 {
                topic.topic_id = uuid::Uuid::from_bytes([7; 16]);
            } else {
                topic.topic = TopicName(StrBytes::from_static_str("orders"));
            }
            let response = Response::from(FetchResponse::default().with_responses(vec![topic]));
            if let Ok(frame) = encode_response_frame(&response, version, 7) {
                seeds.push(input_of(ApiKey::Fetch, version, &frame));
            }
        }
    }
    seeds
}
