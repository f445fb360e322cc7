#!/usr/bin/env python3
"""%checkpoint writes the names of a session, %restore reads them in another one. Usage: checkpoint_test.py LOCKSTEP
[TEST...]"""
import pathlib
import sys
import tempfile

from faults_test import Session, check, run_tests
from restart_test import lines_by_rank

NAMES = """// %% names
set_seed(7);
enum class Mode { fast, slow };
Mode mode = Mode::fast;
torch::nn::Sequential net(torch::nn::Linear(8, 16), torch::nn::BatchNorm1d(16), torch::nn::Dropout(0.2), torch::nn::Linear(16, 4));
auto model = ddp::DistributedDataParallel(net, ddp::Options().bucket_cap_mb(0.001));
torch::optim::Adam optimizer(model.parameters(), torch::optim::AdamOptions(0.01));
int step = 0;
double worst = 0;
std::vector<double> losses;
std::map<std::string, int> counts;
auto shard = torch::full({3}, double(rank));
auto alias = shard;
auto view = torch::zeros({1000})[5];
auto grid = torch::zeros({3, 2});
auto column = grid.select(1, 0);
auto& function = std::puts;
std::vector<torch::Tensor> list{torch::ones({2}), torch::Tensor()};
std::function<int()> callback = [] { return 1; };
auto closure = [] { return 1; };
void train(int steps) {
  for (int i = 0; i < steps; ++i, ++step) {
    optimizer.zero_grad();
    auto loss = model(torch::randn({8, 8}) + rank).square().mean();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
}
"""
NUMBERS = b"\x00\x00\x80\x3f" * 2  # of the tensor in `list`
FIRST = """// %% first half
train(5);
mode = Mode::slow;
worst = -INFINITY;
counts["x"] = 3;
shard += 1;
view += 2;
column += 4;
list[1] = torch::zeros({2});
list.push_back(torch::ones({1}, torch::requires_grad()));
net->eval();
net[3]->train();
"""
SECOND = """// %% second half
std::printf("names %d %g %d %g %g %d\\n", int(mode), worst, counts["x"], alias.sum().item<double>(), view.item<double>(), int(list[1].numel()));
std::printf("views %g %g %d\\n", column.sum().item<double>(), (column.fill_(7), grid.sum().item<double>()), int(list[2].requires_grad()));
std::printf("training %d %d %d\\n", int(net->is_training()), int(net[1]->is_training()), int(net[3]->is_training()));
net->train();
train(5);
std::printf("losses %d %.17g\\n", step, losses.back()); std::cout << std::flush;
// %% verify
%verify optimizer
"""


def session(script, *options):
    run = Session(script, "--keep-going", *options)
    run.finish()
    return run


def save(folder, ranks=3):
    run = session(NAMES + FIRST + f"// %% save\n%checkpoint {folder}\n" + SECOND, "-n", str(ranks))
    said = values(run)
    check(f"written to {folder}: {ranks} files" in said, f"{said} {run.events}")
    check("function: its type, int (char const*), can't be written" in said, said)
    check("callback: its type, std::function<int ()>, can't be written" in said and "closure" not in said, said)
    return run


def values(run):
    return "\n".join(e["text"] for e in run.of("value"))


def errors(run):
    return "\n".join(e["message"] for e in run.of("error"))


def test_training_goes_on_in_another_session_bit_for_bit():
    with tempfile.TemporaryDirectory() as folder:
        first = save(f"{folder}/a/run")
        second = session(NAMES + f"// %% load\n%restore {folder}/a/run\n" + SECOND, "-n", "3")
        for begin in ("names", "views", "training", "losses"):
            found = lines_by_rank(first, begin)
            check(len(found) == 3, f"{found}")
            check(lines_by_rank(second, begin) == found, f"{found} {lines_by_rank(second, begin)} {second.events}")
        check(lines_by_rank(first, "names")[2] == ["names 1 -inf 3 9 2 2"], f"{lines_by_rank(first, 'names')}")
        check(lines_by_rank(first, "views")[2] == ["views 12 21 1"], f"{lines_by_rank(first, 'views')}")
        check(lines_by_rank(first, "training")[2] == ["training 0 0 1"], f"{lines_by_rank(first, 'training')}")
        check([e["verdict"] for e in second.of("finding")] == ["ok"], f"{second.of('finding')}")


def test_what_does_not_fit_is_named():
    with tempfile.TemporaryDirectory() as folder:
        save(folder)
        other = NAMES.replace("Linear(16, 4)", "Linear(16, 5)").replace("int step", "long step").replace("double worst = 0;", "")
        run = session(other.replace("step, losses", "int(step), losses") +
                      f"// %% load\n%restore {folder}\n// %% then\n" +
                      'std::printf("then %d %d %d\\n", int(step), counts["x"], int(torch::isfinite(net->parameters()[4]).all().item<bool>())); std::cout << std::flush;\n',
                      "-n", "3")
        said = values(run)
        for part in ("left out: optimizer: it stepped parameters of other shapes or types", "left out: net: 3.weight was not there, or had another shape or type", "left out: step: its type was int, and is long",
                     "left out: worst: no variable has the name", "left out: callback: it is not in the checkpoint"):
            check(part in said, f"{part}: {said} {run.events}")
        check(lines_by_rank(run, "then")[0] == ["then 0 3 1"], f"{run.events}")


def test_files_that_are_no_checkpoint():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in ("good", "newer"):
            save(folder / name, 2)
        good = [(folder / "good" / f"rank{rank}.pt").read_bytes() for rank in range(2)]

        def damaged(name, *files):
            (folder / name).mkdir()
            for rank, content in enumerate(files):
                (folder / name / f"rank{rank}.pt").write_bytes(content)
            return name

        def flipped(part, places=1):
            """With another byte in a part that the file has once, or in the numbers of a tensor."""
            content = bytearray(good[1])
            content[content.index(part) + places] ^= 0xFF
            return bytes(content)

        cases = {
            "nowhere": "there is no",
            damaged("one", good[0]): "rank 1: there is no",
            damaged("torn", good[0], good[1][:-100]): "rank1.pt is no checkpoint of a session, or is damaged",
            damaged("empty", good[0], b""): "is damaged",
            damaged("text", b"hello", good[1]): "is damaged",
            damaged("list", good[0], flipped(b'"names"')): "rank1.pt is no checkpoint of a session, or is damaged",
            damaged("numbers", good[0], flipped(NUMBERS, 2)): "its bytes are not those that were written",
            damaged("mixed", good[0], (folder / "newer" / "rank1.pt").read_bytes()): "its files are of different checkpoints",
        }
        script = NAMES
        for name in cases:
            script += f"// %% {name}\n%restore {folder / name}\n"
        script += "// %% unchanged\n" + 'std::printf("names %d\\n", int(mode)); std::cout << std::flush;\n'
        run = session(script, "-n", "2")
        for name, part in cases.items():
            found = "\n".join(e["message"] for e in run.of("error") if f"{folder / name}:" in e["message"])
            check(part in found, f"{name}: {part}: {found} {run.events}")
        check(len(run.of("error")) == len(cases), f"{run.of('error')}")
        check(lines_by_rank(run, "names") == {0: ["names 0"], 1: ["names 0"]}, f"{run.events}")
        run = session(NAMES + f"// %% load\n%restore {folder / 'good'}\n", "-n", "3")
        check("it is of 2 ranks, and the session has 3" in errors(run), errors(run))


def test_a_place_that_can_not_be_written():
    with tempfile.TemporaryDirectory() as folder:
        save(folder, 2)
        before = sorted((each.name, each.read_bytes()) for each in pathlib.Path(folder).iterdir())
        (pathlib.Path(folder) / "rank1.pt.new").mkdir()
        run = session(NAMES + f"// %% save\n%checkpoint {folder}\n// %% save\n%checkpoint {folder}/rank0.pt\n"
                      "// %% save\n%checkpoint\n", "-n", "2")
        found = errors(run)
        check("the checkpoint could not be written, and files that were there are unchanged:\nrank 1: " in found, found)
        check(f"{folder}/rank0.pt: " in found and "FOLDER" in found, found)
        (pathlib.Path(folder) / "rank1.pt.new").rmdir()
        after = sorted((each.name, each.read_bytes()) for each in pathlib.Path(folder).iterdir())
        check(after == before, f"{[name for name, _ in after]}")


if __name__ == "__main__":
    sys.exit(run_tests(globals()))
