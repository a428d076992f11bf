//! One small change of an input.

use rand::Rng;
use rand::rngs::StdRng;

/// Numbers that break length and sign arithmetic, in 1, 2, 4 or 8 bytes of either byte order.
const NUMBERS: [u64; 10] = [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// Changes `input` in one place. `other` is another input, to be spliced with.
pub fn mutate(input: &mut Vec<u8>, other: &[u8], dictionary: &[&[u8]], rng: &mut StdRng) {
    let at = rng.random_range(0..=input.len());
    match rng.random_range(0..9) {
        0 if at < input.len() => input[at] ^= 1 << rng.random_range(0..8),
        1 if at < input.len() => input[at] = rng.random(),
        2 => input.insert(at, rng.random()),
        3 => {
            let end = (at + rng.random_range(1..=8)).min(input.len());
            input.drain(at..end);
        }
        4 => input.truncate(at),
        5 => {
            let end = (at + rng.random_range(1..=32)).min(input.len());
            let again = input[at..end].to_vec();
            input.splice(at..at, again);
        }
        6 => {
            let number = NUMBERS[rng.random_range(0..NUMBERS.len())];
            let width = 1 << rng.random_range(0..4);
            let bytes = match rng.random() {
                true => number.to_be_bytes()[8 - width..].to_vec(),
                false => number.to_le_bytes()[..width].to_vec(),
            };
            let end = (at + width).min(input.len());
            input.splice(at..end, bytes);
        }
        7 if !dictionary.is_empty() => {
            let word = dictionary[rng.random_range(0..dictionary.len())];
            let end = if rng.random() { (at + word.len()).min(input.len()) } else { at };
            input.splice(at..end, word.iter().copied());
        }
        _ if !other.is_empty() => {
            let from = rng.random_range(0..other.len());
            let to = rng.random_range(from..=other.len());
            input.splice(at.., other[from..to].iter().copied());
        }
        _ => input.push(rng.random()),
    }
}
