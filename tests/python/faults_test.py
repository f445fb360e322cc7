"""The faults of tests/faults in Python jobs: the same findings as in sessions, by inspector, verdict, ranks, object,
tensor or operator, and step. The healthy twins: no fault."""

import re
import sys
import unittest

from ranks import HERE, TREE, run_job

FAULTS = TREE / "tests" / "faults"
JOB = (HERE / "jobs" / "faults.py").read_text()
TWINS = (HERE / "jobs" / "healthy.py").read_text()


def ranks_in(text):
    result = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        result += range(int(first), int(last or first) + 1)
    return result


def cases(source):
    return re.findall(r"^@case\ndef (\w+)", source, re.MULTILINE)


def ranks_of(path):
    return int(re.search(r"^// ranks: (\d+)", path.read_text(), re.MULTILINE).group(1))


def here(name):
    """The line of the case that is marked."""
    lines = JOB.splitlines()
    start = lines.index(f"def {name}(rank, size):")
    return next(number for number in range(start, len(lines)) if "# <- here" in lines[number]) + 1


def matches(finding, wanted, name):
    """What the finding has otherwise than the `expect:` line of the session script; None if it fits."""
    inspector, verdict = wanted[0].split(":")
    if (finding["inspector"], finding["verdict"]) != (inspector, verdict):
        return f"{finding['inspector']}:{finding['verdict']}"
    tensors = [each["name"] for each in finding["tensors"]]
    for each in wanted[1:]:
        key, value = each.split("=")
        found, expected = {
            "kind": lambda: (finding["kind"], value),
            "ranks": lambda: (finding["ranks"], ranks_in(value)),
            "reference": lambda: (finding["reference_ranks"], ranks_in(value)),
            "object": lambda: (finding["object"], value),
            "tensor": lambda: (tensors[:1], [value]),
            "tensors": lambda: (sorted(tensors), sorted(value.split(","))),
            "step": lambda: (finding["step"], int(value)),
            "op": lambda: (finding["op"] and finding["op"]["name"], value),
            "where": lambda: (finding["where"], f"faults.py, line {here(name)}"),
        }[key]()
        if found != expected:
            return f"{key} is {found}, not {expected}"
    return None


# What a user of Python can't type: names of C++, options of magics.
CPP = re.compile(r"\b(dist|ddp|inspect|torch|std)::|set_seed|\(true\)|--[a-z]|%[a-z]+ (on|off)")


class Faults(unittest.TestCase):
    def assert_python(self, findings):
        self.assertEqual([each["message"] for each in findings if CPP.search(each["message"])], [])

    def run_job(self, script, ranks, *names):
        """What each rank has found, and what the job has written. tests/hosts/inspectors_test.py has other ones."""
        return run_job(script, ranks, *names)

    def check(self, ranks):
        names = [each for each in cases(JOB) if ranks_of(FAULTS / f"{each}.cpp") == ranks]
        self.assertTrue(names)
        results, output = self.run_job("faults.py", ranks, *names)
        printed = 0
        for name in names:
            with self.subTest(name):
                for of_rank in results:
                    self.assertIsInstance(of_rank[name], list, of_rank[name])
                script = (FAULTS / f"{name}.cpp").read_text()
                severity = re.search(r"^// severity: (\w+)", script, re.MULTILINE)
                found = [each for of_rank in results for each in of_rank[name]]
                self.assert_python(found)
                for line in re.findall(r"^// expect: (.*)", script, re.MULTILINE):
                    wanted = line.split()
                    fits = [each for each in found if matches(each, wanted, name) is None]
                    why = "\n".join(f"{matches(each, wanted, name)}: {each['message']}" for each in found)
                    self.assertTrue(fits, f"{line}\n{why}\n{output[-2000:] if not found else ''}")
                    self.assertEqual({each["severity"] for each in fits}, {severity.group(1) if severity else "fault"})
                faults = {each["message"] for each in found if each["severity"] == "fault"}
                self.assertEqual([output.count(f": {each}\n") for each in faults], [1] * len(faults), "not printed once")
                printed += len(faults)
        self.assertEqual(output.count("✗"), printed, output)

    def test_two_ranks(self):
        self.check(2)

    def test_three_ranks(self):
        self.check(3)

    def test_healthy_twins(self):
        names = cases(TWINS)
        results, _ = self.run_job("healthy.py", 2, *names)
        for name in names:
            with self.subTest(name):
                for of_rank in results:
                    self.assertIsInstance(of_rank[name], list, of_rank[name])
                    self.assertEqual([each["message"] for each in of_rank[name] if each["severity"] == "fault"], [])
                    self.assert_python(of_rank[name])
                self.assertTrue(any(of_rank[name] for of_rank in results), "no inspector said anything")


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
