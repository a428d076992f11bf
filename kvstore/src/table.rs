//! Names and kinds of tables.

/// A table (a RocksDB column family). A role lists its tables as constants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Table(pub &'static str);

/// How a table is used, which decides how it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableOptions {
    /// Point reads and ordered scans.
    #[default]
    Rows,
    /// Consumed in order and deleted: tombstones must not pile up under a scan.
    Queue,
    /// Large values, kept apart from keys (blob files), read by point.
    Values,
}
