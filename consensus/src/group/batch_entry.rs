//! The body of a data entry: the row changes of a batch of commands with their fence. docs/formats/raft-log.md.
//!
//! Tables go by name, once per entry, so that an entry reads the same in every version; numbers are varints. The digest chains over
//! these bytes: equal digests at equal places mean equal rows from there back to the beginning.

use bytes::{Buf, BufMut, Bytes};
use crc_fast::{CrcAlgorithm, Digest};
use ozone_kvstore::{Batch, Op, Table};
use prost::encoding::{decode_varint, encode_varint};

use crate::core::Term;

const VERSION: u8 = 1;
const PUT: u8 = 1;
const DELETE: u8 = 2;
const DELETE_RANGE: u8 = 3;
/// LIMIT: tables of one entry; a role has about twenty.
const TABLES_MAX: u64 = 256;

/// Under which conditions the rows count, and what they settle besides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fence {
    /// The term in which the commands were executed: in an entry of another they are void.
    pub term: Term,
    /// Number of the first command: void unless it follows the last applied one.
    pub first_sequence: u64,
    /// How many commands there are.
    pub commands: u64,
    /// UTC milliseconds of the last command's stamp.
    pub now_ms: u64,
    /// The leader's digest before this entry.
    pub digest: u64,
}

/// Encodes a batch.
pub(crate) fn encode(fence: &Fence, batch: &Batch) -> Bytes {
    let mut tables: Vec<Table> = Vec::new();
    let size: usize = batch.ops.iter().map(|op| op.size() + 12).sum();
    let mut ops = Vec::with_capacity(size);
    for op in &batch.ops {
        let table = op.table();
        let number = tables.iter().position(|known| *known == table).unwrap_or_else(|| {
            tables.push(table);
            tables.len() - 1
        });
        let (kind, key, value) = match op {
            Op::Put { key, value, .. } => (PUT, key, Some(value)),
            Op::Delete { key, .. } => (DELETE, key, None),
            Op::DeleteRange { start, end, .. } => (DELETE_RANGE, start, Some(end)),
        };
        ops.put_u8(kind);
        encode_varint(number as u64, &mut ops);
        put_bytes(&mut ops, key);
        if let Some(value) = value {
            put_bytes(&mut ops, value);
        }
    }
    let mut out = Vec::with_capacity(ops.len() + 64 + tables.iter().map(|table| table.0.len() + 1).sum::<usize>());
    out.put_u8(VERSION);
    for number in [fence.term.0, fence.first_sequence, fence.commands, fence.now_ms] {
        encode_varint(number, &mut out);
    }
    out.put_u64(fence.digest);
    encode_varint(tables.len() as u64, &mut out);
    for table in &tables {
        put_bytes(&mut out, table.0.as_bytes());
    }
    out.extend_from_slice(&ops);
    out.into()
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Decodes a batch; keys and values share the bytes given. `tables` are those of the store.
///
/// # Errors
/// What does not read, or which table this build does not know.
pub(crate) fn decode(bytes: &Bytes, tables: &[Table]) -> Result<(Fence, Batch), String> {
    let mut rest = bytes.clone();
    let version = rest.try_get_u8().map_err(|_| "it is empty".to_owned())?;
    if version != VERSION {
        return Err(format!("it has version {version}; this build reads version {VERSION}"));
    }
    let fence = Fence {
        term: Term(number(&mut rest)?),
        first_sequence: number(&mut rest)?,
        commands: number(&mut rest)?,
        now_ms: number(&mut rest)?,
        digest: rest.try_get_u64().map_err(|_| "it ends in its fence".to_owned())?,
    };
    let count = number(&mut rest)?;
    if count > TABLES_MAX {
        return Err(format!("it names {count} tables; at most {TABLES_MAX} are possible"));
    }
    let mut named = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let name = take(&mut rest)?;
        let known = tables.iter().find(|table| table.0.as_bytes() == name);
        named.push(*known.ok_or_else(|| {
            format!("it changes table `{}`, which this build does not know", String::from_utf8_lossy(&name))
        })?);
    }
    let mut batch = Batch::new();
    while rest.has_remaining() {
        let kind = rest.get_u8();
        let table = number(&mut rest)?;
        let table = usize::try_from(table).ok().and_then(|table| named.get(table));
        let table = *table.ok_or_else(|| "a change names a table that the entry does not list".to_owned())?;
        let key = take(&mut rest)?;
        batch.ops.push(match kind {
            PUT => Op::Put { table, key, value: take(&mut rest)? },
            DELETE => Op::Delete { table, key },
            DELETE_RANGE => Op::DeleteRange { table, start: key, end: take(&mut rest)? },
            other => return Err(format!("a change has kind {other}; 1 to 3 are known")),
        });
    }
    Ok((fence, batch))
}

fn number(rest: &mut Bytes) -> Result<u64, String> {
    decode_varint(rest).map_err(|_| "it ends in a number".to_owned())
}

fn take(rest: &mut Bytes) -> Result<Bytes, String> {
    let length = number(rest)?;
    match usize::try_from(length) {
        Ok(length) if length <= rest.len() => Ok(rest.split_to(length)),
        _ => Err(format!("it ends before the {length} bytes of a key or value")),
    }
}

/// The digest after an entry with these bytes.
pub(crate) fn digest_after(digest: u64, bytes: &[u8]) -> u64 {
    let mut chain = Digest::new(CrcAlgorithm::Crc64Nvme);
    chain.update(&digest.to_be_bytes());
    chain.update(bytes);
    chain.finalize()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TABLES: [Table; 2] = [Table("key"), Table("retry")];

    fn op() -> impl Strategy<Value = Op> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from);
        (0usize..2, 0u8..3, bytes(), bytes()).prop_map(|(table, kind, key, value)| match kind {
            0 => Op::Put { table: TABLES[table], key, value },
            1 => Op::Delete { table: TABLES[table], key },
            _ => Op::DeleteRange { table: TABLES[table], start: key, end: value },
        })
    }

    proptest! {
        #[test]
        fn batches_round_trip(
            ops in proptest::collection::vec(op(), 0..20),
            numbers in proptest::array::uniform5(any::<u64>()),
        ) {
            let [term, first_sequence, commands, now_ms, digest] = numbers;
            let fence = Fence { term: Term(term), first_sequence, commands, now_ms, digest };
            let batch = Batch { ops };
            prop_assert_eq!(decode(&encode(&fence, &batch), &TABLES), Ok((fence, batch)));
        }

        #[test]
        fn arbitrary_and_cut_bytes_are_refused_without_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..100), ops in proptest::collection::vec(op(), 1..5), cut in any::<proptest::sample::Index>(),
        ) {
            let _ = decode(&bytes.clone().into(), &TABLES);
            let _ = decode(&[&[VERSION][..], &bytes].concat().into(), &TABLES);
            let fence = Fence { term: Term(1), first_sequence: 1, commands: 1, now_ms: 1, digest: 1 };
            let whole = encode(&fence, &Batch { ops: ops.clone() });
            let cut = whole.slice(..cut.index(whole.len()));
            // A cut between two changes reads as fewer: the record's checksum guards that.
            if let Ok((_, batch)) = decode(&cut, &TABLES) {
                prop_assert!(batch.ops.len() < ops.len() && batch.ops[..] == ops[..batch.ops.len()]);
            }
        }
    }

    #[test]
    fn an_unknown_table_is_named_and_the_documented_example_is_true() {
        let mut batch = Batch::new();
        batch.put(TABLES[0], "a", "1");
        batch.delete(TABLES[0], "b");
        batch.delete_range(TABLES[1], "c", "d");
        let fence = Fence {
            term: Term(2),
            first_sequence: 300,
            commands: 2,
            now_ms: 1_700_000_000_000,
            digest: 0x0102_0304_0506_0708,
        };
        let bytes = encode(&fence, &batch);
        let error = decode(&bytes, &TABLES[..1]).unwrap_err();
        assert!(error.contains("`retry`"), "{error}");
        let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
        let doc = include_str!("../../../docs/formats/raft-log.md");
        assert!(doc.contains(&hex), "docs/formats/raft-log.md should show\n{hex}");
        assert_ne!(digest_after(0, &bytes), digest_after(1, &bytes));
    }
}
