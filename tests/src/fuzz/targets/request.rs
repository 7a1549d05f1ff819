//! Requests, as a broker and a controller take them off a connection, and what answers them from the image alone.

use broker::api::metadata::Asker;
use broker::api::{
    api_versions, describe_cluster, describe_topic_partitions, list_config_resources, metadata,
};
use bytes::{BufMut as _, Bytes, BytesMut};
use common::config::Properties;
use common::config::describe_response::{Describer, respond};
use common::metadata::MetadataImage;
use protocol::frame::{decode_request_header, peek_request_header};
use protocol::message::{empty, encode_request_body};
use protocol::record_batch::batches;
use protocol::{ApiKey, Request, Response, decode_request, encode_request, encode_response_frame, produce};

use super::batch_samples;
use super::message_samples::{bodies, spoken, versions, words};
use super::metadata_samples;
use crate::fuzz::{Target, Trail, bound};
use crate::simulation::random::Random;

const LISTENER: &str = "PLAINTEXT";

pub struct Requests {
    image: MetadataImage,
    file: Properties,
    keys: Vec<ApiKey>,
}

impl Requests {
    pub fn new() -> Requests {
        Requests { image: metadata_samples::image(), file: Properties::new(), keys: spoken() }
    }

    /// The answers that need nothing but the image.
    fn answer(&self, request: &Request, version: i16) -> Option<Response> {
        let asker = Asker { broker_id: 1, cluster_id: "cluster", listener_name: LISTENER, version };
        Some(match request {
            Request::Metadata(request) => {
                metadata::topics_to_create(&self.image, request, version);
                metadata::handle(&self.image, request, &asker).into()
            }
            Request::ApiVersions(request) => match api_versions::software(request, version) {
                Ok(_) => api_versions::handle(&self.image, None).into(),
                Err(code) => api_versions::error(code).into(),
            },
            Request::DescribeCluster(request) => {
                describe_cluster::handle(&self.image, request, &asker).into()
            }
            Request::DescribeTopicPartitions(request) => {
                describe_topic_partitions::handle(&self.image, request, LISTENER).ok()?.into()
            }
            Request::ListConfigResources(request) => {
                list_config_resources::handle(&self.image, request, version).into()
            }
            Request::DescribeConfigs(request) => {
                let describer = Describer::Broker { id: 1, file: &self.file };
                respond(&self.image, describer, request).into()
            }
            _ => return None,
        })
    }
}

/// Batches where Produce has them; they are looked at as the log does first.
fn produced(body: &[u8], version: i16, trail: &mut Trail) {
    let Some(request) = trail.result(produce::decode(body, version)) else { return };
    for partition in request.topics.iter().flat_map(|topic| &topic.partitions) {
        let records = body.get(partition.records.clone()).unwrap_or_else(|| {
            panic!("records at {:?} in a body of {} bytes", partition.records, body.len())
        });
        trail.note(batches(records).filter(Result::is_ok).count() as i32);
    }
}

impl Target for Requests {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let mut random = Random::new(1);
        let mut seeds = Vec::new();
        for request in empty::requests() {
            let key = request.key();
            for version in versions(key) {
                let Ok(frame) = encode_request(&request, version, 7, Some("client")) else { continue };
                let frame = &frame[4..];
                seeds.push(frame.to_vec());
                let body_bytes = encode_request_body(&request, version).map_or(0, |body| body.len());
                let header = &frame[..frame.len() - body_bytes];
                let is_read = |body: Bytes| decode_request(key, version, body).is_ok();
                seeds.extend(bodies(is_read, &mut random).iter().map(|body| [header, body].concat()));
            }
        }
        seeds.extend(produce_requests());
        seeds
    }

    fn words(&self) -> Vec<Vec<u8>> {
        words()
    }

    /// Mostly a key and a version that are spoken.
    fn repair(&self, input: &mut Vec<u8>, random: &mut Random) {
        let Some([key_high, key_low, version_high, version_low]) = input.first_chunk_mut::<4>() else {
            return;
        };
        if random.chance(100) {
            return;
        }
        let code = i16::from_be_bytes([*key_high, *key_low]);
        let known = ApiKey::from_code(code).filter(|key| self.keys.contains(key));
        let key = match known {
            Some(key) if !random.chance(20) => key,
            _ => self.keys[random.below(self.keys.len())],
        };
        let version = i16::from_be_bytes([*version_high, *version_low]);
        let version = if versions(key).contains(&version) && !random.chance(50) {
            version
        } else {
            random.between((*versions(key).start()).into(), (*versions(key).end()).into()) as i16
        };
        [*key_high, *key_low] = key.code().to_be_bytes();
        [*version_high, *version_low] = version.to_be_bytes();
    }

    fn bound_bytes(&self, input: &[u8]) -> usize {
        bound(512 << 10, 1024, input)
    }

    fn run(&mut self, input: &[u8]) -> Trail {
        let mut trail = Trail::default();
        // A broker looks, a controller takes.
        let mut body = Bytes::copy_from_slice(input);
        let peeked = peek_request_header(input);
        let taken = decode_request_header(&mut body);
        assert_eq!(peeked.as_ref().map(|(header, _)| header), taken.as_ref(), "two readers of one header");
        let Some((header, length)) = trail.result(peeked) else { return trail };
        assert_eq!(&input[length..], &body[..], "two ends of one header");
        let Some(spec) = header.spec() else { return trail };
        trail.note(header.api_key);
        trail.note(header.api_version);
        if !spec.supports(header.api_version) {
            return trail;
        }
        let (key, version) = (spec.key, header.api_version);
        if key == ApiKey::Produce {
            produced(&body, version, &mut trail);
        }
        let Some(request) = trail.result(decode_request(key, version, body)) else { return trail };
        trail.accept();
        trail.size(input.len());
        // As a broker sends it on.
        trail.result(encode_request_body(&request, version));
        if let Some(answer) = self.answer(&request, version) {
            trail.result(encode_response_frame(&answer, version, header.correlation_id));
        }
        trail
    }
}

/// With batches in them.
fn produce_requests() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for version in versions(ApiKey::Produce) {
        let flexible = ApiKey::Produce.is_flexible(version);
        for batch in batch_samples::produced() {
            let mut out = BytesMut::new();
            out.put_i16(ApiKey::Produce.code());
            out.put_i16(version);
            out.put_i32(9);
            out.put_i16(-1);
            if flexible {
                out.put_slice(&[0, 0]);
            } else {
                out.put_i16(-1);
            }
            out.put_i16(-1);
            out.put_i32(1000);
            if flexible {
                out.put_u8(2)
            } else {
                out.put_i32(1)
            }
            match (version >= 13, flexible) {
                (true, _) => out.put_slice(&[7; 16]),
                (false, true) => out.put_slice(b"\x07orders"),
                (false, false) => out.put_slice(b"\0\x06orders"),
            }
            if flexible {
                out.put_u8(2)
            } else {
                out.put_i32(1)
            }
            out.put_i32(0);
            if flexible {
                let mut length = batch.len() as u32 + 1;
                while length >= 0x80 {
                    out.put_u8(length as u8 | 0x80);
                    length >>= 7;
                }
                out.put_u8(length as u8);
            } else {
                out.put_i32(batch.len() as i32);
            }
            out.put_slice(&batch);
            if flexible {
                out.put_slice(&[0, 0, 0]);
            }
            seeds.push(out.to_vec());
        }
    }
    seeds
}
