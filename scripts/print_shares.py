#!/usr/bin/env python3
"""What each suite of tests took, beside the share of all tests' time that it may take (tests/shares.txt); then, last, so
that the end of a log has it, which tests failed and the end of what they printed.

    print_shares.py JUNIT.XML…       # what ctest --output-junit wrote

It prints and judges nothing: machines differ in speed, and shares do not depend on it.
"""
import collections
import pathlib
import sys
import xml.etree.ElementTree

LINES_OF_FAILED = 25
REST = 1.0  # percent, of a suite that has no line of its own


def main():
    if len(sys.argv) < 2:
        sys.exit("print_shares.py: expected JUNIT.XML…")
    shares = {}
    for line in (pathlib.Path(__file__).resolve().parent.parent / "tests/shares.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            suite, percent = line.split()
            shares[suite] = float(percent)
    seconds, tests = collections.Counter(), collections.Counter()
    slowest, failed = {}, []
    for case in (case for file in sys.argv[1:] for case in xml.etree.ElementTree.parse(file).iter("testcase")):
        suite = case.get("name").split(":")[0]
        took = float(case.get("time"))
        seconds[suite] += took
        tests[suite] += 1
        slowest[suite] = max(slowest.get(suite, (0, "")), (took, case.get("name")))
        if case.find("failure") is not None:
            failed.append((case.get("name"), case.findtext("system-out") or ""))
    total = sum(seconds.values()) or 1
    print(f"{'suite':13}{'tests':>6}{'seconds':>9}{'of all':>8}{'share':>7}  slowest")
    for suite, took in seconds.most_common():
        part, share = 100 * took / total, shares.get(suite, REST)
        mark = "  over its share" if part > 1.2 * share else ""
        print(f"{suite:13}{tests[suite]:6}{took:9.1f}{part:7.1f}%{share:6.0f}%  {slowest[suite][1]} {slowest[suite][0]:.0f} s{mark}")
    print(f"{'all':13}{sum(tests.values()):6}{total:9.1f}")
    for name, output in failed:
        print(f"\nfailed: {name}")
        print("\n".join("  | " + line for line in output.rstrip().splitlines()[-LINES_OF_FAILED:]))


if __name__ == "__main__":
    main()
