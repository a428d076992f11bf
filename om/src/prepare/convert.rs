//! From the wire's messages to settled commands: every name, length and number is checked here, once.

use bytes::Bytes;
use ozone_common::Error;
use ozone_common::ErrorCode;
use ozone_common::id::GrantId;
use ozone_common::limits::{PART_NUMBER_MAX, USER_METADATA_MAX};
use ozone_common::name::{BucketName, KeyName, VolumeName};
use ozone_proto::convert::required;
use ozone_proto::om::v1 as om;

use crate::core::checksum_length;
use crate::core::command::{Address, Conditions, Facts};
use crate::tables::key::{ChecksumRow, pack_meta};
use crate::tables::upload::UploadId;

/// LIMIT: bytes of all standard headers of an object together.
const HEADERS_MAX: usize = 8 << 10;

/// A bucket's address.
pub fn address(address: Option<om::BucketAddress>) -> Result<Address, Error> {
    let om::BucketAddress { volume, bucket } = required(address, "bucket")?;
    Ok(Address { volume: VolumeName::new(volume)?, bucket: BucketName::new(bucket)? })
}

/// A key.
pub fn key(key: Bytes) -> Result<KeyName, Error> {
    KeyName::new(key)
}

/// An upload's id. One that is malformed names none.
pub fn upload(text: &str) -> Result<UploadId, Error> {
    UploadId::parse(text).ok_or_else(|| crate::core::no_upload(text.escape_debug()))
}

/// A part's number.
pub fn part(number: u32) -> Result<u16, Error> {
    match u16::try_from(number) {
        Ok(part) if part != 0 && number <= PART_NUMBER_MAX => Ok(part),
        _ => Err(Error::invalid(format!("part number {number}; 1 to {PART_NUMBER_MAX} are possible"))),
    }
}

/// An MD5, or none.
pub fn md5(bytes: Bytes) -> Result<Bytes, Error> {
    if bytes.is_empty() || bytes.len() == 16 {
        Ok(bytes)
    } else {
        Err(Error::invalid(format!("an MD5 of {} bytes", bytes.len())))
    }
}

/// A checksum with a value; `None` where there is none.
pub fn checksum(sum: Option<om::Checksum>) -> Result<Option<ChecksumRow>, Error> {
    match sum.filter(|sum| sum.algorithm != 0) {
        Some(sum) if checksum_length(sum.algorithm) == Some(sum.value.len()) => Ok(Some(sum.into())),
        Some(sum) => Err(Error::invalid(format!(
            "a checksum of algorithm {} with {} bytes; it is not known or not of that length",
            sum.algorithm,
            sum.value.len()
        ))),
        None => Ok(None),
    }
}

/// Which checksum an upload is to have: an algorithm, no value.
pub fn checksum_kind(sum: Option<&om::Checksum>) -> Result<Option<ChecksumRow>, Error> {
    match sum.filter(|sum| sum.algorithm != 0) {
        None => Ok(None),
        Some(sum) if checksum_length(sum.algorithm).is_none() => {
            Err(Error::invalid(format!("checksum algorithm {} is not known", sum.algorithm)))
        }
        Some(sum) => Ok(Some(ChecksumRow { composite: sum.composite, algorithm: sum.algorithm, ..Default::default() })),
    }
}

/// Conditions.
pub fn conditions(wire: Option<om::Conditions>) -> Result<Conditions, Error> {
    let wire = wire.unwrap_or_default();
    let if_match = match md5(wire.if_match_md5)? {
        none if none.is_empty() => None,
        md5 => Some((md5, wire.if_match_parts)),
    };
    Ok(Conditions {
        if_absent: wire.if_absent,
        if_present: wire.if_present,
        if_match,
        if_generation: wire.if_generation,
    })
}

fn check_sizes(meta: &om::ObjectMeta) -> Result<(), Error> {
    let size =
        |map: &std::collections::HashMap<String, String>| map.iter().map(|(n, v)| n.len() + v.len()).sum::<usize>();
    let user = size(&meta.user);
    if user > USER_METADATA_MAX {
        let message = format!("user metadata of {user} bytes; {USER_METADATA_MAX} are the most");
        return Err(Error::new(ErrorCode::MetadataTooLarge, message));
    }
    let headers = size(&meta.headers);
    if headers > HEADERS_MAX {
        let message = format!("headers of {headers} bytes; {HEADERS_MAX} are the most");
        return Err(Error::new(ErrorCode::MetadataTooLarge, message));
    }
    Ok(())
}

/// What belongs to an object besides its bytes.
pub fn facts(meta: Option<om::ObjectMeta>) -> Result<Facts, Error> {
    let meta = meta.unwrap_or_default();
    check_sizes(&meta)?;
    let (content_type, row) = pack_meta(meta.headers, meta.user);
    Ok(Facts {
        etag_md5: md5(meta.etag_md5)?,
        etag_parts: meta.etag_parts,
        checksum: checksum(meta.checksum)?,
        content_type,
        meta: row,
    })
}

/// The same of an object that an upload will make: no etag, and only the kind of a checksum.
pub fn upload_facts(meta: Option<om::ObjectMeta>) -> Result<Facts, Error> {
    let meta = meta.unwrap_or_default();
    check_sizes(&meta)?;
    let checksum = checksum_kind(meta.checksum.as_ref())?;
    let (content_type, row) = pack_meta(meta.headers, meta.user);
    Ok(Facts { checksum, content_type, meta: row, ..Facts::default() })
}

/// Grants that a commit draws from.
pub fn grants(ids: Vec<u64>) -> Vec<GrantId> {
    let mut ids: Vec<GrantId> = ids.into_iter().map(GrantId).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_everything_that_arrives() {
        assert!(part(0).is_err() && part(10_001).is_err() && part(65_537).is_err());
        assert_eq!((part(1).unwrap(), part(10_000).unwrap()), (1, 10_000));
        assert!(md5(Bytes::from(vec![0; 15])).is_err());
        assert!(md5(Bytes::from(vec![0; 16])).is_ok() && md5(Bytes::new()).is_ok());
        let sum =
            |algorithm, length| Some(om::Checksum { algorithm, value: vec![0; length].into(), ..Default::default() });
        for (algorithm, length) in [(1, 4), (2, 4), (3, 8), (4, 20), (5, 32)] {
            assert!(checksum(sum(algorithm, length)).unwrap().is_some());
            assert!(checksum(sum(algorithm, length + 1)).is_err());
        }
        assert!(checksum(sum(6, 4)).is_err());
        assert!(checksum(sum(0, 4)).unwrap().is_none());
        assert_eq!(upload("zzz").unwrap_err().code, ErrorCode::UploadNotFound);
        let meta = |bytes: usize| {
            let user = [("k".to_owned(), "v".repeat(bytes - 1))].into();
            facts(Some(om::ObjectMeta { user, ..Default::default() })).map(|_| ())
        };
        assert!(meta(USER_METADATA_MAX).is_ok());
        assert_eq!(meta(USER_METADATA_MAX + 1).unwrap_err().code, ErrorCode::MetadataTooLarge);
        assert!(address(None).is_err());
        assert_eq!(grants(vec![3, 1, 3]), [GrantId(1), GrantId(3)]);
    }
}
