"""Puts one object in a single request, from a stream that is made as it goes, and reads it back comparing every byte."""

import argparse
import hashlib
import os

import boto3
from botocore.config import Config

BLOCK = 1 << 20


def block(number):
    """A MiB that no other number gives."""
    return hashlib.sha256(b"%d" % number).digest() * (BLOCK // 32)


class Stream:
    """A file-like object of `length` bytes, a multiple of BLOCK. botocore hashes it first and then rewinds."""

    def __init__(self, length):
        self.length, self.at = length, 0

    def __len__(self):
        return self.length

    def tell(self):
        return self.at

    def seek(self, offset, whence=0):
        self.at = offset + {0: 0, 1: self.at, 2: self.length}[whence]
        return self.at

    def read(self, size=-1):
        end = self.length if size is None or size < 0 else min(self.length, self.at + size)
        number, start = divmod(self.at, BLOCK)
        data = block(number)[start : start + end - self.at] if end > self.at else b""
        self.at += len(data)
        return data


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--length", type=int, required=True)
    args = parser.parse_args()
    config = Config(retries={"mode": "standard", "max_attempts": 1}, read_timeout=300, s3={"addressing_style": "path"})
    s3 = boto3.client("s3", endpoint_url=os.environ["OZONE_S3_ENDPOINT"], config=config)
    where = {"Bucket": args.bucket, "Key": "object"}
    s3.put_object(**where, Body=Stream(args.length), ContentLength=args.length)
    answer = s3.get_object(**where)
    assert answer["ContentLength"] == args.length, answer["ContentLength"]
    expected = Stream(args.length)
    for data in answer["Body"].iter_chunks(BLOCK):
        while data:
            part = expected.read(len(data))
            assert data[: len(part)] == part, f"differs near byte {expected.at}"
            data = data[len(part) :]
    assert expected.at == args.length, expected.at


if __name__ == "__main__":
    main()
