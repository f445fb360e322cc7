// run: -n 2

// %% types of people
struct Item { int a = 1; double b = 2.5; std::string c = "x"; };
struct Inner { int q; };
struct Outer { Inner in; int list[3]; Inner two[2]; std::vector<int> more; const char* text; };
struct Node { int value; std::shared_ptr<Node> next; };
struct Packed { int a : 3; unsigned b : 5; };
struct Held { const int& where; std::unique_ptr<int> own; };
struct Hidden { explicit Hidden(int x) : x_(x) {} private: int x_; };
struct Base { int b; }; struct Derived : Base { int d; };
struct Empty {};
union Either { int i; float f; };
enum class Colour { red, green = 5, blue };
enum Flag { off, on = 4096 };
std::vector<int> v{3, 1, 2};
std::set<int> set{1, 2};
std::map<std::string, int> table;

// %% what changes containers gives an iterator
set.insert(3)

// %%
table.emplace("a", 1)

// %%
std::minmax_element(v.begin(), v.end())

// %%
v.begin()

// %% pairs and tuples, with parts that have no operator<<
std::pair{1, Item{}}

// %%
std::pair<std::string, std::string>{"a", "b"}

// %%
std::tuple<std::string, int>{"a", 1}

// %% a list is a list
std::initializer_list<int>{5, 6, 7}

// %% lambdas, generic ones too, and members
[](auto x) { return x.nowhere(); }

// %%
[](int x) { return x; }

// %%
&Item::a

// %%
&torch::nn::LinearImpl::reset

// %% texts of all kinds
u8"ü"

// %%
L"wide ü"

// %%
std::u16string(u"\u00fc\U0001f600")

// %%
char letters[3] = {'a', 'b', 'c'};
letters

// %% enumerators by their names
Colour::green

// %%
static_cast<Colour>(77)

// %%
on

// %% aggregates with their fields
Item{}

// %%
Outer{{1}, {1, 2, 3}, {{4}, {5}}, {7}, "s"}

// %%
Packed{1, 2}

// %%
Held{v[0], std::make_unique<int>(5)}

// %%
std::vector<Item>(2)

// %%
std::map<std::string, Item>{{"k", {}}}

// %%
Empty{}

// %% an object that holds itself ends somewhere
auto ring = std::make_shared<Node>(Node{1, nullptr}); ring->next = ring;
std::cout << std::string("reached") << '\n';
auto shown = ring->next->next->value;
show(ring);
ring->next = nullptr;

// %% others by their types
Hidden(3)

// %%
Derived{{1}, 2}

// %%
Either{1}

// %% exceptions with their texts
std::runtime_error("what it says")

// %%
std::make_exception_ptr(std::out_of_range("held"))

// %% complex numbers have two parts
torch::ones({2, 3}, torch::kComplexFloat) * c10::complex<float>(1, -2)

// %%
torch::tensor(2.5).to(torch::kComplexDouble)

// %%
torch::ones({2}, torch::kComplexFloat).mul(c10::complex<float>(0, 1)).conj()

// %% tensors without elements
torch::empty({2, 3}, torch::kMeta)

// %% names as people write them
std::function<int(std::string)>()

// %%
std::chrono::steady_clock::time_point()

// %%
std::chrono::system_clock::time_point()

// %%
typeid(std::map<std::string, std::vector<int>>)

// %% and other things of the standard library
std::queue<int>({1, 2})

// %%
std::vector<bool>{true, false}[0]

// %%
std::any(3)

// %%
std::atomic<bool>(true)

// %%
1 <=> 2

// %%
static_cast<__int128>(1) << 100

// %%
std::optional<Item>{Item{}}

// %%
std::variant<int, Item>{Item{}}

// %%
torch::data::Example<>{torch::tensor(1), torch::tensor(2)}

// %% what does not compile costs the value, not the cell
struct Broken {};
template <typename T> std::ostream& operator<<(std::ostream& stream, const T& value) requires std::same_as<T, Broken> { return stream << value.nowhere; }
int before = 1;
before = 2;
Broken()

// %%
std::vector<Broken>(1)

// %%
before

// %% what compiles and throws is an error as ever tags=["raises-exception"]
struct Thrower {};
std::ostream& operator<<(std::ostream& stream, Thrower) { throw std::logic_error("no text"); }
Thrower()
