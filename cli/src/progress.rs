//! A bar on stderr while something long goes on, where a person looks.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Fewer bytes are done before anybody has read a bar.
const WORTH_SHOWING: u64 = 8 << 20;

/// How far something is.
pub struct Progress(Option<ProgressBar>);

impl Progress {
    /// A bar for `length` bytes; `None` = as many as come.
    pub fn bytes(what: String, length: Option<u64>) -> Self {
        if length.is_some_and(|length| length < WORTH_SHOWING) {
            return Self(None);
        }
        let template = match length {
            Some(_) => "{msg} {wide_bar} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left",
            None => "{msg} {spinner} {binary_bytes}, {binary_bytes_per_sec}",
        };
        Self::new(what, length, template)
    }

    /// A bar for `count` operations; `None` = as many as time allows.
    pub fn operations(what: String, count: Option<u64>) -> Self {
        let template = match count {
            Some(_) => "{msg} {wide_bar} {pos} of {len}, {per_sec}, {eta} left",
            None => "{msg} {spinner} {pos}, {per_sec}, {elapsed}",
        };
        Self::new(what, count, template)
    }

    fn new(what: String, length: Option<u64>, template: &str) -> Self {
        if !io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        Self(Some(bar))
    }

    /// So many more.
    pub fn add(&self, count: u64) {
        if let Some(bar) = &self.0 {
            bar.inc(count);
        }
    }

    /// So many in all.
    pub fn set(&self, count: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(count);
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
