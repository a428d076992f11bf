//! Space of a node's disk volumes.

use ozone_proto::scm::v1::DiskVolumeReport;

/// Sums over the volumes that work, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Size.
    pub capacity: u64,
    /// Taken by containers.
    pub used: u64,
    /// Still free.
    pub available: u64,
    /// Volumes that failed.
    pub failed_volumes: u32,
}

impl Usage {
    /// The sums. A failed volume counts for no space.
    pub fn of(volumes: &[DiskVolumeReport]) -> Self {
        let mut sum = Self::default();
        for volume in volumes {
            if volume.failed {
                sum.failed_volumes += 1;
                continue;
            }
            sum.capacity = sum.capacity.saturating_add(volume.capacity);
            sum.used = sum.used.saturating_add(volume.used);
            sum.available = sum.available.saturating_add(volume.available);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_volumes_have_no_space() {
        let volume =
            |available, failed| DiskVolumeReport { capacity: 10, used: 1, available, failed, ..Default::default() };
        let sum = Usage::of(&[volume(5, false), volume(7, true), volume(u64::MAX, false)]);
        assert_eq!(sum, Usage { capacity: 20, used: 2, available: u64::MAX, failed_volumes: 1 });
    }
}
