//! Messages of every API in every version that is spoken: the empty one, and some with structures in them.

use bytes::Bytes;
use protocol::ApiKey;

use crate::simulation::random::Random;

/// Random bodies that are tried for each version, and how many of the readable ones are kept.
const TRIES: usize = 60;
const KEPT: usize = 2;
const LONGEST_BYTES: usize = 120;

/// Versions that we speak.
pub fn versions(key: ApiKey) -> std::ops::RangeInclusive<i16> {
    key.spec().min_version..=key.spec().max_version
}

/// The keys that have versions.
pub fn spoken() -> Vec<ApiKey> {
    ApiKey::ALL.iter().copied().filter(|key| !versions(*key).is_empty()).collect()
}

/// Bodies that `is_read` takes. Among bytes of which most are small, counts and lengths are often true.
pub fn bodies(is_read: impl Fn(Bytes) -> bool, random: &mut Random) -> Vec<Bytes> {
    let mut found: Vec<Bytes> = Vec::new();
    for _ in 0..TRIES {
        let length = random.below(LONGEST_BYTES);
        let byte = |random: &mut Random| match random.below(16) {
            0..=5 => 0,
            6..=11 => 1 + random.below(3) as u8,
            12 | 13 => random.below(64) as u8,
            14 => 0xff,
            _ => random.number() as u8,
        };
        let body: Bytes = (0..length).map(|_| byte(random)).collect();
        if is_read(body.clone()) {
            found.push(body);
        }
    }
    found.sort_by_key(|body| std::cmp::Reverse(body.len()));
    found.truncate(KEPT);
    found
}

/// Names that the image of the request target knows, and numbers in the forms that messages have them in.
pub fn words() -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> =
        ["orders", "copies", "mirror.name", "cleanup.policy", "compact", "kagami", "PLAINTEXT"]
            .iter()
            .flat_map(|word| {
                let compact = [&[word.len() as u8 + 1], word.as_bytes()].concat();
                let plain = [&[0, word.len() as u8], word.as_bytes()].concat();
                [compact, plain, word.as_bytes().to_vec()]
            })
            .collect();
    words.extend([
        vec![0xff; 4],
        vec![0xff, 0xff],
        vec![0, 0, 0, 1],
        vec![0, 0, 0, 0],
        vec![1; 16],
        vec![7; 16],
    ]);
    words
}
