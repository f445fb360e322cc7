"""Records: what one program measured once. They are the lines of the JSON file that tools/bench writes.

    {"subject": "lockstep", "what": "cell.value", "ranks": 2, "unit": "ms", "values": [7.1, ...], "round": 1}
"""
import json
import statistics


def parse(text):
    """The records among a program's lines; other lines are for people."""
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"')]


class Results:
    def __init__(self):
        self.records = []

    def add(self, records):
        self.records += records

    def values(self, subject, what, ranks):
        return [v for r in self.records if (r["subject"], r["what"], r["ranks"]) == (subject, what, ranks) for v in r["values"]]

    def median(self, subject, what, ranks):
        """None where nothing was measured."""
        values = self.values(subject, what, ranks)
        return statistics.median(values) if values else None

    def percentile_95(self, subject, what, ranks):
        """The value that 19 of 20 do not exceed. None where nothing was measured."""
        values = sorted(self.values(subject, what, ranks))
        return values[-(-len(values) * 19 // 20) - 1] if values else None

    def unit(self, subject, what):
        return next(r["unit"] for r in self.records if (r["subject"], r["what"]) == (subject, what))

    def kinds(self):
        """(subject, what, ranks) of all records, in the order in which they came."""
        return list(dict.fromkeys((r["subject"], r["what"], r["ranks"]) for r in self.records))
