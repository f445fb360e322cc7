// What a cell may say: any mix of declarations, statements and includes, and what is kept between cells.
#include "tests/compiler/transcript.h"

namespace lockstep::compiler_test {
namespace {

TEST(Language, StatementsAndValues) {
  check_transcript({
      {"int x = 42; auto capture = [&]() { return x * 2; }; printf(\"capture %d\\n\", capture());", "capture 84\n"},
      {"x", "=> 42\n"},
      {"x;", ""},
      {"x + 1;\nx + 2", "=> 44\n"},
      {"[&]{ printf(\"lambda %d\\n\", x); }();", "lambda 42\n"},
      {"{ int loc = 3; auto h = [&]{ loc++; }; h(); printf(\"loc=%d\\n\", loc); }", "loc=4\n"},
      {"for (int i = 0; i < 2; i++) { auto h = [&]{ return i; }; static int cnt; cnt += 10; printf(\"%d %d\\n\", h(), "
       "cnt); }",
       "0 10\n1 20\n"},
      {"void nothing() {}\nnothing()", ""},
      {"int z = x + 1; z", "=> 43\n"},
      {"std::string(\"text\")", "=> \"text\"\n"},
      {"std::vector<int>{1, 2, 3}", "=> {1, 2, 3}\n"},
      {"x == 42 ? 1.5 : 2.5", "=> 1.5\n"},
      {"x = 7", "=> 7\n"},
      {"// only a comment", ""},
      {"", ""},
      {"/* a */ x /* b */ // c", "=> 7\n"},
      {"if (x) printf(\"yes\\n\"); else printf(\"no\\n\");", "yes\n"},
      {"return;", ""},
      {"do { --x; } while (x > 5); x", "=> 5\n"},
      {"switch (x) { case 5: printf(\"five\\n\"); break; default: printf(\"other\\n\"); }", "five\n"},
      {"try { throw 1; } catch (int i) { printf(\"caught %d\\n\", i); }", "caught 1\n"},
      {"std::cout << \"no value\\n\"", "no value\n"},
      {"alignas(64) float aligned[16];\nsizeof(aligned)", "=> 64\n"},
      {"asm volatile(\"nop\");", ""},
      {"struct Bits { int a : 3; unsigned b : 5; } bits{1, 9};\nbits.b", "=> 9\n"},
  });
}

// A cell's variables are global to C++, and local to those who paste the body of a main().
TEST(Language, Captures) {
  check_transcript({
      {"int base = 4; bool down = true; auto [p, q] = std::pair(1, 2);", ""},
      {"auto v = 2 * [&] { return base; }();\nv", "=> 8\n"},
      {"int a[] = {[&] { return base; }()};\na[0]", "=> 4\n"},
      {"struct Ops { std::function<int(int)> f; } ops{[=](int a) { return a + base; }};\nops.f(1)", "=> 5\n"},
      {"auto& out = std::cout << [&] { return base; }() << \"\\n\";", "4\n"},
      {"bool less = 3 < [=] { return base; }();\nless", "=> true\n"},
      {"std::function<int(int)> ff[2] = {[&](int a) { return a + base; }, [&, base](int a) { return a - base; }};\n"
       "ff[0](2) * 10 + ff[1](5)",
       "=> 61\n"},
      {"std::vector<int> list{3, 1, 2};\n"
       "std::sort(list.begin(), list.end(), [down](int a, int b) { return down ? a > b : a < b; });\nlist",
       "=> {3, 2, 1}\n"},
      {"{ auto l = [&base, down] { ++base; return down; }; l(); }\nbase", "=> 5\n"},
      {"auto copy = [base] { return base; }; auto same = [&base] { return base; }; base = 100; copy() + same()",
       "=> 105\n"},
      {"for (int i = 0; i < 2; ++i) { auto f = [i, base, p] { return i + base + p; }; printf(\"%d \", f()); }",
       "101 102 "},
      {"int outer(int k) { auto f = [k, &base] { return k + base; }; return f(); }\nouter(1)", "=> 101\n"},
      {"auto nested = [base] { return [base] { return base; }(); };\nnested()", "=> 100\n"},
      {"auto wrong = [nowhere] {};", "error: nowhere"},
  });
}

TEST(Language, LambdasInClassesOfAnyForm) {
  check_transcript({
      {"struct A final { int go() { return [] { return 1; }(); } };\nA().go()", "=> 1\n"},
      {"class alignas(16) B { public: int go() { return [] { return 2; }(); } };\nB().go()", "=> 2\n"},
      {"struct __attribute__((packed)) C { int go() { auto f = [&] { return 3; }; return f(); } };\nC().go()",
       "=> 3\n"},
      {"struct Base {};\nstruct D final : Base { int n = [] { return 4; }(); };\nD().n", "=> 4\n"},
      {"struct E final { std::function<int()> f; } e{[] { return 5; }};\ne.f()", "=> 5\n"},
  });
}

// Who names a private member is known when its declaration has been read.
TEST(Language, MembersOfPrivateClassesAreDefinedOutsideOfThem) {
  check_transcript({
      {"class O { class I { public: I(); ~I(); int n; }; public: int go() { return I().n; } };\n"
       "O::I::I() : n(5) {}\nO::I::~I() {}\nO().go()",
       "=> 5\n"},
      {"class P { class Q {}; Q make(); static int hidden; public: static int count() { return hidden; } };\n"
       "P::Q P::make() { return {}; }\nint P::hidden = 6;\nP::count()",
       "=> 6\n"},
      {"P::Q q;", "error: 'Q' is a private member of 'P'"},
      {"P::Q()", "error: 'Q' is a private member of 'P'"},
      {"P::hidden", "error: 'hidden' is a private member of 'P'"},
      {"P::hidden = 7;", "error: 'hidden' is a private member of 'P'"},
  });
}

// Programs and headers that are pasted into a cell.
TEST(Language, APastedMainReturnsZero) {
  check_transcript({
      {"int main() { printf(\"hello\\n\"); }\nmain()", "hello\n=> 0\n"},
      {"int main(int argc, char** argv) { if (argc > 1) return 3; }\nmain(1, nullptr) * 10 + main(2, nullptr)",
       "=> 3\n"},
      {"auto main() -> int { while (true) break; }\nmain()", "=> 0\n"},
      {"int main() try { throw 1; } catch (int) { printf(\"caught \"); } catch (...) { return 5; }\nmain()",
       "caught => 0\n"},
      {"static int main() noexcept { }\nmain()", "=> 0\n"},
      {"void main() { printf(\"void\\n\"); }\nmain()", "void\n"},
      {"auto main() { printf(\"auto\\n\"); }\nmain()", "auto\n"},
      {"int main();\nint main() { return 4; }\nint code = main();\ncode", "=> 4\n"},
  });
  CellSession session;
  EXPECT_EQ(session.run("int main() { }").compiled.rendered, "") << "no warning of a missing return either";
  EXPECT_NE(session.run("int other() { }").compiled.rendered.find("does not return a value"), std::string::npos);
}

TEST(Language, PragmasOfAPastedHeader) {
  check_transcript({
      {"#pragma once\nint once = 1; once", "=> 1\n"},
      {"#pragma once\nonce + 1", "=> 2\n"},
      {"_Pragma(\"once\") once", "=> 1\n"},
      {"#pragma GCC system_header\nint q = 2; q", "=> 2\n"},
      {"#pragma clang system_header\nq", "=> 2\n"},
      {"int r = 1;\n#embed \"data\"", "error: a cell is not a file"},
      {"module pasted;\nint r = 1;", "error: a cell is not a module"},
      {"export module pasted.part;", "error: a cell is not a module"},
      {"int module = 3, embed = 4;\nmodule + embed", "=> 7\n"},
      {"once + q", "=> 3\n"},
  });
}

TEST(Language, StateBetweenCells) {
  check_transcript({
      {"static int sv = 7; namespace { int av = 9; int g() { return av; } }", ""},
      {"sv++; av++; printf(\"%d %d\\n\", sv, g());", "8 10\n"},
      {"printf(\"%d %d\\n\", sv, av);", "8 10\n"},
      {"int counter() { static int n = 0; return ++n; }\ncounter()", "=> 1\n"},
      {"counter()", "=> 2\n"},
      {"auto tick = [n = 0]() mutable { return ++n; }; tick()", "=> 1\n"},
      {"tick()", "=> 2\n"},
      {"auto with_static = [] { static int n = 10; return ++n; }; with_static()", "=> 11\n"},
      {"with_static()", "=> 12\n"},
      {"thread_local int t = 5; t", "=> 5\n"},
      {"t += 1; t", "=> 6\n"},
      {"const int kk = 5; constexpr double dd = 2.5; static const char* nm = \"hi\"; const std::string s = \"const\";",
       ""},
      {"printf(\"%d %g %s %s %d\\n\", kk, dd, nm, s.c_str(), &kk == &kk);", "5 2.5 hi const 1\n"},
      {"const int* where = &kk;", ""},
      {"where == &kk", "=> true\n"},
      {"inline int iv = 3; iv += 1; iv", "=> 4\n"},
      {"iv", "=> 4\n"},
      {"struct Counted { static inline int made = 0; Counted() { ++made; } }; Counted a, b;", ""},
      {"Counted c; Counted::made", "=> 3\n"},
      {"template <class T> struct Holder { static int n; }; template <class T> int Holder<T>::n = 40;", ""},
      {"Holder<int>::n += 1; Holder<int>::n", "=> 41\n"},
      {"Holder<int>::n + 1", "=> 42\n"},
      {"int& ref = iv; ref = 9;", ""},
      {"iv", "=> 9\n"},
  });
}

TEST(Language, LambdasAtCellLevel) {
  check_transcript({
      {"std::vector<int> v{3, 1, 2}; std::function<int(int)> fn; int x = 10;", ""},
      {"std::sort(v.begin(), v.end(), [](int a, int b) { return a > b; }); v", "=> {3, 2, 1}\n"},
      {"std::for_each(v.begin(), v.end(), [&](int a) { printf(\"%d \", a); }); printf(\"\\n\");", "3 2 1 \n"},
      {"fn = [&](int a) { return a + x; }; fn(1)", "=> 11\n"},
      {"std::function<int(int)> fib = [&](int k) { return k < 2 ? k : fib(k - 1) + fib(k - 2); }; fib(10)", "=> 55\n"},
      {"auto outer = [=](int a) { auto inner = [&] { return a + x; }; return inner(); }; outer(5)", "=> 15\n"},
      {"auto generic = [&](auto a) { return a + x; }; generic(2.5)", "=> 12.5\n"},
      {"generic(1)", "=> 11\n"},
      {"const auto later = [&, y = x + 1] { return y; }; later()", "=> 11\n"},
      {"std::vector<std::function<int()>> many{[&] { return x; }, [=] { return x + 1; }}; many[1]()", "=> 11\n"},
      {"std::vector<std::function<int()>> made; for (int i = 0; i < 3; ++i) made.push_back([=] { return i; });", ""},
      {"made[2]()", "=> 2\n"},
      {"auto add(int n) { return [=](int a) { return a + n; }; }\nauto add3 = add(3); add3(4)", "=> 7\n"},
      {"add3(5)", "=> 8\n"},
  });
}

TEST(Language, Types) {
  check_transcript({
      {"struct Base { virtual int f() { return 1; } virtual ~Base() = default; };", ""},
      {"struct Derived : Base { int f() override { return 2; } };", ""},
      {"std::unique_ptr<Base> p = std::make_unique<Derived>(); p->f()", "=> 2\n"},
      {"dynamic_cast<Derived*>(p.get()) != nullptr", "=> true\n"},
      {"struct V2 { virtual void f(); virtual ~V2() = default; };\nvoid V2::f() { printf(\"V2::f\\n\"); }\nV2* v2 = "
       "new V2; v2->f();",
       "V2::f\n"},
      {"struct Late { int f(); };", ""},
      {"int Late::f() { return 11; }", ""},
      {"Late().f()", "=> 11\n"},
      {"enum class Colour { red, green }; enum { kOne = 1, kTwo };", ""},
      {"static_cast<int>(Colour::green) + kTwo", "=> 3\n"},
      {"using Ints = std::vector<int>; typedef std::map<std::string, int> Counts;", ""},
      {"Ints is{4}; Counts cs{{\"a\", 1}}; is[0] + cs[\"a\"]", "=> 5\n"},
      {"union U { int i; float f; }; U u{7}; u.i", "=> 7\n"},
      {"struct { int a = 3; } anonymous; anonymous.a", "=> 3\n"},
      {"anonymous.a + 1", "=> 4\n"},
      {"typedef struct { int b; } Named; Named named{6}; named.b", "=> 6\n"},
      {"class Private { int hidden = 8; friend int peek(const Private& p) { return p.hidden; } };", ""},
      {"peek(Private())", "=> 8\n"},
      {"struct P { int x, y; }; P pt{1, 2}; auto [px, py] = pt; px + py", "=> 3\n"},
      {"px * 10 + py", "=> 12\n"},
      {"std::ostream& operator<<(std::ostream& s, const P& p) { return s << p.x << ',' << p.y; }", ""},
      {"pt", "=> 1,2\n"},
      {"P operator+(P a, P b) { return {a.x + b.x, a.y + b.y}; }\npt + pt", "=> 2,4\n"},
  });
}

TEST(Language, Templates) {
  check_transcript({
      {"template <class T> T tt(T a) { return a; }\ntt(3)", "=> 3\n"},
      {"tt(2.5)", "=> 2.5\n"},
      {"template <> int tt<long>(long a) { return a; }", "error: no function template matches"},
      {"template <class T> T uu(T a) { return a; }\ntemplate <> int uu<int>(int a) { return a + 100; }\nuu(3)",
       "=> 103\n"},
      {"template <class T> struct Box { T v; T twice() const { return v + v; } };\nBox<int>{4}.twice()", "=> 8\n"},
      {"template <class T> Box(T) -> Box<T>;\nBox{2.5}.twice()", "=> 5\n"},
      {"template <> struct Box<bool> { int v; const char* twice() const { return \"bool\"; } };\nBox<bool>{1}.twice()",
       "=> \"bool\"\n"},
      {"template <class T> concept Number = std::is_arithmetic_v<T>;\ntemplate <Number T> T half(T a) { return a / 2; "
       "}\nhalf(9)",
       "=> 4\n"},
      {"half(9.0)", "=> 4.5\n"},
      {"template <class T> constexpr T pi = T(3.25);\npi<double>", "=> 3.25\n"},
      {"template <class... A> auto sum(A... a) { return (a + ...); }\nsum(1, 2, 3.5)", "=> 6.5\n"},
      {"consteval int square(int a) { return a * a; }\nconstexpr int nine = square(3); nine", "=> 9\n"},
      {"static_assert(nine == 9); long double operator\"\"_km(long double v) { return v * 1000; }\n2.5_km",
       "=> 2500\n"},
      {"static_cast<int>(1.0_km)", "=> 1000\n"},
      {"std::vector<int> evens; for (int i : std::views::iota(0, 6) | std::views::filter([](int i) { return i % 2 == "
       "0; })) evens.push_back(i);\nevens",
       "=> {0, 2, 4}\n"},
  });
}

TEST(Language, Coroutines) {
  check_transcript({
      {"#include <coroutine>\n"
       "struct Gen { struct promise_type { int value; Gen get_return_object() { return "
       "{std::coroutine_handle<promise_type>::from_promise(*this)}; }\n"
       "  std::suspend_always initial_suspend() { return {}; } std::suspend_always final_suspend() noexcept { return "
       "{}; }\n"
       "  std::suspend_always yield_value(int v) { value = v; return {}; } void return_void() {} void "
       "unhandled_exception() {} };\n"
       "  std::coroutine_handle<promise_type> h; int next() { h.resume(); return h.promise().value; } };",
       ""},
      {"Gen count() { for (int i = 1;; ++i) co_yield i; }\nauto gen = count(); gen.next()", "=> 1\n"},
      {"gen.next() + gen.next()", "=> 5\n"},
  });
}

TEST(Language, PreprocessorAndNamespaces) {
  check_transcript({
      {"#define FOO 3\n#ifdef FOO\nint ppv = FOO;\n#endif\nppv", "=> 3\n"},
      {"#define TWICE(x) ((x) * 2)\nTWICE(FOO)", "=> 6\n"},
      {"TWICE(ppv) + FOO", "=> 9\n"},
      {"namespace outer { int a = 1; namespace inner { int f() { return a + 1; } } }", ""},
      {"outer::inner::f()", "=> 2\n"},
      {"namespace outer { int b = a + 10; }\nouter::b", "=> 11\n"},
      {"namespace oi = outer::inner;\noi::f()", "=> 2\n"},
      {"using outer::b;\nb", "=> 11\n"},
      {"using namespace std; vector<int> w(3, 1); w.size()", "=> 3\n"},
      {"string word = \"w\"; rank", "=> 0\n"},
      {"int count = 5; int data = 6; count + data", "=> 11\n"},
      {"world_size", "=> 1\n"},
      {"std::rank<int[2][3]>::value", "=> 2\n"},
      {"using namespace torch; auto on = torch::device(kCPU); device", "=> cpu\n"},
      {"extern \"C\" int plain_c(int a) { return a + 1; }\nplain_c(1)", "=> 2\n"},
      {"extern \"C\" int plain_c(int a) { return a + 2; }\nplain_c(1)", "=> 3\n"},
      {"plain_c(2)", "=> 4\n"},
  });
}

TEST(Language, NamesOfTheCLibrary) {
  check_transcript({
      {"int index = 5; int time = 7; double y1 = 2.5; int read = 3;", ""},
      {"printf(\"%d %d %g %d\\n\", index, time, y1, read);", "5 7 2.5 3\n"},
      {"int main() { return 12; }\nmain()", "=> 12\n"},
      {"void main(int a) { printf(\"%d\\n\", a); }\nmain(3);", "3\n"},
      {"int remove(const char* name) { return 99; }\nremove(\"no-such-file\")", "=> 99\n"},
      {"remove(\"x\") + main()", "=> 111\n"},
  });
}

TEST(Language, Exceptions) {
  check_transcript({
      {"throw std::runtime_error(\"bad\");", "! std::runtime_error: bad\n"},
      {"struct Mine : std::runtime_error { using std::runtime_error::runtime_error; };", ""},
      {"try { throw Mine(\"m\"); } catch (const std::exception& e) { printf(\"%s\\n\", e.what()); }", "m\n"},
      {"void thrower() { throw Mine(\"from a function\"); }", ""},
      {"try { thrower(); } catch (const Mine& e) { printf(\"caught %s\\n\", e.what()); }", "caught from a function\n"},
      {"torch::ones({2, 3}).view({7});", "! c10::Error: shape '[7]' is invalid for input of size 6\n"},
      {"printf(\"on\\n\");", "on\n"},
  });
}

}  // namespace
}  // namespace lockstep::compiler_test
