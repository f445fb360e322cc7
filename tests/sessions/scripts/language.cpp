// %% [markdown]
// # The language at the prompt
// Every construct that people type into cells, in one session.

// %% macros live on
#include <algorithm>
#include <coroutine>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <ranges>
#include <set>
#include <thread>
#include <variant>
#define EXPECT(condition) \
  if (!(condition)) throw std::logic_error("not so: " #condition)

// %% a value, shown
int x = 42;
x

// %% a statement and an expression that is void show nothing
x += 0;
std::sort(static_cast<int*>(nullptr), static_cast<int*>(nullptr))

// %% lambdas in variables, statements and algorithms
auto capture = [&] { return x * 2; };
EXPECT(capture() == 84);
auto by_value = [=](int k) { return k + x; };
EXPECT(by_value(1) == 43);
auto generic = [](auto a, auto b) { return a + b; };
EXPECT(generic(1, 2.5) == 3.5);
EXPECT(generic(std::string("a"), "b") == "ab");
[&] { EXPECT(x == 42); }();
std::vector<int> v{3, 1, 2};
std::sort(v.begin(), v.end(), [](int a, int b) { return a > b; });
v

// %% lambdas of an earlier cell see the variables they were made with
x = 7;
EXPECT(capture() == 14);
EXPECT(generic(2, 2) == 4);

// %% recursion through a function object
std::function<long(int)> fibonacci = [&](int k) { return k < 2 ? long{k} : fibonacci(k - 1) + fibonacci(k - 2); };
fibonacci(20)

// %% blocks, loops, statics inside them
{
  int local = 3;
  auto inner = [&] { local++; };
  inner();
  EXPECT(local == 4);
}
int rounds = 0;
for (int i = 0; i < 3; ++i) {
  static int count = 0;
  count += 10;
  rounds = count;
}
EXPECT(rounds == 30);
do {
  --rounds;
} while (rounds > 25);
while (rounds > 20) rounds--;
if (rounds == 20)
  rounds = 1;
else
  rounds = 2;
switch (rounds) {
  case 1: rounds = 100; break;
  default: rounds = -1;
}
try {
  throw 5;
} catch (int thrown) {
  rounds += thrown;
}
rounds

// %% variables of a cell's own kind keep their value
static int kept_static = 7;
namespace {
int kept_unnamed = 9;
int next_unnamed() { return ++kept_unnamed; }
}  // namespace
thread_local int kept_thread = 5;

// %% they do
kept_static++;
kept_thread++;
EXPECT(next_unnamed() == 10);

// %% still
EXPECT(kept_static == 8);
EXPECT(kept_unnamed == 10);
EXPECT(kept_thread == 6);
int seen_by_other = 0;
std::thread([&] { seen_by_other = kept_thread; }).join();
EXPECT(seen_by_other == 5);

// %% a function with a static of its own
int next_number() {
  static int number = 0;
  return ++number;
}
next_number();

// %% goes on counting
EXPECT(next_number() == 2);

// %% first definitions
int y = 1;
struct Box {
  int a = 1;
  int get() const { return a; }
};
Box old_box;
int twice(int a) { return 2 * a; }
int call_twice(int a) { return twice(a); }
template <typename T>
T thrice(T a) {
  return 3 * a;
}
using Number = int;
enum class Colour { red, green };
enum Plain { first_plain, second_plain };
EXPECT(thrice(2) == 6);

// %% second definitions: other types, other bodies
double y = 2.5;
struct Box {
  double a = 7.5, b = 1;
  double get() const { return a + b; }
};
Box new_box;
int twice(int a) { return 20 * a; }
template <typename T>
T thrice(T a) {
  return 30 * a;
}
using Number = double;
enum class Colour { blue, yellow, black };
enum Plain { only_plain };

// %% new code sees the new ones, older code keeps the older
EXPECT(y == 2.5);
EXPECT(new_box.get() == 8.5);
EXPECT(old_box.get() == 1);
EXPECT(twice(3) == 60);
EXPECT(call_twice(3) == 6);
EXPECT(thrice(2) == 60);
EXPECT((std::is_same_v<Number, double>));
EXPECT(static_cast<int>(Colour::black) == 2);
EXPECT(only_plain == 0);

// %% a variable becomes a function, a function a type, a type a variable
int y(int a) { return a + 1; }
struct twice {
  int value = 4;
};
int Box = 3;

// %% and back
EXPECT(y(1) == 2);
EXPECT(twice{}.value == 4);
EXPECT(Box == 3);
EXPECT(old_box.get() == 1);

// %% overload sets grow
int area(int side) { return side * side; }

// %% by another signature
int area(int width, int height) { return width * height; }
std::string area(const std::string& name) { return "area of " + name; }

// %% and all of them are there
EXPECT(area(3) == 9);
EXPECT(area(3, 4) == 12);
EXPECT(area("x") == "area of x");

// %% one of them again
int area(int side) { return -side; }

// %% the others stay
EXPECT(area(3) == -3);
EXPECT(area(3, 4) == 12);

// %% forward declarations
struct Node;
int count_nodes(const Node* node);
Node* head = nullptr;

// %% are completed by a later cell
struct Node {
  int value;
  Node* next;
};
int count_nodes(const Node* node) { return node ? 1 + count_nodes(node->next) : 0; }
head = new Node{1, new Node{2, nullptr}};
EXPECT(count_nodes(head) == 2);

// %% out-of-line members
struct Shape {
  virtual double size() const;
  virtual ~Shape() = default;
  static int made;
  template <typename T>
  T as() const;
};
int Shape::made = 3;
double Shape::size() const { return 1; }
template <typename T>
T Shape::as() const {
  return static_cast<T>(size());
}

// %% inheritance and virtual calls across cells
struct Square : Shape {
  double side;
  explicit Square(double s) : side(s) {}
  double size() const override { return side * side; }
};
std::unique_ptr<Shape> shape = std::make_unique<Square>(3);
EXPECT(shape->size() == 9);
EXPECT(shape->as<int>() == 9);
EXPECT(Shape::made == 3);

// %% run-time type information and exceptions across cells
EXPECT(dynamic_cast<Square*>(shape.get()) != nullptr);
struct Trouble : std::runtime_error {
  using std::runtime_error::runtime_error;
  int code = 17;
};
void make_trouble() { throw Trouble("as ordered"); }

// %% are caught by their type
int code = 0;
try {
  make_trouble();
} catch (const Trouble& trouble) {
  code = trouble.code;
}
EXPECT(code == 17);
EXPECT(typeid(*shape) == typeid(Square));

// %% templates, their specialisations, variable templates, concepts
template <typename T>
struct Name {
  static std::string of() { return "something"; }
};
template <>
struct Name<int> {
  static std::string of() { return "int"; }
};
template <typename T>
constexpr T pi_of = T(3.14159L);
template <typename T>
concept Small = sizeof(T) <= 2;
template <typename T>
int size_class(T) {
  return 2;
}
template <Small T>
int size_class(T) {
  return 1;
}

// %% used and specialised in another cell
template <>
struct Name<double> {
  static std::string of() { return "double"; }
};
EXPECT(Name<int>::of() == "int");
EXPECT(Name<double>::of() == "double");
EXPECT(Name<char>::of() == "something");
EXPECT(pi_of<int> == 3);
EXPECT(size_class(short{1}) == 1);
EXPECT(size_class(1L) == 2);

// %% an explicit specialisation of a function template
template <typename T>
std::string say(T) {
  return "any";
}
template <>
std::string say(bool) {
  return "bool";
}
EXPECT(say(true) == "bool");
EXPECT(say(1) == "any");

// %% structured bindings
auto [first_part, second_part] = std::pair<int, double>{1, 2.5};
std::map<std::string, int> ages{{"ada", 36}, {"alan", 41}};
int years = 0;
for (const auto& [name, age] : ages) years += age;

// %% keep their names
EXPECT(first_part == 1);
EXPECT(second_part == 2.5);
EXPECT(years == 77);

// %% ranges
auto even_squares = std::views::iota(1, 10) | std::views::filter([](int k) { return k % 2 == 0; }) |
                    std::views::transform([](int k) { return k * k; });
std::vector<int> squares(even_squares.begin(), even_squares.end());
squares

// %% coroutines
struct Sequence {
  struct promise_type {
    int value = 0;
    Sequence get_return_object() { return Sequence{std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(int v) {
      value = v;
      return {};
    }
    void return_void() {}
    void unhandled_exception() { throw; }
  };
  std::coroutine_handle<promise_type> handle;
  explicit Sequence(std::coroutine_handle<promise_type> h) : handle(h) {}
  Sequence(Sequence&& other) : handle(std::exchange(other.handle, nullptr)) {}
  ~Sequence() {
    if (handle) handle.destroy();
  }
  std::optional<int> next() {
    handle.resume();
    return handle.done() ? std::nullopt : std::optional(handle.promise().value);
  }
};
Sequence count_to(int last) {
  for (int i = 1; i <= last; ++i) co_yield i;
}

// %% run across cells
auto sequence = count_to(3);
int sum = 0;
while (auto value = sequence.next()) sum += *value;
EXPECT(sum == 6);

// %% constexpr and consteval, with loops
constexpr int power(int base, int exponent) {
  int result = 1;
  for (int i = 0; i < exponent; ++i) result *= base;
  return result;
}
consteval int at_compile_time(int n) {
  int total = 0;
  while (n > 0) total += n--;
  return total;
}
constexpr int table[power(2, 3)] = {at_compile_time(4)};
static_assert(power(3, 4) == 81);
EXPECT(sizeof(table) / sizeof(int) == 8);
EXPECT(table[0] == 10);

// %% constants of a cell
const int kk = 5;
constexpr double dd = 2.0;
static const char* const words[] = {"zero", "one"};
int array_of_five[kk] = {1, 2, 3, 4, 5};

// %% in the next
EXPECT(kk + dd == 7);
EXPECT(std::string(words[1]) == "one");
EXPECT(std::accumulate(std::begin(array_of_five), std::end(array_of_five), 0) == 15);

// %% operators and literals
struct Metres {
  double value;
};
Metres operator+(Metres a, Metres b) { return {a.value + b.value}; }
Metres operator""_m(long double value) { return {static_cast<double>(value)}; }
std::ostream& operator<<(std::ostream& out, const Metres& m) { return out << m.value << " m"; }

// %% used later; a value with operator<< is shown by it
EXPECT((1.5_m + 2.0_m).value == 3.5);
1.5_m + 1.0_m

// %% an operator again: the newest wins, though argument-dependent lookup could find the older one
Metres operator+(Metres, Metres) { return {100}; }
std::ostream& operator<<(std::ostream& out, const Metres& m) { return out << "m " << m.value; }

// %% no ambiguity
EXPECT((1.0_m + 1.0_m).value == 100);
1.0_m

// %% a function on a type of an earlier cell, twice
int weigh(const Metres&) { return 1; }

// %% again
int weigh(const Metres&) { return 2; }
EXPECT(weigh(1.0_m) == 2);

// %% a class whose friend and nested class are found through it
struct Purse {
  struct Coin {
    int worth = 5;
  };
  std::vector<Coin> coins{Coin{}, Coin{}};
  friend int total(const Purse& purse) {
    int sum = 0;
    for (const auto& coin : purse.coins) sum += coin.worth;
    return sum;
  }
};
Purse purse;
EXPECT(total(purse) == 10);

// %% the same cell again, as people do who change a line
struct Purse {
  struct Coin {
    int worth = 50;
  };
  std::vector<Coin> coins{Coin{}, Coin{}};
  friend int total(const Purse& purse) {
    int sum = 0;
    for (const auto& coin : purse.coins) sum += coin.worth;
    return sum;
  }
};
Purse purse;
EXPECT(total(purse) == 100);

// %% names that libc has, too
int index = 5;
int time = 7;
double y1 = 2.5;
int read = 3;
int write = 4;
int main = 6;
int printf_count = 0;

// %% are ours
EXPECT(index == 5);
EXPECT(time == 7);
EXPECT(y1 == 2.5);
EXPECT(read + write == 7);
EXPECT(main == 6);

// %% main as a function
int main() { return 8; }

// %% is an ordinary name
EXPECT(main() == 8);

// %% namespaces, aliases and using declarations
namespace geometry {
namespace detail {
inline int corners = 4;
}
struct Point {
  int x, y;
};
int norm(Point p) { return p.x + p.y; }
}  // namespace geometry
namespace geo = geometry;

// %% can be opened again
namespace geometry {
int twice_norm(Point p) { return 2 * norm(p); }
}  // namespace geometry
using geometry::Point;
EXPECT(twice_norm(Point{1, 2}) == 6);
EXPECT(geo::detail::corners == 4);

// %% the cell with the namespace again, changed
namespace geometry {
namespace detail {
inline int corners = 5;
}
struct Point {
  int x, y;
};
int norm(Point p) { return 10 * (p.x + p.y); }
}  // namespace geometry
EXPECT(geometry::norm(geometry::Point{1, 2}) == 30);
EXPECT(geo::detail::corners == 5);

// %% a specialisation stays as long as its template tags=["raises-exception"]
template <>
struct Name<double> {
  static std::string of() { return "a double"; }
};

// %% with its template it is defined again
template <typename T>
struct Name {
  static std::string of() { return "anything"; }
};
template <>
struct Name<double> {
  static std::string of() { return "a double"; }
};
EXPECT(Name<double>::of() == "a double" && Name<int>::of() == "anything");

// %% using directives
using namespace std;
vector<int> w(3, 1);
string text = "abc";
EXPECT(w.size() == 3);
EXPECT(rank >= 0 && rank < world_size);
EXPECT(size(text) == 3);

// %% preprocessor lines
#ifdef EXPECT
int defined_here = 1;
#else
int defined_here = 2;
#endif
#define ADD(a, b) ((a) + (b))
EXPECT(ADD(defined_here, 1) == 2);
#undef ADD

// %% types without names, unions, bit fields, nested templates
struct {
  int left = 1, right = 2;
} pair_without_name;
union Either {
  int i;
  float f;
};
struct Flags {
  unsigned low : 3, high : 5;
};
template <template <typename...> class Container>
struct Holder {
  Container<int> items;
};
typedef std::map<std::string, std::vector<std::variant<int, std::string>>> Mixed;

// %% later
EXPECT(pair_without_name.left + pair_without_name.right == 3);
Either either{.i = 3};
EXPECT(either.i == 3);
Holder<std::vector> holder{{1, 2}};
EXPECT(holder.items.size() == 2);
Mixed mixed{{"a", {1, "two"}}};
EXPECT(mixed["a"].size() == 2);
Flags flags{5, 9};
EXPECT(flags.low == 5);

// %% extern "C", function pointers, attributes, alignment
extern "C" int c_function(int a) { return a + 100; }
int (*pointer)(int) = &c_function;
[[maybe_unused]] alignas(64) int aligned = 1;
EXPECT(pointer(1) == 101);
EXPECT(reinterpret_cast<uintptr_t>(&aligned) % 64 == 0);

// %% again, changed
extern "C" int c_function(int a) { return a + 200; }
EXPECT(c_function(1) == 201);
EXPECT(pointer(1) == 101);

// %% a variable takes the name of an enumerator, an enumerator that of a variable
int only_plain = 12;
enum Later { defined_here };
EXPECT(only_plain == 12);
EXPECT(defined_here == 0);

// %% typedef of an unnamed struct, twice
typedef struct {
  int one = 1;
} Unnamed;
Unnamed unnamed;

// %% again
typedef struct {
  int two = 2;
} Unnamed;
EXPECT(unnamed.one == 1);
EXPECT(Unnamed{}.two == 2);

// %% a class template and its specialisation again
template <typename T>
struct Kind {
  static constexpr int value = 1;
};
template <>
struct Kind<int> {
  static constexpr int value = 2;
};
template <typename T>
struct Kind<T*> {
  static constexpr int value = 3;
};
EXPECT(Kind<char>::value + Kind<int>::value + Kind<int*>::value == 6);

// %% changed
template <typename T>
struct Kind {
  static constexpr int value = 10;
};
template <>
struct Kind<int> {
  static constexpr int value = 20;
};
EXPECT(Kind<char>::value + Kind<int>::value + Kind<int*>::value == 40);

// %% references, moves, unique ownership
std::unique_ptr<int> owner = std::make_unique<int>(5);
int& reference = *owner;
auto moved = std::move(owner);

// %% hold
EXPECT(reference == 5);
EXPECT(!owner);
EXPECT(*moved == 5);

// %% a reference to a variable that is defined again goes on naming the old one
int counter = 1;
int& old_counter = counter;
auto add_one = [] { return ++counter; };

// %% the new one
int counter = 50;
EXPECT(add_one() == 2);
EXPECT(old_counter == 2);
EXPECT(counter == 50);

// %% deleting and creating again in one cell
delete head->next;
delete head;
head = nullptr;
EXPECT(count_nodes(head) == 0);

// %% raw strings, comments and odd ends
std::string raw = R"x(// %% not a marker { [ ( " )x";  // a comment with } ] )
/* and { one more */ EXPECT(raw.size() == 27);

// %% a comment alone
// nothing to do here

// %% threads, atomics and futures
#include <future>
std::atomic<int> hits{0};
std::vector<std::thread> threads;
for (int i = 0; i < 4; ++i) threads.emplace_back([] { hits++; });
for (auto& thread : threads) thread.join();
EXPECT(hits == 4);
EXPECT(std::async(std::launch::async, [] { return 6 * 7; }).get() == 42);

// %% fmt, whose headers LibTorch brings, and whose functions liblockstep has
#include <fmt/format.h>
EXPECT(fmt::format("{} {:.2f} {}", 1, 2.5, "x") == "1 2.50 x");

// %% the end
std::cout << "the language holds\n";
