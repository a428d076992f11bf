//! What happened in a run: its digest, and on demand its text.

/// Digest of everything that happened so far; two runs of one seed must have the same.
#[derive(Debug)]
pub struct Trace {
    digest: u64,
    print: bool,
}

impl Trace {
    /// An empty trace; `print` writes each step to standard output.
    pub fn new(print: bool) -> Self {
        Self { digest: FNV_OFFSET, print }
    }

    /// Something happened at `now_us` (microseconds of simulated time).
    pub fn note(&mut self, now_us: u64, what: &str, numbers: &[u64]) {
        self.digest = fnv(self.digest, what.as_bytes());
        for number in std::iter::once(&now_us).chain(numbers) {
            self.digest = fnv(self.digest, &number.to_le_bytes());
        }
        if self.print {
            println!("{:>12.6} {what} {numbers:?}", now_us as f64 / 1e6);
        }
    }

    /// A longer text, made only where it is printed; the digest does not see it.
    pub fn explain(&self, text: impl FnOnce() -> String) {
        if self.print {
            println!("{:>12} {}", "", text());
        }
    }

    /// See [`Trace`].
    pub fn digest(&self) -> u64 {
        self.digest
    }
}

/// Start value of [`fnv`].
pub const FNV_OFFSET: u64 = 0xCBF2_9CE4_8422_2325;

/// FNV-1a: small, and the same everywhere.
pub fn fnv(digest: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(digest, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3))
}
