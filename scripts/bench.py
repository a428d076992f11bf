#!/usr/bin/env python3
"""Measures a fresh cluster on this machine over S3 and prints the table of docs/benchmarks.md.

usage: bench.py PROGRAM [--processes] [--seconds S] [--data DIR]

PROGRAM is the release build of `ozone`. The cluster lives in a folder of its own, below DIR where one is given, and is removed afterwards.
CPU is that of all processes of the cluster, user and system, from /proc; the load generator's own is not in it. Standard library only.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

GIB = 1 << 30


class Cluster:
    def __init__(self, program, folder, processes):
        self.program, self.data = program, os.path.join(folder, "data")
        command = [program, "dev", "--data", self.data, "--detach"]
        for port in ["s3", "s3-http", "om", "om-http", "scm", "scm-http", "datanode", "datanode-http"]:
            command += [f"--{port}-port", "0"]
        if processes:
            command.append("--processes")
        begun = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self.variables = dict(os.environ)
        with open(os.path.join(self.data, "cluster.env"), encoding="utf-8") as file:
            for line in file:
                name, equals, value = line.strip().partition("=")
                if equals:
                    self.variables[name] = value.strip("\"'")
        self.freon("put", "-n", "1", "-p", "first", "-s", "1B", "-b", "first")
        self.start_seconds = time.monotonic() - begun
        self.pids = [int(entry.split("=")[1]) for entry in self.variables["OZONE_PIDS"].split()]

    def ozone(self, *arguments):
        done = subprocess.run([self.program, *arguments], env=self.variables, stdout=subprocess.PIPE, check=False)
        if done.returncode != 0:
            sys.exit(f"ozone {' '.join(arguments)} failed:\n{done.stdout.decode()}")
        return done.stdout

    def freon(self, mix, *arguments):
        return json.loads(self.ozone("freon", "s3kg", "--json", "-m", mix, *arguments))

    def cpu(self):
        """User and system seconds of all processes so far."""
        total = 0
        for pid in self.pids:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def memory(self, name):
        """Bytes of a line of /proc/PID/status, all processes together."""
        total = 0
        for pid in self.pids:
            with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith(name + ":"))
        return total << 10

    def allocated(self):
        """Bytes of disk that the folder takes, once everything is written back."""
        os.sync()
        blocks = 0
        for folder, _, names in os.walk(self.data):
            for name in names:
                try:
                    blocks += os.lstat(os.path.join(folder, name)).st_blocks
                except FileNotFoundError:
                    pass  # a file of a table that was merged meanwhile
        return blocks * 512

    def stop(self):
        subprocess.run([self.program, "dev", "stop", "--data", self.data], check=False, stdout=subprocess.DEVNULL)


def figures(report):
    operation = report["operations"][-1]
    return operation, report["processes"][-1], operation["latencyMs"]


class Table:
    def __init__(self):
        self.rows = []

    def add(self, name, report, cost, rate):
        operation, process, latency = figures(report)
        self.rows.append([name, rate(operation), cost(process), *(f"{latency[at]:.2f}" for at in ["p50", "p95", "p99", "max"])])

    def per_operation(self, name, report):
        self.add(name, report, lambda p: f"{p['cpuUsPerOperation']:.0f} µs", lambda o: f"{o['perSecond']:.0f}/s")

    def per_key(self, name, report):
        self.add(name, report, lambda p: f"{p['cpuUsPerItem']:.1f} µs a key", lambda o: f"{o['itemsPerSecond']:.0f} keys/s")

    def per_gib(self, name, report):
        self.add(name, report, lambda p: f"{p['cpuSecondsPerGib']:.2f} s/GiB", lambda o: f"{o['mibPerSecond']:.0f} MiB/s")

    def show(self):
        print("| over S3 | rate | CPU of the cluster | p50 ms | p95 | p99 | max |\n| --- | --- | --- | --- | --- | --- | --- |")
        for row in self.rows:
            print("| " + " | ".join(row) + " |")


def count(report):
    return report["operations"][-1]["count"]


def small(cluster, table, seconds):
    """The rows of 4 KiB objects; answers disk bytes per byte stored."""
    common = ["-b", "small", "-s", "4KiB", "-t", "16"]
    warm = cluster.freon("put", *common, "-p", "warm", "--duration", "2s")
    cluster.freon("delete-many", *common, "-p", "warm", "-k", str(count(warm)), "-n", "1000000")
    before = cluster.allocated()
    put = cluster.freon("put", *common, "--duration", f"{seconds}s")
    keys = count(put)
    grown = cluster.allocated() - before
    table.per_operation("PUT 4 KiB", put)
    there = ["-k", str(keys)]
    table.per_operation("GET 4 KiB", cluster.freon("get", *common, *there, "--duration", f"{seconds}s", "--validate"))
    table.per_operation("HEAD", cluster.freon("head", *common, *there, "--duration", f"{seconds}s"))
    table.per_key("LIST, 1,000 a page", cluster.freon("list", "-b", "small", "-t", "1", "--duration", f"{seconds}s"))
    mixed = cluster.freon("get=45,head=30,put=15,delete=10", *common, *there, "--duration", f"{seconds}s")
    table.per_operation("45 GET, 30 HEAD, 15 PUT, 10 DELETE", mixed)
    by_one = cluster.freon("put", *common, "-p", "one", "-n", str(max(keys // 2, 1000)))
    table.per_operation("DELETE", cluster.freon("delete", *common, "-p", "one", "-k", str(count(by_one)), "-n", "1000000"))
    table.per_key("DELETE, 1,000 in a request", cluster.freon("delete-many", "-b", "small", "-t", "2", *there, "-n", "1000000"))
    return grown / (keys * 4096)


def others(cluster, table, seconds):
    table.per_operation("PUT 10 KiB", cluster.freon("put", "-b", "ten", "-s", "10KiB", "-t", "16", "--duration", f"{seconds}s"))
    cluster.ozone("sh", "bucket", "create", "/s3v/inline", "--inline", "always")
    inline = ["-b", "inline", "-s", "4KiB", "-t", "16"]
    put = cluster.freon("put", *inline, "--duration", f"{seconds}s")
    table.per_operation("PUT 4 KiB, inline", put)
    table.per_operation("GET 4 KiB, inline", cluster.freon("get", *inline, "-k", str(count(put)), "--duration", f"{seconds}s", "--validate"))
    large = ["-b", "large", "-s", "10MiB", "-t", "4"]
    before = cluster.allocated()
    put = cluster.freon("put", *large, "-n", "100")
    grown = cluster.allocated() - before
    table.per_gib("PUT 10 MiB", put)
    table.per_gib("GET 10 MiB", cluster.freon("get", *large, "-k", "100", "-n", "300"))
    return grown / (100 * (10 << 20))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--data")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="ozone-bench-", dir=options.data)
    cluster = Cluster(os.path.abspath(options.program), folder, options.processes)
    try:
        resident = cluster.memory("VmRSS")
        time.sleep(2)
        idle_seconds = 10
        before = cluster.cpu()
        time.sleep(idle_seconds)
        idle = (cluster.cpu() - before) / idle_seconds
        table = Table()
        disk_small = small(cluster, table, options.seconds)
        disk_large = others(cluster, table, options.seconds)
        with open("/proc/loadavg", encoding="utf-8") as file:
            load = file.read().split()[0]
        table.show()
        print(f"\nstart of the program to the first PUT: {cluster.start_seconds:.2f} s")
        print(f"idle after it: {resident >> 20} MiB resident, {idle * 100:.1f} % of a core")
        print(f"resident at most under this load: {cluster.memory('VmHWM') >> 20} MiB")
        print(f"disk allocated per byte stored, three copies: 4 KiB {disk_small:.2f}, 10 MiB {disk_large:.2f}")
        print(f"load average at the end: {load}")
    finally:
        cluster.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
