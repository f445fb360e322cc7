// run: -n 2 --keep-going
// exit: 1
// %% [markdown]
// # What the compiler has to say
// %% an error inside of a template of another cell
template <typename T>
auto twice(T t) {
  return t.nope();
}
// %%
int z = 1;
twice(z);
// %% a header that is missing
std::async([] { return 1; });
// %%
std::regex pattern("a");
// %% a name of the standard library without std
using namespace std;
latch gate(2);
// %% return, and what the session gives
return 5;
// %%
rank = 5;
// %% a value that is thrown away
[[nodiscard]] int must_be_looked_at() { return 1; }
must_be_looked_at();
// %% an assertion in a function of a cell, on one rank
#include <cassert>
int checked(int x) {
  assert(x > 2);
  return x;
}
%rank 0 checked(1)
// %% and in the cell itself
assert(rank == 0);
