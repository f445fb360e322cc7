"""What inspectors are given, on one rank: objects are read as they are, and nothing of them or of the random numbers
changes."""

import itertools
import random
import sys
import unittest
import warnings

import numpy
import torch

import lockstep
from lockstep.core import _library
from lockstep.subject import _describe, _step


class Sampler(torch.utils.data.Sampler):
    """It draws when it is asked for its iterator, not at the first sample."""

    def __init__(self):
        pass

    def __iter__(self):
        return iter(torch.randperm(5).tolist())


class Subjects(unittest.TestCase):
    def test_the_version(self):
        self.assertRegex(lockstep.__version__, r"^[0-9]+[.][0-9]+[.][0-9]+$")

    def test_reading_a_sampler_draws_nothing(self):
        before = torch.get_rng_state()
        report = lockstep.data(Sampler(), size=5)
        self.assertEqual(report.data["samples"], [5])
        self.assertTrue(torch.equal(before, torch.get_rng_state()))

    def test_reading_a_sampler_leaves_it_unchanged(self):
        class Shuffled(Sampler):
            def __init__(self):
                self.epoch, self.python, self.numpy = 0, random.Random(0), numpy.random.default_rng(0)

            def __iter__(self):
                self.epoch += 1
                order = list(range(8))
                self.python.shuffle(order)
                return iter([order[each] for each in self.numpy.permutation(8)])

        sampler = Shuffled()
        lockstep.data(sampler, size=8)
        self.assertEqual(sampler.epoch, 0)
        self.assertEqual(list(sampler), list(Shuffled()))

    def test_a_sampler_without_an_end(self):
        class Endless(Sampler):
            data_source = range(10)

            def __iter__(self):
                return itertools.count()

        with self.assertRaisesRegex(lockstep.ArgumentError, "goes on"):
            lockstep.data(Endless(), size=10)

    def test_integers_that_json_has_not(self):
        # On one rank nothing differs; the value has to arrive.
        self.assertEqual(_describe.describe([2**70, 1.5, -2**63], "x").json["items"][0]["value"],
                         [str(2**70), 1.5, -2**63])

    def test_arrays_of_numpy(self):
        values = numpy.arange(4, dtype=numpy.float32)
        read_only = values.copy()
        read_only.flags.writeable = False
        for each in (values, values[::-1], values.astype(">f4"), read_only, numpy.float32(0.5), numpy.str_("text")):
            with self.subTest(each), warnings.catch_warnings():
                warnings.simplefilter("error")
                self.assertTrue(lockstep.verify({"x": each}))
        with self.assertRaisesRegex(lockstep.ArgumentError, "ndarray"):
            lockstep.verify(values.astype(numpy.longdouble))

    def test_a_container_that_contains_itself(self):
        value = {}
        value["self"] = value
        with self.assertRaisesRegex(lockstep.ArgumentError, "contains itself"):
            lockstep.verify(value)

    def test_modes_of_modules_in_containers(self):
        net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
        net[1].eval()
        modes = [each for each in _describe.describe({"net": net, "other": [net[1]]}, "x").json["items"] if each["kind"] == "mode"]
        self.assertEqual([(each["name"], each["value"]) for each in modes],
                         [("net.training", "train(), 1 eval()"), ("other[0].training", "eval()")])
        self.assertTrue(lockstep.verify({"net": net}))

    def test_a_wrapper_that_is_compiled(self):
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        self.addCleanup(torch.distributed.destroy_process_group)
        wrapper = torch.nn.parallel.DistributedDataParallel(torch.nn.BatchNorm1d(2))
        for each in (wrapper, torch.compile(wrapper, backend="eager")):
            description = _describe.describe(each, "x").json
            self.assertEqual([item["name"] for item in description["items"][:2]], ["weight", "bias"])
            self.assertTrue(description["buffers_are_written"])
            self.assertTrue(_describe.describe([each, torch.nn.Linear(2, 2)], "x").json["buffers_are_written"])
            self.assertFalse(_describe.describe([each, torch.nn.BatchNorm1d(2)], "x").json["buffers_are_written"])
            self.assertEqual(_describe.ranks_of(each), [0])
            self.assertIs(_describe.bare(each), wrapper.module)
            self.assertEqual(_step.ddp_among([wrapper.module, each]), [wrapper])
            with wrapper.no_sync():
                each(torch.ones(2, 2)).sum().backward()
            self.assertTrue(_describe.gradients(each, "x", _describe.Tensors())["wrapper"]["last_forward_was_local"])

    def test_a_learning_rate_that_is_a_tensor_is_restored(self):
        net = torch.nn.Linear(2, 2)
        rate = torch.tensor(0.5)
        optimizer = torch.optim.Adam(net.parameters(), lr=rate)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

        def step():
            optimizer.zero_grad()
            net(torch.ones(2)).sum().backward()
            optimizer.step()
            scheduler.step()

        lockstep.nan_trace(step, net, optimizer, scheduler)
        self.assertEqual(optimizer.param_groups[0]["lr"].item(), 0.5)
        self.assertIs(optimizer.param_groups[0]["lr"], rate)

    def test_a_state_that_can_not_be_restored(self):
        class Scheduler:
            def state_dict(self):
                return {}

            def load_state_dict(self, _):
                raise ValueError("no way back")

        net = torch.nn.Linear(2, 2)
        state = random.getstate()
        with self.assertRaisesRegex(ValueError, "no way back"):
            lockstep.time_sync(lambda synchronise: random.random(), net, Scheduler(), steps=1)
        self.assertEqual(random.getstate(), state)  # what can be restored is

    def test_a_fault_that_another_call_publishes(self):
        net = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with lockstep.nan_watch(net, optimizer, raise_on_fault=True):
            (net(torch.ones(2)).sum() * float("nan")).backward()
            lockstep.memory()
            with self.assertRaises(lockstep.FaultFound) as raised:
                optimizer.step()
        self.assertEqual(type(raised.exception).__module__, "lockstep")

    def test_steps_are_counted_while_a_watch_is_open(self):
        def steps():
            optimizer.step()
            return _library.call("steps")["steps"]

        net = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        before = _library.call("steps")["steps"]
        with self.assertRaises(lockstep.ArgumentError):
            lockstep.nan_watch(optimizer, "x")
        self.assertEqual(steps(), before)
        with lockstep.nan_watch(optimizer), lockstep.watch(net, optimizer):
            self.assertEqual(steps(), before + 1)
        self.assertEqual(steps(), before + 1)

    def test_a_watch_that_is_closed(self):
        net = torch.nn.Linear(2, 2)
        watching = lockstep.nan_watch(net)
        self.assertEqual(watching.status()["bad_steps"], 0)
        watching.close()
        with self.assertRaisesRegex(lockstep.ArgumentError, "closed"):
            watching.status()


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
