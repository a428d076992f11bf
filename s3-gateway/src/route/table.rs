//! The table of S3's operations: verb × scope × sub-resource. What stands in it as [`Answer::Unserved`], and what does not stand in it,
//! is answered 501 by name; nothing is ever taken for another operation.
//!
//! Source: S3 API Reference, "Actions", October 2025. Every row lists the parameters its operation takes: one that it does not take
//! may be a sub-resource younger than this table, and `DELETE /bucket?something-new` must not delete the bucket.

use http::Method;

use super::query::Query;
use crate::auth::is_own_parameter;
use crate::error::{S3Code, S3Error, S3Result};

macro_rules! operations {
    ($($op:ident)*) => {
        /// The operations that are served.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub(crate) enum Op {
            $(#[doc = concat!("`", stringify!($op), "`.")] $op,)*
        }
        impl Op {
            /// Every one of them.
            pub const ALL: &'static [Op] = &[$(Self::$op),*];
            /// As S3 names it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$op => stringify!($op),)* }
            }
        }
    };
}

operations! {
    ListBuckets
    CreateBucket HeadBucket DeleteBucket
    GetBucketLocation GetBucketVersioning GetBucketAcl GetBucketLogging GetBucketNotificationConfiguration
    GetBucketRequestPayment GetBucketAccelerateConfiguration
    GetBucketCors GetBucketEncryption GetBucketLifecycleConfiguration GetObjectLockConfiguration GetBucketOwnershipControls
    GetBucketPolicy GetPublicAccessBlock GetBucketReplication GetBucketTagging GetBucketWebsite
    ListObjects ListObjectsV2 ListObjectVersions ListMultipartUploads DeleteObjects
    GetObject HeadObject PutObject CopyObject DeleteObject GetObjectAttributes GetObjectAcl GetObjectTagging
    CreateMultipartUpload UploadPart UploadPartCopy CompleteMultipartUpload AbortMultipartUpload ListParts
}

impl Op {
    /// Whether it changes anything: what the audit trail keeps.
    pub const fn changes(self) -> bool {
        matches!(
            self,
            Self::CreateBucket
                | Self::DeleteBucket
                | Self::DeleteObjects
                | Self::PutObject
                | Self::CopyObject
                | Self::DeleteObject
                | Self::CreateMultipartUpload
                | Self::UploadPart
                | Self::UploadPartCopy
                | Self::CompleteMultipartUpload
                | Self::AbortMultipartUpload
        )
    }

    /// Whether `x-amz-checksum-*` is about the body that comes with it; elsewhere it is about an object.
    pub const fn checks_body(self) -> bool {
        matches!(self, Self::PutObject | Self::UploadPart | Self::DeleteObjects)
    }
}

/// What a request is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// All buckets.
    Service,
    /// One bucket.
    Bucket,
    /// One key.
    Object,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    Get,
    Head,
    Put,
    Post,
    Delete,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Served(Op, &'static [&'static str]),
    Unserved(&'static str),
}

struct Row {
    verb: Verb,
    scope: Scope,
    /// The parameter that selects the operation; empty = none.
    sub: &'static str,
    /// The header `x-amz-copy-source` selects it.
    copy: bool,
    answer: Answer,
}

const fn served(verb: Verb, scope: Scope, sub: &'static str, op: Op, parameters: &'static [&'static str]) -> Row {
    Row { verb, scope, sub, copy: false, answer: Answer::Served(op, parameters) }
}

const fn copy(sub: &'static str, op: Op, parameters: &'static [&'static str]) -> Row {
    Row { verb: Verb::Put, scope: Scope::Object, sub, copy: true, answer: Answer::Served(op, parameters) }
}

const fn unserved(verb: Verb, scope: Scope, sub: &'static str, name: &'static str) -> Row {
    Row { verb, scope, sub, copy: false, answer: Answer::Unserved(name) }
}

const RESPONSE: &[&str] = &[
    "versionId",
    "partNumber",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
];

#[rustfmt::skip]
const TABLE: &[Row] = {
    use Scope::{Bucket, Object, Service};
    use Verb::{Delete, Get, Head, Post, Put};
    &[
        served(Get, Service, "", Op::ListBuckets, &["prefix", "max-buckets", "continuation-token", "bucket-region"]),

        served(Put, Bucket, "", Op::CreateBucket, &[]),
        served(Head, Bucket, "", Op::HeadBucket, &[]),
        served(Delete, Bucket, "", Op::DeleteBucket, &[]),
        served(Get, Bucket, "", Op::ListObjects, &["delimiter", "encoding-type", "marker", "max-keys", "prefix"]),
        served(Get, Bucket, "list-type", Op::ListObjectsV2, &["delimiter", "encoding-type", "max-keys", "prefix", "continuation-token", "fetch-owner", "start-after"]),
        served(Get, Bucket, "versions", Op::ListObjectVersions, &["delimiter", "encoding-type", "key-marker", "max-keys", "prefix", "version-id-marker"]),
        served(Get, Bucket, "uploads", Op::ListMultipartUploads, &["delimiter", "encoding-type", "key-marker", "max-uploads", "prefix", "upload-id-marker"]),
        served(Post, Bucket, "delete", Op::DeleteObjects, &[]),
        unserved(Post, Bucket, "", "PostObject"),
        served(Get, Bucket, "location", Op::GetBucketLocation, &[]),

        served(Get, Bucket, "accelerate", Op::GetBucketAccelerateConfiguration, &[]),
        unserved(Put, Bucket, "accelerate", "PutBucketAccelerateConfiguration"),
        served(Get, Bucket, "acl", Op::GetBucketAcl, &[]),
        unserved(Put, Bucket, "acl", "PutBucketAcl"),
        unserved(Get, Bucket, "abac", "GetBucketAbac"),
        unserved(Put, Bucket, "abac", "PutBucketAbac"),
        unserved(Get, Bucket, "analytics", "GetBucketAnalyticsConfiguration"),
        unserved(Put, Bucket, "analytics", "PutBucketAnalyticsConfiguration"),
        unserved(Delete, Bucket, "analytics", "DeleteBucketAnalyticsConfiguration"),
        served(Get, Bucket, "cors", Op::GetBucketCors, &[]),
        unserved(Put, Bucket, "cors", "PutBucketCors"),
        unserved(Delete, Bucket, "cors", "DeleteBucketCors"),
        served(Get, Bucket, "encryption", Op::GetBucketEncryption, &[]),
        unserved(Put, Bucket, "encryption", "PutBucketEncryption"),
        unserved(Delete, Bucket, "encryption", "DeleteBucketEncryption"),
        unserved(Get, Bucket, "intelligent-tiering", "GetBucketIntelligentTieringConfiguration"),
        unserved(Put, Bucket, "intelligent-tiering", "PutBucketIntelligentTieringConfiguration"),
        unserved(Delete, Bucket, "intelligent-tiering", "DeleteBucketIntelligentTieringConfiguration"),
        unserved(Get, Bucket, "inventory", "GetBucketInventoryConfiguration"),
        unserved(Put, Bucket, "inventory", "PutBucketInventoryConfiguration"),
        unserved(Delete, Bucket, "inventory", "DeleteBucketInventoryConfiguration"),
        served(Get, Bucket, "lifecycle", Op::GetBucketLifecycleConfiguration, &[]),
        unserved(Put, Bucket, "lifecycle", "PutBucketLifecycleConfiguration"),
        unserved(Delete, Bucket, "lifecycle", "DeleteBucketLifecycle"),
        served(Get, Bucket, "logging", Op::GetBucketLogging, &[]),
        unserved(Put, Bucket, "logging", "PutBucketLogging"),
        unserved(Get, Bucket, "metadataConfiguration", "GetBucketMetadataConfiguration"),
        unserved(Post, Bucket, "metadataConfiguration", "CreateBucketMetadataConfiguration"),
        unserved(Delete, Bucket, "metadataConfiguration", "DeleteBucketMetadataConfiguration"),
        unserved(Get, Bucket, "metadataTable", "GetBucketMetadataTableConfiguration"),
        unserved(Post, Bucket, "metadataTable", "CreateBucketMetadataTableConfiguration"),
        unserved(Delete, Bucket, "metadataTable", "DeleteBucketMetadataTableConfiguration"),
        unserved(Put, Bucket, "metadataInventoryTable", "UpdateBucketMetadataInventoryTableConfiguration"),
        unserved(Put, Bucket, "metadataJournalTable", "UpdateBucketMetadataJournalTableConfiguration"),
        unserved(Get, Bucket, "metrics", "GetBucketMetricsConfiguration"),
        unserved(Put, Bucket, "metrics", "PutBucketMetricsConfiguration"),
        unserved(Delete, Bucket, "metrics", "DeleteBucketMetricsConfiguration"),
        served(Get, Bucket, "notification", Op::GetBucketNotificationConfiguration, &[]),
        unserved(Put, Bucket, "notification", "PutBucketNotificationConfiguration"),
        served(Get, Bucket, "object-lock", Op::GetObjectLockConfiguration, &[]),
        unserved(Put, Bucket, "object-lock", "PutObjectLockConfiguration"),
        served(Get, Bucket, "ownershipControls", Op::GetBucketOwnershipControls, &[]),
        unserved(Put, Bucket, "ownershipControls", "PutBucketOwnershipControls"),
        unserved(Delete, Bucket, "ownershipControls", "DeleteBucketOwnershipControls"),
        served(Get, Bucket, "policy", Op::GetBucketPolicy, &[]),
        unserved(Put, Bucket, "policy", "PutBucketPolicy"),
        unserved(Delete, Bucket, "policy", "DeleteBucketPolicy"),
        unserved(Get, Bucket, "policyStatus", "GetBucketPolicyStatus"),
        served(Get, Bucket, "publicAccessBlock", Op::GetPublicAccessBlock, &[]),
        unserved(Put, Bucket, "publicAccessBlock", "PutPublicAccessBlock"),
        unserved(Delete, Bucket, "publicAccessBlock", "DeletePublicAccessBlock"),
        served(Get, Bucket, "replication", Op::GetBucketReplication, &[]),
        unserved(Put, Bucket, "replication", "PutBucketReplication"),
        unserved(Delete, Bucket, "replication", "DeleteBucketReplication"),
        served(Get, Bucket, "requestPayment", Op::GetBucketRequestPayment, &[]),
        unserved(Put, Bucket, "requestPayment", "PutBucketRequestPayment"),
        unserved(Get, Bucket, "session", "CreateSession"),
        served(Get, Bucket, "tagging", Op::GetBucketTagging, &[]),
        unserved(Put, Bucket, "tagging", "PutBucketTagging"),
        unserved(Delete, Bucket, "tagging", "DeleteBucketTagging"),
        served(Get, Bucket, "versioning", Op::GetBucketVersioning, &[]),
        unserved(Put, Bucket, "versioning", "PutBucketVersioning"),
        served(Get, Bucket, "website", Op::GetBucketWebsite, &[]),
        unserved(Put, Bucket, "website", "PutBucketWebsite"),
        unserved(Delete, Bucket, "website", "DeleteBucketWebsite"),

        served(Get, Object, "", Op::GetObject, RESPONSE),
        served(Head, Object, "", Op::HeadObject, RESPONSE),
        served(Put, Object, "", Op::PutObject, &[]),
        copy("", Op::CopyObject, &[]),
        served(Delete, Object, "", Op::DeleteObject, &["versionId"]),
        served(Get, Object, "attributes", Op::GetObjectAttributes, &["versionId"]),
        served(Get, Object, "acl", Op::GetObjectAcl, &["versionId"]),
        unserved(Put, Object, "acl", "PutObjectAcl"),
        served(Get, Object, "tagging", Op::GetObjectTagging, &["versionId"]),
        unserved(Put, Object, "tagging", "PutObjectTagging"),
        unserved(Delete, Object, "tagging", "DeleteObjectTagging"),
        unserved(Get, Object, "legal-hold", "GetObjectLegalHold"),
        unserved(Put, Object, "legal-hold", "PutObjectLegalHold"),
        unserved(Get, Object, "retention", "GetObjectRetention"),
        unserved(Put, Object, "retention", "PutObjectRetention"),
        unserved(Get, Object, "torrent", "GetObjectTorrent"),
        unserved(Post, Object, "restore", "RestoreObject"),
        unserved(Post, Object, "select", "SelectObjectContent"),
        unserved(Put, Object, "renameObject", "RenameObject"),
        unserved(Put, Object, "encryption", "UpdateObjectEncryption"),

        served(Post, Object, "uploads", Op::CreateMultipartUpload, &[]),
        served(Put, Object, "uploadId", Op::UploadPart, &["partNumber"]),
        copy("uploadId", Op::UploadPartCopy, &["partNumber"]),
        served(Post, Object, "uploadId", Op::CompleteMultipartUpload, &[]),
        served(Delete, Object, "uploadId", Op::AbortMultipartUpload, &[]),
        served(Get, Object, "uploadId", Op::ListParts, &["encoding-type", "max-parts", "part-number-marker"]),
    ]
};

/// Finds the operation that a request asks for.
///
/// # Errors
/// `NotImplemented` with its name, or with what was asked for where S3 has no such operation either; `InvalidArgument` where two
/// sub-resources are named.
pub(crate) fn find(method: &Method, scope: Scope, query: &Query, has_copy_source: bool) -> S3Result<Op> {
    let verb = match *method {
        Method::GET => Verb::Get,
        Method::HEAD => Verb::Head,
        Method::PUT => Verb::Put,
        Method::POST => Verb::Post,
        Method::DELETE => Verb::Delete,
        _ => return Err(S3Error::not_implemented(format_args!("the method {}", clip(method.as_str().as_bytes())))),
    };
    let sub = sub_resource(query)?;
    // A copy source means something to PUT of an object only.
    let copy = has_copy_source && verb == Verb::Put && scope == Scope::Object && matches!(sub, "" | "uploadId");
    let row = TABLE.iter().find(|row| row.verb == verb && row.scope == scope && row.sub == sub && row.copy == copy);
    match row.map(|row| row.answer) {
        Some(Answer::Served(op, parameters)) => {
            for name in query.names() {
                let known = name == sub.as_bytes() || parameters.iter().any(|parameter| parameter.as_bytes() == name);
                if !known && !is_for_others(name) {
                    let name = clip(name);
                    return Err(S3Error::not_implemented(format_args!(
                        "{} with the query parameter `{name}`",
                        op.name()
                    )));
                }
            }
            Ok(op)
        }
        Some(Answer::Unserved(name)) => Err(S3Error::not_implemented(name)),
        None => {
            let at = match scope {
                Scope::Service => "the service",
                Scope::Bucket => "a bucket",
                Scope::Object => "an object",
            };
            let with = if sub.is_empty() { String::new() } else { format!(" with `?{sub}`") };
            Err(S3Error::not_implemented(format_args!("{method} of {at}{with}")))
        }
    }
}

/// The one sub-resource that a query names, of whatever verb and scope.
fn sub_resource(query: &Query) -> S3Result<&'static str> {
    let mut found = "";
    for name in query.names() {
        let row = TABLE.iter().find(|row| !row.sub.is_empty() && row.sub.as_bytes() == name);
        let Some(sub) = row.map(|row| row.sub) else { continue };
        if !found.is_empty() && found != sub {
            return Err(S3Error::new(S3Code::InvalidArgument, format!("conflicting query parameters: {found}, {sub}")));
        }
        found = sub;
    }
    Ok(found)
}

/// Parameters of the signature, of SDKs (`x-id`), and those that S3 keeps free for users' logs (`x-*`).
fn is_for_others(name: &[u8]) -> bool {
    matches!(name, [b'x' | b'X', b'-', ..]) || is_own_parameter(name)
}

fn clip(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const VERBS: [(&str, Verb); 5] =
        [("GET", Verb::Get), ("HEAD", Verb::Head), ("PUT", Verb::Put), ("POST", Verb::Post), ("DELETE", Verb::Delete)];

    fn ask(method: &str, scope: Scope, query: &str, copy: bool) -> Result<Op, (S3Code, String)> {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        find(&method, scope, &Query::parse(query).unwrap(), copy)
            .map_err(|error| (error.code, error.message.into_owned()))
    }

    /// Every verb with every sub-resource that S3 has, wherever it has it, on every scope.
    #[test]
    fn every_verb_and_sub_resource_is_known_or_told_by_name() {
        let subs: BTreeSet<&str> = TABLE.iter().map(|row| row.sub).collect();
        let mut served = BTreeSet::new();
        for scope in [Scope::Service, Scope::Bucket, Scope::Object] {
            for (method, verb) in VERBS {
                for sub in &subs {
                    for copy in [false, true] {
                        let found = ask(method, scope, sub, copy);
                        let copies =
                            copy && verb == Verb::Put && scope == Scope::Object && matches!(*sub, "" | "uploadId");
                        let key = (verb, scope, *sub, copies);
                        let row = TABLE.iter().find(|row| (row.verb, row.scope, row.sub, row.copy) == key);
                        match (row.map(|row| row.answer), found) {
                            (Some(Answer::Served(op, _)), Ok(found)) => {
                                assert_eq!(op, found);
                                served.insert(op.name());
                            }
                            (Some(Answer::Unserved(name)), Err((S3Code::NotImplemented, message))) => {
                                assert!(message.contains(name))
                            }
                            (None, Err((S3Code::NotImplemented, message))) => {
                                let named = message.contains(method) || message.contains(sub);
                                assert!(named, "{method} {scope:?} {sub}: {message}");
                            }
                            (row, found) => panic!("{method} {scope:?} {sub} {copy}: {row:?} {found:?}"),
                        }
                    }
                }
            }
        }
        assert_eq!(served.len(), Op::ALL.len(), "every operation can be reached");
    }

    #[test]
    fn rows_are_distinct() {
        for (index, row) in TABLE.iter().enumerate() {
            let same = |other: &Row| {
                (other.verb, other.scope, other.sub, other.copy) == (row.verb, row.scope, row.sub, row.copy)
            };
            assert!(!TABLE[..index].iter().any(same), "{:?} {:?} {}", row.verb, row.scope, row.sub);
        }
    }

    #[test]
    fn nothing_falls_through() {
        use Scope::{Bucket, Object, Service};
        let unknown = |text: &str| Err((S3Code::NotImplemented, format!("{text} is not implemented by this server")));
        for (method, scope, query, copy, expected) in [
            ("GET", Service, "", false, Ok(Op::ListBuckets)),
            ("GET", Bucket, "", false, Ok(Op::ListObjects)),
            ("GET", Bucket, "list-type=2&prefix=a&x-id=ListObjectsV2", false, Ok(Op::ListObjectsV2)),
            ("GET", Bucket, "location=", false, Ok(Op::GetBucketLocation)),
            ("DELETE", Bucket, "", false, Ok(Op::DeleteBucket)),
            ("DELETE", Bucket, "X-Amz-Signature=a&x-anything=b", false, Ok(Op::DeleteBucket)),
            ("DELETE", Bucket, "policy", false, unknown("DeleteBucketPolicy")),
            (
                "DELETE",
                Bucket,
                "something-new",
                false,
                unknown("DeleteBucket with the query parameter `something-new`"),
            ),
            ("DELETE", Bucket, "uploads", false, unknown("DELETE of a bucket with `?uploads`")),
            ("DELETE", Object, "uploads", false, unknown("DELETE of an object with `?uploads`")),
            ("GET", Object, "something-new=1", false, unknown("GetObject with the query parameter `something-new`")),
            ("GET", Object, "versionId=null", false, Ok(Op::GetObject)),
            ("PUT", Object, "versionId=null", false, unknown("PutObject with the query parameter `versionId`")),
            ("PUT", Object, "", false, Ok(Op::PutObject)),
            ("PUT", Object, "", true, Ok(Op::CopyObject)),
            ("PUT", Object, "partNumber=1&uploadId=u", false, Ok(Op::UploadPart)),
            ("PUT", Object, "partNumber=1&uploadId=u", true, Ok(Op::UploadPartCopy)),
            ("PUT", Object, "partNumber=1", false, unknown("PutObject with the query parameter `partNumber`")),
            ("PUT", Object, "tagging", true, unknown("PutObjectTagging")),
            ("POST", Object, "uploadId=u", false, Ok(Op::CompleteMultipartUpload)),
            ("POST", Object, "", false, unknown("POST of an object")),
            ("POST", Bucket, "", false, unknown("PostObject")),
            ("PUT", Service, "", false, unknown("PUT of the service")),
            ("OPTIONS", Bucket, "", false, unknown("the method OPTIONS")),
            ("MKCOL", Object, "", false, unknown("the method MKCOL")),
            (
                "GET",
                Bucket,
                "acl&tagging",
                false,
                Err((S3Code::InvalidArgument, "conflicting query parameters: acl, tagging".to_owned())),
            ),
        ] {
            assert_eq!(ask(method, scope, query, copy), expected, "{method} {scope:?} {query}");
        }
    }
}
