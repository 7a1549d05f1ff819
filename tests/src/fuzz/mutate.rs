//! From a valid input to one that is nearly so.

use crate::simulation::random::Random;

/// Most changes to one input; most inputs get one or two.
const MOST_CHANGES: usize = 8;
/// Longest piece that is copied, moved or removed.
const PIECE_BYTES: usize = 48;

const VARINTS: [&[u8]; 12] = [
    &[0],
    &[1],
    &[2],
    &[0x7f],
    &[0x80, 0x01],
    &[0xff, 0x7f],
    &[0x80, 0x80, 0x01],
    &[0xff, 0xff, 0xff, 0xff, 0x07],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0x80, 0x80, 0x80, 0x80, 0x80, 0x00],
    &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
];

/// Numbers at which something ends, of which the low bytes are taken.
const NUMBERS: [i64; 24] = [
    0,
    1,
    -1,
    -2,
    2,
    7,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x0001_0000,
    0x00ff_ffff,
    0x3fff_ffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX,
    i64::MAX - 1,
    i64::MIN,
    i64::MIN + 1,
];

const DECIMALS: [&str; 20] = [
    "0",
    "1",
    "-1",
    "00",
    "127",
    "128",
    "255",
    "256",
    "32767",
    "32768",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551616",
];

/// Changes `input` in one to eight places; `other` is a second input to take pieces from.
pub fn mutate(
    input: &mut Vec<u8>,
    other: &[u8],
    words: &[Vec<u8>],
    longest_bytes: usize,
    random: &mut Random,
) {
    let mut changes = 1;
    while changes < MOST_CHANGES && random.chance(450) {
        changes += 1;
    }
    for _ in 0..changes {
        change(input, other, words, random);
    }
    input.truncate(longest_bytes);
}

fn change(input: &mut Vec<u8>, other: &[u8], words: &[Vec<u8>], random: &mut Random) {
    let at = random.below(input.len());
    match random.below(16) {
        0 | 1 => on_byte(input, at, |byte| byte ^ (1 << random.below(8))),
        2 => on_byte(input, at, |_| random.number() as u8),
        3 => on_byte(input, at, |byte| byte.wrapping_add(random.between(-3, 3) as u8)),
        4 | 5 => {
            let width = 1 << random.below(4);
            let number = NUMBERS[random.below(NUMBERS.len())];
            overwrite_number(input, at, width, number, random.chance(100));
        }
        6 => {
            // A length or count that is a little off, or that of all that is left.
            let width = 1 << random.below(4);
            let number = if random.chance(500) { input.len() as i64 - at as i64 } else { 0 };
            let old = read_number(input, at, width);
            let number = if number == 0 { old.wrapping_add(random.between(-9, 9)) } else { number };
            overwrite_number(input, at, width, number, false);
        }
        7 => {
            let varint = VARINTS[random.below(VARINTS.len())];
            replace(input, at, random.below(varint.len() + 1), varint);
        }
        8 => {
            let end = input.len().min(at + 1 + random.below(PIECE_BYTES));
            input.drain(at..end);
        }
        9 => {
            let piece = piece_of(input, random);
            replace(input, at, 0, &piece);
        }
        10 => {
            let piece = piece_of(other, random);
            let replaced = if random.chance(500) { piece.len() } else { 0 };
            replace(input, at, replaced, &piece);
        }
        11 if random.chance(300) => {
            // The head of one, the tail of the other.
            input.truncate(at);
            input.extend_from_slice(other.get(random.below(other.len())..).unwrap_or_default());
        }
        12 if random.chance(250) => input.truncate(at),
        13 if random.chance(400) => {
            let more = random.below(PIECE_BYTES);
            input.extend((0..more).map(|_| if random.chance(500) { 0 } else { random.number() as u8 }));
        }
        14 => {
            let decimal = DECIMALS[random.below(DECIMALS.len())];
            let digits = |byte: &&u8| byte.is_ascii_digit();
            match input.get(at) {
                // In place of a number that stands there.
                Some(byte) if byte.is_ascii_digit() => {
                    let start = at - input[..at].iter().rev().take_while(digits).count();
                    let length = input[start..].iter().take_while(digits).count();
                    replace(input, start, length, decimal.as_bytes());
                }
                _ => on_byte(input, at, |byte| !byte),
            }
        }
        _ => match words.get(random.below(words.len())) {
            Some(word) => replace(input, at, if random.chance(500) { word.len() } else { 0 }, word),
            None => on_byte(input, at, |_| [0, 1, 0x7f, 0x80, 0xff][random.below(5)]),
        },
    }
}

fn on_byte(input: &mut [u8], at: usize, change: impl FnOnce(u8) -> u8) {
    if let Some(byte) = input.get_mut(at) {
        *byte = change(*byte);
    }
}

/// `length` bytes from `at` on, as far as they are there, become `piece`.
fn replace(input: &mut Vec<u8>, at: usize, length: usize, piece: &[u8]) {
    let end = input.len().min(at.saturating_add(length));
    input.splice(at.min(end)..end, piece.iter().copied());
}

fn piece_of(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let at = random.below(bytes.len());
    let end = bytes.len().min(at + 1 + random.below(PIECE_BYTES));
    bytes.get(at..end).unwrap_or_default().to_vec()
}

fn read_number(input: &[u8], at: usize, width: usize) -> i64 {
    let bytes = input.get(at..at + width).unwrap_or_default();
    bytes.iter().fold(0, |number, byte| number << 8 | i64::from(*byte))
}

fn overwrite_number(input: &mut [u8], at: usize, width: usize, number: i64, little_endian: bool) {
    let mut bytes = number.to_be_bytes();
    if little_endian {
        bytes.reverse();
    }
    let low = if little_endian { &bytes[..width] } else { &bytes[8 - width..] };
    for (place, byte) in input.iter_mut().skip(at).zip(low) {
        *place = *byte;
    }
}
