"""S3's semantics to the letter: status, code and header of every answer, and that what was refused left no trace.

boto3 where it can ask, requests signed here where it cannot: wrong signatures, wrong trailers, odd keys. Each check says what AWS
documents. All of them run; the exit code says whether all held.
"""

import base64
import concurrent.futures
import datetime
import hashlib
import hmac
import http.client
import os
import random
import re
import sys
import time
import traceback
import urllib.parse
import zlib

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, MissingDependencyException

ENDPOINT = urllib.parse.urlsplit(os.environ["OZONE_S3_ENDPOINT"])
ACCESS, SECRET = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
REGION = os.environ.get("AWS_REGION", "us-east-1")
BUCKET, OTHER = "behaviours", "behaviours-other"
PART = 5 << 20
CHECKS = []


def client(**settings):
    return boto3.client(
        "s3",
        endpoint_url=os.environ["OZONE_S3_ENDPOINT"],
        region_name=REGION,
        config=Config(retries={"mode": "standard", "max_attempts": 1}, s3={"addressing_style": "path"}, **settings),
    )


s3 = client()


def check(function):
    CHECKS.append(function)
    return function


def same(found, expected, what=""):
    assert found == expected, f"{what}: {found!r}, expected {expected!r}"


def refused(status, code, operation, **arguments):
    try:
        getattr(s3, operation)(**arguments)
    except ClientError as error:
        told = error.response
        found = (told["ResponseMetadata"]["HTTPStatusCode"], told["Error"]["Code"])
        same(found, (status, code), f"{operation} {arguments}")
        return told
    raise AssertionError(f"{operation} {arguments} succeeded, expected {status} {code}")


def bytes_of(length, seed=1):
    return random.Random(seed).randbytes(length)


def etag(data):
    return f'"{hashlib.md5(data).hexdigest()}"'


def b64(data):
    return base64.b64encode(data).decode()


def crc32(data):
    return b64(zlib.crc32(data).to_bytes(4, "big"))


def put(key, data=b"x", **arguments):
    return s3.put_object(Bucket=BUCKET, Key=key, Body=data, **arguments)


def get(key, **arguments):
    return s3.get_object(Bucket=BUCKET, Key=key, **arguments)


def keys():
    return [found["Key"] for page in s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET) for found in page.get("Contents", [])]


def in_parallel(count, work):
    """Runs `work(client, number)` in threads; what goes wrong in one goes wrong here."""
    clients = [client() for _ in range(count)]
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(work, own, number) for number, own in enumerate(clients)]:
            done.result()


# ---- requests signed here


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signing_key(day, secret=SECRET):
    key = ("AWS4" + secret).encode()
    for piece in (day, REGION, "s3", "aws4_request"):
        key = mac(key, piece)
    return key


class Signed:
    """A request with its signature, and what signed chunks need."""

    def __init__(self, method, path, query="", headers=None, sha="UNSIGNED-PAYLOAD", access=ACCESS, secret=SECRET, at=None):
        now = at or datetime.datetime.now(datetime.timezone.utc)
        self.date, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        self.scope = f"{day}/{REGION}/s3/aws4_request"
        self.key = signing_key(day, secret)
        self.headers = {"host": ENDPOINT.netloc, "x-amz-date": self.date, "x-amz-content-sha256": sha}
        self.headers.update({name.lower(): value for name, value in (headers or {}).items()})
        names = ";".join(sorted(self.headers))
        lines = "".join(f"{name}:{' '.join(self.headers[name].split())}\n" for name in sorted(self.headers))
        canonical_query = "&".join(sorted(piece if "=" in piece else piece + "=" for piece in query.split("&") if piece))
        canonical = "\n".join([method, path, canonical_query, lines, names, sha])
        hashed = hashlib.sha256(canonical.encode()).hexdigest()
        self.signature = mac(self.key, f"AWS4-HMAC-SHA256\n{self.date}\n{self.scope}\n{hashed}").hex()
        self.headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={access}/{self.scope}, SignedHeaders={names}, Signature={self.signature}"
        )
        self.method, self.target = method, path + ("?" + query if query else "")

    def chunk(self, data, previous):
        empty = hashlib.sha256(b"").hexdigest()
        text = f"AWS4-HMAC-SHA256-PAYLOAD\n{self.date}\n{self.scope}\n{previous}\n{empty}\n{hashlib.sha256(data).hexdigest()}"
        return mac(self.key, text).hex()

    def trailer(self, lines, previous):
        text = f"AWS4-HMAC-SHA256-TRAILER\n{self.date}\n{self.scope}\n{previous}\n{hashlib.sha256(lines).hexdigest()}"
        return mac(self.key, text).hex()

    def send(self, body=b""):
        connection = http.client.HTTPConnection(ENDPOINT.hostname, ENDPOINT.port, timeout=30)
        connection.putrequest(self.method, self.target, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            connection.putheader(name, value)
        if "content-length" not in self.headers:
            connection.putheader("content-length", str(len(body)))
        connection.endheaders()
        try:
            connection.send(body)
        except (BrokenPipeError, ConnectionResetError):
            pass  # It was refused before all of it was sent; the answer says why.
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        code = re.search(rb"<Code>([^<]+)</Code>", data)
        return answer.status, code.group(1).decode() if code else "", answer.headers, data


def raw(method, path, query="", headers=None, body=b"", **how):
    return Signed(method, path, query, headers, **how).send(body)


def expect(answer, status, code=""):
    same(answer[:2], (status, code), answer[3][:300])
    return answer


def trailing(key, data, trailer_name, trailer, framing=None, declared=None):
    """An unsigned chunked body with a trailer, as boto3 sends one over TLS."""
    headers = {
        "x-amz-decoded-content-length": str(len(data) if declared is None else declared),
        "x-amz-trailer": trailer_name,
        "content-encoding": "aws-chunked",
    }
    framed = b"%x\r\n" % len(data) + data + b"\r\n0\r\n" + trailer + b"\r\n" if framing is None else framing
    return raw("PUT", f"/{BUCKET}/{key}", headers=headers, body=framed, sha="STREAMING-UNSIGNED-PAYLOAD-TRAILER")


def signed_chunks(key, pieces, tamper=None, trailer=None, wrong_trailer_signature=False):
    sha = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" + ("-TRAILER" if trailer else "")
    headers = {"x-amz-decoded-content-length": str(sum(map(len, pieces))), "content-encoding": "aws-chunked,gzip"}
    if trailer:
        headers["x-amz-trailer"] = trailer[0]
    request = Signed("PUT", f"/{BUCKET}/{key}", headers=headers, sha=sha)
    previous, body = request.signature, b""
    for number, piece in enumerate([*pieces, b""]):
        previous = request.chunk(piece, previous)
        sent = piece if number != tamper else bytes([piece[0] ^ 1]) + piece[1:]
        body += b"%x;chunk-signature=%s\r\n" % (len(piece), previous.encode()) + sent
        if piece or not trailer:
            body += b"\r\n"
    if trailer:
        line = f"{trailer[0]}:{trailer[1]}\n".encode()
        signature = request.trailer(line, previous)
        if wrong_trailer_signature:
            signature = signature[:-1] + ("0" if signature[-1] != "0" else "1")
        body += f"{trailer[0]}:{trailer[1]}\r\nx-amz-trailer-signature:{signature}\r\n\r\n".encode()
    return request.send(body)


# ---- bodies and their proofs


@check
def wrong_hashes_leave_no_trace():
    wrong = hashlib.sha256(b"another").hexdigest()
    expect(raw("PUT", f"/{BUCKET}/trace", body=b"body", sha=wrong), 400, "XAmzContentSHA256Mismatch")
    expect(raw("PUT", f"/{BUCKET}/trace", body=b"body", headers={"content-md5": b64(hashlib.md5(b"other").digest())}), 400, "BadDigest")
    expect(raw("PUT", f"/{BUCKET}/trace", body=b"body", headers={"content-md5": "YWJj"}), 400, "InvalidDigest")
    for name, good in (("crc32", crc32(b"body")), ("sha256", b64(hashlib.sha256(b"body").digest())), ("sha1", b64(hashlib.sha1(b"body").digest()))):
        header = f"x-amz-checksum-{name}"
        bad = b64(bytes(len(base64.b64decode(good))))
        expect(raw("PUT", f"/{BUCKET}/trace", body=b"body", headers={header: bad}), 400, "BadDigest")
        expect(raw("PUT", f"/{BUCKET}/trace", body=b"body", headers={header: "x"}), 400, "InvalidRequest")
        answer = expect(raw("PUT", f"/{BUCKET}/kept", body=b"body", headers={header: good}), 200)
        same(answer[2][header], good)
    both = {"x-amz-checksum-crc32": crc32(b"body"), "x-amz-checksum-sha1": b64(hashlib.sha1(b"body").digest())}
    expect(raw("PUT", f"/{BUCKET}/trace", body=b"body", headers=both), 400, "InvalidRequest")
    assert "trace" not in keys()


@check
def unsigned_trailers():
    data = bytes_of(200_000)
    good = f"x-amz-checksum-crc32:{crc32(data)}\r\n".encode()
    answer = expect(trailing("trailer", data, "x-amz-checksum-crc32", good), 200)
    same(answer[2]["x-amz-checksum-crc32"], crc32(data))
    found = get("trailer", ChecksumMode="ENABLED")
    same((found["Body"].read(), found["ChecksumCRC32"], found.get("ContentEncoding")), (data, crc32(data), None))
    expect(trailing("trace", data, "x-amz-checksum-crc32", b"x-amz-checksum-crc32:AAAAAA==\r\n"), 400, "BadDigest")
    expect(trailing("trace", data, "x-amz-checksum-crc32", b""), 400, "MalformedTrailerError")
    expect(trailing("trace", data, "x-amz-checksum-sha1", good), 400, "MalformedTrailerError")
    expect(trailing("trace", data, "x-amz-checksum-crc32", good, declared=len(data) + 1), 400, "IncompleteBody")
    expect(trailing("trace", data, "x-amz-checksum-crc32", good, declared=len(data) - 1), 400, "IncompleteBody")
    cut = b"%x\r\n" % len(data) + data[:1000]
    expect(trailing("trace", data, "x-amz-checksum-crc32", good, framing=cut), 400, "IncompleteBody")
    expect(trailing("trace", b"", "x-amz-checksum-crc32", good, framing=b"zz\r\n", declared=1), 400, "InvalidRequest")
    assert "trace" not in keys()


@check
def signed_chunks_and_trailers():
    pieces = [bytes_of(65_536, 1), bytes_of(65_536, 2), bytes_of(100, 3)]
    data = b"".join(pieces)
    expect(signed_chunks("signed", pieces), 200)
    found = get("signed")
    same((found["Body"].read(), found["ContentEncoding"]), (data, "gzip"))
    expect(signed_chunks("trace", pieces, tamper=1), 403, "SignatureDoesNotMatch")
    trailer = ("x-amz-checksum-crc32", crc32(data))
    expect(signed_chunks("signed-trailer", pieces, trailer=trailer), 200)
    same(get("signed-trailer", ChecksumMode="ENABLED")["ChecksumCRC32"], crc32(data))
    expect(signed_chunks("trace", pieces, trailer=("x-amz-checksum-crc32", "AAAAAA==")), 400, "BadDigest")
    expect(signed_chunks("trace", pieces, trailer=trailer, wrong_trailer_signature=True), 403, "SignatureDoesNotMatch")
    assert "trace" not in keys()


@check
def signatures():
    ok = expect(raw("GET", f"/{BUCKET}", "list-type=2"), 200)
    assert ok[2]["x-amz-request-id"] and ok[2]["content-type"] == "application/xml"
    expect(raw("GET", f"/{BUCKET}", secret="wrong"), 403, "SignatureDoesNotMatch")
    expect(raw("GET", f"/{BUCKET}", access="nobody"), 403, "InvalidAccessKeyId")
    late = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(minutes=20)
    expect(raw("GET", f"/{BUCKET}", at=late), 403, "RequestTimeTooSkewed")
    connection = http.client.HTTPConnection(ENDPOINT.hostname, ENDPOINT.port, timeout=30)
    connection.request("GET", f"/{BUCKET}")
    same(connection.getresponse().status, 403, "nobody signed")
    connection.close()


def fetch(url, method="GET", body=None):
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    connection.request(method, f"{parts.path}?{parts.query}", body=body)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    code = re.search(rb"<Code>([^<]+)</Code>", data)
    return answer.status, code.group(1).decode() if code else "", answer.headers, data


@check
def presigned_urls():
    put("presigned é+ /x", b"the bytes")
    link = lambda **how: client(signature_version="s3v4").generate_presigned_url(
        "get_object", {"Bucket": BUCKET, "Key": "presigned é+ /x", **how.pop("also", {})}, **how
    )
    same(expect(fetch(link(ExpiresIn=60)), 200)[3], b"the bytes")
    answer = expect(fetch(link(ExpiresIn=60, also={"ResponseContentType": "foo/bar"})), 200)
    same(answer[2]["content-type"], "foo/bar")
    expect(fetch(link(ExpiresIn=60).replace("Signature=", "Signature=0")), 403, "SignatureDoesNotMatch")
    expect(fetch(link(ExpiresIn=604801)), 400, "AuthorizationQueryParametersError")
    expect(fetch(link(ExpiresIn=-1)), 400, "AuthorizationQueryParametersError")
    short = link(ExpiresIn=1)
    deadline = time.monotonic() + 10
    while fetch(short)[0] == 200 and time.monotonic() < deadline:
        time.sleep(0.1)
    expect(fetch(short), 403, "AccessDenied")
    upload = client(signature_version="s3v4").generate_presigned_url("put_object", {"Bucket": BUCKET, "Key": "by-link"}, ExpiresIn=60)
    expect(fetch(upload, "PUT", b"sent"), 200)
    same(get("by-link")["Body"].read(), b"sent")


# ---- objects


@check
def ranges():
    data = bytes_of(300_000)
    put("ranges", data)
    put("empty", b"")
    for text, expected in (
        ("bytes=0-0", slice(0, 1)),
        ("bytes=16383-16384", slice(16383, 16385)),
        ("bytes=299999-", slice(299_999, 300_000)),
        ("bytes=100-999999999", slice(100, 300_000)),
        ("bytes=-1", slice(299_999, 300_000)),
        ("bytes=-999999999", slice(0, 300_000)),
    ):
        found = get("ranges", Range=text)
        start, stop, _ = expected.indices(len(data))
        same(found["ResponseMetadata"]["HTTPStatusCode"], 206, text)
        same((found["ContentRange"], found["Body"].read()), (f"bytes {start}-{stop - 1}/300000", data[expected]), text)
        head = s3.head_object(Bucket=BUCKET, Key="ranges", Range=text)
        same((head["ResponseMetadata"]["HTTPStatusCode"], head["ContentLength"]), (206, stop - start), text)
    for text in ("bytes=5-4", "bytes=0-1,5-6", "bytes=x-y", "items=0-1"):
        found = get("ranges", Range=text)
        same((found["ResponseMetadata"]["HTTPStatusCode"], len(found["Body"].read())), (200, 300_000), text)
    for key, text in (("ranges", "bytes=300000-"), ("ranges", "bytes=-0"), ("empty", "bytes=0-"), ("empty", "bytes=-1")):
        told = refused(416, "InvalidRange", "get_object", Bucket=BUCKET, Key=key, Range=text)
        same(told["ResponseMetadata"]["HTTPHeaders"]["content-range"], f"bytes */{300_000 if key == 'ranges' else 0}")


@check
def conditions():
    other = '"00000000000000000000000000000000"'
    refused(404, "NoSuchKey", "put_object", Bucket=BUCKET, Key="cond", Body=b"1", IfMatch=other)
    tag = put("cond", b"1", IfNoneMatch="*")["ETag"]
    refused(412, "PreconditionFailed", "put_object", Bucket=BUCKET, Key="cond", Body=b"2", IfNoneMatch="*")
    refused(412, "PreconditionFailed", "put_object", Bucket=BUCKET, Key="cond", Body=b"2", IfMatch=other)
    same(get("cond")["Body"].read(), b"1")
    tag2 = put("cond", b"2", IfMatch=tag)["ETag"]
    found = get("cond", IfMatch=tag2)
    same(found["Body"].read(), b"2")
    refused(412, "PreconditionFailed", "get_object", Bucket=BUCKET, Key="cond", IfMatch=tag)
    refused(304, "304", "get_object", Bucket=BUCKET, Key="cond", IfNoneMatch=tag2)
    refused(304, "304", "head_object", Bucket=BUCKET, Key="cond", IfNoneMatch=tag2)
    modified = found["LastModified"]
    second = datetime.timedelta(seconds=1)
    refused(304, "304", "get_object", Bucket=BUCKET, Key="cond", IfModifiedSince=modified)
    get("cond", IfModifiedSince=modified - second)
    get("cond", IfUnmodifiedSince=modified)
    refused(412, "PreconditionFailed", "get_object", Bucket=BUCKET, Key="cond", IfUnmodifiedSince=modified - second)
    get("cond", IfMatch=tag2, IfUnmodifiedSince=modified - second)
    refused(412, "PreconditionFailed", "delete_object", Bucket=BUCKET, Key="cond", IfMatch=tag)
    s3.delete_object(Bucket=BUCKET, Key="cond", IfMatch=tag2)
    refused(404, "NoSuchKey", "get_object", Bucket=BUCKET, Key="cond")


@check
def one_of_many_writers_wins():
    for round in range(5):
        outcomes = []
        s3.delete_object(Bucket=BUCKET, Key=f"race-{round}")

        def write(own, number):
            try:
                own.put_object(Bucket=BUCKET, Key=f"race-{round}", Body=b"%d" % number, IfNoneMatch="*")
                outcomes.append(number)
            except ClientError as error:
                assert error.response["ResponseMetadata"]["HTTPStatusCode"] in (409, 412), error.response

        in_parallel(8, write)
        same(len(outcomes), 1, "winners")
        same(get(f"race-{round}")["Body"].read(), b"%d" % outcomes[0])


@check
def metadata_and_overrides():
    put("meta", b"x", Metadata={"color": "blue", "empty": ""}, ContentType="text/x", CacheControl="no-cache", ContentLanguage="eo",
        ContentDisposition="inline", ContentEncoding="gzip", Expires=datetime.datetime(2030, 1, 1), StorageClass="STANDARD_IA")
    head = s3.head_object(Bucket=BUCKET, Key="meta")
    same(head["Metadata"], {"color": "blue", "empty": ""})
    names = ("ContentType", "CacheControl", "ContentLanguage", "ContentDisposition", "ContentEncoding", "StorageClass")
    same(tuple(head[name] for name in names), ("text/x", "no-cache", "eo", "inline", "gzip", "STANDARD_IA"))
    same(head["Expires"].year, 2030)
    found = get("meta", ResponseContentType="foo/bar", ResponseCacheControl="private", ResponseContentLanguage="de",
                ResponseContentDisposition="bla", ResponseContentEncoding="aaa", ResponseExpires="Thu, 01 Dec 2033 16:00:00 GMT")
    same((found["ContentType"], found["CacheControl"], found["ContentEncoding"]), ("foo/bar", "private", "aaa"))
    refused(400, "MetadataTooLarge", "put_object", Bucket=BUCKET, Key="big", Body=b"", Metadata={"k": "v" * 2048})
    put("big", b"", Metadata={"k": "v" * 2047})
    put("default", b"")
    same(get("default")["ContentType"], "binary/octet-stream")


@check
def checksums():
    data = bytes_of(100_000)
    for algorithm in ("CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"):
        try:
            answer = put(f"sum-{algorithm}", data, ChecksumAlgorithm=algorithm)
        except MissingDependencyException:
            continue  # CRC32C and CRC64NVME need a library that botocore does not bring; the gateway's own tests have them.
        field = f"Checksum{algorithm}"
        assert answer[field], answer
        head = s3.head_object(Bucket=BUCKET, Key=f"sum-{algorithm}", ChecksumMode="ENABLED")
        same((head[field], head["ChecksumType"]), (answer[field], "FULL_OBJECT"))
        assert field not in s3.head_object(Bucket=BUCKET, Key=f"sum-{algorithm}")
        attributes = s3.get_object_attributes(Bucket=BUCKET, Key=f"sum-{algorithm}", ObjectAttributes=["Checksum", "ETag", "ObjectSize"])
        same((attributes["Checksum"][field], attributes["ETag"], attributes["ObjectSize"]), (answer[field], etag(data)[1:-1], 100_000))
    expect(raw("PUT", f"/{BUCKET}/plain", body=data), 200)
    assert s3.head_object(Bucket=BUCKET, Key="plain", ChecksumMode="ENABLED")["ChecksumCRC64NVME"]


@check
def odd_keys():
    prefix = "odd/"
    names = ["a", "a/", "a/b", "a//b", "a/../b", "a/./b", "..", ".", " ", "a b", "a+b", "a%2Bb", "a&b=c", "é", "e\u0301", "日本", "\U0001f600", "\uffff", "<>&\"'", "k" * 1020]
    for name in names:
        put(prefix + name, name.encode())
    for name in names:
        same(get(prefix + name)["Body"].read(), name.encode(), name)
    listed = [found["Key"] for found in s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Contents"]]
    same(listed, sorted((prefix + name for name in names), key=lambda key: key.encode()), "order by bytes of UTF-8")
    same(s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix, MaxKeys=1)["KeyCount"], 1)
    refused(400, "KeyTooLongError", "put_object", Bucket=BUCKET, Key="k" * 1025, Body=b"")
    for name in names:
        s3.delete_object(Bucket=BUCKET, Key=prefix + name)
    same(s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["KeyCount"], 0)


@check
def deletes():
    s3.delete_object(Bucket=BUCKET, Key="never-there")
    for number in range(5):
        put(f"del/{number}")
    tag = s3.head_object(Bucket=BUCKET, Key="del/4")["ETag"]
    objects = [{"Key": "del/0"}, {"Key": "del/1"}, {"Key": "del/absent"}, {"Key": "del/4", "ETag": '"bad"'}]
    answer = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": objects})
    same(sorted(found["Key"] for found in answer["Deleted"]), ["del/0", "del/1", "del/absent"])
    same([(found["Key"], found["Code"]) for found in answer["Errors"]], [("del/4", "PreconditionFailed")])
    quiet = s3.delete_objects(Bucket=BUCKET, Delete={"Quiet": True, "Objects": [{"Key": "del/2"}, {"Key": "del/4", "ETag": tag}]})
    assert "Deleted" not in quiet and "Errors" not in quiet, quiet
    same([found["Key"] for found in s3.list_objects_v2(Bucket=BUCKET, Prefix="del/")["Contents"]], ["del/3"])
    many = [{"Key": f"x{number}"} for number in range(1001)]
    refused(400, "MalformedXML", "delete_objects", Bucket=BUCKET, Delete={"Objects": many})
    s3.delete_objects(Bucket=BUCKET, Delete={"Objects": many[:1000]})
    document = b"<Delete><Object><Key>del/3</Key></Object></Delete>"
    expect(raw("POST", f"/{BUCKET}", "delete", body=document), 400, "InvalidRequest")
    expect(raw("POST", f"/{BUCKET}", "delete", headers={"content-md5": b64(hashlib.md5(b"").digest())}, body=document), 400, "BadDigest")
    get("del/3")


@check
def copies():
    data = bytes_of(2_000_000)
    tag = put("src +é", data, Metadata={"a": "1"}, ContentType="text/x")["ETag"]
    source = {"Bucket": BUCKET, "Key": "src +é"}
    answer = s3.copy_object(Bucket=OTHER, Key="dst", CopySource=source)
    same(answer["CopyObjectResult"]["ETag"], tag)
    found = s3.get_object(Bucket=OTHER, Key="dst")
    same((found["Body"].read(), found["Metadata"], found["ContentType"]), (data, {"a": "1"}, "text/x"))
    s3.copy_object(Bucket=OTHER, Key="dst", CopySource=source, MetadataDirective="REPLACE", Metadata={"b": "2"})
    found = s3.get_object(Bucket=OTHER, Key="dst")
    same((found["Metadata"], found["ContentType"]), ({"b": "2"}, "binary/octet-stream"))
    refused(400, "InvalidRequest", "copy_object", Bucket=BUCKET, Key="src +é", CopySource=source)
    s3.copy_object(Bucket=BUCKET, Key="src +é", CopySource=source, MetadataDirective="REPLACE", Metadata={"c": "3"})
    found = get("src +é")
    same((found["Metadata"], found["Body"].read()), ({"c": "3"}, data))
    refused(412, "PreconditionFailed", "copy_object", Bucket=OTHER, Key="dst", CopySource=source, CopySourceIfMatch='"bad"')
    refused(412, "PreconditionFailed", "copy_object", Bucket=OTHER, Key="dst", CopySource=source, CopySourceIfNoneMatch=tag)
    s3.copy_object(Bucket=OTHER, Key="dst", CopySource=source, CopySourceIfMatch=tag)
    refused(404, "NoSuchKey", "copy_object", Bucket=OTHER, Key="dst", CopySource={"Bucket": BUCKET, "Key": "absent"})
    refused(404, "NoSuchBucket", "copy_object", Bucket=OTHER, Key="dst", CopySource={"Bucket": "absent-bucket", "Key": "k"})
    s3.delete_object(Bucket=OTHER, Key="dst")


# ---- listings


@check
def listings():
    names = ["list/a", "list/b/1", "list/b/2", "list/b+c/1", "list/c d", "list/z"]
    for name in names:
        put(name)
    arguments = {"Bucket": BUCKET, "Prefix": "list/", "Delimiter": "/"}
    page = s3.list_objects_v2(**arguments)
    same([found["Key"] for found in page["Contents"]], ["list/a", "list/c d", "list/z"])
    same([found["Prefix"] for found in page["CommonPrefixes"]], ["list/b+c/", "list/b/"])
    same((page["KeyCount"], page["IsTruncated"]), (5, False))
    for limit in (1, 2, 3):
        seen, token = [], {}
        while True:
            page = s3.list_objects_v2(**arguments, MaxKeys=limit, **token)
            seen += [found["Key"] for found in page.get("Contents", [])] + [found["Prefix"] for found in page.get("CommonPrefixes", [])]
            assert page["KeyCount"] <= limit
            if not page["IsTruncated"]:
                break
            token = {"ContinuationToken": page["NextContinuationToken"]}
        same(sorted(seen), sorted(["list/a", "list/c d", "list/z", "list/b+c/", "list/b/"]), f"pages of {limit}")
        seen, marker = [], ""
        while True:
            page = s3.list_objects(**arguments, MaxKeys=limit, Marker=marker)
            seen += [found["Key"] for found in page.get("Contents", [])] + [found["Prefix"] for found in page.get("CommonPrefixes", [])]
            if not page["IsTruncated"]:
                break
            marker = page["NextMarker"]
        same(len(seen), 5)
    same(s3.list_objects_v2(Bucket=BUCKET, Prefix="list/", StartAfter="list/b/1")["Contents"][0]["Key"], "list/b/2")
    assert "NextMarker" not in s3.list_objects(Bucket=BUCKET, Prefix="list/", MaxKeys=1)
    none = s3.list_objects_v2(Bucket=BUCKET, MaxKeys=0)
    same((none["IsTruncated"], none["KeyCount"], "Contents" in none), (False, 0, False))
    assert "Owner" not in s3.list_objects_v2(Bucket=BUCKET, MaxKeys=1)["Contents"][0]
    assert s3.list_objects_v2(Bucket=BUCKET, MaxKeys=1, FetchOwner=True)["Contents"][0]["Owner"]["ID"]
    for query in ("max-keys=x", "max-keys=-1", "encoding-type=x", "continuation-token=garbage&list-type=2", "continuation-token=&list-type=2"):
        expect(raw("GET", f"/{BUCKET}", query), 400, "InvalidArgument")
    answer = expect(raw("GET", f"/{BUCKET}", "encoding-type=url&list-type=2&prefix=list%2Fb%2B"), 200)
    assert b"<Key>list/b%2Bc/1</Key>" in answer[3] and b"<Prefix>list/b%2B</Prefix>" in answer[3], answer[3]
    versions = s3.list_object_versions(Bucket=BUCKET, Prefix="list/")
    same([(found["Key"], found["VersionId"]) for found in versions["Versions"]][0], ("list/a", "null"))


@check
def a_listing_of_many_pages():
    objects = [f"many/{number:04}" for number in range(1100)]
    in_parallel(8, lambda own, number: [own.put_object(Bucket=OTHER, Key=key, Body=b"") for key in objects[number::8]])
    first = s3.list_objects_v2(Bucket=OTHER)
    same((first["KeyCount"], first["IsTruncated"], first["MaxKeys"]), (1000, True, 1000))
    pages = list(s3.get_paginator("list_objects").paginate(Bucket=OTHER))
    same([found["Key"] for page in pages for found in page["Contents"]], objects)
    for start in (0, 1000):
        s3.delete_objects(Bucket=OTHER, Delete={"Objects": [{"Key": key} for key in objects[start : start + 1000]]})
    same(s3.list_objects_v2(Bucket=OTHER)["KeyCount"], 0)


# ---- multipart


def begin(key, **arguments):
    return s3.create_multipart_upload(Bucket=BUCKET, Key=key, **arguments)["UploadId"]


def part(key, upload, number, data, **arguments):
    answer = s3.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=number, Body=data, **arguments)
    return {"PartNumber": number, "ETag": answer["ETag"]}


def finish(key, upload, parts, **arguments):
    return s3.complete_multipart_upload(Bucket=BUCKET, Key=key, UploadId=upload, MultipartUpload={"Parts": parts}, **arguments)


@check
def multipart():
    first, second, third = bytes_of(PART, 1), bytes_of(PART, 2), bytes_of(77, 3)
    s3.delete_object(Bucket=BUCKET, Key="mp")
    upload = begin("mp", Metadata={"a": "1"}, ContentType="text/x")
    part("mp", upload, 1, b"to be replaced")
    parts = [part("mp", upload, 1, first), part("mp", upload, 3, second), part("mp", upload, 7, third)]
    part("mp", upload, 8, b"never named")
    refused(404, "NoSuchKey", "get_object", Bucket=BUCKET, Key="mp")
    listed = s3.list_parts(Bucket=BUCKET, Key="mp", UploadId=upload, MaxParts=2)
    same(([found["PartNumber"] for found in listed["Parts"]], listed["IsTruncated"], listed["NextPartNumberMarker"]), ([1, 3], True, 3))
    for wrong, code in (
        (parts[::-1], "InvalidPartOrder"),
        ([{**parts[0], "ETag": parts[1]["ETag"]}], "InvalidPart"),
        ([{"PartNumber": 5, "ETag": parts[1]["ETag"]}], "InvalidPart"),
        ([], "MalformedXML"),
    ):
        arguments = {"Bucket": BUCKET, "Key": "mp", "UploadId": upload}
        if wrong:
            refused(400, code, "complete_multipart_upload", **arguments, MultipartUpload={"Parts": wrong})
        else:
            expect(raw("POST", f"/{BUCKET}/mp", f"uploadId={upload}", body=b"<CompleteMultipartUpload></CompleteMultipartUpload>"), 400, code)
    put("mp", b"before")
    refused(412, "PreconditionFailed", "complete_multipart_upload", Bucket=BUCKET, Key="mp", UploadId=upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*")
    answer = finish("mp", upload, parts)
    tag = '"' + hashlib.md5(b"".join(hashlib.md5(data).digest() for data in (first, second, third))).hexdigest() + '-3"'
    same(answer["ETag"], tag)
    whole = first + second + third
    found = get("mp")
    same((found["Body"].read() == whole, found["ETag"], found["Metadata"], found["ContentType"]), (True, tag, {"a": "1"}, "text/x"))
    same(finish("mp", upload, parts)["ETag"], tag, "sent again")
    found = get("mp", PartNumber=3)
    same((found["PartsCount"], found["Body"].read() == second, found["ContentRange"]), (3, True, f"bytes {PART}-{2 * PART - 1}/{len(whole)}"))
    refused(416, "InvalidPartNumber", "get_object", Bucket=BUCKET, Key="mp", PartNumber=4)
    at = PART - 5
    same(get("mp", Range=f"bytes={at}-{at + 9}")["Body"].read(), whole[at : at + 10], "a range across parts")
    refused(404, "NoSuchUpload", "upload_part", Bucket=BUCKET, Key="mp", UploadId=upload, PartNumber=1, Body=b"")
    refused(404, "NoSuchUpload", "abort_multipart_upload", Bucket=BUCKET, Key="mp", UploadId="nonsense")
    upload = begin("mp2")
    small = [part("mp2", upload, 1, b"1"), part("mp2", upload, 2, b"2")]
    refused(400, "EntityTooSmall", "complete_multipart_upload", Bucket=BUCKET, Key="mp2", UploadId=upload, MultipartUpload={"Parts": small})
    for number in (0, 10_001):
        expect(raw("PUT", f"/{BUCKET}/mp2", f"partNumber={number}&uploadId={upload}", body=b"x"), 400, "InvalidArgument")
    uploads = s3.list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    same([(found["Key"], found["UploadId"]) for found in uploads], [("mp2", upload)])
    s3.abort_multipart_upload(Bucket=BUCKET, Key="mp2", UploadId=upload)
    refused(404, "NoSuchUpload", "list_parts", Bucket=BUCKET, Key="mp2", UploadId=upload)


@check
def multipart_checksums():
    first, second = bytes_of(PART, 5), bytes_of(1000, 6)
    for algorithm, kind in (("CRC32", "COMPOSITE"), ("CRC32", "FULL_OBJECT"), ("SHA256", "COMPOSITE"), ("SHA1", "COMPOSITE")):
        field = f"Checksum{algorithm}"
        digest = {
            "CRC32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
            "SHA256": lambda data: hashlib.sha256(data).digest(),
            "SHA1": lambda data: hashlib.sha1(data).digest(),
        }[algorithm]
        answer = s3.create_multipart_upload(Bucket=BUCKET, Key="mps", ChecksumAlgorithm=algorithm, ChecksumType=kind)
        same((answer["ChecksumAlgorithm"], answer["ChecksumType"]), (algorithm, kind))
        parts = []
        for number, data in ((1, first), (2, second)):
            sent = s3.upload_part(Bucket=BUCKET, Key="mps", UploadId=answer["UploadId"], PartNumber=number, Body=data, ChecksumAlgorithm=algorithm)
            same(sent[field], b64(digest(data)))
            parts.append({"PartNumber": number, "ETag": sent["ETag"], field: sent[field]})
        expected = b64(digest(digest(first) + digest(second))) + "-2" if kind == "COMPOSITE" else b64(digest(first + second))
        wrong = {"Bucket": BUCKET, "Key": "mps", "UploadId": answer["UploadId"], "MultipartUpload": {"Parts": parts}}
        refused(400, "BadDigest", "complete_multipart_upload", **wrong, **{field: b64(digest(b"other"))}, ChecksumType=kind)
        done = finish("mps", answer["UploadId"], parts, **{field: expected}, ChecksumType=kind)
        same((done[field], done["ChecksumType"]), (expected, kind))
        head = s3.head_object(Bucket=BUCKET, Key="mps", ChecksumMode="ENABLED")
        same((head[field], head["ChecksumType"]), (expected, kind))
    refused(400, "InvalidRequest", "create_multipart_upload", Bucket=BUCKET, Key="mps", ChecksumAlgorithm="SHA256", ChecksumType="FULL_OBJECT")


@check
def parts_by_copy():
    data = bytes_of(PART + 1000, 7)
    put("pc-src", data)
    upload = begin("pc")
    copy = lambda number, **how: s3.upload_part_copy(
        Bucket=BUCKET, Key="pc", UploadId=upload, PartNumber=number, CopySource={"Bucket": BUCKET, "Key": "pc-src"}, **how
    )["CopyPartResult"]
    parts = [{"PartNumber": 1, "ETag": copy(1, CopySourceRange=f"bytes=0-{PART - 1}")["ETag"]}]
    same(parts[0]["ETag"], etag(data[:PART]))
    parts.append({"PartNumber": 2, "ETag": copy(2, CopySourceRange=f"bytes={PART}-{PART + 999}")["ETag"]})
    arguments = {"Bucket": BUCKET, "Key": "pc", "UploadId": upload, "PartNumber": 3, "CopySource": {"Bucket": BUCKET, "Key": "pc-src"}}
    refused(416, "InvalidRange", "upload_part_copy", **arguments, CopySourceRange=f"bytes=0-{len(data)}")
    for wrong in ("bytes=0", "0-5", "bytes=5-4"):
        refused(400, "InvalidArgument", "upload_part_copy", **arguments, CopySourceRange=wrong)
    finish("pc", upload, parts)
    assert get("pc")["Body"].read() == data


# ---- the rest


@check
def buckets():
    refused(409, "BucketAlreadyOwnedByYou", "create_bucket", Bucket=BUCKET)
    for bad in ("UPPER", "a", "x" * 64, "has_underscore", "192.168.0.1"):
        expect(raw("PUT", f"/{bad}"), 400, "InvalidBucketName")
    same(s3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"], None)
    same(s3.head_bucket(Bucket=BUCKET)["ResponseMetadata"]["HTTPHeaders"]["x-amz-bucket-region"], REGION)
    page = s3.list_buckets(MaxBuckets=1, Prefix="behaviours")
    same([found["Name"] for found in page["Buckets"]], [BUCKET])
    page = s3.list_buckets(MaxBuckets=1, Prefix="behaviours", ContinuationToken=page["ContinuationToken"])
    same([found["Name"] for found in page["Buckets"]], [OTHER])
    refused(409, "BucketNotEmpty", "delete_bucket", Bucket=BUCKET)
    refused(404, "NoSuchBucket", "delete_bucket", Bucket="never-there")


@check
def what_is_not_served_says_so():
    for method, path, query, status, code in (
        ("GET", f"/{BUCKET}", "lifecycle", 404, "NoSuchLifecycleConfiguration"),
        ("GET", f"/{BUCKET}", "policy", 404, "NoSuchBucketPolicy"),
        ("GET", f"/{BUCKET}", "cors", 404, "NoSuchCORSConfiguration"),
        ("GET", f"/{BUCKET}", "tagging", 404, "NoSuchTagSet"),
        ("GET", f"/{BUCKET}", "versioning", 200, ""),
        ("GET", f"/{BUCKET}", "acl", 200, ""),
        ("PUT", f"/{BUCKET}", "lifecycle", 501, "NotImplemented"),
        ("DELETE", f"/{BUCKET}", "policy", 501, "NotImplemented"),
        ("DELETE", f"/{BUCKET}", "something-new", 501, "NotImplemented"),
        ("GET", f"/{BUCKET}", "inventory", 501, "NotImplemented"),
        ("POST", f"/{BUCKET}/ranges", "select", 501, "NotImplemented"),
        ("PUT", f"/{BUCKET}/ranges", "tagging", 501, "NotImplemented"),
        ("PATCH", f"/{BUCKET}/ranges", "", 501, "NotImplemented"),
    ):
        expect(raw(method, path, query), status, code)
    for header in ("x-amz-server-side-encryption", "x-amz-tagging", "x-amz-object-lock-mode"):
        expect(raw("PUT", f"/{BUCKET}/trace", headers={header: "x"}), 501, "NotImplemented")
    assert "trace" not in keys()
    s3.head_bucket(Bucket=BUCKET)


@check
def a_client_that_goes_away_leaves_nothing():
    request = Signed("PUT", f"/{BUCKET}/gone", headers={"content-length": str(3 << 20)})
    connection = http.client.HTTPConnection(ENDPOINT.hostname, ENDPOINT.port, timeout=30)
    connection.putrequest("PUT", request.target, skip_host=True, skip_accept_encoding=True)
    for name, value in request.headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    connection.send(bytes_of(2 << 20))
    connection.close()
    put("after-gone")
    assert "gone" not in keys()
    # And one that stops reading in the middle does not keep others from it.
    put("half-read", bytes_of(8 << 20))
    half = get("half-read")["Body"]
    half.read(1000)
    half.close()
    same(len(get("half-read")["Body"].read()), 8 << 20)


def main():
    for bucket in (BUCKET, OTHER):
        if bucket not in [found["Name"] for found in s3.list_buckets()["Buckets"]]:
            s3.create_bucket(Bucket=bucket)
    chosen = [function for function in CHECKS if not sys.argv[1:] or function.__name__ in sys.argv[1:]]
    failed = 0
    for function in chosen:
        begun = time.monotonic()
        try:
            function()
            print(f"ok      {function.__name__} ({time.monotonic() - begun:.2f} s)")
        except Exception:
            failed += 1
            print(f"FAILED  {function.__name__}")
            traceback.print_exc()
    print(f"{len(chosen) - failed} of {len(chosen)} held")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
