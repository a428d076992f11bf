//! Every cap that correctness or safety needs, in one place. What an operator may tune is a setting instead.

/// Longest key, bytes (S3).
pub const KEY_LENGTH_MAX: usize = 1024;
/// Longest volume or bucket name.
pub const NAME_LENGTH_MAX: usize = 63;
/// Shortest volume or bucket name.
pub const NAME_LENGTH_MIN: usize = 3;
/// Keys in one DeleteKeys (S3 DeleteObjects).
pub const DELETE_KEYS_MAX: usize = 1000;
/// Entries in one page of a listing.
pub const LIST_LIMIT_MAX: u32 = 1000;
/// User metadata of a key, bytes of names and values (S3).
pub const USER_METADATA_MAX: usize = 2048;
/// Number of the last part of a multipart upload (S3).
pub const PART_NUMBER_MAX: u32 = 10_000;
/// Least bytes of a part that is not the last (S3).
pub const PART_LENGTH_MIN: u64 = 5 << 20;
/// Most bytes of one part or of a single PUT (S3).
pub const PUT_LENGTH_MAX: u64 = 5 << 30;
/// Most bytes of an object: 50 TiB would fit 10,000 parts of 5 GiB; S3 says 5 TiB.
pub const OBJECT_LENGTH_MAX: u64 = 5 << 40;
/// Buckets in a cluster, as in Ozone.
pub const BUCKET_COUNT_MAX: u64 = 100_000;

/// Bytes under one checksum on the data path and on disk.
pub const BYTES_PER_CHECKSUM: usize = 16 << 10;
/// Most payload bytes of one data frame.
pub const FRAME_PAYLOAD_MAX: usize = 4 << 20;
/// Most header bytes of one data frame.
pub const FRAME_HEADER_MAX: usize = 64 << 10;
/// Most bytes of a block.
pub const BLOCK_LENGTH_MAX: u64 = 256 << 20;
/// A block of at most this many bytes is written in one frame.
pub const SMALL_BLOCK_MAX: usize = 1 << 20;
/// Largest value that may travel inside a commit.
pub const INLINE_LENGTH_MAX: usize = 64 << 10;
/// Most bytes of one gRPC message.
pub const RPC_MESSAGE_MAX: usize = 16 << 20;
/// Calls of one session in flight.
pub const SESSION_CALLS_MAX: usize = 4096;

const _: () = assert!(SMALL_BLOCK_MAX <= FRAME_PAYLOAD_MAX);
const _: () = assert!(FRAME_PAYLOAD_MAX as u64 <= BLOCK_LENGTH_MAX);
const _: () = assert!(FRAME_PAYLOAD_MAX.is_multiple_of(BYTES_PER_CHECKSUM));
// A frame's checksum list fits its header.
const _: () = assert!(FRAME_PAYLOAD_MAX / BYTES_PER_CHECKSUM * 4 + 1024 <= FRAME_HEADER_MAX);
const _: () = assert!(INLINE_LENGTH_MAX < RPC_MESSAGE_MAX / 8);
