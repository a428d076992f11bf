//! Listings: pages in key order, of which the cost follows the page.
//!
//! Under a delimiter keys that share what stands before its first occurrence after the prefix are one entry, and the scan goes on behind
//! them by seeking; how many there are does not matter. Positions are exclusive: everything on a page is greater than `start_after`,
//! common prefixes too, so a page's last entry is the next page's start.

use std::ops::Bound;

use bytes::Bytes;
use ozone_common::id::BucketId;
use ozone_common::limits::LIST_LIMIT_MAX;
use ozone_common::name::KeyName;
use ozone_kvstore::{Direction, Read, Rows, Table, prefix_end};
use ozone_proto::om::v1 as om;

use super::Stop;
use super::command::Address;
use super::multipart::no_upload;
use super::read::{bucket_info, inline_max, key_info, part_info, volume_info};
use super::tx::{find_bucket, no_volume};
use crate::tables::bucket::{self, BucketRow};
use crate::tables::key::{self, KeyRow, unpack_meta};
use crate::tables::part::{self, PartRow};
use crate::tables::upload::{self, UploadId, UploadRow};
use crate::tables::volume::{self, VolumeRow};
use crate::tables::{decode, usage};

/// LIMIT: entries of a page.
fn page_limit(asked: u32) -> usize {
    if asked == 0 { LIST_LIMIT_MAX as usize } else { asked.min(LIST_LIMIT_MAX) as usize }
}

/// Rows whose keys begin with `prefix`, from `from` on where that is not below; nothing where it is beyond them.
fn scan_from<'a>(
    view: &'a dyn Read,
    table: Table,
    prefix: &[u8],
    from: Bound<&[u8]>,
) -> ozone_kvstore::Result<Rows<'a>> {
    let start = match from {
        Bound::Included(key) | Bound::Excluded(key) if key >= prefix => from,
        _ => Bound::Included(prefix),
    };
    let end = prefix_end(prefix);
    if let (Bound::Included(key) | Bound::Excluded(key), Some(end)) = (start, &end)
        && key >= end.as_slice()
    {
        return Ok(Box::new(std::iter::empty()));
    }
    view.scan(table, start, end.as_deref().map_or(Bound::Unbounded, Bound::Excluded), Direction::Forward)
}

/// The common prefix that a key falls under: up to and including the first delimiter after the prefix.
fn common_prefix<'a>(key: &'a [u8], prefix: &[u8], delimiter: &[u8]) -> Option<&'a [u8]> {
    if delimiter.is_empty() {
        return None;
    }
    let rest = key.strip_prefix(prefix)?;
    let at = match delimiter {
        [byte] => rest.iter().position(|b| b == byte),
        _ => rest.windows(delimiter.len()).position(|window| window == delimiter),
    }?;
    key.get(..prefix.len() + at + delimiter.len())
}

/// A row of a listing.
enum Entry<T> {
    /// A key of the table.
    Row(T),
    /// Many of them.
    Common(Bytes),
}

/// Where a listing's table is and how its row keys are made.
struct Walk<'a> {
    view: &'a dyn Read,
    table: Table,
    /// Row key that all rows with a given beginning of the name have in common.
    row_prefix: &'a dyn Fn(&[u8]) -> Vec<u8>,
    /// The name in a row's key.
    name: &'a dyn Fn(&[u8]) -> ozone_kvstore::Result<Bytes>,
}

impl Walk<'_> {
    /// Calls `take` for each entry in order from `from` (a bound on row keys) on, until it says that the page is full. Answers whether it did.
    fn run(
        &self,
        prefix: &[u8],
        delimiter: &[u8],
        from: Bound<Vec<u8>>,
        mut take: impl FnMut(Entry<(Bytes, Bytes, Bytes)>) -> Result<bool, Stop>,
    ) -> Result<bool, Stop> {
        let whole = (self.row_prefix)(prefix);
        let mut from = from;
        'seek: loop {
            let bound = match &from {
                Bound::Included(key) => Bound::Included(key.as_slice()),
                Bound::Excluded(key) => Bound::Excluded(key.as_slice()),
                Bound::Unbounded => Bound::Unbounded,
            };
            for row in scan_from(self.view, self.table, &whole, bound)? {
                let (row_key, row_value) = row?;
                let name = (self.name)(&row_key)?;
                match common_prefix(&name, prefix, delimiter) {
                    Some(common) => {
                        let common = name.slice(..common.len());
                        let next = prefix_end(&(self.row_prefix)(&common));
                        if !take(Entry::Common(common))? {
                            return Ok(true);
                        }
                        match next {
                            Some(next) => from = Bound::Included(next),
                            None => return Ok(false),
                        }
                        continue 'seek;
                    }
                    None => {
                        if !take(Entry::Row((name, row_key, row_value)))? {
                            return Ok(true);
                        }
                    }
                }
            }
            return Ok(false);
        }
    }

    /// Where a page after `marker` begins where the marker is, or lies under, a common prefix.
    fn after_common(&self, prefix: &[u8], delimiter: &[u8], marker: &[u8]) -> Option<Bound<Vec<u8>>> {
        let common = common_prefix(marker, prefix, delimiter)?;
        prefix_end(&(self.row_prefix)(common)).map(Bound::Included)
    }
}

/// A page of keys.
pub(crate) fn keys(view: &dyn Read, address: &Address, request: &om::ListKeys) -> Result<om::KeyList, Stop> {
    let row = find_bucket(view, address)?;
    let id = BucketId(row.id);
    let row_prefix = |prefix: &[u8]| key::key(id, prefix).to_vec();
    let name = |row_key: &[u8]| key::split(row_key).map(|(_, name)| Bytes::copy_from_slice(name));
    let walk = Walk { view, table: key::TABLE, row_prefix: &row_prefix, name: &name };
    let marker = &request.start_after;
    let from = walk
        .after_common(&request.prefix, &request.delimiter, marker)
        .unwrap_or_else(|| if marker.is_empty() { Bound::Unbounded } else { Bound::Excluded(row_prefix(marker)) });
    let limit = page_limit(request.limit);
    let mut page = om::KeyList::default();
    page.truncated = walk.run(&request.prefix, &request.delimiter, from, |entry| {
        if page.keys.len() + page.common_prefixes.len() == limit {
            return Ok(false);
        }
        match entry {
            Entry::Common(common) => {
                page.last = common.clone();
                page.common_prefixes.push(common);
            }
            Entry::Row((name, _, value)) => {
                let key_row: KeyRow = decode(key::TABLE, value)?;
                page.last = name.clone();
                page.keys.push(key_info(name, &key_row, &row, false));
            }
        }
        Ok(true)
    })?;
    Ok(page)
}

/// A page of uploads under way.
pub(crate) fn uploads(view: &dyn Read, address: &Address, request: &om::ListUploads) -> Result<om::UploadList, Stop> {
    let id = BucketId(find_bucket(view, address)?.id);
    let row_prefix = |prefix: &[u8]| upload::prefix(id, prefix);
    let name = |row_key: &[u8]| upload::split(row_key).map(|(_, name, _)| name);
    let walk = Walk { view, table: upload::TABLE, row_prefix: &row_prefix, name: &name };
    let marker = &request.key_marker;
    let from = match walk.after_common(&request.prefix, &request.delimiter, marker) {
        Some(from) => from,
        None if marker.is_empty() => Bound::Unbounded,
        None if request.upload_marker.is_empty() => {
            // All uploads of the marker's key are before the page.
            prefix_end(&upload::key_prefix(id, marker)).map_or(Bound::Unbounded, Bound::Included)
        }
        None => {
            let after = UploadId::parse(&request.upload_marker).ok_or_else(|| {
                ozone_common::Error::invalid(format!("upload id marker `{}` is none", request.upload_marker))
            })?;
            Bound::Excluded(upload::key(id, marker, after))
        }
    };
    let limit = page_limit(request.limit);
    let mut page = om::UploadList::default();
    page.truncated = walk.run(&request.prefix, &request.delimiter, from, |entry| {
        if page.uploads.len() + page.common_prefixes.len() == limit {
            return Ok(false);
        }
        match entry {
            Entry::Common(common) => page.common_prefixes.push(common),
            Entry::Row((name, row_key, value)) => {
                let row: UploadRow = decode(upload::TABLE, value)?;
                page.uploads.push(om::UploadInfo {
                    key: name,
                    upload: upload::split(&row_key)?.2.to_string(),
                    initiated_ms: row.initiated_ms,
                    owner: row.owner,
                    checksum: row.checksum.as_ref().map(Into::into),
                });
            }
        }
        Ok(true)
    })?;
    Ok(page)
}

/// A page of an upload's parts.
pub(crate) fn parts(
    view: &dyn Read,
    address: &Address,
    of: &KeyName,
    id: UploadId,
    after: u32,
    limit: u32,
) -> Result<om::PartList, Stop> {
    let bucket = BucketId(find_bucket(view, address)?.id);
    let row = upload::get(view, bucket, of.as_bytes(), id)?.ok_or_else(|| no_upload(id))?;
    let (headers, user) = unpack_meta(row.content_type, row.meta.as_ref(), true);
    let mut page = om::PartList {
        parts: Vec::new(),
        truncated: false,
        meta: Some(om::ObjectMeta {
            headers,
            user,
            checksum: row.checksum.as_ref().map(Into::into),
            ..Default::default()
        }),
        owner: row.owner,
        initiated_ms: row.initiated_ms,
    };
    let Ok(after) = u16::try_from(after) else { return Ok(page) };
    let limit = page_limit(limit);
    let from = part::key(bucket, id, after);
    for entry in scan_from(view, part::TABLE, &part::prefix(bucket, id), Bound::Excluded(&from))? {
        if page.parts.len() == limit {
            page.truncated = true;
            break;
        }
        let (part_key, value) = entry?;
        let row: PartRow = decode(part::TABLE, value)?;
        page.parts.push(part_info(part::split(&part_key)?.2, &row));
    }
    Ok(page)
}

/// A page of volumes.
pub(crate) fn volumes(view: &dyn Read, request: &om::ListVolumes) -> Result<om::VolumeList, Stop> {
    let limit = page_limit(request.limit);
    let mut page = om::VolumeList::default();
    let after = Bound::Excluded(request.start_after.as_bytes());
    for entry in scan_from(view, volume::TABLE, request.prefix.as_bytes(), after)? {
        if page.volumes.len() == limit {
            page.truncated = true;
            break;
        }
        let (name, value) = entry?;
        let row: VolumeRow = decode(volume::TABLE, value)?;
        page.volumes.push(volume_info(&String::from_utf8_lossy(&name), &row));
    }
    Ok(page)
}

/// A page of a volume's buckets.
pub(crate) fn buckets(
    view: &dyn Read,
    request: &om::ListBuckets,
    inline_setting: u32,
    members: u32,
) -> Result<om::BucketList, Stop> {
    if volume::get(view, &request.volume)?.is_none() {
        return Err(no_volume(&request.volume).into());
    }
    let limit = page_limit(request.limit);
    let mut page = om::BucketList::default();
    let prefix = bucket::key(&request.volume, &request.prefix);
    let after = bucket::key(&request.volume, &request.start_after);
    for entry in scan_from(view, bucket::TABLE, &prefix, Bound::Excluded(&after))? {
        let (row_key, value) = entry?;
        let row: BucketRow = decode(bucket::TABLE, value)?;
        if !request.owner.is_empty() && request.owner != row.owner {
            continue;
        }
        if page.buckets.len() == limit {
            page.truncated = true;
            break;
        }
        let (volume, name) = bucket::split(&row_key)?;
        let usage = usage::get(view, BucketId(row.id))?;
        page.buckets.push(bucket_info(volume, name, &row, &usage, inline_max(inline_setting, &row, members)));
    }
    Ok(page)
}
