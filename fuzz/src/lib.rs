//! Arbitrary bytes against a parser, in a unit test, on stable Rust.
//!
//! Every parser of bytes from outside has a test that calls [`fuzz`]. It first parses each file of a kept corpus, then mutations of
//! them for some seconds. An input whose outcome is new (another error, another shape of the result) joins the pool from which
//! mutations are made: without counters in the compiled code this is what guides the search. A parser fails by panicking;
//! assertions on what it returns belong into the closure.
//!
//! `OZONE_FUZZ_SECONDS` sets how long (default 5), `OZONE_FUZZ_SEED` repeats a run. A failing input is printed as a line that
//! adds it to the corpus, where it stays.

mod mutate;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// LIMIT: bytes of one input.
const INPUT_MAX: usize = 64 << 10;
/// LIMIT: inputs kept for mutation; beyond, a new one replaces another.
const POOL_MAX: usize = 4096;

/// Parses every file of the folder `corpus` and then mutations of them. `dictionary`: words of the format, put in now and
/// then. `parse` gives what tells outcomes apart, e.g. the text of the error or the name of the variant.
///
/// # Panics
/// Where `parse` does, naming the input; where the corpus is empty or cannot be read.
pub fn fuzz<T: Hash>(corpus: impl AsRef<Path>, dictionary: &[&[u8]], parse: impl Fn(&[u8]) -> T) {
    let corpus = corpus.as_ref();
    let seconds = setting("OZONE_FUZZ_SECONDS").unwrap_or(5);
    let seed = setting("OZONE_FUZZ_SEED").unwrap_or_else(|| StdRng::from_os_rng().random());
    let mut run = Run { corpus, seed, parse, outcomes: HashSet::new() };

    let mut pool = read_corpus(corpus);
    for input in &pool {
        run.check(input);
    }
    let mut rng = StdRng::seed_from_u64(seed);
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        for _ in 0..64 {
            let mut input = pool[rng.random_range(0..pool.len())].clone();
            for _ in 0..rng.random_range(1..=4) {
                let other = rng.random_range(0..pool.len());
                mutate::mutate(&mut input, &pool[other], dictionary, &mut rng);
            }
            input.truncate(INPUT_MAX);
            if run.check(&input) {
                match pool.len() < POOL_MAX {
                    true => pool.push(input),
                    false => {
                        let at = rng.random_range(0..POOL_MAX);
                        pool[at] = input;
                    }
                }
            }
        }
    }
}

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value}: a number is needed")))
}

/// The files in order of their names, so that a seed repeats.
fn read_corpus(folder: &Path) -> Vec<Vec<u8>> {
    let list = || -> std::io::Result<Vec<Vec<u8>>> {
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            paths.push(entry?.path());
        }
        paths.sort();
        paths.iter().map(std::fs::read).collect()
    };
    let inputs = list().unwrap_or_else(|error| panic!("the corpus {}: {error}", folder.display()));
    assert!(!inputs.is_empty(), "the corpus {} is empty: put at least one good input there", folder.display());
    inputs
}

struct Run<'a, P> {
    corpus: &'a Path,
    seed: u64,
    parse: P,
    outcomes: HashSet<u64>,
}

impl<T: Hash, P: Fn(&[u8]) -> T> Run<'_, P> {
    /// Parses; whether the outcome is one not seen before.
    fn check(&mut self, input: &[u8]) -> bool {
        // Nothing of a panicking call is looked at afterwards.
        let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| (self.parse)(input))) else {
            let mut hasher = DefaultHasher::new();
            input.hash(&mut hasher);
            panic!(
                "this input fails (OZONE_FUZZ_SEED={}); to keep it:\nprintf '{}' > {}/{:016x}",
                self.seed,
                octal(input),
                self.corpus.display(),
                hasher.finish()
            );
        };
        let mut hasher = DefaultHasher::new();
        outcome.hash(&mut hasher);
        self.outcomes.insert(hasher.finish())
    }
}

/// As `printf` of every shell reads it.
fn octal(input: &[u8]) -> String {
    let mut text = String::new();
    for &byte in input {
        match byte {
            b'a'..=b'z'
            | b'A'..=b'Z'
            | b'0'..=b'9'
            | b' '
            | b'-'
            | b'_'
            | b'.'
            | b'/'
            | b':'
            | b'='
            | b';'
            | b'<'
            | b'>' => text.push(byte as char),
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A parser with a fault behind two conditions, of which outcomes tell the first.
    fn faulty(input: &[u8]) -> u8 {
        if input.len() < 3 || input[0] != b'O' {
            return 0;
        }
        if input[1] != 0xff {
            return 1;
        }
        assert!(input[2] != 0, "the fault");
        2
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a corpus is no user's data")]
    fn a_fault_is_found_and_its_input_told() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("good"), b"Oxx").expect("the temporary folder can be written");
        let failure = catch_unwind(|| fuzz(&folder, &[], faulty)).expect_err("the fault is found");
        let message = failure.downcast_ref::<String>().expect("a message");
        assert!(message.contains("OZONE_FUZZ_SEED=") && message.contains("printf 'O\\377\\000"), "{message}");
    }

    #[test]
    #[should_panic(expected = "the corpus /nowhere")]
    fn a_missing_corpus_is_a_failure() {
        fuzz("/nowhere", &[], |_| ());
    }

    #[test]
    fn printed_inputs_come_back() {
        let input: Vec<u8> = (0..=255).collect();
        let shell = std::process::Command::new("sh").arg("-c").arg(format!("printf '{}'", octal(&input))).output();
        assert_eq!(shell.expect("a shell").stdout, input);
    }
}
