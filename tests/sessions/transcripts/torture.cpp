// run: -n 3

// %%
#include <vector>
#include <algorithm>
#include <functional>
#include <stdexcept>
std::vector<int> v{3,1,2}; std::function<int(int)> fn;

// %%
int x = 42; auto capture = [&]() { return x * 2; }; printf("capture %d\n", capture());

// %% tags=["raises-exception"]
void foo() { int x = 5;

// %% tags=["raises-exception"]
try { throw 1; } catch { 0; }

// %%
[&]{ printf("stmt lambda x=%d\n", x); }();

// %%
{ int loc=3; auto h=[&]{ loc++; }; h(); printf("loc=%d\n", loc); }

// %%
for(int i=0;i<2;i++){ auto h=[&]{ return i; }; static int cnt; cnt+=10; printf("%d cnt %d\n", h(), cnt); }

// %%
std::sort(v.begin(), v.end(), [](int a,int b){return a>b;}); printf("%d\n", v[0]); std::for_each(v.begin(), v.end(), [&](int a){ printf("%d ", a); }); printf("\n");

// %%
static int sv = 7; namespace { int av = 9; int g(){ return av; } }

// %%
sv++; av++; printf("%d %d\n", sv, g());

// %%
printf("sv %d (want 8) av %d (want 10)\n", sv, av);

// %%
int y = 1; struct Net { int a=1; int f(){ return a; } }; Net n1; int twice(int a){ return 2*a; } 

// %%
printf("y=%d f=%d twice=%d\n", y, n1.f(), twice(3));

// %%
double y = 2.5; struct Net { double a=7.5; double f(){ return a; } }; int twice(int a){ return 20*a; } Net n2;

// %%
printf("y=%f f=%f old f=%d twice=%d\n", y, n2.f(), n1.f(), twice(3));

// %% tags=["raises-exception"]
int z = x + undefined_thing;

// %%
int z = x + 1; z

// %%
x

// %%
auto [p, q] = std::pair<int,double>{1,2.5}; if (p) printf("p=%d q=%f\n", p, q); else printf("no\n");

// %%
#define FOO 3
#ifdef FOO
int ppv = FOO;
#endif
for (auto a : v) {
  if (a == 1) continue;
  printf("a=%d\n", a);
}
// done

// %%
template<class T> T tt(T a) { return a; }
tt(3)

// %%
struct V2 { virtual void f(); virtual ~V2() = default; };
void V2::f() { printf("V2::f\n"); }
V2* v2 = new V2; v2->f();

// %% tags=["raises-exception"]
throw std::runtime_error("bad");

// %%
using namespace std; vector<int> w(3, 1); printf("%zu\n", w.size());

// %%
int a1 = 1, b1 = a1 + 1; const int kk = 5; constexpr double dd = 2.0; static const char* nm = "hi"; printf("%d %d %d %s\n", a1, b1, kk, nm);

// %%
return;

// %%
fn = [&](int a){ return a + x; }; fn(1)

// %%
std::function<int(int)> fib = [&](int k){ return k < 2 ? k : fib(k-1) + fib(k-2); }; fib(10)

