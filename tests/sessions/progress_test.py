#!/usr/bin/env python3
"""Loops over progress() in cells: the events of --json and the lines that stay, from a script and from a built file.

    progress_test.py LOCKSTEP"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

LOCKSTEP = os.path.abspath(sys.argv.pop(1))

SCRIPT = """\
// %% a count
for (auto i : progress(30, "count")) std::this_thread::sleep_for(std::chrono::milliseconds(10 + 10 * rank));
std::cout << "after it\\n";
// %% a range that is kept, and one that is changed
std::vector<int> numbers = {1, 2, 3};
for (int& number : progress(numbers, "changed")) number *= 2;
int sum = 0;
for (auto [k, v] : progress(std::map<int, int>{{1, 10}, {2, 20}}, "map")) sum += v;
std::cout << numbers[2] << " " << sum << "\\n";
// %% a loader, which has no size
auto data = torch::data::datasets::TensorDataset(torch::arange(12)).map(torch::data::transforms::Stack<torch::data::TensorExample>());
auto loader = torch::data::make_data_loader(std::move(data), 4);
int64_t seen = 0;
for (auto& batch : progress(*loader, "loader")) seen += batch.data.size(0);
for (auto& batch : progress(*loader, {.label = "of three", .total = 3})) seen += batch.data.size(0);
std::cout << seen << "\\n";
// %% left early
for (auto i : progress(5, "break"))
  if (i == 3) break;
// %% thrown in the middle tags=["raises-exception"]
for (auto i : progress(5, "throw"))
  if (i == 2) throw std::runtime_error("bad batch");
// %% loops in a loop
for (auto epoch : progress(2, "outer"))
  for (auto i : progress(3, "inner")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
// %% some ranks
%%rank [1]
for (auto i : progress(2, "one rank")) (void)i;
// %% many short loops
for (int k = 0; k < 2000; ++k)
  for (auto i : progress(1, "short")) (void)i;
// %% nothing to do
for (auto i : progress(-3, "none")) std::cout << "never\\n";
// %% a name of one's own
int progress = 7;
progress
"""


class Progress(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.script = str(pathlib.Path(cls.folder.name) / "script.cpp")
        pathlib.Path(cls.script).write_text(SCRIPT)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_file(self, path):
        events = pathlib.Path(self.folder.name) / "events.json"
        result = subprocess.run([LOCKSTEP, "run", path, "-n", "2", "--json", str(events)], stdin=subprocess.DEVNULL, timeout=300,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**os.environ, "NO_COLOR": "1", "LC_ALL": "C.UTF-8"})
        self.assertEqual(result.returncode, 0, result.stdout)
        self.lines = result.stdout.splitlines()
        self.events = [json.loads(line) for line in events.read_text().splitlines()]
        return result.stdout

    def loop(self, label):
        """The events of the loops with this label, by loop."""
        loops = {}
        for event in self.events:
            if event["event"] == "progress" and event["label"] == label:
                loops.setdefault(event["loop"], []).append(event)
        return list(loops.values())

    def line(self, label):
        """The line that a loop leaves, without the times."""
        found = [line for line in self.lines if f"│ {label}  " in line]
        self.assertEqual(len(found), 1, (label, self.lines))
        return found[0].split(" [")[0]

    def check(self, path):
        text = self.run_file(path)
        (count,) = self.loop("count")
        self.assertEqual(count[-1]["state"], "completed")
        self.assertEqual(count[-1]["done"], {"0": 30, "1": 30})
        self.assertEqual(count[-1]["total"], {"0": 30, "1": 30})
        self.assertEqual([event["state"] for event in count[:-1]], ["running"] * (len(count) - 1))
        self.assertGreater(count[-1]["elapsed_s"]["1"], count[-1]["elapsed_s"]["0"])
        for before, after in zip(count, count[1:]):
            for rank in before["done"]:
                self.assertLessEqual(before["done"][rank], after["done"][rank])
        self.assertTrue(any(0 < event["done"].get("1", 0) < 30 for event in count), "reported while it runs")
        self.assertEqual(self.line("count"), "0-1 │ count  100% 30/30")
        self.assertEqual(self.line("changed"), "0-1 │ changed  100% 3/3")
        self.assertEqual(self.line("map"), "0-1 │ map  100% 2/2")
        self.assertIn("0-1 │ 6 30\n", text)
        self.assertEqual(self.line("loader"), "0-1 │ loader  3 it")
        self.assertEqual(self.loop("loader")[0][-1]["total"], {})
        self.assertEqual(self.line("of three"), "0-1 │ of three  100% 3/3")
        self.assertIn("0-1 │ 24\n", text)
        self.assertEqual(self.line("break"), "0-1 │ break  stopped at 60% 3/5")
        self.assertEqual(self.line("throw"), "0-1 │ throw  stopped at 40% 2/5")
        self.assertEqual(self.line("outer"), "0-1 │ outer  100% 2/2")
        self.assertNotIn("inner", "".join(line for line in self.lines if "│" in line))
        (outer,) = self.loop("outer")
        inner = self.loop("inner")
        self.assertEqual(len(inner), 2)
        for events in inner:
            self.assertEqual({event["parent"] for event in events}, {outer[0]["loop"]})
            self.assertEqual(events[-1]["ranks"], [0, 1])
        self.assertEqual(self.line("one rank"), "1   │ one rank  100% 2/2")
        self.assertLess(len(self.loop("short")), 200, "ranks limit what they report")
        self.assertEqual(self.line("none"), "0-1 │ none  100% 0/0")
        self.assertNotIn("never", [line.split("│ ")[-1] for line in self.lines])
        self.assertIn("0-1 = 7\n", text)
        self.assertTrue([line for line in self.lines if line.endswith("│ after it")])

    def test_a_script(self):
        self.check(self.script)

    def test_a_built_file(self):
        built = str(pathlib.Path(self.folder.name) / "script.lockstep")
        subprocess.run([LOCKSTEP, "build", self.script, "-o", built, "-n", "2"], check=True, timeout=300,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.check(built)


if __name__ == "__main__":
    unittest.main()
