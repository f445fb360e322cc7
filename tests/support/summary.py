#!/usr/bin/env python3
"""Sums up a run of ctest: the tests that have passed at the second try only, the 20 slowest, and the counts.

    summary.py OUTPUT RESULTS

OUTPUT is what ctest has printed. RESULTS is the folder in which the shares of programs leave the results of single
tests (run_share.py); these stand for the share. Ends with 1 if a test has passed at the second try only.
"""
import pathlib
import re
import sys

# " 12/2135 Test   #7: NAME ....   Passed    0.21 sec", or "***Failed", "***Skipped" and so on; "12/2135" is missing at
# the second try.
LINE = re.compile(r"Test +#\d+: (\S+) .*?(Passed|\*\*\*.+?) +([\d.]+) sec")


def results_of_ctest(text):
    """The result and the seconds of each test."""
    results = {}
    for line in text.splitlines():
        if not (found := LINE.search(line)):
            continue
        name, word, seconds = found[1], found[2].strip("*"), float(found[3])
        if word == "Passed":
            result = "again" if results.get(name, ("",))[0] == "failed" else "passed"
        else:
            result = "skipped" if word in ("Skipped", "Not Run (Disabled)") else "failed"
        results[name] = (result, seconds)
    return results


def summary(text, folder):
    results = results_of_ctest(text)
    for share in pathlib.Path(folder).iterdir():
        of_share = [line.split() for line in share.read_text().splitlines()]
        whole = results.pop(share.name, None)
        if whole and whole[0] in ("failed", "again") and whole[0] not in (result for result, _, _ in of_share):
            results[share.name] = whole  # it has failed, and none of its tests
        results.update({name: (result, float(seconds)) for result, seconds, name in of_share})
    again = sorted(name for name, (result, _) in results.items() if result == "again")
    if again:
        print(f"==> Passed at the second try only: {', '.join(again)}")
    print("==> The 20 slowest tests")
    for name, (_, seconds) in sorted(results.items(), key=lambda each: -each[1][1])[:20]:
        print(f"{seconds:.2f} s  {name}")
    count = [result for result, _ in results.values()]
    passed = count.count("passed") + len(again)
    print(f"{passed} passed, {count.count('failed')} failed, {count.count('skipped')} skipped")
    return bool(again)


if __name__ == "__main__":
    sys.exit(summary(pathlib.Path(sys.argv[1]).read_text(), sys.argv[2]))
