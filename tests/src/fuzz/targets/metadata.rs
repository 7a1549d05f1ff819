//! The metadata log: batches of records and their replay, and snapshots of the image.
//!
//! An input is one byte, then frames: batches where it is even, a snapshot where it is odd.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::mem::discriminant;

use common::metadata::{MetadataDelta, MetadataImage, codec, snapshot};

use super::metadata_samples;
use crate::fuzz::{Target, Trail, bound};
use crate::simulation::random::Random;

/// Of a frame: version, length, checksum.
const FRAME_HEADER_BYTES: usize = 9;

pub struct Metadata {
    /// What the batches of an input are replayed on.
    image: MetadataImage,
}

impl Metadata {
    pub fn new() -> Metadata {
        Metadata { image: metadata_samples::image() }
    }

    fn batches(&self, bytes: &[u8], trail: &mut Trail) {
        let Some(batches) = trail.result(codec::decode_batches(bytes)) else { return };
        trail.size(batches.len());
        assert_eq!(
            codec::decode_batches(&codec::encode_batches(&batches)).as_ref(),
            Ok(&batches),
            "batches that were read, written"
        );
        let mut image = self.image.clone();
        let mut delta = MetadataDelta::default();
        for mut batch in batches {
            // As it is it follows by chance only.
            trail.result(image.clone().apply(&batch, &mut delta));
            (batch.offset, batch.predecessor_term) = (image.offset.next(), image.term);
            for record in &batch.records {
                let mut hasher = DefaultHasher::new();
                discriminant(record).hash(&mut hasher);
                trail.note(hasher.finish() as i64);
            }
            if trail.result(image.apply(&batch, &mut delta)).is_some() {
                trail.accept();
            }
        }
        // A snapshot of whatever can be replayed can be made; that it is read again holds for what controllers write.
        let restored = snapshot::read(&snapshot::write(&image));
        trail.result(restored.map(|image| image.offset));
    }
}

impl Target for Metadata {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let mut seeds: Vec<Vec<u8>> = metadata_samples::batches()
            .into_iter()
            .map(|batch| [&[0], &codec::encode_batches(&[batch])[..]].concat())
            .collect();
        seeds.push([&[1], &snapshot::write(&self.image)[..]].concat());
        seeds.push([&[1], &snapshot::write(&MetadataImage::default())[..]].concat());
        seeds
    }

    fn words(&self) -> Vec<Vec<u8>> {
        metadata_samples::words()
    }

    /// Mostly every frame has its checksum, and the last one its length.
    fn repair(&self, input: &mut Vec<u8>, random: &mut Random) {
        if random.chance(40) {
            return;
        }
        let Some((_, mut rest)) = input.split_first_mut() else { return };
        while rest.len() > FRAME_HEADER_BYTES {
            let (frame, body) = rest.split_at_mut(FRAME_HEADER_BYTES);
            let length = u32::from_be_bytes([frame[1], frame[2], frame[3], frame[4]]) as usize;
            let length = if length == 0 { body.len() } else { length.min(body.len()) };
            let (body, after) = body.split_at_mut(length);
            frame[0] = 1;
            frame[1..5].copy_from_slice(&(length as u32).to_be_bytes());
            frame[5..].copy_from_slice(&crc_fast::crc32_iscsi(body).to_be_bytes());
            rest = after;
        }
    }

    fn bound_bytes(&self, input: &[u8]) -> usize {
        // A count of a list makes room for a mebibyte of values at most. The image has a floor of its own.
        bound(4 << 20, 1024, input)
    }

    fn longest_input_bytes(&self) -> usize {
        2000
    }

    fn run(&mut self, input: &[u8]) -> Trail {
        let mut trail = Trail::default();
        let Some((&selector, bytes)) = input.split_first() else { return trail };
        trail.note(selector & 1);
        if selector & 1 == 0 {
            self.batches(bytes, &mut trail);
        } else if let Some(image) = trail.result(snapshot::read(bytes)) {
            trail.accept();
            trail.size(image.topics.by_id.len());
        }
        trail
    }
}
