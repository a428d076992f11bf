"""What applications rely on, over boto3: objects, conditions, checksums, listings, uploads, and how refusals look."""

import base64
import hashlib
import os
import urllib.error
import urllib.request
import zlib

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

BUCKET = "basics"
s3 = boto3.client(
    "s3",
    endpoint_url=os.environ["OZONE_S3_ENDPOINT"],
    config=Config(retries={"mode": "standard", "max_attempts": 1}, s3={"addressing_style": "path"}),
)


def refused(code, status, operation, **arguments):
    """Calls what must fail, so and not otherwise."""
    try:
        getattr(s3, operation)(**arguments)
    except ClientError as error:
        told = error.response
        found = (told["Error"]["Code"], told["ResponseMetadata"]["HTTPStatusCode"])
        assert found == (code, status), f"{operation} {arguments}: {found}, expected {(code, status)}"
        assert told["ResponseMetadata"]["RequestId"] or operation.startswith("head"), told
    else:
        raise AssertionError(f"{operation} {arguments} succeeded, expected {code}")


def body(key, **arguments):
    return s3.get_object(Bucket=BUCKET, Key=key, **arguments)["Body"].read()


def buckets():
    s3.create_bucket(Bucket=BUCKET)
    assert s3.head_bucket(Bucket=BUCKET)["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert BUCKET in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    assert s3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] is None  # us-east-1
    refused("404", 404, "head_bucket", Bucket="not-there")
    refused("NoSuchBucket", 404, "list_objects_v2", Bucket="not-there")
    refused("NoSuchBucket", 404, "put_object", Bucket="not-there", Key="x", Body=b"x")
    refused("NoSuchBucket", 404, "delete_bucket", Bucket="not-there")
    s3.put_object(Bucket=BUCKET, Key="x", Body=b"x")
    refused("BucketNotEmpty", 409, "delete_bucket", Bucket=BUCKET)
    s3.delete_object(Bucket=BUCKET, Key="x")


def objects():
    for length in (0, 1, 4095, 4096, 4097, 16384, 100_000, 1 << 20, (5 << 20) + 3):
        data = hashlib.shake_128(b"%d" % length).digest(length)
        etag = s3.put_object(Bucket=BUCKET, Key="o", Body=data)["ETag"]
        assert etag == f'"{hashlib.md5(data).hexdigest()}"', etag
        assert body("o") == data
        head = s3.head_object(Bucket=BUCKET, Key="o")
        assert (head["ContentLength"], head["ETag"]) == (length, etag)
    # What is stored beside the bytes.
    metadata = {"colour": "blue", "path": "a/b c"}
    headers = {
        "ContentType": "text/x-test", "CacheControl": "max-age=7", "ContentDisposition": "attachment", "ContentEncoding": "zstd",
        "ContentLanguage": "fi",
    }
    s3.put_object(Bucket=BUCKET, Key="o", Body=b"0123456789", Metadata=metadata, **headers)
    head = s3.head_object(Bucket=BUCKET, Key="o")
    assert head["Metadata"] == metadata and {name: head[name] for name in headers} == headers, head
    # Ranges.
    for asked, expected in [("0-0", b"0"), ("3-5", b"345"), ("7-", b"789"), ("-3", b"789"), ("5-999", b"56789"), ("-999", b"0123456789")]:
        answer = s3.get_object(Bucket=BUCKET, Key="o", Range=f"bytes={asked}")
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 206 and answer["Body"].read() == expected, asked
    refused("InvalidRange", 416, "get_object", Bucket=BUCKET, Key="o", Range="bytes=10-")
    # Conditions.
    etag = head["ETag"]
    assert body("o", IfMatch=etag) == b"0123456789"
    refused("PreconditionFailed", 412, "get_object", Bucket=BUCKET, Key="o", IfMatch='"other"')
    refused("304", 304, "get_object", Bucket=BUCKET, Key="o", IfNoneMatch=etag)
    refused("304", 304, "head_object", Bucket=BUCKET, Key="o", IfModifiedSince=head["LastModified"])
    refused("PreconditionFailed", 412, "put_object", Bucket=BUCKET, Key="o", Body=b"y", IfNoneMatch="*")
    refused("PreconditionFailed", 412, "put_object", Bucket=BUCKET, Key="o", Body=b"y", IfMatch='"other"')
    s3.put_object(Bucket=BUCKET, Key="o", Body=b"y", IfMatch=etag)
    assert body("o") == b"y"
    # Keys are bytes.
    for key in ("a b+c%2F", "ä/ö/☃", "../up", "//", "trailing/", "q?x=1&y#z", "\u0001<&>'\""):
        s3.put_object(Bucket=BUCKET, Key=key, Body=key.encode())
        assert body(key) == key.encode(), key
        s3.delete_object(Bucket=BUCKET, Key=key)
        refused("NoSuchKey", 404, "get_object", Bucket=BUCKET, Key=key)
    s3.put_object(Bucket=BUCKET, Key="k" * 1024, Body=b"")
    s3.delete_object(Bucket=BUCKET, Key="k" * 1024)
    refused("KeyTooLongError", 400, "put_object", Bucket=BUCKET, Key="k" * 1025, Body=b"")
    refused("404", 404, "head_object", Bucket=BUCKET, Key="not-there")
    assert s3.delete_object(Bucket=BUCKET, Key="not-there")["ResponseMetadata"]["HTTPStatusCode"] == 204


def checksums():
    data = b"checked" * 1000
    sums = {
        "SHA256": base64.b64encode(hashlib.sha256(data).digest()).decode(),
        "SHA1": base64.b64encode(hashlib.sha1(data).digest()).decode(),
        "CRC32": base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode(),
    }
    for name, value in sums.items():
        field = f"Checksum{name}"
        # Computed by boto3 and sent as a trailer.
        assert s3.put_object(Bucket=BUCKET, Key="c", Body=data, ChecksumAlgorithm=name)[field] == value
        assert s3.get_object(Bucket=BUCKET, Key="c", ChecksumMode="ENABLED")[field] == value
        # Given by the caller: right, then wrong, which leaves what was there.
        s3.put_object(Bucket=BUCKET, Key="c", Body=data, **{field: value})
        wrong = base64.b64encode(bytes(len(base64.b64decode(value)))).decode()
        refused("BadDigest", 400, "put_object", Bucket=BUCKET, Key="c", Body=b"z", **{field: wrong})
        assert body("c") == data
    md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
    s3.put_object(Bucket=BUCKET, Key="c", Body=data, ContentMD5=md5)
    refused("BadDigest", 400, "put_object", Bucket=BUCKET, Key="c", Body=b"z", ContentMD5=md5)
    assert body("c") == data


def copies():
    s3.put_object(Bucket=BUCKET, Key="from/ä b", Body=b"copied", Metadata={"n": "1"}, ContentType="text/x")
    source = {"Bucket": BUCKET, "Key": "from/ä b"}
    s3.copy_object(Bucket=BUCKET, Key="to", CopySource=source)
    head = s3.head_object(Bucket=BUCKET, Key="to")
    assert (body("to"), head["Metadata"], head["ContentType"]) == (b"copied", {"n": "1"}, "text/x")
    s3.copy_object(Bucket=BUCKET, Key="to", CopySource=source, MetadataDirective="REPLACE", Metadata={"m": "2"})
    assert s3.head_object(Bucket=BUCKET, Key="to")["Metadata"] == {"m": "2"}
    refused("NoSuchKey", 404, "copy_object", Bucket=BUCKET, Key="to", CopySource={"Bucket": BUCKET, "Key": "not-there"})
    s3.delete_object(Bucket=BUCKET, Key="from/ä b")
    assert body("to") == b"copied", "a copy outlives its source"


def listings():
    keys = sorted([f"list/{d}/{n:02}" for d in "abc" for n in range(7)] + ["list/top", "list/a"])
    for key in keys:
        s3.put_object(Bucket=BUCKET, Key=key, Body=key.encode())
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="list/", PaginationConfig={"PageSize": 4})
    found = [entry for page in pages for entry in page.get("Contents", [])]
    assert [entry["Key"] for entry in found] == keys
    assert all(entry["Size"] == len(entry["Key"]) for entry in found)
    pages = s3.get_paginator("list_objects").paginate(Bucket=BUCKET, Prefix="list/", PaginationConfig={"PageSize": 5})
    assert [entry["Key"] for page in pages for entry in page.get("Contents", [])] == keys
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket=BUCKET, Prefix="list/", Delimiter="/", PaginationConfig={"PageSize": 2}
    )
    pages = list(pages)
    assert [p["Prefix"] for page in pages for p in page.get("CommonPrefixes", [])] == ["list/a/", "list/b/", "list/c/"]
    assert [entry["Key"] for page in pages for entry in page.get("Contents", [])] == ["list/a", "list/top"]
    after = s3.list_objects_v2(Bucket=BUCKET, Prefix="list/", StartAfter="list/c/05")
    assert [entry["Key"] for entry in after["Contents"]] == ["list/c/06", "list/top"]
    refused("InvalidArgument", 400, "list_objects_v2", Bucket=BUCKET, ContinuationToken="garbage")
    answer = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in keys + ["list/not-there"]]})
    assert sorted(entry["Key"] for entry in answer["Deleted"]) == sorted(keys + ["list/not-there"])
    assert s3.list_objects_v2(Bucket=BUCKET, Prefix="list/")["KeyCount"] == 0


def uploads():
    where = {"Bucket": BUCKET, "Key": "many parts"}
    data = [hashlib.shake_128(bytes([n])).digest(5 << 20) for n in range(2)] + [b"the end"]
    upload = s3.create_multipart_upload(**where, Metadata={"kind": "parts"})["UploadId"]
    assert upload in [entry["UploadId"] for entry in s3.list_multipart_uploads(Bucket=BUCKET)["Uploads"]]
    s3.upload_part(**where, UploadId=upload, PartNumber=2, Body=b"overwritten")
    parts = []
    for number, part in enumerate(data, 1):
        etag = s3.upload_part(**where, UploadId=upload, PartNumber=number, Body=part)["ETag"]
        parts.append({"PartNumber": number, "ETag": etag})
    listed = s3.list_parts(**where, UploadId=upload, MaxParts=2)
    assert [part["PartNumber"] for part in listed["Parts"]] == [1, 2] and listed["IsTruncated"]
    refused("NoSuchKey", 404, "get_object", **where)
    other = parts[:1] + [{"PartNumber": 2, "ETag": '"00000000000000000000000000000000"'}]
    refused("InvalidPart", 400, "complete_multipart_upload", **where, UploadId=upload, MultipartUpload={"Parts": other})
    wrong_order = {"Parts": parts[::-1]}
    refused("InvalidPartOrder", 400, "complete_multipart_upload", **where, UploadId=upload, MultipartUpload=wrong_order)
    etag = s3.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": parts})["ETag"]
    digests = b"".join(bytes.fromhex(part["ETag"].strip('"')) for part in parts)
    assert etag == f'"{hashlib.md5(digests).hexdigest()}-3"', etag
    whole = b"".join(data)
    assert body(where["Key"]) == whole
    edge = 5 << 20
    assert body(where["Key"], Range=f"bytes={edge - 10}-{edge + 9}") == whole[edge - 10 : edge + 10]
    refused("NoSuchUpload", 404, "upload_part", **where, UploadId=upload, PartNumber=1, Body=b"late")

    # Parts taken from an object that is there, and an upload given up.
    copy = {"Bucket": BUCKET, "Key": "copied parts"}
    upload = s3.create_multipart_upload(**copy)["UploadId"]
    answer = s3.upload_part_copy(**copy, UploadId=upload, PartNumber=1, CopySource=where, CopySourceRange=f"bytes=0-{edge - 1}")
    first = answer["CopyPartResult"]["ETag"]
    last = s3.upload_part(**copy, UploadId=upload, PartNumber=9, Body=b"tail")["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": first}, {"PartNumber": 9, "ETag": last}]}
    s3.complete_multipart_upload(**copy, UploadId=upload, MultipartUpload=parts)
    assert body(copy["Key"]) == whole[:edge] + b"tail"
    upload = s3.create_multipart_upload(**copy)["UploadId"]
    small = [s3.upload_part(**copy, UploadId=upload, PartNumber=n, Body=b"small")["ETag"] for n in (1, 2)]
    parts = {"Parts": [{"PartNumber": n, "ETag": etag} for n, etag in enumerate(small, 1)]}
    refused("EntityTooSmall", 400, "complete_multipart_upload", **copy, UploadId=upload, MultipartUpload=parts)
    s3.abort_multipart_upload(**copy, UploadId=upload)
    refused("NoSuchUpload", 404, "list_parts", **copy, UploadId=upload)


def identities():
    def other(**arguments):
        return boto3.client(
            "s3", endpoint_url=os.environ["OZONE_S3_ENDPOINT"], config=Config(retries={"max_attempts": 0}), **arguments
        )

    global s3
    mine = s3
    s3 = other(aws_access_key_id="nobody", aws_secret_access_key="x")
    refused("InvalidAccessKeyId", 403, "list_buckets")
    s3 = other(aws_secret_access_key="wrong", aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"])
    refused("SignatureDoesNotMatch", 403, "list_buckets")
    s3 = mine
    s3.put_object(Bucket=BUCKET, Key="private", Body=b"private")
    url = s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "private"}, ExpiresIn=60)
    assert urllib.request.urlopen(url).read() == b"private"
    try:
        urllib.request.urlopen(url.split("?")[0])
    except urllib.error.HTTPError as error:
        assert error.code == 403 and b"<Code>AccessDenied</Code>" in error.read()
    else:
        raise AssertionError("an unsigned request was served")
    # What this version does not have is named, and never taken for something else.
    refused("NotImplemented", 501, "put_bucket_versioning", Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    refused("NotImplemented", 501, "get_object_retention", Bucket=BUCKET, Key="private")
    assert body("private") == b"private"


def main():
    for step in (buckets, objects, checksums, copies, listings, uploads, identities):
        step()
        print(f"{step.__name__}: ok")


if __name__ == "__main__":
    main()
