//! Flags and paging that all listings share.

use anyhow::Result;
use clap::Args;
use ozone_common::limits::LIST_LIMIT_MAX;

/// How much of a listing is wanted.
#[derive(Args, Clone, Copy, Debug)]
pub struct Pages {
    /// Everything, however long
    #[arg(short, long, conflicts_with = "length")]
    all: bool,
    /// At most so many entries
    #[arg(short, long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    length: u64,
}

/// Which of the things with plain names and an owner, such as buckets, and how much of the listing.
#[derive(Args, Clone, Debug)]
pub struct Filter {
    /// Only those whose names begin so
    #[arg(short, long, default_value = "")]
    pub prefix: String,
    /// Only those behind this one
    #[arg(short, long, default_value = "")]
    pub start: String,
    /// Only those that belong to this user
    #[arg(short, long = "user", value_name = "USER")]
    pub user: Option<String>,
    /// How much.
    #[command(flatten)]
    pub pages: Pages,
}

/// One page as the cluster answered it.
pub struct Page<T> {
    /// Its entries, in order.
    pub entries: Vec<T>,
    /// Where the next page begins, where there is more.
    pub next: Option<Vec<u8>>,
}

impl Pages {
    /// Fetches page after page from `start` on and gives each to `each`; memory is that of one page.
    /// Answers where the listing could go on, where it was cut.
    ///
    /// # Errors
    /// Those of `fetch` and `each`.
    pub async fn walk<T>(
        self,
        mut start: Vec<u8>,
        mut fetch: impl AsyncFnMut(Vec<u8>, u32) -> Result<Page<T>>,
        mut each: impl FnMut(Vec<T>) -> Result<()>,
    ) -> Result<Option<Vec<u8>>> {
        let mut left = if self.all { u64::MAX } else { self.length };
        loop {
            let limit = left.min(u64::from(LIST_LIMIT_MAX)) as u32;
            let page = fetch(start, limit).await?;
            left -= left.min(page.entries.len() as u64);
            each(page.entries)?;
            match page.next {
                None => return Ok(None),
                Some(next) if left == 0 => return Ok(Some(next)),
                Some(next) => start = next,
            }
        }
    }

    /// [`Pages::walk`] with everything in memory; for listings whose entries are few.
    ///
    /// # Errors
    /// Those of `fetch`.
    pub async fn collect<T>(
        self,
        start: Vec<u8>,
        fetch: impl AsyncFnMut(Vec<u8>, u32) -> Result<Page<T>>,
    ) -> Result<(Vec<T>, Option<Vec<u8>>)> {
        let mut all = Vec::new();
        let next = self
            .walk(start, fetch, |entries| {
                all.extend(entries);
                Ok(())
            })
            .await?;
        Ok((all, next))
    }
}

/// Tells people, on stderr, that a listing was cut and how to see the rest.
pub fn tell_more(next: Option<&[u8]>) {
    if let Some(next) = next {
        eprintln!("there is more: use --all, or go on with --start '{}'", crate::render::name(next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listing of 0..2500 behind a fake server.
    async fn list(pages: Pages, start: u16) -> (Vec<u16>, Option<Vec<u8>>, Vec<u32>) {
        let mut limits = Vec::new();
        let fetch = async |after: Vec<u8>, limit: u32| {
            limits.push(limit);
            let from = u16::from_be_bytes(after.try_into().unwrap());
            let entries: Vec<u16> = (from + 1..2500).take(limit as usize).collect();
            let next = entries.last().filter(|last| **last < 2499).map(|last| last.to_be_bytes().to_vec());
            Ok(Page { entries, next })
        };
        let (all, next) = pages.collect(start.to_be_bytes().to_vec(), fetch).await.unwrap();
        (all, next, limits)
    }

    #[tokio::test]
    async fn pages_end_where_they_should() {
        let (all, next, limits) = list(Pages { all: true, length: 100 }, 0).await;
        assert_eq!((all, next, limits), ((1..2500).collect(), None, vec![1000, 1000, 1000]));
        let (all, next, limits) = list(Pages { all: false, length: 1500 }, 0).await;
        assert_eq!((all, next, limits), ((1..1501).collect(), Some(1500u16.to_be_bytes().to_vec()), vec![1000, 500]));
        let (all, next, _) = list(Pages { all: false, length: 100 }, 2450).await;
        assert_eq!((all, next), ((2451..2500).collect(), None));
    }
}
