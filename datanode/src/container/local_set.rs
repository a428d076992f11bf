//! A set of local block numbers: which blocks of an open container this process has seen. Pure.
//!
//! Bits in pages that are made when first needed: 2 MiB where all 2^24 numbers are used, 512 bytes for a few neighbours. Long ranges
//! (deletes of what a grant left over) are kept as such.

use std::collections::BTreeMap;

/// Bits of one page.
const PAGE_BITS: u32 = 4096;
const WORDS: usize = (PAGE_BITS / 64) as usize;

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct LocalSet {
    pages: BTreeMap<u32, Box<[u64; WORDS]>>,
    /// First and count of ranges put in as such.
    ranges: Vec<(u32, u32)>,
}

impl LocalSet {
    fn split(local: u32) -> (u32, usize, u64) {
        (local / PAGE_BITS, (local % PAGE_BITS / 64) as usize, 1 << (local % 64))
    }

    /// Puts a number in; false where it was there.
    pub(crate) fn insert(&mut self, local: u32) -> bool {
        let (page, word, bit) = Self::split(local);
        let page = self.pages.entry(page).or_insert_with(|| Box::new([0; WORDS]));
        let Some(word) = page.get_mut(word) else { return false };
        let new = *word & bit == 0;
        *word |= bit;
        new && !self.in_range(local)
    }

    /// Puts `count` numbers from `first` on in.
    pub(crate) fn insert_range(&mut self, first: u32, count: u32) {
        if count > PAGE_BITS {
            self.ranges.push((first, count));
        } else {
            for local in first..first.saturating_add(count) {
                self.insert(local);
            }
        }
    }

    /// Takes a number out that was put in alone.
    pub(crate) fn remove(&mut self, local: u32) {
        let (page, word, bit) = Self::split(local);
        if let Some(word) = self.pages.get_mut(&page).and_then(|page| page.get_mut(word)) {
            *word &= !bit;
        }
    }

    /// Whether a number is in it.
    pub(crate) fn contains(&self, local: u32) -> bool {
        let (page, word, bit) = Self::split(local);
        self.pages.get(&page).and_then(|page| page.get(word)).is_some_and(|word| word & bit != 0)
            || self.in_range(local)
    }

    fn in_range(&self, local: u32) -> bool {
        self.ranges.iter().any(|(first, count)| local.checked_sub(*first).is_some_and(|past| past < *count))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ozone_common::id::LOCAL_MAX;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn as_a_plain_set(steps in proptest::collection::vec((any::<bool>(), 0..9000u32), 0..200)) {
            let (mut set, mut model) = (LocalSet::default(), BTreeSet::new());
            for (insert, local) in steps {
                if insert {
                    prop_assert_eq!(set.insert(local), model.insert(local));
                } else {
                    set.remove(local);
                    model.remove(&local);
                }
                prop_assert_eq!(set.contains(local), model.contains(&local));
            }
            prop_assert!((0..9000).all(|local| set.contains(local) == model.contains(&local)));
        }
    }

    #[test]
    fn the_highest_number_fits() {
        let mut set = LocalSet::default();
        assert!(set.insert(LOCAL_MAX) && !set.insert(LOCAL_MAX) && set.contains(LOCAL_MAX) && !set.contains(0));
        set.insert_range(10, 5);
        set.insert_range(100, 1 << 20);
        let inside = [10, 14, 100, 99 + (1 << 20)];
        assert!(inside.iter().all(|local| set.contains(*local) && !set.insert(*local)));
        assert!([9, 15, 99, 100 + (1 << 20)].iter().all(|local| !set.contains(*local)));
    }
}
