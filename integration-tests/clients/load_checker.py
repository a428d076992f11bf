"""Mixed load over boto3 that knows what every object may be, and checks it.

    load_checker.py run    --state FILE --bucket B [--threads 16] [--strict] [--seed N] [--large]
    load_checker.py verify --state FILE --bucket B [--threads 16]

`run` loads until its stdin closes. Each thread has keys of its own and works on them one operation at a time, so for every
key it knows the set of values the store may hold: one after an answer, more after a request that got none. Lines on stdout
tell progress ("acks N"). `verify` reads every key and every list back and compares. Both write what they know to FILE.

A value is (seed, length): its bytes are made of these again when they are compared. `--strict` allows no failed request.
Exit code 0: nothing wrong was seen; 1: something was, told on stderr.
"""

import argparse
import json
import os
import random
import sys
import threading
import time

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

KEYS_PER_THREAD = 30
PART = 5 << 20
ABSENT = None


def value_bytes(value):
    seed, length = value
    return random.Random(seed).randbytes(length)


def client(strict, threads=1):
    # Where the cluster is to be killed, a request without an answer is an outcome of its own, not something to repeat.
    retries = {"mode": "standard", "max_attempts": 5} if strict else {"mode": "standard", "max_attempts": 1}
    return boto3.client(
        "s3",
        endpoint_url=os.environ["OZONE_S3_ENDPOINT"],
        config=Config(retries=retries, connect_timeout=5, read_timeout=60, s3={"addressing_style": "path"}, max_pool_connections=threads),
    )


class Wrong(Exception):
    """The store broke a promise."""


class Lane:
    """One thread's keys, and what each may hold: a list of values, of which one is true."""

    def __init__(self, number, bucket, seed, strict, large):
        self.number, self.bucket, self.strict, self.large = number, bucket, strict, large
        self.random = random.Random(f"{seed}/{number}")
        self.prefix = f"lane {number:02}/"
        self.keys = {}
        self.uploads = 0
        self.acks = self.unanswered = 0
        self.s3 = client(strict)

    # ---- what may be

    def may(self, key):
        return self.keys.get(key, [ABSENT])

    def settle(self, key, value):
        self.keys[key] = [value]

    def unsure(self, key, value):
        known = self.may(key)
        if value not in known:
            self.keys[key] = known + [value]

    def change(self, key, value, call):
        """Runs a call after which the key holds `value`, or, without an answer, may."""
        try:
            call()
        except (BotoCoreError, HTTPClientError, ClientError) as error:
            self.failed(error)
            self.unsure(key, value)
        else:
            self.settle(key, value)
            self.acks += 1

    def failed(self, error):
        """A request failed: that is allowed only while processes are killed, and only as no answer or a fault of the server."""
        status = error.response["ResponseMetadata"]["HTTPStatusCode"] if isinstance(error, ClientError) else 0
        if self.strict or 400 <= status < 500:
            raise Wrong(f"{self.prefix}: {error!r}")
        self.unanswered += 1
        time.sleep(0.02)

    # ---- operations

    def fresh(self, small=False):
        kind = self.random.random()
        if small or kind < 0.80:
            length = self.random.choice([0, 1, 100, 1000, 4096, 10_000, 40_000, 70_000])
        elif kind < 0.97 or not self.large:
            length = self.random.randrange(100_000, 1_500_000)
        else:
            length = self.random.randrange(5 << 20, 12 << 20)
        return [self.random.getrandbits(62), length]

    def some_key(self):
        return f"{self.prefix}{self.random.randrange(KEYS_PER_THREAD):03}"

    def put(self):
        key, value = self.some_key(), self.fresh()
        body = value_bytes(value)
        self.change(key, value, lambda: self.s3.put_object(Bucket=self.bucket, Key=key, Body=body, Metadata={"v": str(value[0])}))

    def multipart(self):
        key, value = self.some_key(), [self.random.getrandbits(62), PART + self.random.randrange(1, 200_000)]
        body = value_bytes(value)
        where = {"Bucket": self.bucket, "Key": key}

        def call():
            upload = self.s3.create_multipart_upload(**where)["UploadId"]
            parts = []
            for number, part in enumerate((body[:PART], body[PART:]), 1):
                answer = self.s3.upload_part(**where, UploadId=upload, PartNumber=number, Body=part)
                parts.append({"PartNumber": number, "ETag": answer["ETag"]})
            self.s3.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": parts})

        self.change(key, value, call)

    def copy(self):
        source, target = self.some_key(), self.some_key()
        if len(self.may(source)) != 1 or self.may(source) == [ABSENT] or source == target:
            return
        value = self.may(source)[0]
        self.change(target, value, lambda: self.s3.copy_object(Bucket=self.bucket, Key=target, CopySource={"Bucket": self.bucket, "Key": source}))

    def delete(self):
        key = self.some_key()
        self.change(key, ABSENT, lambda: self.s3.delete_object(Bucket=self.bucket, Key=key))

    def delete_batch(self):
        keys = sorted({self.some_key() for _ in range(5)})
        try:
            answer = self.s3.delete_objects(Bucket=self.bucket, Delete={"Objects": [{"Key": key} for key in keys]})
        except (BotoCoreError, HTTPClientError, ClientError) as error:
            self.failed(error)
            for key in keys:
                self.unsure(key, ABSENT)
            return
        deleted = {entry["Key"] for entry in answer.get("Deleted", [])}
        if self.strict and deleted != set(keys):
            raise Wrong(f"batch delete of {keys}: {answer}")
        for key in keys:
            (self.settle if key in deleted else self.unsure)(key, ABSENT)
        self.acks += 1

    def get(self, key=None):
        key = key or self.some_key()
        try:
            answer = self.s3.get_object(Bucket=self.bucket, Key=key)
            body = answer["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchKey":
                self.check(key, None, None)
                return
            self.failed(error)
        except (BotoCoreError, HTTPClientError) as error:
            self.failed(error)
        else:
            self.check(key, body, answer)

    def check(self, key, body, answer):
        for value in self.may(key):
            if body is None and value is ABSENT:
                return value
            if body is not None and value is not ABSENT and len(body) == value[1] and body == value_bytes(value):
                if answer["ContentLength"] != len(body):
                    raise Wrong(f"{key}: length {answer['ContentLength']} of {len(body)} bytes")
                # Two empty values differ in their metadata only. Uploads in parts have none.
                if answer["Metadata"].get("v", str(value[0])) == str(value[0]):
                    return value
        found = "nothing" if body is None else f"{len(body)} bytes with {answer['Metadata']}"
        raise Wrong(f"{key} holds {found}, allowed is one of {self.may(key)}")

    def get_range(self):
        key = self.some_key()
        if len(self.may(key)) != 1 or self.may(key)[0] is ABSENT or self.may(key)[0][1] < 2:
            return
        value = self.may(key)[0]
        first = self.random.randrange(value[1] - 1)
        last = self.random.randrange(first, value[1])
        try:
            body = self.s3.get_object(Bucket=self.bucket, Key=key, Range=f"bytes={first}-{last}")["Body"].read()
        except (BotoCoreError, HTTPClientError, ClientError) as error:
            self.failed(error)
        else:
            if body != value_bytes(value)[first : last + 1]:
                raise Wrong(f"{key}: bytes {first}-{last} of {value} differ")

    def list(self, page=7):
        found, arguments = {}, {}
        try:
            while True:
                answer = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=self.prefix, MaxKeys=page, **arguments)
                for entry in answer.get("Contents", []):
                    if entry["Key"] in found:
                        raise Wrong(f"{entry['Key']} is listed twice")
                    found[entry["Key"]] = entry["Size"]
                if not answer["IsTruncated"]:
                    break
                arguments = {"ContinuationToken": answer["NextContinuationToken"]}
        except (BotoCoreError, HTTPClientError, ClientError) as error:
            self.failed(error)
            return
        if list(found) != sorted(found):
            raise Wrong(f"list of {self.prefix} is out of order: {list(found)}")
        for key in self.keys.keys() | found.keys():
            sizes = {None if value is ABSENT else value[1] for value in self.may(key)}
            if found.get(key) not in sizes:
                raise Wrong(f"{key} is listed as {found.get(key)}, allowed is one of {self.may(key)}")

    def step(self):
        operations = [self.put, self.get, self.get_range, self.delete, self.delete_batch, self.list, self.copy, self.multipart]
        weights = [40, 25, 8, 10, 2, 5, 6, 1 if self.large else 0.3]
        self.random.choices(operations, weights)[0]()

    # ---- the whole truth

    def verify(self):
        """Reads every key; what was unsure is known afterwards. Returns how many were."""
        unsure = 0
        for key in sorted(self.keys):
            unsure += len(self.may(key)) > 1
            try:
                answer = self.s3.get_object(Bucket=self.bucket, Key=key)
                body = answer["Body"].read()
            except ClientError as error:
                if error.response["Error"]["Code"] != "NoSuchKey":
                    raise
                body, answer = None, None
            self.settle(key, self.check(key, body, answer))
        self.list()
        self.list(page=1000)
        return unsure


def in_threads(lanes, work):
    """Runs `work` for each lane; returns what went wrong."""
    wrong = []

    def guarded(lane):
        try:
            work(lane)
        except Exception as error:  # told to whoever called, whatever it is
            wrong.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=guarded, args=(lane,)) for lane in lanes]
    for thread in threads:
        thread.start()
    return threads, wrong


def load(args):
    lanes = [Lane(n, args.bucket, args.seed, args.strict, args.large) for n in range(args.threads)]
    if os.path.exists(args.state):
        with open(args.state) as file:
            for lane, keys in zip(lanes, json.load(file), strict=True):
                lane.keys = keys
    return lanes


def save(args, lanes):
    with open(args.state + ".tmp", "w") as file:
        json.dump([lane.keys for lane in lanes], file)
    os.replace(args.state + ".tmp", args.state)


def run(args):
    lanes, stop = load(args), threading.Event()

    def work(lane):
        while not stop.is_set():
            lane.step()

    threads, wrong = in_threads(lanes, work)
    told = threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True)
    told.start()
    while not stop.wait(0.05) and not wrong:
        print("acks", sum(lane.acks for lane in lanes), flush=True)
    stop.set()
    for thread in threads:
        thread.join()
    save(args, lanes)
    print(json.dumps({"acks": sum(lane.acks for lane in lanes), "unanswered": sum(lane.unanswered for lane in lanes)}))
    return wrong


def verify(args):
    args.strict = True
    lanes, counts = load(args), []
    threads, wrong = in_threads(lanes, lambda lane: counts.append(lane.verify()))
    for thread in threads:
        thread.join()
    save(args, lanes)
    keys = [values[0] for lane in lanes for values in lane.keys.values()]
    print(json.dumps({"keys": len(keys), "present": sum(key is not ABSENT for key in keys), "unsure": sum(counts)}))
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["run", "verify"])
    parser.add_argument("--state", required=True)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--large", action="store_true")
    args = parser.parse_args()
    wrong = {"run": run, "verify": verify}[args.command](args)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
