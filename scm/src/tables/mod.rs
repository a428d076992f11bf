//! Stored forms: one file per table. Layout and hex examples are in docs/formats/scm-tables.md.
//!
//! Values are protobuf messages of their own (not the wire's), so that a row of an older version still reads. Keys are big-endian, so that
//! the order of bytes is the order of numbers.

pub mod container;
pub mod deleted_block;
pub mod node;
pub mod sequence;

use ozone_kvstore::{Error, Table, TableOptions};

/// The SCM's tables, as its store is opened with them.
pub const TABLES: [(Table, TableOptions); 5] = [
    (container::CONTAINERS, TableOptions::Rows),
    (container::ACTIVE, TableOptions::Rows),
    (node::NODES, TableOptions::Rows),
    (sequence::SEQUENCES, TableOptions::Rows),
    (deleted_block::DELETED_BLOCKS, TableOptions::Queue),
];

/// A row that does not read as one of `table`.
fn corrupt(table: Table, detail: impl std::fmt::Display) -> Error {
    Error::Corrupt { attempted: format!("read a row of table `{}`", table.0), detail: detail.to_string() }
}

/// A big-endian number that is the whole of a key or value.
fn number(table: Table, bytes: &[u8]) -> Result<u64, Error> {
    bytes.try_into().map(u64::from_be_bytes).map_err(|_| corrupt(table, format!("number of {} bytes", bytes.len())))
}

#[cfg(test)]
mod tests {
    use ozone_common::id::{ContainerId, DatanodeId};
    use ozone_common::replication::Replication;
    use proptest::prelude::*;

    use super::container::{Container, ContainerState};
    use super::deleted_block::{Deletion, Range};
    use super::node::Node;
    use super::*;

    const FORMATS: &str = include_str!("../../../docs/formats/scm-tables.md");

    /// The example of the documentation under this name: a line `name: hex`.
    fn example(name: &str) -> Vec<u8> {
        let line = FORMATS.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let digits: Vec<u8> = line.expect("the example is documented").bytes().filter(u8::is_ascii_hexdigit).collect();
        let pairs = digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
        pairs.collect()
    }

    fn container() -> Container {
        Container {
            id: ContainerId::new(258).unwrap(),
            state: ContainerState::Closing,
            replication: Replication::Three,
            epoch: 2,
            members: vec![DatanodeId::from_bytes([0xaa; 16]), DatanodeId::from_bytes([0xbb; 16])],
            reserved_bytes: 1 << 20,
            next_local: 9,
            opened_ms: 1_700_000_000_000,
            spent_ms: 0,
            reported: true,
        }
    }

    #[test]
    fn the_documented_rows_are_the_written_ones() {
        let container = container();
        assert_eq!(container.encode(), example("container value"), "{}", hex(&container.encode()));
        assert_eq!(Container::decode(&example("container key"), &example("container value")).unwrap(), container);
        assert_eq!(container::key_in_index(&container).unwrap()[..], example("container_active key"));
        let node = Node {
            id: DatanodeId::from_bytes([0xaa; 16]),
            host: "dn1".into(),
            data_port: 9859,
            http_port: 9882,
            incarnation: [0x11; 16],
            version: "0.1.0".into(),
            registered_ms: 1_700_000_000_000,
        };
        assert_eq!(node.encode(), example("node value"), "{}", hex(&node.encode()));
        assert_eq!(Node::decode(&example("node key"), &example("node value")).unwrap(), node);
        let ranges = vec![Range { first: 1, count: 3 }, Range { first: 300, count: 1 }];
        let deletion = Deletion { transaction: 5, containers: vec![(ContainerId::new(258).unwrap(), ranges)] };
        assert_eq!(deletion.encode(), example("deleted_block value"), "{}", hex(&deletion.encode()));
        assert_eq!(Deletion::decode(&example("deleted_block key"), &example("deleted_block value")).unwrap(), deletion);
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn damaged_rows_are_corrupt_and_never_panic(
            key in prop::collection::vec(any::<u8>(), 0..20),
            value in prop::collection::vec(any::<u8>(), 0..60),
            at in any::<prop::sample::Index>(),
            flip in 1..=255u8,
        ) {
            let _ = (Container::decode(&key, &value), Node::decode(&key, &value), Deletion::decode(&key, &value));
            let container = container();
            let mut bytes = container.encode();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            match Container::decode(&example("container key"), &bytes) {
                Ok(read) => prop_assert_eq!(Container::decode(&example("container key"), &read.encode()).unwrap(), read),
                Err(error) => prop_assert!(matches!(error, Error::Corrupt { .. }), "{}", error),
            }
        }
    }
}
