//! Stored forms: one file per table.
//!
//! Keys are big-endian, so that iteration over a prefix is the order of a listing. Values are Protocol Buffers messages whose
//! tags are never reused and whose defaults take no bytes; nothing that the key says is said again in the value.
//! docs/formats/om-rows.md describes every row; its examples are checked by the tests here.

pub mod bucket;
pub mod deleted;
pub mod grant;
pub mod key;
pub mod meta;
pub mod part;
pub mod secret;
pub mod upload;
pub mod usage;
pub mod value;
pub mod volume;

use bytes::Bytes;
use ozone_kvstore::{Read, Result, Table, TableOptions};
use prost::Message;

/// Every table of the key-space manager and how it is used.
pub const TABLES: &[(Table, TableOptions)] = &[
    (volume::TABLE, TableOptions::Rows),
    (bucket::TABLE, TableOptions::Rows),
    (bucket::NAMES, TableOptions::Rows),
    (key::TABLE, TableOptions::Rows),
    (value::TABLE, TableOptions::Values),
    (upload::TABLE, TableOptions::Rows),
    (part::TABLE, TableOptions::Rows),
    (grant::TABLE, TableOptions::Rows),
    (grant::USED, TableOptions::Rows),
    (deleted::TABLE, TableOptions::Queue),
    (deleted::PARTS, TableOptions::Queue),
    (secret::TABLE, TableOptions::Rows),
    (usage::TABLE, TableOptions::Rows),
    (meta::TABLE, TableOptions::Rows),
];

/// A row that cannot be what we wrote: the member stops rather than guess.
pub(crate) fn corrupt(table: Table, detail: impl std::fmt::Display) -> ozone_kvstore::Error {
    ozone_kvstore::Error::Corrupt {
        attempted: format!("read a row of table `{}`", table.0),
        detail: detail.to_string(),
    }
}

/// Decodes a value.
pub(crate) fn decode<M: Message + Default>(table: Table, value: Bytes) -> Result<M> {
    M::decode(value).map_err(|error| corrupt(table, error))
}

/// Encodes a value.
pub(crate) fn encode<M: Message>(row: &M) -> Bytes {
    row.encode_to_vec().into()
}

/// Reads and decodes a row.
pub(crate) fn get<M: Message + Default>(view: &dyn Read, table: Table, key: &[u8]) -> Result<Option<M>> {
    view.get(table, key)?.map(|value| decode(table, value)).transpose()
}

/// The first eight bytes of a key as a number, and what follows.
pub(crate) fn split_u64(table: Table, key: &[u8]) -> Result<(u64, &[u8])> {
    key.split_first_chunk().map_or_else(
        || Err(corrupt(table, format_args!("a key of {} bytes", key.len()))),
        |(number, rest)| Ok((u64::from_be_bytes(*number), rest)),
    )
}

#[cfg(test)]
pub(crate) mod test_support {
    use bytes::Bytes;
    use prost::Message;

    /// Decoding what was encoded gives the same, and the encoding is what the format's description shows.
    pub(crate) fn check_example<M: Message + Default + PartialEq + std::fmt::Debug>(row: &M, name: &str) {
        let bytes = row.encode_to_vec();
        assert_eq!(&M::decode(Bytes::from(bytes.clone())).unwrap(), row);
        let doc = include_str!("../../../docs/formats/om-rows.md");
        let want = format!("<!-- {name} -->\n`{}`", hex(&bytes));
        assert!(doc.contains(&want), "docs/formats/om-rows.md should show\n{want}");
    }

    pub(crate) fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let value = Bytes::from(bytes.clone());
            let _ = decode::<volume::VolumeRow>(volume::TABLE, value.clone());
            let _ = decode::<bucket::BucketRow>(bucket::TABLE, value.clone());
            if let Ok(row) = decode::<key::KeyRow>(key::TABLE, value.clone()) {
                let _ = row.blocks();
                let _ = row.object_meta(true);
            }
            let _ = decode::<upload::UploadRow>(upload::TABLE, value.clone());
            let _ = decode::<part::PartRow>(part::TABLE, value.clone());
            let _ = decode::<grant::GrantRow>(grant::TABLE, value.clone());
            let _ = decode::<deleted::DeletedRow>(deleted::TABLE, value.clone());
            let _ = decode::<deleted::DeletedPartsRow>(deleted::PARTS, value.clone());
            let _ = decode::<secret::SecretRow>(secret::TABLE, value.clone());
            let _ = decode::<usage::UsageRow>(usage::TABLE, value);
            let _ = bucket::split(&bytes);
            let _ = key::split(&bytes);
            let _ = upload::split(&bytes);
            let _ = part::split(&bytes);
            let _ = deleted::split_parts(&bytes);
            let _ = grant::split_used(&bytes);
        }
    }
}
