//! Buckets and their settings.

use ozone_common::config::TimeSpan;

use super::test_support::{Fixture, call};

const LIST: &str = "ListAllMyBucketsResult";

#[tokio::test]
async fn life_of_a_bucket() {
    let fixture = Fixture::new().await;
    let made = fixture.send(call("PUT", "/photos")).await.ok();
    assert_eq!(made.header("location"), Some("/photos"));
    let again = fixture.send(call("PUT", "/photos")).await.is(409, "BucketAlreadyOwnedByYou");
    assert_eq!(again.one("Error", "BucketName"), "photos");
    fixture.send(call("PUT", "/photos").user("bob")).await.is(409, "BucketAlreadyExists");
    let head = fixture.send(call("HEAD", "/photos")).await.ok();
    assert_eq!(head.header("x-amz-bucket-region"), Some("us-east-1"));
    let location = fixture.send(call("GET", "/photos?location")).await.ok();
    assert_eq!(location.one("LocationConstraint", "LocationConstraint"), "");
    fixture.send(call("PUT", "/photos/k").body("x")).await.ok();
    fixture.send(call("DELETE", "/photos")).await.is(409, "BucketNotEmpty");
    fixture.send(call("DELETE", "/photos/k")).await.is(204, "");
    fixture.send(call("DELETE", "/photos")).await.is(204, "");
    for (method, uri) in [("HEAD", "/photos"), ("DELETE", "/photos"), ("GET", "/photos?location")] {
        fixture.send(call(method, uri)).await.is(404, "NoSuchBucket");
    }
    fixture.send(call("PUT", "/Bad_Name")).await.is(400, "InvalidBucketName");
}

#[tokio::test]
async fn a_bucket_of_another_owner_than_expected_is_not_touched() {
    let fixture = Fixture::new().await;
    fixture.send(call("PUT", "/of-bob").user("bob")).await.ok();
    let expected = "x-amz-expected-bucket-owner";
    for (method, uri) in [("PUT", "/of-bob/k"), ("GET", "/of-bob"), ("DELETE", "/of-bob"), ("HEAD", "/of-bob")] {
        fixture.send(call(method, uri).header(expected, "alice")).await.is(403, "AccessDenied");
    }
    fixture.send(call("PUT", "/of-bob/k").body("x").header(expected, "bob")).await.ok();
    fixture.send(call("GET", "/absent").header(expected, "alice")).await.is(404, "NoSuchBucket");
    let copy = |owner: &str| {
        let copy = call("PUT", "/bucket/k").header("x-amz-copy-source", "of-bob/k");
        copy.header("x-amz-source-expected-bucket-owner", owner)
    };
    fixture.send(copy("alice")).await.is(403, "AccessDenied");
    fixture.send(copy("bob")).await.ok();
}

#[tokio::test]
async fn configurations_of_new_buckets() {
    let fixture = Fixture::new().await;
    let put = |bucket: &str, document: &str| call("PUT", format!("/{bucket}")).body(document.to_owned());
    let at = |location: &str| {
        format!(
            "<CreateBucketConfiguration><LocationConstraint>{location}</LocationConstraint></CreateBucketConfiguration>"
        )
    };
    fixture.send(put("one", &at("us-east-1"))).await.ok();
    fixture.send(put("two", &at(""))).await.ok();
    fixture.send(put("three", "<CreateBucketConfiguration/>")).await.ok();
    fixture.send(put("four", &at("eu-west-1"))).await.is(400, "InvalidLocationConstraint");
    fixture.send(put("four", "<Other/>")).await.is(400, "MalformedXML");
    fixture
        .send(call("PUT", "/four").header("x-amz-acl", "public-read"))
        .await
        .is(400, "InvalidBucketAclWithObjectOwnership");
    fixture
        .send(call("PUT", "/four").header("x-amz-bucket-object-lock-enabled", "true"))
        .await
        .is(501, "NotImplemented");
    fixture.send(call("HEAD", "/four")).await.is(404, "NoSuchBucket");
}

#[tokio::test]
async fn documents_are_within_the_bound_on_memory() {
    let fixture = Fixture::with(|config| config.memory_wait = TimeSpan::millis(10)).await;
    let taken = fixture.gateway.memory.reserve(u64::MAX).await.unwrap();
    let calls = || {
        let configuration = "<CreateBucketConfiguration></CreateBucketConfiguration>";
        let keys = "<Delete><Object><Key>k</Key></Object></Delete>";
        let list =
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>e</ETag></Part></CompleteMultipartUpload>";
        [
            (call("PUT", "/new-bucket").body(configuration), (200, "")),
            (call("POST", "/bucket?delete").body(keys).header("content-md5", "5DKh5iefM5MSKvRILIuFwQ=="), (200, "")),
            (call("POST", "/bucket/k?uploadId=absent").body(list), (404, "NoSuchUpload")),
            // Whose length nobody knows may become as long as documents can.
            (call("PUT", "/new-bucket-2").body(configuration).header("transfer-encoding", "chunked"), (200, "")),
        ]
    };
    for (call, _) in calls() {
        fixture.send(call).await.is(503, "SlowDown");
    }
    fixture.send(call("HEAD", "/new-bucket")).await.is(404, "NoSuchBucket");
    drop(taken);
    for (call, (status, code)) in calls() {
        fixture.send(call).await.is(status, code);
    }
}

#[tokio::test]
async fn a_user_sees_its_buckets_page_by_page() {
    let fixture = Fixture::new().await;
    for name in ["b-1", "b-2", "b-3", "c-1"] {
        fixture.send(call("PUT", format!("/{name}"))).await.ok();
    }
    fixture.send(call("PUT", "/b-bob").user("bob")).await.ok();
    let all = fixture.send(call("GET", "/")).await.ok();
    assert_eq!(all.all(LIST, "Name"), ["b-1", "b-2", "b-3", "bucket", "c-1"]);
    assert_eq!(all.one(LIST, "ID"), "alice");
    assert_eq!(all.all(LIST, "CreationDate")[0], "1994-11-06T08:49:37.000Z");
    assert!(all.all(LIST, "ContinuationToken").is_empty());
    let mut names = Vec::new();
    let mut uri = "/?prefix=b-&max-buckets=2".to_owned();
    loop {
        let page = fixture.send(call("GET", uri)).await.ok();
        names.extend(page.all(LIST, "Name"));
        let Some(token) = page.all(LIST, "ContinuationToken").pop() else { break };
        uri = format!("/?prefix=b-&max-buckets=2&continuation-token={token}");
    }
    assert_eq!(names, ["b-1", "b-2", "b-3"]);
    for bad in ["max-buckets=0", "max-buckets=10001", "max-buckets=x", "continuation-token=garbage"] {
        fixture.send(call("GET", format!("/?{bad}"))).await.is(400, "InvalidArgument");
    }
    let elsewhere = fixture.send(call("GET", "/?bucket-region=eu-west-1")).await.ok();
    assert!(elsewhere.all(LIST, "Name").is_empty());
    // Before the first bucket there is no volume.
    fixture.twin.state.lock().buckets.clear();
    assert!(fixture.send(call("GET", "/")).await.ok().all(LIST, "Name").is_empty());
}

#[tokio::test]
async fn settings_that_nobody_set() {
    let fixture = Fixture::new().await;
    for (setting, status, what) in [
        ("versioning", 200, "VersioningConfiguration"),
        ("acl", 200, "AccessControlPolicy"),
        ("logging", 200, "BucketLoggingStatus"),
        ("notification", 200, "NotificationConfiguration"),
        ("requestPayment", 200, "RequestPaymentConfiguration"),
        ("accelerate", 200, "AccelerateConfiguration"),
        ("cors", 404, "NoSuchCORSConfiguration"),
        ("encryption", 404, "ServerSideEncryptionConfigurationNotFoundError"),
        ("lifecycle", 404, "NoSuchLifecycleConfiguration"),
        ("object-lock", 404, "ObjectLockConfigurationNotFoundError"),
        ("ownershipControls", 404, "OwnershipControlsNotFoundError"),
        ("policy", 404, "NoSuchBucketPolicy"),
        ("publicAccessBlock", 404, "NoSuchPublicAccessBlockConfiguration"),
        ("replication", 404, "ReplicationConfigurationNotFoundError"),
        ("tagging", 404, "NoSuchTagSet"),
        ("website", 404, "NoSuchWebsiteConfiguration"),
    ] {
        let answer = fixture.send(call("GET", format!("/bucket?{setting}"))).await;
        match status {
            200 => assert_eq!(answer.ok().all(what, what).len(), 1),
            _ => drop(answer.is(status, what)),
        }
        fixture.send(call("GET", format!("/absent?{setting}"))).await.is(404, "NoSuchBucket");
    }
    fixture.put("k", "x").await;
    let acl = fixture.send(call("GET", "/bucket/k?acl")).await.ok();
    assert_eq!(acl.one("AccessControlPolicy", "Permission"), "FULL_CONTROL");
    assert!(fixture.send(call("GET", "/bucket/k?tagging")).await.ok().all("Tagging", "Tag").is_empty());
    fixture.send(call("GET", "/bucket/absent?acl")).await.is(404, "NoSuchKey");
}
