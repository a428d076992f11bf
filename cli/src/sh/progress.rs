//! A bar on stderr while many bytes move, where a person looks.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Fewer bytes are done before anybody has read a bar.
const WORTH_SHOWING: u64 = 8 << 20;

/// Bytes that moved so far.
pub struct Progress(Option<ProgressBar>);

impl Progress {
    /// A bar for `length` bytes; `None` = as many as come.
    pub fn new(what: String, length: Option<u64>) -> Self {
        if !io::stderr().is_terminal() || length.is_some_and(|length| length < WORTH_SHOWING) {
            return Self(None);
        }
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
        let template = match length {
            Some(_) => "{msg} {wide_bar} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left",
            None => "{msg} {spinner} {binary_bytes}, {binary_bytes_per_sec}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        Self(Some(bar))
    }

    /// So many more bytes.
    pub fn add(&self, bytes: u64) {
        if let Some(bar) = &self.0 {
            bar.inc(bytes);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
