// Cells with LibTorch, in one file because its headers take long: what they show, what they see, and collectives for two
// ranks.
#include <csignal>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <variant>

#include "tests/worker/cells/fixture.h"
#include "worker/cell/cell.h"

inline namespace __cell_3 {
struct Plain {
  int x = 1;
};
struct Net : torch::nn::Module {
  Net() { register_module("fc", torch::nn::Linear(2, 1)); }
};
struct Point {
  int x, y;
};
enum class Colour { red, green };
enum Flag { off, on };
}  // namespace __cell_3
inline std::ostream& operator<<(std::ostream& stream, const Point& p) {
  return stream << "(" << p.x << ";" << p.y << ")";
}

template <typename T>
static void last(T&& value) {
  lockstep::show_value<3>(value);
}

static void numbers() {
  last(42);
  last(uint64_t{18446744073709551615u});
  last(0.1);
  last(0.1f);
  last(true);
  last('c');
  last('\n');
  last(std::numeric_limits<double>::quiet_NaN());
}
static void texts() {
  last("abc");
  last(std::string("say \"hi\"\n"));
  last(static_cast<const char*>(nullptr));
}
static void containers() {
  last(std::vector<int>{1, 2, 3});
  last(std::vector<bool>{true, false});
  last(std::map<std::string, std::vector<double>>{{"a", {1, 2.5}}, {"b", {}}});
  last(std::map<int, int>{{1, 2}});
  last(std::tuple<int, std::string>{1, "x"});
  last(std::optional<int>{});
  last(std::optional<int>{5});
  last(std::variant<int, std::string>{"v"});
  last(std::make_shared<int>(7));
  last(std::vector<int>(5000, 0));
}
static void tensors() {
  last(torch::ones({2, 2}));
  last(torch::tensor(2.5));
  last(torch::zeros({1000}));
  last(torch::Tensor());
  last(torch::nested::nested_tensor(std::vector<torch::Tensor>{torch::ones({2}), torch::zeros({1})}));
  last(torch::eye(2).to_sparse_csr());
  last(torch::eye(2).to_sparse_csc());
}
static void classes() {
  last(Net());
  last(std::make_shared<Net>());
  last(torch::nn::Linear(3, 2));
  last(Plain());
  last(Point{1, 2});
  last(Colour::green);
  last(on);
  last(std::chrono::milliseconds(1500));
}
static void nothings() {
  last(std::cout << "streamed");
}
static void in_between() {
  printf("before");
  show(1);
  printf("after");
  show(2);
}
static void names() {
  printf("%d %d %d %d %d %s ", rank, world_size, local_rank, node_rank, gpu_id, device.str().c_str());
  const int ranks = get("ws");
  printf("%d %d %d ", ranks, static_cast<int>(get("rank")), get("pg")->getSize());
  printf("%d %s %d %s", arg("epochs", 1), arg("epochs").c_str(), arg("depth", 9), arg("name", "none").c_str());
}
static void unknown_argument() { arg("lost"); }
static void unknown_get() { get("all"); }
static void seeds() {
  set_seed(7);
  const auto a = torch::rand({3});
  const int b = std::rand();
  set_seed(7);
  last(torch::equal(a, torch::rand({3})) && b == std::rand());
}
static void torch_error() { torch::ones({2, 3}).matmul(torch::ones({2, 3})); }
static void type_name() { std::cout << Net() << " " << c10::demangle(typeid(Plain).name()); }

CELL(numbers, numbers);
CELL(texts, texts);
CELL(containers, containers);
CELL(tensors, tensors);
CELL(classes, classes);
CELL(nothings, nothings);
CELL(in_between, in_between);
CELL(names, names);
CELL(unknown_argument, unknown_argument);
CELL(unknown_get, unknown_get);
CELL(seeds, seeds);
CELL(torch_error, torch_error);
CELL(type_name, type_name);

inline torch::Tensor kept;  // inline: one for all copies of this library

#line 1 "cell_7.cpp"
static void sums() {
  kept = torch::full({2}, rank + 1.0);
  dist::all_reduce(kept);
  printf("%g", kept[0].item<double>());
}
static void skips() { if (rank == 0) dist::barrier(); }
static void waits_for_one() {
  if (rank == 0)
    dist::barrier();
  else
    for (;;) { POLL(); }
}
static void throws_on_one() {
  if (rank == 1) throw std::runtime_error("only here");
  dist::all_reduce(kept);
}
static void differs() {
  auto t = torch::ones({rank == 0 ? 2 : 3});
  dist::all_reduce(t);
}
static void dies() {
  if (rank == 1) raise(SIGKILL);
  dist::barrier();
}
static void shows_kept() { printf("%g", kept[0].item<double>()); }
CELL(sums, sums);
CELL(skips, skips);
CELL(waits_for_one, waits_for_one);
CELL(throws_on_one, throws_on_one);
CELL(differs, differs);
CELL(dies, dies);
CELL(shows_kept, shows_kept);
